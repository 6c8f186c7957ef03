/* DDP over a fake net: equal state at the start, averaged gradients, differences named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/comm/crew.h"
#include "tests/unit/worker/comm/fake_net.h"
#include "worker/comm/ddp.h"
#include "worker/net/state.h"

/* What every rank does in a test. */
struct task {
    struct ddp_options options;
    uint32_t steps;
    uint32_t seed;                                        /* > 0: random buckets */
    void (*spoil)(struct fake_plan *plan, uint32_t rank); /* NULL: nothing */
    uint32_t odd_options_rank;                            /* has other options; 0: none */
    bool is_f16;                                          /* see fake_net.h */
};

static uint32_t draw(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void randomize_buckets(struct fake_plan *plan, uint32_t seed)
{
    plan->bucket_count = 1 + draw(&seed) % 40;
    for (uint32_t i = 0; i < plan->bucket_count; i++)
        plan->bucket_counts[i] = draw(&seed) % (i % 5 == 0 ? 40000U : 300U);
}

static int check_state(struct crew_seat *seat, struct net *net)
{
    struct net_view view = fake_params(net);

    for (size_t i = 0; i < view.count; i++)
        if (view.values[i] != (float)i)
            return snprintf(seat->text, sizeof seat->text, "parameter %zu is not rank 0's", i);
    view = fake_buffers(net);
    for (size_t i = 0; i < view.count; i++)
        if (view.values[i] != -(float)i)
            return snprintf(seat->text, sizeof seat->text, "buffer %zu is not rank 0's", i);
    return 0;
}

static int check_grads(struct crew_seat *seat, struct net *net, uint32_t step)
{
    const struct task *task = seat->user;
    const float unit = task->is_f16 ? FAKE_TINY : 1.0F;
    const float off = task->is_f16 ? 1.01F * FAKE_TINY : 1e-2F;

    for (uint32_t index = 0; index < net_bucket_count(net); index++) {
        const struct net_view bucket = fake_bucket(net, index);

        for (size_t i = 0; i < bucket.count; i++) {
            float want = 0.0F;

            for (uint32_t r = 0; r < seat->world; r++)
                want += unit * fake_grad(r, step, index, i) / (float)seat->world;
            if (!(bucket.values[i] - want <= off && want - bucket.values[i] <= off))
                return snprintf(seat->text, sizeof seat->text, "step %u bucket %u, %zu: %g not %g",
                                step, index, i, (double)bucket.values[i], (double)want);
        }
    }
    return 0;
}

static int train(struct crew_seat *seat, struct ddp *ddp, struct net *net, uint32_t steps)
{
    const struct net_view buffers = fake_buffers(net);
    struct err err = {.text = ""};

    if (check_state(seat, net) != 0)
        return 1;
    for (uint32_t step = 0; step < steps; step++) {
        struct ddp_times times;

        for (size_t i = 0; i < buffers.count; i++) /* as batch norm does, different on every rank */
            buffers.values[i] = seat->rank == 0 ? -(float)i : 5.0F;
        if (ddp_forward_begin(ddp, &err) != STATUS_OK ||
            net_backward_reduce(net, 1.0F, &err) != STATUS_OK)
            return snprintf(seat->text, sizeof seat->text, "%s", err.text);
        times = ddp_times(ddp);
        if (times.exposed_us > 60000000 || times.comm_us > 60000000)
            return snprintf(seat->text, sizeof seat->text, "times are nonsense");
        if (check_grads(seat, net, step) != 0)
            return 1;
    }
    return 0;
}

static int body(struct crew_seat *seat)
{
    const struct task *task = seat->user;
    struct fake_plan plan = fake_plan_of(seat->rank);
    struct ddp_options options = task->options;
    struct err err = {.text = ""};
    struct reducer reducer;
    struct ddp *ddp = NULL;
    struct net *net;
    int rc = 2;

    if (task->seed > 0)
        randomize_buckets(&plan, task->seed);
    plan.is_f16 = task->is_f16;
    if (task->spoil != NULL)
        task->spoil(&plan, seat->rank);
    if (task->odd_options_rank > 0 && seat->rank == task->odd_options_rank)
        options.broadcast_buffers = !options.broadcast_buffers;
    net = fake_net_new(&plan);
    if (ddp_new(&ddp, seat->comm, net, seat->rank, seat->world, &options, &err) == STATUS_OK &&
        ddp_reducer(ddp, &reducer, &err) == STATUS_OK) {
        CHECK(!reducer.graphable);
        net_set_reducer(net, &reducer);
        rc = train(seat, ddp, net, task->steps);
    } else
        (void)snprintf(seat->text, sizeof seat->text, "%s: %s", status_name(err.status), err.text);
    if (rc == 0 && options.broadcast_buffers)
        rc = check_state(seat, net);
    ddp_free(&ddp);
    fake_net_free(&net);
    return rc;
}

TEST(gradients_are_averaged)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 8};

    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        struct task task = {.steps = 5, .options = {.broadcast_buffers = true}};
        struct crew crew;

        crew_run(&crew, worlds[i], body, &task);
        crew_check(&crew);
        task.options.delay_allreduce = true;
        crew_run(&crew, worlds[i], body, &task);
        crew_check(&crew);
    }
}

/* A reducer that is not DDP's, like the device's: then DDP only makes the ranks' states equal. */
static enum status nothing(void *context, struct err *err)
{
    (void)context;
    (void)err;
    return STATUS_OK;
}

static enum status count_bucket(void *context, uint32_t index, struct err *err)
{
    (void)index;
    (void)err;
    (*(uint32_t *)context)++;
    return STATUS_OK;
}

