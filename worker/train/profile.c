/* --profile N: a few steps to warm up, N ordinary steps, then N steps that are timed layer by
 * layer. All steps have a whole batch, and the images of an epoch are repeated without a gap, so
 * that no step waits for the start of an epoch. Nothing is saved. */
#include "worker/net/profile.h"
#include "worker/train/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 4 }; /* steps after the first: plans, captured graphs, clock rates */

void train_stage_add(struct train *train, const char *name, uint64_t us)
{
    struct profile_stage *stage = train->stages + train->stage_count;

    assert(train->stage_count <= PROFILE_STAGES_MAX);
    if (train->stage_count > 0 && strcmp(stage[-1].name, name) == 0)
        stage--;
    else if (train->stage_count < PROFILE_STAGES_MAX)
        *stage = (struct profile_stage){.name = name}, train->stage_count++;
    else
        return;
    stage->ms += (double)us * 1e-3;
}

/* Indices of an epoch, repeated for all steps. */
static enum status begin(struct train *train, int64_t **indices, struct err *err)
{
    const size_t step = train_group_images(train), count = train->sampler.count;
    const size_t all = step * (1 + WARM_UP + 2 * (size_t)train->options->profile_steps);

    if (count < step)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--profile: a step has %zu images, a rank only %zu: a smaller --batch-size",
                       step, count);
    *indices = calloc(all, sizeof **indices);
    if (*indices == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the order of %zu images", all);
    sampler_set_epoch(&train->sampler, 0);
    for (size_t i = 0; i < all; i++)
        (*indices)[i] = sampler_index(&train->sampler, i % count);
    loader_begin(train->loader, 0, *indices, all);
    progress_begin(&train->progress, mono_us());
    return STATUS_OK;
}

/* `ms`: of one step, until the device has finished what it queued. */
static enum status run(struct train *train, uint32_t steps, const atomic_bool *stop, double *ms,
                       struct err *err)
{
    const uint64_t begun_us = mono_us();
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < steps && status == STATUS_OK; i++) {
        train->state.step_in_epoch = 0; /* as if an epoch never ended */
        status =
            *stop ? err_set(err, STATUS_CLOSED, 0, "stopped by a signal") : train_step(train, err);
    }
    if (status == STATUS_OK)
        status = train_settle(train, true, err);
    *ms = (double)(mono_us() - begun_us) * 1e-3 / steps;
    return status;
}

static void describe(const struct train *train, struct profile_facts *facts)
{
    const struct options *options = train->options;

    facts->device = train->device->identity.name[0] != '\0' ? train->device->identity.name : "CPU";
    facts->model = train->model_identity;
    facts->half = graph_dtype_name(options->amp.half);
    (void)snprintf(facts->type, sizeof facts->type, "O%u", options->amp.level);
    facts->rank = train->place->rank;
    facts->world = train->place->world;
    facts->steps = options->profile_steps;
    facts->images = (uint32_t)train_group_images(train);
    facts->tf32 = options->tf32;
    facts->roof = roof_of(facts->device);
    facts->optim = &options->optim;
    facts->begun_s = (double)train->begun_us * 1e-6;
    memcpy(facts->stages, train->stages, sizeof facts->stages);
    facts->stage_count = train->stage_count;
}

static enum status report(struct train *train, const struct profile_facts *facts, struct err *err)
{
    struct profile *profile = NULL;
    enum status status = profile_new(&profile, train->net, facts, err);

    if (status == STATUS_OK)
        profile_print(stdout, profile);
    if (status == STATUS_OK && train->options->profile_json != NULL)
        status = profile_write(train->options->profile_json, profile, err);
    profile_free(&profile);
    return status;
}

static enum status time_layers(struct train *train, const atomic_bool *stop,
                               struct profile_facts *facts, struct err *err)
{
    const uint32_t steps = train->options->profile_steps;
    enum status status;

    train->profile_wait_us = train->profile_comm_us = train->profile_exposed_us = 0;
    net_profile_set(train->net, true);
    status = run(train, steps, stop, &facts->profiled_step_ms, err);
    net_profile_set(train->net, false);
    facts->wait_ms = (double)train->profile_wait_us * 1e-3 / steps;
    facts->comm_ms = (double)train->profile_comm_us * 1e-3 / steps;
    facts->exposed_ms = (double)train->profile_exposed_us * 1e-3 / steps;
    return status;
}

enum status train_profile(struct train *train, const atomic_bool *stop, struct err *err)
{
    struct profile_facts facts = {.steps = 0};
    int64_t *indices = NULL;
    double ms = 0.0;
    enum status status = begin(train, &indices, err);

    if (status == STATUS_OK)
        status = run(train, 1, stop, &ms, err);
    train_stage_add(train, "first step", (uint64_t)(ms * 1e3));
    if (status == STATUS_OK)
        status = run(train, WARM_UP, stop, &ms, err);
    if (status == STATUS_OK)
        status = run(train, train->options->profile_steps, stop, &facts.step_ms, err);
    if (status == STATUS_OK)
        status = time_layers(train, stop, &facts, err);
    train_pause(train, AGENT_PREPARING, "profile");
    if (status == STATUS_OK) {
        describe(train, &facts);
        status = train->place->rank == 0 ? report(train, &facts, err) : STATUS_OK;
    }
    loader_begin(train->loader, 0, NULL, 0); /* drops its pointer to the indices */
    free(indices);
    return status;
}
