/* A step never reads memory that it has released or that was never written. The test fills every
 * buffer of the CPU's arena with NaNs at the start of its lifetime and again at its end, and
 * results must not change. The lifetimes are those that cpu_memory.c plans with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/made_net.h"
#include "tests/lib/test.h"
#include "worker/backend/cpu/internal.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define BATCH 3
#define STEPS 3
#define CLASSES 10

static void poison(const struct cpu_request *want)
{
    memset(*want->at, 0xff, want->bytes); /* NaNs, in fp32 and in bf16 */
}

static void poison_births(const struct cpu *cpu, uint32_t time)
{
    for (uint32_t i = 0; i < cpu->request_count; i++)
        if (cpu->requests[i].birth == time)
            poison(&cpu->requests[i]);
}

/* Buffers that live to the end are not changed: if training fails, forward runs once more from the
 * images. */
static void poison_deaths(const struct cpu *cpu, uint32_t time)
{
    for (uint32_t i = 0; i < cpu->request_count && time + 1 < 2 * cpu->graph->layer_count; i++)
        if (cpu->requests[i].death == time)
            poison(&cpu->requests[i]);
}

/* All that the last step left; the images are written in here. */
static enum status poisoned_begin(void *state, const struct net_images *images,
                                  const int64_t *labels, uint32_t n, bool training, struct err *err)
{
    const struct cpu *cpu = state;

    for (uint32_t i = 0; i < cpu->request_count; i++)
        poison(&cpu->requests[i]);
    return backend_cpu.step_begin(state, images, labels, n, training, err);
}

static enum status poisoned_forward(void *state, uint32_t layer, struct err *err)
{
    enum status status;

    if (layer > 0)
        poison_births(state, layer);
    status = backend_cpu.layer_forward(state, layer, err);
    poison_deaths(state, layer);
    return status;
}

static enum status poisoned_backward(void *state, uint32_t layer, float grad_scale, struct err *err)
{
    const struct cpu *cpu = state;
    const uint32_t time = 2 * cpu->graph->layer_count - 1 - layer;
    enum status status;

    poison_births(cpu, time);
    status = backend_cpu.layer_backward(state, layer, grad_scale, err);
    poison_deaths(cpu, time);
    return status;
}

struct run {
    const char *arch, *level, *half_type;
    uint32_t channels, side;
    uint32_t image_channels; /* of the images, where the net has more */
};

static struct net *make_net(const struct run *run, const struct backend *backend)
{
    const struct model_shape shape = {run->channels, run->side, run->side, CLASSES};
    const struct amp_request request = {.level = run->level, .half_type = run->half_type};
    const struct amp amp = made_amp(&request);
    const struct net_options options = {.batch_max = BATCH,
                                        .backend = backend,
                                        .image_channels = run->image_channels,
                                        .accumulate = true,
                                        .amp = &amp};

    return made_model(run->arch, &shape, &options, 3);
}

static void step(struct net *net, const struct run *run, uint32_t number, struct net_result *result)
{
    const struct optim sgd = {.kind = OPTIM_SGD, .lr = 1e-6F, .momentum = 0.9F};
    const uint32_t n = number == 1 ? BATCH - 1 : BATCH;
    const uint32_t channels = run->image_channels > 0 ? run->image_channels : run->channels;
    const size_t count = (size_t)BATCH * channels * run->side * run->side;
    const int64_t labels[BATCH] = {1, 7, 4};
    float *images = malloc(count * sizeof *images);
    struct rng rng;

    CHECK(images != NULL);
    rng_seed(&rng, number);
    rng_uniform_f32(&rng, 0.0F, 1.0F, images, count);
    CHECK_EQ(net_forward(net, images, labels, n, true, &result[0], NULL), STATUS_OK);
    net_grads_join(net);
    CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
    net_update(net, &sgd);
    CHECK_EQ(net_forward(net, images, labels, n, false, &result[1], NULL), STATUS_OK);
    free(images);
}

static void check_same_state(const struct run *run, struct net *a, struct net *b)
{
    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        const struct net_tensor *tensor = net_tensor(a, i);
        float *values = malloc(2 * tensor->count * sizeof *values);

        CHECK(values != NULL);
        CHECK_EQ(net_tensor_read(a, i, values, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_read(b, i, values + tensor->count, NULL), STATUS_OK);
        if (memcmp(values, values + tensor->count, tensor->count * sizeof *values) != 0)
            FAIL("%s %s: %s differs", run->arch, run->level, tensor->name);
        free(values);
    }
}

static void compare(const struct run *run)
{
    struct backend poisoned = backend_cpu;
    struct net *nets[2];

    poisoned.step_begin = poisoned_begin;
    poisoned.layer_forward = poisoned_forward;
    poisoned.layer_backward = poisoned_backward;
    nets[0] = make_net(run, NULL);
    nets[1] = make_net(run, &poisoned);
    for (uint32_t number = 0; number < STEPS; number++) {
        struct net_result results[2][2];

        for (int k = 0; k < 2; k++)
            step(nets[k], run, number, results[k]);
        for (int k = 0; k < 2; k++)
            if (!(results[0][k].loss_sum == results[1][k].loss_sum)) /* and no NaN */
                FAIL("%s %s, step %u: a loss of %.17g, with poisoned memory %.17g", run->arch,
                     run->level, number, results[0][k].loss_sum, results[1][k].loss_sum);
    }
    check_same_state(run, nets[0], nets[1]);
    net_free(&nets[0]);
    net_free(&nets[1]);
}

TEST(resnet18_reads_only_what_lives)
{
    compare(&(struct run){"resnet18", "O0", NULL, 3, 48, 0});
    compare(&(struct run){"resnet18", "O0", NULL, 3, 28, 1});
}

TEST(resnet18_in_mixed_precision_reads_only_what_lives)
{
    compare(&(struct run){"resnet18", "O1", "bf16", 3, 32, 0});
    compare(&(struct run){"resnet18", "O2", "fp16", 3, 32, 0});
    compare(&(struct run){"resnet18", "O3", "bf16", 3, 32, 0});
}

TEST(bottlenecks_read_only_what_lives)
{
    compare(&(struct run){"resnet50", "O0", NULL, 3, 64, 0});
}

TEST(tutorial_nets_read_only_what_lives)
{
    compare(&(struct run){"convnet", "O0", NULL, 1, 28, 0});
    compare(&(struct run){"convnet", "O2", "bf16", 1, 28, 0});
    compare(&(struct run){"toynet", "O0", NULL, 3, 32, 0});
}

TEST_MAIN
