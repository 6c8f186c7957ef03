/* Calls of all ranks, through the store. They use only commands that every 2.x store has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libddp/internal.h"

enum { KEY_BYTES = 64, TOLD_SHIFT = 32 };

/* A caught signal ends no wait here: ranks agree on a stop by waiting for one another. */
static bool goes_on(void)
{
    return false;
}

/* -- barriers ---------------------------------------------------------------------------------- */

static void make_key(char key[KEY_BYTES], const char *what, uint64_t number, const char *more)
{
    (void)snprintf(key, KEY_BYTES, "libddp/%s/%" PRIu64 "%s", what, number, more);
}

/* Adds one rank and its vote. The last rank publishes how many votes there were. */
static enum status enter(struct ddp *ddp, uint32_t vote, const struct store_limit *limit,
                         struct err *err)
{
    char key[KEY_BYTES], all[KEY_BYTES], text[24];
    int64_t sum = 0;
    enum status status;

    make_key(key, "ranks", ddp->gather_count, "");
    make_key(all, "ranks", ddp->gather_count, "/all");
    status = store_add(&ddp->store, key, 1 + ((int64_t)vote << TOLD_SHIFT), &sum, limit, err);
    if (status == STATUS_OK && (sum & UINT32_MAX) == ddp->place.world) {
        (void)snprintf(text, sizeof text, "%" PRId64, sum >> TOLD_SHIFT);
        status = store_set(&ddp->store, all, text, strlen(text), limit, err);
    }
    ddp->is_gathering = status == STATUS_OK;
    ddp->is_store_lost = status != STATUS_OK; /* unknown whether this rank was counted */
    return status;
}

/* All ranks have entered this barrier, so the keys of the one before can be deleted. */
static void forget_last(struct ddp *ddp, const struct store_limit *limit)
{
    char key[KEY_BYTES], all[KEY_BYTES];

    if (ddp->place.rank != 0 || ddp->gather_count == 0)
        return;
    make_key(key, "ranks", ddp->gather_count - 1, "");
    make_key(all, "ranks", ddp->gather_count - 1, "/all");
    if (store_delete(&ddp->store, key, limit, NULL) == STATUS_OK)
        (void)store_delete(&ddp->store, all, limit, NULL);
}

/* Waits until all ranks have entered; `*votes` (may be NULL): how many voted. */
static enum status gather(struct ddp *ddp, uint32_t vote, uint32_t *votes,
                          const struct store_limit *limit, struct err *err)
{
    char all[KEY_BYTES], text[24] = "";
    size_t byte_count = sizeof text - 1;
    enum status status;

    if (ddp->is_store_lost)
        return err_set(err, STATUS_CLOSED, 0,
                       "the connection to the store broke while ranks met, so they cannot meet "
                       "again in this generation");
    status = store_connect(&ddp->store, limit, err);
    if (status == STATUS_OK && !ddp->is_gathering)
        status = enter(ddp, vote, limit, err);
    make_key(all, "ranks", ddp->gather_count, "/all");
    if (status == STATUS_OK)
        status = store_wait(&ddp->store, all, limit, err);
    if (status == STATUS_OK && votes != NULL)
        status = store_get(&ddp->store, all, text, &byte_count, limit, err);
    if (status == STATUS_TIMEOUT && ddp->is_gathering)
        return err_set(err, STATUS_TIMEOUT, 0, "not all of %u ranks have come in time",
                       ddp->place.world);
    if (status != STATUS_OK)
        return status;
    if (votes != NULL)
        *votes = (uint32_t)strtoul(text, NULL, 10);
    forget_last(ddp, limit);
    ddp->is_gathering = false;
    ddp->gather_count++;
    return STATUS_OK;
}

static enum ddp_status meet(struct ddp *ddp, uint32_t vote, uint32_t *votes, double limit_s,
                            struct ddp_error *error)
{
    struct store_limit limit;
    struct err err = {.text = ""};
    enum status status = store_limit_from(&limit, limit_s, goes_on, &err);

    if (status == STATUS_OK) {
        (void)pthread_mutex_lock(&ddp->store_lock);
        status = gather(ddp, vote, votes, &limit, &err);
        (void)pthread_mutex_unlock(&ddp->store_lock);
    }
    return result(status, &err, error);
}

enum ddp_status ddp_barrier(struct ddp *ddp, double limit_s, struct ddp_error *error)
{
    if (is_forked(ddp))
        return result_forked(error);
    return ddp->place.world == 1 ? DDP_OK : meet(ddp, 0, NULL, limit_s, error);
}

enum ddp_status ddp_any(struct ddp *ddp, int mine, int *any, double limit_s,
                        struct ddp_error *error)
{
    uint32_t votes = mine != 0;
    enum ddp_status status = DDP_OK;

    if (is_forked(ddp))
        return result_forked(error);
    if (ddp->place.world > 1)
        status = meet(ddp, mine != 0, &votes, limit_s, error);
    if (status == DDP_OK)
        *any = votes > 0;
    return status;
}

/* -- bytes of rank 0 --------------------------------------------------------------------------- */

