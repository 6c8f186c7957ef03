/* Rows of principals and their secrets. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

/* The characters of the message kind NAME. */
#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

static void bind_name(sqlite3_stmt *stmt, const char *name)
{
    (void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_TRANSIENT);
}

static void drop_secrets(struct store *store, const char *name)
{
    sqlite3_stmt *stmt = store_use(store, STORE_SECRET_DROP);

    bind_name(stmt, name);
    store_run(store, stmt, "drop a key from");
}

void store_write_principal(struct store *store, const struct store_principal *principal)
{
    sqlite3_stmt *stmt = store_use(store, STORE_PRINCIPAL_WRITE);

    assert(store->in_transaction && principal->secret_count <= SECRETS_PER_PRINCIPAL_MAX);
    bind_name(stmt, principal->name);
    (void)sqlite3_bind_text(stmt, 2, role_name(principal->role), -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 3, principal->created_ms);
    (void)sqlite3_bind_int64(stmt, 4, principal->rotated_ms);
    (void)sqlite3_bind_int64(stmt, 5, principal->seen_ms);
    store_run(store, stmt, "write a principal to");
    drop_secrets(store, principal->name);
    for (uint32_t i = 0; i < principal->secret_count; i++) {
        const struct store_secret *secret = &principal->secrets[i];

        stmt = store_use(store, STORE_SECRET_WRITE);
        bind_name(stmt, principal->name);
        (void)sqlite3_bind_int64(stmt, 2, i);
        (void)sqlite3_bind_blob(stmt, 3, secret->bytes, KEY_SECRET_BYTES, SQLITE_STATIC);
        (void)sqlite3_bind_int64(stmt, 4, secret->until_ms);
        store_run(store, stmt, "write a key to");
        (void)sqlite3_clear_bindings(stmt);
    }
}

void store_write_seen(struct store *store, const char *name, int64_t seen_ms)
{
    sqlite3_stmt *stmt = store_use(store, STORE_PRINCIPAL_SEEN);

    assert(store->in_transaction);
    bind_name(stmt, name);
    (void)sqlite3_bind_int64(stmt, 2, seen_ms);
    store_run(store, stmt, "write a principal to");
}

void store_drop_principal(struct store *store, const char *name)
{
    sqlite3_stmt *stmt = store_use(store, STORE_PRINCIPAL_DROP);

    assert(store->in_transaction);
    bind_name(stmt, name);
    store_run(store, stmt, "drop a principal from");
    drop_secrets(store, name);
}

/* Reads the columns that all rows of a principal share. False: malformed. */
static bool read_principal(sqlite3_stmt *stmt, struct store_principal *out)
{
    const char *name = (const char *)sqlite3_column_text(stmt, 0);
    const char *role = (const char *)sqlite3_column_text(stmt, 1);

    memset(out, 0, sizeof *out);
    if (name == NULL || role == NULL || name[0] == '\0' || strlen(name) >= sizeof out->name ||
        strspn(name, NAME_CHARS) != strlen(name))
        return false;
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    out->created_ms = sqlite3_column_int64(stmt, 2);
    out->rotated_ms = sqlite3_column_int64(stmt, 3);
    out->seen_ms = sqlite3_column_int64(stmt, 4);
    return role_parse(role, &out->role) && out->created_ms >= 0 && out->rotated_ms >= 0 &&
           out->seen_ms >= 0;
}

static bool read_secret(sqlite3_stmt *stmt, struct store_principal *out)
{
    struct store_secret *secret = &out->secrets[out->secret_count];
    const void *bytes = sqlite3_column_blob(stmt, 5);

    if (out->secret_count == SECRETS_PER_PRINCIPAL_MAX || bytes == NULL ||
        sqlite3_column_bytes(stmt, 5) != KEY_SECRET_BYTES || sqlite3_column_int64(stmt, 6) < 0)
        return false;
    memcpy(secret->bytes, bytes, KEY_SECRET_BYTES);
    secret->until_ms = sqlite3_column_int64(stmt, 6);
    out->secret_count++;
    return true;
}

int64_t store_keys_lost_ms(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_KEYS_GET);
    int64_t lost_ms = 0;

    if (store_row(store, stmt, "read the keys of"))
        lost_ms = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    return lost_ms > 0 && lost_ms <= TIME_US_MAX / 1000 ? lost_ms : 0;
}

void store_write_keys_lost(struct store *store, int64_t lost_ms)
{
    sqlite3_stmt *stmt = store_use(store, STORE_KEYS_WRITE);

    (void)sqlite3_bind_int64(stmt, 1, lost_ms);
    store_run(store, stmt, "write the keys to");
}

bool store_principals(struct store *store,
                      void (*on_principal)(const struct store_principal *, void *), void *context)
{
    sqlite3_stmt *stmt = store_use(store, STORE_PRINCIPAL_LIST);
    struct store_principal one = {.name = ""}, row;
    bool is_good = false, are_good = true;

    for (;;) {
        bool has_row = store_row(store, stmt, "read the principals of");
        bool row_is_good = has_row && read_principal(stmt, &row);

        if (one.name[0] != '\0' && (!has_row || strcmp(row.name, one.name) != 0)) {
            if (is_good && one.secret_count > 0) {
                on_principal(&one, context);
            } else {
                are_good = false;
                log_line(LOG_ERROR, LOG_ABOUT_NONE,
                         "the key of %s in %s is malformed and not used: remove it, make a new one",
                         one.name, store->path);
            }
            one.name[0] = '\0';
        }
        if (!has_row)
            break;
        are_good = are_good && row_is_good; /* also one without a name */
        if (one.name[0] == '\0') {
            one = row;
            is_good = row_is_good;
        }
        is_good = is_good && row_is_good && read_secret(stmt, &one);
    }
    explicit_bzero(&one, sizeof one);
    return are_good;
}
