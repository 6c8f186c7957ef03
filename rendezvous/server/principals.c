#include "rendezvous/server/principals.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void principals_free(struct principals *principals)
{
    if (principals->items != NULL)
        explicit_bzero(principals->items, principals->capacity * sizeof *principals->items);
    free(principals->items);
    *principals = (struct principals){0};
}

/* The first whose name is at least this one, or with `above` greater than it. */
static uint32_t lower_bound(const struct principals *principals, const char *name, bool above)
{
    uint32_t low = 0, high = principals->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(principals->items[middle].stored.name, name);

        if (order < 0 || (above && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct principal *principals_find(const struct principals *principals, const char *name)
{
    uint32_t i = lower_bound(principals, name, false);

    return i < principals->count && strcmp(principals->items[i].stored.name, name) == 0
               ? &principals->items[i]
               : NULL;
}

uint32_t principals_after(const struct principals *principals, const char *name)
{
    return lower_bound(principals, name, true);
}

/* Doubles the table. Not with realloc, which could leave secrets in freed memory. */
static enum status grow(struct principals *principals, struct err *err)
{
    uint32_t capacity = principals->capacity == 0 ? 16 : 2 * principals->capacity;
    struct principal *items = calloc(capacity, sizeof *items);
    struct principals old = *principals;

    if (items == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %u keys", capacity);
    if (old.count > 0)
        memcpy(items, old.items, old.count * sizeof *items);
    principals->items = items;
    principals->capacity = capacity;
    principals_free(&old);
    return STATUS_OK;
}

static enum status set_ids(struct principal *principal, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < principal->stored.secret_count && status == STATUS_OK; i++)
        status = key_id(principal->stored.secrets[i].bytes, principal->ids[i], err);
    return status;
}

enum status principals_restore(struct principals *principals, const struct store_principal *stored,
                               struct err *err)
{
    uint32_t at = lower_bound(principals, stored->name, false);
    struct principal added = {.stored = *stored};
    enum status status = STATUS_OK;

    if (principals_find(principals, stored->name) != NULL)
        return err_set(err, STATUS_CONFLICT, 0, "the name %s has a key already", stored->name);
    if (principals->count >= PRINCIPALS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "there are %u keys, the most that a server keeps; remove one that nobody "
                       "uses",
                       PRINCIPALS_MAX);
    status = set_ids(&added, err);
    if (status == STATUS_OK && principals->count == principals->capacity)
        status = grow(principals, err);
    if (status == STATUS_OK) {
        struct principal *place = &principals->items[at];

        memmove(place + 1, place, (principals->count - at) * sizeof *place);
        added.serial = ++principals->serial;
        *place = added;
        principals->count++;
    }
    explicit_bzero(&added, sizeof added);
    return status;
}

enum status principals_add(struct principals *principals, const char *name, enum role role,
                           int64_t now_ms, struct principal **out, struct err *err)
{
    struct store_principal stored = {.role = role, .created_ms = now_ms, .secret_count = 1};
    enum status status = key_secret_new(stored.secrets[0].bytes, err);

    assert(strlen(name) < sizeof stored.name);
    (void)snprintf(stored.name, sizeof stored.name, "%s", name);
    if (status == STATUS_OK)
        status = principals_restore(principals, &stored, err);
    explicit_bzero(&stored, sizeof stored);
    if (status == STATUS_OK)
        *out = principals_find(principals, name);
    return status;
}

void principals_remove(struct principals *principals, struct principal *principal)
{
    const size_t at = (size_t)(principal - principals->items);

    assert(at < principals->count);
    principals->count--;
    memmove(principal, principal + 1, (principals->count - at) * sizeof *principal);
    explicit_bzero(&principals->items[principals->count], sizeof *principal);
}

static bool is_valid(const struct store_secret *secret, int64_t now_ms)
{
    return secret->until_ms == 0 || now_ms < secret->until_ms;
}

/* Sets the number of secrets and erases the others. */
static void keep_secrets(struct principal *principal, uint32_t count)
{
    for (uint32_t i = count; i < SECRETS_PER_PRINCIPAL_MAX; i++)
        explicit_bzero(&principal->stored.secrets[i], sizeof principal->stored.secrets[i]);
    principal->stored.secret_count = count;
}

enum status principal_rotate(struct principal *principal, int64_t until_ms, int64_t now_ms,
                             struct err *err)
{
    struct principal made = *principal;
    struct store_secret *secrets = made.stored.secrets;
    enum status status = key_secret_new(secrets[0].bytes, err);

    static_assert(SECRETS_PER_PRINCIPAL_MAX == 2, "the new one and the one before");
    secrets[1] = principal->stored.secrets[0];
    secrets[1].until_ms = until_ms;
    secrets[0].until_ms = 0;
    made.stored.rotated_ms = now_ms;
    keep_secrets(&made, until_ms > now_ms ? 2 : 1);
    if (status == STATUS_OK)
        status = set_ids(&made, err);
    if (status == STATUS_OK)
        *principal = made;
    explicit_bzero(&made, sizeof made);
    return status;
}

/* Only the last secret of the list can expire; the first is the newest. */
bool principal_expire(struct principal *principal, int64_t now_ms)
{
    const struct store_principal *stored = &principal->stored;

    if (stored->secret_count < 2 || is_valid(&stored->secrets[1], now_ms))
        return false;
    keep_secrets(principal, 1);
    return true;
}

uint32_t principal_secrets(const struct principal *principal, int64_t now_ms)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < principal->stored.secret_count; i++)
        count += is_valid(&principal->stored.secrets[i], now_ms);
    return count;
}

int64_t principals_next_end(const struct principals *principals)
{
    int64_t next_ms = INT64_MAX;

    for (uint32_t i = 0; i < principals->count; i++) {
        const struct store_principal *stored = &principals->items[i].stored;

        if (stored->secret_count == 2 && stored->secrets[1].until_ms < next_ms)
            next_ms = stored->secrets[1].until_ms;
    }
    return next_ms;
}

bool principals_secret(const struct principals *principals, const char *identity, size_t byte_count,
                       int64_t now_ms, uint8_t secret[KEY_SECRET_BYTES])
{
    char name[NODE_NAME_BYTES_MAX], id[KEY_ID_CHARS + 1];
    const struct principal *found;

    if (key_identity_split(identity, byte_count, name, id, NULL) != STATUS_OK)
        return false;
    found = principals_find(principals, name);
    for (uint32_t i = 0; found != NULL && i < found->stored.secret_count; i++) {
        if (strcmp(found->ids[i], id) != 0 || !is_valid(&found->stored.secrets[i], now_ms))
            continue;
        memcpy(secret, found->stored.secrets[i].bytes, KEY_SECRET_BYTES);
        return true;
    }
    return false;
}
