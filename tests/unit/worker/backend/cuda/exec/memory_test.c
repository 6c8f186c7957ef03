/* Lifetimes in the CUDA backend's arena: before every layer's forward and backward, all memory that
 * no buffer holds at that time is set to NaN, and so are buffers whose lifetime starts there. So a
 * buffer that is read after its end, or written before its beginning, changes the results, even if
 * that net's memory layout would hide the error. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/internal.h"

struct poison {
    const struct cuda *cuda;
    uint32_t time;
};

static size_t place_of(const struct cuda *cuda, const struct cuda_request *request)
{
    return (size_t)((const char *)*request->at - (const char *)cuda->arena);
}

/* Inside the fence. */
static void run_poison(void *args)
{
    const struct poison *poison = args;
    const struct cuda *cuda = poison->cuda;
    uint8_t *lives, *arena = cuda->arena;
    size_t end = 0;

    for (uint32_t i = 0; i < cuda->request_count; i++)
        if (place_of(cuda, &cuda->requests[i]) + cuda->requests[i].bytes > end)
            end = place_of(cuda, &cuda->requests[i]) + cuda->requests[i].bytes;
    lives = calloc(end + 1, 1);
    CHECK(lives != NULL);
    for (uint32_t i = 0; i < cuda->request_count; i++) {
        const struct cuda_request *request = &cuda->requests[i];

        if (request->birth < poison->time && poison->time <= request->death)
            memset(lives + place_of(cuda, request), 1, request->bytes);
    }
    for (size_t i = 0; i < end; i++)
        if (!lives[i])
            arena[i] = 0xff; /* a NaN in every type */
    free(lives);
}

static void poison(const struct cuda *cuda, uint32_t time)
{
    const struct poison args = {cuda, time};

    CHECK(cuda->request_count > 0);
    CHECK_EQ(standin_queue(cuda->stream, run_poison, &args, sizeof args), 0);
}

/* Which writes the images: those of layer 0, time 0. */
static enum status begin(void *state, const struct net_images *images, const int64_t *labels,
                         uint32_t n, bool training, struct err *err)
{
    poison(state, 0);
    return backend_cuda.step_begin(state, images, labels, n, training, err);
}

static enum status forward(void *state, uint32_t layer, struct err *err)
{
    if (layer > 0)
        poison(state, layer);
    return backend_cuda.layer_forward(state, layer, err);
}

static uint32_t not_stored; /* gradients of shortcuts */

static enum status backward(void *state, uint32_t layer, float grad_scale, struct err *err)
{
    const struct cuda *cuda = state;

    not_stored += cuda->layers[layer].graph->fused_add && cuda->layers[layer].in[1]->needs_grad &&
                  cuda->layers[layer].dx[1] == NULL;
    poison(cuda, 2 * cuda->graph->layer_count - 1 - layer);
    return backend_cuda.layer_backward(state, layer, grad_scale, err);
}

static void train(struct graph *graph, struct model_shape shape, const char *level)
{
    struct backend poisoned = backend_cuda;
    struct pair pair;

    poisoned.step_begin = begin;
    poisoned.layer_forward = forward;
    poisoned.layer_backward = backward;
    pair = pair_new(&(struct pair_options){
        .arch = "a graph", .level = level, .graph = graph, .shape = shape, .backend = &poisoned});
    pair_train(&pair, 2);
    pair_free(&pair);
}

static void train_at_every_level(struct graph *graph, struct model_shape shape)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static const char *const stats[] = {"0", "1", "2"};

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        for (size_t s = 0; s < sizeof stats / sizeof stats[0]; s++) {
            CHECK_EQ(setenv("DDP_CUDA_STATS", stats[s], 1), 0);
            cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
            train(graph, shape, levels[l]);
        }
    standin_faults.no_norm_plans = true;
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        train(graph, shape, levels[l]);
    standin_faults.no_norm_plans = false;
    graph_free(&graph);
}

TEST(odd_layers)
{
    train_at_every_level(pair_odd_graph(), (struct model_shape){3, 12, 12, 10});
}

TEST(residual_blocks)
{
    train_at_every_level(pair_residual_graph(), (struct model_shape){3, 8, 8, 10});
}

/* Our own kernels read the gradient of a norm's shortcut where the norm has it, if that is a norm too.
 * The graph has one such: u adds s, for 2 steps. Plans store all of them. */
TEST(gradients_of_shortcuts_are_not_stored)
{
    for (int no_plans = 0; no_plans < 2; no_plans++) {
        struct graph *graph = pair_residual_graph();

        not_stored = 0;
        cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
        standin_faults.no_norm_plans = no_plans == 1;
        train(graph, (struct model_shape){3, 8, 8, 10}, "O2");
        CHECK_EQ(not_stored, no_plans == 1 ? 2 : 0);
        graph_free(&graph);
    }
    standin_faults.no_norm_plans = false;
}

/* Nor those that a data gradient reads where the norm has them, with its mask, which live until then: i adds c, for 2
 * steps. */
TEST(gradients_under_a_mask_live_until_they_are_added)
{
    struct graph *graph = pair_residual_graph();

    CHECK_EQ(setenv("DDP_CUDA_STATS", "0", 1), 0);
    CHECK_EQ(setenv("DDP_CUDA_SHORTCUTS", "auto", 1), 0);
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    standin_plan_times_us[PLAN_CONV_DGRAD] = standin_plan_times_us[PLAN_CONV_DGRAD_ADD] = 10;
    standin_plan_times_us[PLAN_CONV_DGRAD_MASKED] = 10;
    memset(standin_plan_runs, 0, sizeof standin_plan_runs);
    train(graph, (struct model_shape){3, 8, 8, 10}, "O2");
    CHECK_EQ(standin_plan_runs[PLAN_CONV_DGRAD_MASKED], 2);
    memset(standin_plan_times_us, 0, sizeof standin_plan_times_us);
    CHECK_EQ(unsetenv("DDP_CUDA_SHORTCUTS"), 0);
    graph_free(&graph);
}

TEST_MAIN
