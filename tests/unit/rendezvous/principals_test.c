/* The principals in memory: names, secrets, their ends. */
#include "rendezvous/server/principals.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static struct principals principals;

static struct principal *add(const char *name, enum role role, int64_t now_ms)
{
    struct principal *added = NULL;

    CHECK_EQ(principals_add(&principals, name, role, now_ms, &added, NULL), STATUS_OK);
    CHECK_STR(added->stored.name, name);
    return added;
}

/* What a client with that secret would say. */
static void identity_of(const char *name, const uint8_t secret[KEY_SECRET_BYTES],
                        char identity[KEY_IDENTITY_BYTES_MAX])
{
    struct key key = {.server = "h:1"};

    (void)snprintf(key.name, sizeof key.name, "%s", name);
    memcpy(key.secret, secret, KEY_SECRET_BYTES);
    CHECK_EQ(key_identity(&key, identity, NULL), STATUS_OK);
}

static bool is_known(const char *name, const uint8_t secret[KEY_SECRET_BYTES], int64_t now_ms)
{
    char identity[KEY_IDENTITY_BYTES_MAX];
    uint8_t found[KEY_SECRET_BYTES];

    identity_of(name, secret, identity);
    if (!principals_secret(&principals, identity, strlen(identity), now_ms, found))
        return false;
    CHECK(memcmp(found, secret, KEY_SECRET_BYTES) == 0);
    return true;
}

TEST(names_are_in_order_and_unique)
{
    static const char *const names[] = {"n2", "ann", "zoe", "n1", "n10", "Bob"};
    struct principal *unused;
    struct err err;
    uint32_t at = 0;
    char last[NODE_NAME_BYTES_MAX] = "";

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)add(names[i], i % 2 == 0 ? ROLE_NODE : ROLE_USER, 5);
    CHECK_EQ(principals_add(&principals, "ann", ROLE_NODE, 5, &unused, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "ann") != NULL);
    CHECK_EQ(principals.count, 6);
    for (uint32_t count = 0; count < 6; count++) { /* as pages of one */
        at = principals_after(&principals, last);
        CHECK(at < principals.count);
        CHECK(strcmp(principals.items[at].stored.name, last) > 0);
        (void)snprintf(last, sizeof last, "%s", principals.items[at].stored.name);
    }
    CHECK_EQ(principals_after(&principals, last), principals.count);
    CHECK(principals_find(&principals, "n") == NULL);
    principals_remove(&principals, principals_find(&principals, "n1"));
    CHECK(principals_find(&principals, "n1") == NULL);
    CHECK(principals_find(&principals, "n10") != NULL &&
          principals_find(&principals, "Bob") != NULL);
    principals_free(&principals);
}

TEST(a_secret_is_found_by_name_and_id)
{
    struct principal *ann = add("ann", ROLE_ADMIN, 5);
    uint8_t secret[KEY_SECRET_BYTES], other[KEY_SECRET_BYTES] = {1}, found[KEY_SECRET_BYTES];

    memcpy(secret, ann->stored.secrets[0].bytes, sizeof secret);
    CHECK(is_known("ann", secret, 6));
    CHECK(!is_known("ann", other, 6));
    CHECK(!is_known("bob", secret, 6));
    CHECK(!principals_secret(&principals, "ann", 3, 6, found));
    CHECK(!principals_secret(&principals, "", 0, 6, found));
    CHECK(!principals_secret(&principals, "ann:0000000000000000", 20, 6, found));
    principals_remove(&principals, ann);
    CHECK(!is_known("ann", secret, 6));
    principals_free(&principals);
}

TEST(a_rotation_keeps_the_old_secret_for_a_while)
{
    struct principal *n1 = add("n1", ROLE_NODE, 1000);
    uint8_t first[KEY_SECRET_BYTES], second[KEY_SECRET_BYTES], third[KEY_SECRET_BYTES];

    memcpy(first, n1->stored.secrets[0].bytes, sizeof first);
    CHECK_EQ(principals_next_end(&principals), INT64_MAX);
    CHECK_EQ(principal_rotate(n1, 3000, 2000, NULL), STATUS_OK);
    memcpy(second, n1->stored.secrets[0].bytes, sizeof second);
    CHECK_EQ(n1->stored.rotated_ms, 2000);
    CHECK_EQ(principal_secrets(n1, 2999), 2);
    CHECK_EQ(principals_next_end(&principals), 3000);
    CHECK(is_known("n1", first, 2999) && is_known("n1", second, 2999));
    CHECK(!is_known("n1", first, 3000) && is_known("n1", second, 3000));
    CHECK(!principal_expire(n1, 2999));
    CHECK_EQ(n1->stored.secret_count, 2);

    /* again while two are valid: the oldest goes */
    CHECK_EQ(principal_rotate(n1, 4000, 2500, NULL), STATUS_OK);
    memcpy(third, n1->stored.secrets[0].bytes, sizeof third);
    CHECK(!is_known("n1", first, 2500));
    CHECK(is_known("n1", second, 2500) && is_known("n1", third, 2500));
    CHECK(principal_expire(n1, 4000));
    CHECK_EQ(n1->stored.secret_count, 1);
    CHECK(!is_known("n1", second, 2500) && is_known("n1", third, 5000));
    CHECK(!principal_expire(n1, 9000));

    /* without an overlap the old one is void at once */
    CHECK_EQ(principal_rotate(n1, 5000, 5000, NULL), STATUS_OK);
    CHECK_EQ(n1->stored.secret_count, 1);
    CHECK(!is_known("n1", third, 5000));
    principals_free(&principals);
}

TEST(a_name_that_comes_again_is_another_principal)
{
    struct principal *one = add("n1", ROLE_NODE, 1);
    uint64_t serial = one->serial;
    uint8_t secret[KEY_SECRET_BYTES];

    memcpy(secret, one->stored.secrets[0].bytes, sizeof secret);
    principals_remove(&principals, one);
    one = add("n1", ROLE_NODE, 2);
    CHECK(one->serial != serial);
    CHECK(!is_known("n1", secret, 3));
    principals_free(&principals);
}

TEST(full_is_an_answer)
{
    struct principal *unused;
    struct err err;
    char name[32];

    for (uint32_t i = 0; i < PRINCIPALS_MAX; i++) {
        (void)snprintf(name, sizeof name, "n%u", (i * 2654435761u) % PRINCIPALS_MAX);
        (void)add(name, ROLE_NODE, 1);
    }
    CHECK_EQ(principals_add(&principals, "more", ROLE_NODE, 1, &unused, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "8192") != NULL);
    for (uint32_t i = 1; i < principals.count; i++)
        CHECK(strcmp(principals.items[i - 1].stored.name, principals.items[i].stored.name) < 0);
    while (principals.count > 0)
        principals_remove(&principals, &principals.items[principals.count / 2]);
    principals_free(&principals);
}

TEST_MAIN
