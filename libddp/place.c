#include "libddp/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/msg.h"

struct numbers {
    uint64_t rank, world, local_rank, local_world, node_rank, node_count, restart_count;
    uint64_t job_id, generation, shim_fd, checkpoint_step;
};

/* `*value` is unchanged if the variable is not set. */
static enum status read_number(const char *name, uint64_t max, uint64_t *value, struct err *err)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): nobody sets it meanwhile */
    char *end = NULL;

    if (text == NULL)
        return STATUS_OK;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || *value > max)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: %s=%.40s: expected a number from 0 to %llu", name, text,
                       (unsigned long long)max);
    return STATUS_OK;
}

static void read_text(const char *name, const char *other, char *out, size_t out_bytes)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): as above */

    (void)snprintf(out, out_bytes, "%s", text != NULL && *text != '\0' ? text : other);
}

static enum status read_numbers(struct numbers *numbers, struct err *err)
{
    const struct {
        const char *name;
        uint64_t max;
        uint64_t *value;
    } variables[] = {
        {"WORLD_SIZE", RANKS_PER_JOB_MAX, &numbers->world},
        {"RANK", RANKS_PER_JOB_MAX - 1, &numbers->rank},
        {"LOCAL_RANK", RANKS_PER_JOB_MAX - 1, &numbers->local_rank},
        {"LOCAL_WORLD_SIZE", RANKS_PER_JOB_MAX, &numbers->local_world},
        {"GROUP_RANK", RANKS_PER_JOB_MAX - 1, &numbers->node_rank},
        {"GROUP_WORLD_SIZE", RANKS_PER_JOB_MAX, &numbers->node_count},
        {"TORCHELASTIC_RESTART_COUNT", GENERATION_MAX, &numbers->restart_count},
        {"DDP_SHIM_FD", INT32_MAX, &numbers->shim_fd},
        {"DDP_JOB_ID", JOB_ID_MAX, &numbers->job_id},
        {"DDP_GENERATION", GENERATION_MAX, &numbers->generation},
        {"DDP_CHECKPOINT_STEP", JOB_ID_MAX, &numbers->checkpoint_step},
    };

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        enum status status =
            read_number(variables[i].name, variables[i].max, variables[i].value, err);
        if (status != STATUS_OK)
            return status;
    }
    if (numbers->world == 0 || numbers->rank >= numbers->world || numbers->generation == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: RANK=%u is not under WORLD_SIZE=%u, or DDP_GENERATION=%u is 0",
                       (unsigned)numbers->rank, (unsigned)numbers->world,
                       (unsigned)numbers->generation);
    return STATUS_OK;
}

uint64_t place_shim_protocol(void)
{
    uint64_t protocol = 1;
    struct err err;

    return read_number("DDP_SHIM_PROTOCOL", UINT32_MAX, &protocol, &err) == STATUS_OK ? protocol
                                                                                      : 1;
}

enum status place_read(struct ddp_place *place, int *shim_fd, struct err *err)
{
    struct numbers numbers = {
        .world = 1, .local_world = 1, .node_count = 1, .generation = 1, .shim_fd = UINT64_MAX};
    enum status status = read_numbers(&numbers, err);

    if (status != STATUS_OK)
        return status;
    *shim_fd = numbers.shim_fd == UINT64_MAX ? -1 : (int)numbers.shim_fd;
    *place = (struct ddp_place){
        .rank = (uint32_t)numbers.rank,
        .world = (uint32_t)numbers.world,
        .local_rank = (uint32_t)numbers.local_rank,
        .local_world = (uint32_t)numbers.local_world,
        .node_rank = (uint32_t)numbers.node_rank,
        .node_count = (uint32_t)numbers.node_count,
        .generation = (uint32_t)numbers.generation,
        .restart_count = (uint32_t)numbers.restart_count,
        .job_id = numbers.job_id,
        .checkpoint_step = numbers.checkpoint_step,
        .has_launcher = *shim_fd >= 0,
    };
    read_text("DDP_NODE_ADDRESS", "127.0.0.1", place->address, sizeof place->address);
    read_text("DDP_CLUSTER", "", place->cluster, sizeof place->cluster);
    read_text("DDP_NODE_NAME", "", place->node, sizeof place->node);
    return STATUS_OK;
}
