/* Checks that all ranks train the same. Each rank compares its options, data and model with rank
 * 0's before anything else is shared. All ranks report which rank differs, in what, and both
 * values. Otherwise a rank with another option would make the others hang in a collective, or
 * silently spoil the weights. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "worker/data/source.h"
#include "worker/train/internal.h"

/* Room for the names of all classes of both sets: 65,536 of 255 bytes with some words each. */
enum { LIST_BYTES_MAX = 64 << 20, NAME_SHOWN = 56, VALUE_SHOWN = 40 };

struct difference {
    bool differs;
    char text[248];
};

/* Adds an entry, NAME NUL VALUE NUL: something that must be equal on all ranks. */
static void add(struct buf *list, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct buf *list, const char *name, const char *format, ...)
{
    char value[256];
    va_list values;

    va_start(values, format);
    (void)vsnprintf(value, sizeof value, format, values);
    va_end(values);
    buf_add(list, name, strlen(name) + 1);
    buf_add(list, value, strlen(value) + 1);
}

static void add_set(struct buf *list, const char *which, const struct source *set)
{
    char name[96];

    if (set == NULL)
        return;
    (void)snprintf(name, sizeof name, "the number of %s images", which);
    add(list, name, "%zu", set->count);
    (void)snprintf(name, sizeof name, "the shape of %s images", which);
    add(list, name, "%u x %u x %u", set->shape.channels, set->shape.height, set->shape.width);
    (void)snprintf(name, sizeof name, "the number of classes of the %s set", which);
    add(list, name, "%u", set->shape.classes);
    for (uint32_t i = 0; set->class_names != NULL && i < set->shape.classes; i++) {
        (void)snprintf(name, sizeof name, "the name of class %u of the %s set", i, which);
        add(list, name, "%.200s", set->class_names[i]);
    }
    (void)snprintf(name, sizeof name, "the content (hash) of the %s set", which);
    add(list, name, "%016" PRIx64, set->hash);
}

static void make_list(const struct train *train, struct buf *list)
{
    list->limit = LIST_BYTES_MAX;
    add(list, "the version of ddp-worker", "%s", DDP_VERSION);
    options_list_equal(train->options, list);
    add(list, "the model", "%s", train->model_identity);
    add_set(list, "training", train->train_set);
    add_set(list, "validation", train->validation_set);
}

/* The next text of a list; NULL at its end. */
static const char *next(const struct buf *list, size_t *at)
{
    const char *text = list->bytes + *at;

    if (*at >= list->byte_count)
        return NULL;
    *at += strnlen(text, list->byte_count - *at) + 1;
    return text;
}

/* `theirs`: rank 0's. */
static void compare(const struct train *train, const struct buf *mine, const struct buf *theirs,
                    struct difference *difference)
{
    size_t here = 0, there = 0;
    const char *name, *value, *their_name, *their_value;

    do {
        name = next(mine, &here);
        value = next(mine, &here);
        their_name = next(theirs, &there);
        their_value = next(theirs, &there);
        if (name == NULL && their_name == NULL)
            return;
    } while (name != NULL && value != NULL && their_name != NULL && their_value != NULL &&
             strcmp(name, their_name) == 0 && strcmp(value, their_value) == 0);
    difference->differs = true;
    if (name != NULL && their_name != NULL && strcmp(name, their_name) == 0)
        (void)snprintf(difference->text, sizeof difference->text,
                       "%.*s is %.*s on rank %u%s%.24s%s, but %.*s on rank 0: all ranks need the "
                       "same",
                       NAME_SHOWN, name, VALUE_SHOWN, value, train->place->rank,
                       train->place->node[0] != '\0' ? " (node " : "", train->place->node,
                       train->place->node[0] != '\0' ? ")" : "", VALUE_SHOWN, their_value);
    else
        (void)snprintf(difference->text, sizeof difference->text,
                       "rank %u and rank 0 do not have the same options or classes: one has %.*s, "
                       "the other %.*s",
                       train->place->rank, NAME_SHOWN, name != NULL ? name : "no more", NAME_SHOWN,
                       their_name != NULL ? their_name : "no more");
}

/* Rank 0's list; its bytes are NULL on rank 0 itself. */
static enum status get_list(struct train *train, const struct buf *mine, struct buf *theirs,
                            struct err *err)
{
    uint64_t byte_count = mine->byte_count;
    enum status status = comm_broadcast(train->comm, &byte_count, sizeof byte_count, 0, err);

    if (status != STATUS_OK)
        return status;
    if (byte_count > LIST_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "rank 0 has a list of %" PRIu64 " bytes",
                       byte_count);
    if (train->place->rank == 0)
        return comm_broadcast(train->comm, mine->bytes, byte_count, 0, err);
    theirs->bytes = malloc(byte_count + 1);
    if (theirs->bytes == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare options");
    theirs->byte_count = byte_count;
    status = comm_broadcast(train->comm, theirs->bytes, byte_count, 0, err);
    theirs->bytes[byte_count] = '\0';
    return status;
}

static enum status share(struct train *train, const struct difference *mine, struct err *err)
{
    struct difference *all = calloc(train->place->world, sizeof *all);
    enum status status;

    if (all == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", train->place->world);
    status = comm_all_gather(train->comm, mine, sizeof *mine, all, err);
    for (uint32_t i = 0; status == STATUS_OK && i < train->place->world; i++)
        if (all[i].differs) {
            all[i].text[sizeof all[i].text - 1] = '\0';
            status = err_set(err, STATUS_CONFLICT, 0, "%s", all[i].text);
        }
    free(all);
    return status;
}

enum status train_check_alike(struct train *train, struct err *err)
{
    struct buf mine = {0}, theirs = {0};
    struct difference difference;
    enum status status;

    if (train->comm == NULL)
        return STATUS_OK;
    memset(&difference, 0, sizeof difference); /* it is sent as bytes */
    make_list(train, &mine);
    if (mine.failed)
        status = err_set(err, STATUS_MEMORY, 0, "no memory to compare options");
    else
        status = get_list(train, &mine, &theirs, err);
    if (status == STATUS_OK && train->place->rank != 0)
        compare(train, &mine, &theirs, &difference);
    if (status == STATUS_OK)
        status = share(train, &difference, err);
    buf_free(&mine);
    buf_free(&theirs);
    return status;
}