static int body_on_device(struct crew_seat *seat)
{
    struct fake_plan plan = fake_plan_of(seat->rank);
    const struct ddp_options options = {.broadcast_buffers = true};
    uint32_t count = 0;
    const struct reducer reducer = {&count, nothing, count_bucket, nothing, 1.0F, true};
    struct err err = {.text = ""};
    struct ddp *ddp = NULL;
    struct net *net = fake_net_new(&plan);
    int rc = 0;

    net_set_reducer(net, &reducer);
    if (ddp_new(&ddp, seat->comm, net, seat->rank, seat->world, &options, &err) != STATUS_OK ||
        net_backward_reduce(net, 0.5F, &err) != STATUS_OK ||
        net_backward_reduce(net, 0.5F, &err) != STATUS_OK)
        rc = snprintf(seat->text, sizeof seat->text, "%s", err.text);
    else if (count != 2 * plan.bucket_count || ddp_times(ddp).comm_us != 0)
        rc = snprintf(seat->text, sizeof seat->text, "%u buckets", count);
    else if (fake_bucket(net, 2).values[7] != 0.5F * fake_grad(seat->rank, 1, 2, 7))
        rc = snprintf(seat->text, sizeof seat->text, "a gradient was touched");
    ddp_free(&ddp);
    fake_net_free(&net);
    return rc;
}

TEST(gradients_that_the_device_averages_are_left_alone)
{
    struct crew crew;

    crew_run(&crew, 4, body_on_device, NULL);
    crew_check(&crew);
}

TEST(predivided_gradients_are_averaged_too)
{
    static const float factors[] = {1.0F, 2.0F, 8.0F};

    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct task task = {.steps = 3, .options = {.predivide = factors[i]}};
        struct crew crew;

        for (uint32_t world = 1; world <= 4; world++) {
            crew_run(&crew, world, body, &task);
            crew_check(&crew);
        }
    }
}

/* Values of 16 bit that are divided before the sum would lose up to 4 units here. */
TEST(the_smallest_gradients_keep_their_bits)
{
    struct task task = {.steps = 3, .options = {.broadcast_buffers = true}, .is_f16 = true};
    struct crew crew;

    crew_run(&crew, 8, body, &task);
    crew_check(&crew);
    task.options.allreduce_always_fp32 = true;
    crew_run(&crew, 8, body, &task);
    crew_check(&crew);
}

TEST(random_buckets)
{
    for (uint32_t seed = 1; seed <= 30; seed++) {
        struct task task = {.steps = 3, .seed = seed * 7919};
        struct crew crew;

        crew_run(&crew, 2 + seed % 4, body, &task);
        crew_check(&crew);
    }
}

/* Runs until every rank refuses, with the same words. */
static void expect_conflict(const struct task *task, const char *words)
{
    struct task copy = *task;
    struct crew crew;

    crew_run(&crew, 4, body, &copy);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(crew.seats[i].rc, 2);
        CHECK_STR(crew.seats[i].text, words);
    }
}

static void spoil_shape(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 2)
        plan->tensors[0].dims[0] = 32;
    if (rank == 3)
        plan->tensors[2].name = "fc.weight";
}

static void spoil_layout(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 3)
        plan->layouts[2] = 8;
}

static void spoil_count(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 1)
        plan->tensor_count = 2;
}

static void spoil_buckets(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 1)
        plan->bucket_counts[1] = 1;
}

static void spoil_order(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 1)
        plan->order = 1;
}

TEST(a_difference_names_rank_and_parameter)
{
    expect_conflict(&(struct task){.spoil = spoil_shape},
                    "CONFLICT: rank 2 differs from rank 0 in parameter layer1.0.weight [32, 1, 5, "
                    "5]: rank 0 has layer1.0.weight [16, 1, 5, 5]");
    expect_conflict(
        &(struct task){.spoil = spoil_layout},
        "CONFLICT: rank 3 differs from rank 0 in parameter fc.bias [10]: type or memory "
        "layout; where CPUs differ, set ONEDNN_MAX_CPU_ISA=AVX2 for all ranks");
    expect_conflict(&(struct task){.spoil = spoil_count},
                    "CONFLICT: rank 1 has 2 parameters and buffers, rank 0 has 3: is --arch the "
                    "same on all ranks?");
    expect_conflict(&(struct task){.spoil = spoil_buckets},
                    "CONFLICT: rank 1 cuts the gradients into other buckets (3) than rank 0 (3): "
                    "are the bucket sizes the same on all ranks?");
    expect_conflict(&(struct task){.spoil = spoil_order},
                    "CONFLICT: the ranks have the same parameters in different nets: run the same "
                    "program with the same options on all nodes; with -a FILE.json, the same file");
    expect_conflict(&(struct task){.odd_options_rank = 3},
                    "CONFLICT: rank 3 has other DDP options than rank 0: are --delay-allreduce, "
                    "--allreduce-always-fp32, --predivide-factor and the broadcast of buffers the "
                    "same on all ranks?");
}

static void spoil_backward(struct fake_plan *plan, uint32_t rank)
{
    if (rank == 1)
        plan->fail_bucket = 2;
}

/* The rank that fails says why; the others say that it left. */
TEST(failing_backward_ends_all_ranks)
{
    struct task task = {.steps = 1, .spoil = spoil_backward};
    struct crew crew;

    crew_run(&crew, 3, body, &task);
    CHECK_STR(crew.seats[1].text, "backward fails on purpose");
    for (uint32_t i = 0; i < 3; i += 2) {
        CHECK(crew.seats[i].rc != 0);
        CHECK(strstr(crew.seats[i].text, "gradients, bucket 3 of 3: rank 1 has left") != NULL);
    }
}

TEST_MAIN
