/* What one step calls, in order, with functions of this file in place of the net and the loader. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/net/replicas.h"
#include "worker/options.h"
#include "worker/train/internal.h"

static char order[256];
static bool loader_fails;

static void note(const char *word)
{
    const size_t at = strlen(order);

    (void)snprintf(order + at, sizeof order - at, "%s ", word);
}

/* -- nccl.c and loading.c -- */

void train_nccl_loading(struct train *train, bool is_loading)
{
    (void)train;
    note(is_loading ? "loading" : "loaded");
}

void train_pause(struct train *train, enum agent_phase phase, const char *what)
{
    (void)train;
    (void)phase;
    (void)what;
    note("pause");
}

enum status train_next_batch(struct train *train, struct loader *loader, struct loader_batch *batch,
                             struct err *err)
{
    (void)loader;
    note("batch");
    if (loader_fails)
        return err_set(err, STATUS_IO, 0, "a disk");
    *batch = (struct loader_batch){.n = train->options->batch};
    return STATUS_OK;
}

/* -- the rest -- */

size_t train_step_images(const struct train *train)
{
    return (size_t)train->options->batch * train->options->accumulation_steps;
}

enum status train_metrics_batch(struct train *train, const struct loader_batch *batch,
                                struct err *err)
{
    (void)train;
    (void)batch;
    (void)err;
    return STATUS_OK;
}

enum status train_parallel_forward(struct train *train, const struct net_images *images,
                                   const struct loader_batch *batch, bool training,
                                   struct net_result *result, struct err *err)
{
    (void)train;
    (void)images;
    (void)batch;
    (void)training;
    (void)result;
    (void)err;
    return STATUS_OK;
}

enum status replicas_backward(struct replicas *replicas, float grad_scale, struct err *err)
{
    (void)replicas;
    (void)grad_scale;
    (void)err;
    return STATUS_OK;
}

void net_step_graphable(struct net *net)
{
    (void)net;
}

enum status net_forward_images(struct net *net, const struct net_images *images,
                               const int64_t *labels, uint32_t n, bool training,
                               struct net_result *result, struct err *err)
{
    (void)net;
    (void)images;
    (void)labels;
    (void)n;
    (void)training;
    (void)result;
    (void)err;
    note("forward");
    return STATUS_OK;
}

enum status net_backward(struct net *net, float grad_scale, struct err *err)
{
    (void)net;
    (void)grad_scale;
    (void)err;
    note("backward");
    return STATUS_OK;
}

enum status net_backward_reduce(struct net *net, float grad_scale, struct err *err)
{
    (void)net;
    (void)grad_scale;
    (void)err;
    note("reduce");
    return STATUS_OK;
}

void net_grads_keep(struct net *net)
{
    (void)net;
    note("keep");
}

void net_grads_join(struct net *net)
{
    (void)net;
    note("join");
}

uint64_t trace_now(struct trace *trace)
{
    (void)trace;
    return 0;
}

void trace_span(struct trace *trace, enum trace_track track, const char *name, uint64_t begun_us,
                const char *arg, uint64_t value)
{
    (void)trace;
    (void)track;
    (void)name;
    (void)begun_us;
    (void)arg;
    (void)value;
}

void agent_doing(struct agent *agent, const char *what)
{
    (void)agent;
    (void)what;
}

/* -- tests -- */

static enum status group(uint32_t accumulation_steps)
{
    static const struct agent_place place = {.world = 2};
    const struct options options = {.batch = 4, .accumulation_steps = accumulation_steps};
    struct train train = {.options = &options, .place = &place};
    struct train_pending pending = {0};
    struct err err = {.text = ""};
    uint64_t wait_us = 0;

    order[0] = '\0';
    return train_group(&train, &pending, &wait_us, &err);
}

TEST(the_guard_knows_when_this_rank_waits_for_its_own_batch)
{
    CHECK_EQ(group(1), STATUS_OK);
    CHECK_STR(order, "loading batch loaded forward reduce ");
    CHECK_EQ(group(2), STATUS_OK);
    CHECK_STR(order, "loading batch loaded forward backward keep "
                     "loading batch loaded forward join reduce ");
}

TEST(a_batch_that_cannot_be_had_ends_the_wait_too)
{
    loader_fails = true;
    CHECK_EQ(group(1), STATUS_IO);
    loader_fails = false;
    CHECK_STR(order, "loading batch loaded ");
}

TEST_MAIN