enum status share(struct ddp *ddp, void *bytes, size_t *byte_count, size_t room,
                  const struct store_limit *limit, struct err *err)
{
    const bool is_first = ddp->place.rank == 0;
    char key[KEY_BYTES];
    enum status status = store_connect(&ddp->store, limit, err);

    make_key(key, "bytes", ddp->broadcast_count, "");
    if (status == STATUS_OK && is_first && !ddp->is_gathering)
        status = store_set(&ddp->store, key, bytes, *byte_count, limit, err);
    if (status == STATUS_OK && !is_first)
        status = store_wait(&ddp->store, key, limit, err);
    if (status == STATUS_OK && !is_first) {
        *byte_count = room;
        status = store_get(&ddp->store, key, bytes, byte_count, limit, err);
    }
    if (status == STATUS_OK)
        status = gather(ddp, 0, NULL, limit, err); /* all have the bytes */
    if (status != STATUS_OK)
        return status;
    if (is_first)
        (void)store_delete(&ddp->store, key, limit, NULL);
    ddp->broadcast_count++;
    return STATUS_OK;
}

static enum status broadcast(struct ddp *ddp, void *bytes, size_t byte_count, double limit_s,
                             struct err *err)
{
    struct store_limit limit;
    size_t got = byte_count;
    enum status status = store_limit_from(&limit, limit_s, goes_on, err);

    if (byte_count > DDP_VALUE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%zu bytes, at most %u are allowed", byte_count,
                       DDP_VALUE_BYTES_MAX);
    if (status != STATUS_OK)
        return status;
    (void)pthread_mutex_lock(&ddp->store_lock);
    status = share(ddp, bytes, &got, byte_count, &limit, err);
    (void)pthread_mutex_unlock(&ddp->store_lock);
    if (status == STATUS_OK && got != byte_count)
        return err_set(err, STATUS_BAD_INPUT, 0, "rank 0 gave %zu bytes, expected are %zu", got,
                       byte_count);
    return status;
}

enum ddp_status ddp_broadcast(struct ddp *ddp, void *bytes, size_t byte_count, double limit_s,
                              struct ddp_error *error)
{
    struct err err = {.text = ""};

    if (is_forked(ddp))
        return result_forked(error);
    if (ddp->place.world == 1)
        return DDP_OK;
    return result(broadcast(ddp, bytes, byte_count, limit_s, &err), &err, error);
}

/* -- keys of the program ----------------------------------------------------------------------- */

/* Takes the store's lock and leaves it held. */
static enum status begin_key(struct ddp *ddp, const char *key, double limit_s,
                             struct store_limit *limit, struct err *err)
{
    enum status status = store_limit_from(limit, limit_s, goes_on, err);

    (void)pthread_mutex_lock(&ddp->store_lock);
    if (key[0] == '\0' || strlen(key) > DDP_KEY_BYTES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "a key of %zu bytes, expected are 1 to %u",
                       strlen(key), DDP_KEY_BYTES_MAX);
    return status == STATUS_OK ? store_connect(&ddp->store, limit, err) : status;
}

static enum ddp_status end_key(struct ddp *ddp, enum status status, const struct err *err,
                               struct ddp_error *error)
{
    (void)pthread_mutex_unlock(&ddp->store_lock);
    return result(status, err, error);
}

enum ddp_status ddp_store_set(struct ddp *ddp, const char *key, const void *bytes,
                              size_t byte_count, double limit_s, struct ddp_error *error)
{
    struct store_limit limit;
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    status = begin_key(ddp, key, limit_s, &limit, &err);
    if (status == STATUS_OK && byte_count > DDP_VALUE_BYTES_MAX)
        status = err_set(&err, STATUS_TOO_BIG, 0, "a value of %zu bytes, at most %u are allowed",
                         byte_count, DDP_VALUE_BYTES_MAX);
    if (status == STATUS_OK)
        status = store_set(&ddp->store, key, bytes, byte_count, &limit, &err);
    return end_key(ddp, status, &err, error);
}

enum ddp_status ddp_store_get(struct ddp *ddp, const char *key, void *bytes, size_t *byte_count,
                              double limit_s, struct ddp_error *error)
{
    struct store_limit limit;
    struct err err = {.text = ""};
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    status = begin_key(ddp, key, limit_s, &limit, &err);
    if (status == STATUS_OK)
        status = store_wait(&ddp->store, key, &limit, &err);
    if (status == STATUS_OK)
        status = store_get(&ddp->store, key, bytes, byte_count, &limit, &err);
    return end_key(ddp, status, &err, error);
}

enum ddp_status ddp_store_add(struct ddp *ddp, const char *key, int64_t addend, int64_t *sum,
                              double limit_s, struct ddp_error *error)
{
    struct store_limit limit;
    struct err err = {.text = ""};
    int64_t unused;
    enum status status;

    if (is_forked(ddp))
        return result_forked(error);
    status = begin_key(ddp, key, limit_s, &limit, &err);
    if (status == STATUS_OK)
        status = store_add(&ddp->store, key, addend, sum != NULL ? sum : &unused, &limit, &err);
    return end_key(ddp, status, &err, error);
}
