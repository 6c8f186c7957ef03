/* A copy of all that a checkpoint stores of a net, taken between two steps. The memory is for one copy, and
 * is used again for the next. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/net/state.h"
#include "worker/train/internal.h"

struct train_snapshot {
    struct safetensors_tensor *tensors; /* [(OPTIM_STATES + 1) * net_tensor_count()] */
    char **names;                       /* of the same size: by state, then tensor */
    float *values;
    size_t value_bytes;
};

const char *train_tensor_prefix(int state, char prefix[TRAIN_PREFIX_BYTES])
{
    if (state == TRAIN_PARAMETER)
        prefix[0] = '\0';
    else
        (void)snprintf(prefix, TRAIN_PREFIX_BYTES, "optimizer.%s.",
                       optim_state_name((enum optim_state)state));
    return prefix;
}

/* Whether a checkpoint may have that state of that tensor. */
static bool is_stored(const struct train *train, int state, uint32_t index)
{
    return state == TRAIN_PARAMETER ||
           (net_tensor(train->net, index)->trainable &&
            optim_uses(&train->options->optim, (enum optim_state)state));
}

static size_t place_of(const struct train *train, int state, uint32_t index)
{
    return (size_t)(state - TRAIN_PARAMETER) * net_tensor_count(train->net) + index;
}

static enum status make_names(struct train *train, struct train_snapshot *snapshot, struct err *err)
{
    char prefix[TRAIN_PREFIX_BYTES];

    for (int state = TRAIN_PARAMETER; state < OPTIM_STATES; state++)
        for (uint32_t i = 0; i < net_tensor_count(train->net); i++) {
            const struct net_tensor *tensor = net_tensor(train->net, i);

            if (!is_stored(train, state, i))
                continue;
            snapshot->value_bytes += tensor->count * sizeof(float);
            if (asprintf(&snapshot->names[place_of(train, state, i)], "%s%s",
                         train_tensor_prefix(state, prefix), tensor->name) < 0)
                return err_set(err, STATUS_MEMORY, 0, "no memory for a checkpoint");
        }
    return STATUS_OK;
}

/* In large pages where there are some: the first copy then is about as fast as the later ones. */
static enum status map_values(struct train_snapshot *snapshot, struct err *err)
{
    void *memory = mmap(NULL, snapshot->value_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return err_set(err, STATUS_MEMORY, errno, "no memory for a checkpoint: %zu bytes",
                       snapshot->value_bytes);
    snapshot->values = memory;
    (void)madvise(memory, snapshot->value_bytes, MADV_HUGEPAGE);
    (void)madvise(memory, snapshot->value_bytes, MADV_POPULATE_WRITE);
    return STATUS_OK;
}

enum status train_snapshot_new(struct train *train, struct err *err)
{
    const size_t count = (OPTIM_STATES + 1) * (size_t)net_tensor_count(train->net);
    struct train_snapshot *snapshot = calloc(1, sizeof *snapshot);
    enum status status;

    assert(train->snapshot == NULL && count > 0);
    train->snapshot = snapshot;
    if (snapshot == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a checkpoint");
    snapshot->tensors = calloc(count, sizeof *snapshot->tensors);
    snapshot->names = calloc(count + 1, sizeof *snapshot->names);
    if (snapshot->tensors == NULL || snapshot->names == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a checkpoint");
    status = make_names(train, snapshot, err);
    return status == STATUS_OK ? map_values(snapshot, err) : status;
}

void train_snapshot_free(struct train *train)
{
    struct train_snapshot *snapshot = train->snapshot;

    if (snapshot == NULL)
        return;
    for (size_t i = 0;
         snapshot->names != NULL && i < (OPTIM_STATES + 1) * (size_t)net_tensor_count(train->net);
         i++)
        free(snapshot->names[i]);
    if (snapshot->values != NULL)
        (void)munmap(snapshot->values, snapshot->value_bytes);
    free(snapshot->names);
    free(snapshot->tensors);
    free(snapshot);
    train->snapshot = NULL;
}

static enum status read_state(struct net *net, int state, uint32_t index, float *values,
                              struct err *err)
{
    return state == TRAIN_PARAMETER
               ? net_tensor_read(net, index, values, err)
               : net_optim_read(net, (enum optim_state)state, index, values, err);
}

enum status train_snapshot_take(struct train *train, const struct safetensors_tensor **tensors,
                                size_t *tensor_count, struct err *err)
{
    struct train_snapshot *snapshot = train->snapshot;
    float *values = snapshot->values;
    enum status status = STATUS_OK;

    *tensors = snapshot->tensors;
    *tensor_count = 0;
    for (int state = TRAIN_PARAMETER; state < OPTIM_STATES; state++) {
        if (state != TRAIN_PARAMETER && !net_has_state(train->net, (enum optim_state)state))
            continue;
        for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(train->net); i++) {
            const struct net_tensor *tensor = net_tensor(train->net, i);
            struct safetensors_tensor *out = &snapshot->tensors[*tensor_count];

            if (!is_stored(train, state, i))
                continue;
            *out = (struct safetensors_tensor){.name = snapshot->names[place_of(train, state, i)],
                                               .type = SAFETENSORS_F32,
                                               .dim_count = tensor->dim_count,
                                               .values = values};
            for (uint32_t d = 0; d < tensor->dim_count; d++)
                out->dims[d] = tensor->dims[d];
            status = read_state(train->net, state, i, values, err);
            values += tensor->count;
            ++*tensor_count;
        }
    }
    assert((size_t)(values - snapshot->values) * sizeof *values <= snapshot->value_bytes);
    return status;
}
