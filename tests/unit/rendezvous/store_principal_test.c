/* Principals in the store, and that removed secrets are gone from its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

struct found {
    bool are_all; /* no row was left out */
    uint32_t count;
    struct store_principal items[4];
};

static void keep(const struct store_principal *principal, void *context)
{
    struct found *found = context;

    CHECK(found->count < 4);
    found->items[found->count++] = *principal;
}

static struct found read_all(struct store *store)
{
    struct found found = {0};

    found.are_all = store_principals(store, keep, &found);
    return found;
}

static struct store_principal make(const char *name, enum role role, uint32_t secret_count)
{
    struct store_principal one = {.role = role,
                                  .created_ms = 1700000000001,
                                  .rotated_ms = secret_count == 2 ? 1700000000002 : 0,
                                  .secret_count = secret_count};

    (void)snprintf(one.name, sizeof one.name, "%s", name);
    for (uint32_t i = 0; i < secret_count; i++) {
        memset(one.secrets[i].bytes, 'A' + (int)i, KEY_SECRET_BYTES);
        one.secrets[i].bytes[KEY_SECRET_BYTES - 1] = 0;
        one.secrets[i].until_ms = i == 0 ? 0 : 1800000000000;
    }
    return one;
}

static void check_same(const struct store_principal *one, const struct store_principal *other)
{
    CHECK_STR(one->name, other->name);
    CHECK_EQ(one->role, other->role);
    CHECK_EQ(one->created_ms, other->created_ms);
    CHECK_EQ(one->rotated_ms, other->rotated_ms);
    CHECK_EQ(one->seen_ms, other->seen_ms);
    CHECK_EQ(one->secret_count, other->secret_count);
    for (uint32_t i = 0; i < one->secret_count; i++) {
        CHECK(memcmp(one->secrets[i].bytes, other->secrets[i].bytes, KEY_SECRET_BYTES) == 0);
        CHECK_EQ(one->secrets[i].until_ms, other->secrets[i].until_ms);
    }
}

TEST(principals_are_kept)
{
    struct store *store = open_or_fail(test_dir());
    struct store_principal node = make("n1", ROLE_NODE, 1), ann = make("ann", ROLE_ADMIN, 2);
    struct found found;

    store_begin(store);
    store_write_principal(store, &node);
    store_write_principal(store, &ann);
    store_close(&store);
    store = open_or_fail(test_dir());
    found = read_all(store);
    CHECK_EQ(found.count, 2);
    CHECK(found.are_all);
    check_same(&found.items[0], &ann);
    check_same(&found.items[1], &node);
    store_begin(store);
    node = make("n1", ROLE_NODE, 2); /* rotated */
    store_write_principal(store, &node);
    store_write_seen(store, "ann", 77);
    store_write_seen(store, "nobody", 77);
    ann.seen_ms = 77;
    store_close(&store);
    store = open_or_fail(test_dir());
    found = read_all(store);
    check_same(&found.items[0], &ann);
    check_same(&found.items[1], &node);
    store_begin(store);
    store_drop_principal(store, "n1");
    store_drop_principal(store, "nobody");
    store_close(&store);
    store = open_or_fail(test_dir());
    found = read_all(store);
    CHECK_EQ(found.count, 1);
    check_same(&found.items[0], &ann);
    store_close(&store);
}

TEST(malformed_rows_are_left_out)
{
    static const char three_secrets[] =
        "INSERT INTO secrets SELECT 'n1', 8, secret, 0 FROM secrets WHERE principal = 'n1';"
        "INSERT INTO secrets SELECT 'n1', 9, secret, 0 FROM secrets WHERE place = 8";
    static const char *const damages[] = {
        "UPDATE secrets SET secret = x'00' WHERE principal = 'n1'",
        "UPDATE secrets SET until_ms = -1 WHERE principal = 'n1'",
        "DELETE FROM secrets WHERE principal = 'n1'",
        "UPDATE principals SET role = 'king' WHERE name = 'n1'",
        "UPDATE principals SET seen_ms = -5 WHERE name = 'n1'",
        three_secrets,
        "UPDATE principals SET name = 'n 1' WHERE name = 'n1'",
        "UPDATE principals SET name = '' WHERE name = 'n1'",
    };

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct store *store = open_or_fail(test_dir());
        struct store_principal bad = make("n1", ROLE_NODE, 1), good = make("zoe", ROLE_USER, 1);
        struct found found;

        store_begin(store);
        store_write_principal(store, &bad);
        if (i == 0)
            store_write_principal(store, &good);
        store_close(&store);
        execute(damages[i]);
        store = open_or_fail(test_dir());
        found = read_all(store);
        if (found.count != 1)
            FAIL("%s: %u are left", damages[i], found.count);
        check_same(&found.items[0], &good);
        if (found.are_all)
            FAIL("%s: nobody is told that a key was left out", damages[i]);
        store_begin(store);
        store_drop_principal(store, "n1");
        store_close(&store);
        execute("DELETE FROM principals WHERE name <> 'zoe'");
    }
}

static bool file_has(const char *what)
{
    static char bytes[1 << 24];
    char path[512];
    bool has = false;
    size_t count;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/state.db", test_dir());
    file = fopen(path, "rb");
    CHECK(file != NULL);
    count = fread(bytes, 1, sizeof bytes, file);
    CHECK(count < sizeof bytes);
    has = memmem(bytes, count, what, strlen(what)) != NULL;
    (void)fclose(file);
    return has;
}

/* The file is as private as the keys that are valid; the old ones need not stay in it. */
TEST(a_removed_secret_is_overwritten)
{
    struct store *store = open_or_fail(test_dir());
    struct store_principal node = make("n1", ROLE_NODE, 1);

    store_begin(store);
    store_write_principal(store, &node);
    store_close(&store); /* the last connection moves the log into the file */
    CHECK(file_has("AAAAAAAAAAAAAAAA"));
    store = open_or_fail(test_dir());
    store_begin(store);
    store_drop_principal(store, "n1");
    store_close(&store);
    CHECK(!file_has("AAAAAAAAAAAAAAAA"));
}

TEST_MAIN
