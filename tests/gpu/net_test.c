/* The CUDA backend on a GPU against the CPU backend: every kind of layer, whole steps of the
 * ConvNet and of ResNets at every opt level, captured steps, resume to the bit with
 * net_options.deterministic. The same pairs run on stand-ins without a GPU (unit test net-cuda). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/module/load.h"

static const struct cuda_module *module;
static struct cuda_kernels kernels;

/* The backend with that DDP_CUDA_STATS. */
static void use_stats(const char *stats)
{
    CHECK_EQ(setenv("DDP_CUDA_STATS", stats, 1), 0);
    cuda_backend_use(module->runtime, &kernels, module->plans, 0);
}

static void need_gpu(void)
{
    static struct err err;
    const struct cuda_load_options options = {.device_index = 0};
    struct cuda_device device;

    if (module != NULL) {
        use_stats("");
        return;
    }
    if (cuda_load(&options, &module, &device, &err) != STATUS_OK)
        SKIP(err.text);
    if (module->plans == NULL)
        SKIP("the module was built without cuDNN's headers");
    if (cuda_module_resolve(module, &kernels, &err) != STATUS_OK)
        FAIL("%s", err.text);
    use_stats("");
    (void)printf("# %s on %s\n", module->build, device.name);
}

static const char *const levels[] = {"O0", "O1", "O2", "O3"};
static const struct model_shape mnist = {1, 28, 28, 10};
enum { LEVELS = sizeof levels / sizeof levels[0] };

TEST(convnet_at_every_level)
{
    need_gpu();
    for (size_t l = 0; l < LEVELS; l++) {
        struct pair pair = pair_new(&(struct pair_options){
            .arch = "convnet", .level = levels[l], .shape = mnist, .batch = 100});

        pair_train(&pair, 4);
        pair_free(&pair);
    }
}

TEST(odd_layers_at_every_level)
{
    struct graph *graph = pair_odd_graph();

    need_gpu();
    for (size_t l = 0; l < LEVELS; l++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct pair pair = pair_new(&(struct pair_options){.arch = "odd",
                                                               .level = levels[l],
                                                               .graph = graph,
                                                               .shape = {3, 12, 12, 10},
                                                               .bf16 = bf16 != 0,
                                                               .label_smoothing = 0.1F});
            pair_train(&pair, 3);
            pair_free(&pair);
        }
    graph_free(&graph);
}

static void one_resnet(const char *arch, uint32_t size, uint32_t batch)
{
    for (size_t l = 0; l < LEVELS; l++) {
        struct pair pair = pair_new(&(struct pair_options){
            .arch = arch, .level = levels[l], .shape = {3, size, size, 1000}, .batch = batch});

        if (l > 0)
            pair.tolerance = 5e-2;
        pair_step(&pair, batch, false);
        pair_free(&pair);
    }
}

TEST(resnet18_step)
{
    need_gpu();
    one_resnet("resnet18", 64, 16);
}

TEST(resnet50_step)
{
    need_gpu();
    one_resnet("resnet50", 224, 8);
}

/* Residual blocks with gradients, then whole ResNets: statistics by the norms, by the convolutions
 * before them, and values made on the way into the next ones. */
TEST(batch_norms_of_every_form)
{
    static const char *const forms[] = {"0", "1", "2", "auto"};
    struct graph *graph = pair_residual_graph();

    need_gpu();
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (size_t l = 0; l < LEVELS; l++) {
            struct pair pair;

            use_stats(forms[f]);
            pair = pair_new(&(struct pair_options){.arch = "residual",
                                                   .level = levels[l],
                                                   .graph = graph,
                                                   .shape = {3, 8, 8, 10},
                                                   .batch = 16});
            pair_train(&pair, 3);
            pair_free(&pair);
        }
    graph_free(&graph);
}

static void train_residual_blocks(struct graph *graph, bool bf16)
{
    struct pair pair = pair_new(&(struct pair_options){.arch = "residual",
                                                       .level = "O2",
                                                       .graph = graph,
                                                       .shape = {3, 8, 8, 10},
                                                       .batch = 16,
                                                       .bf16 = bf16});

    pair_train(&pair, 3);
    pair_free(&pair);
}

/* Gradients of shortcuts that a data gradient reads under their mask, wherever there is a plan for that: in both types,
 * then in a ResNet. */
TEST(shortcuts_that_are_not_stored)
{
    struct graph *graph = pair_residual_graph();
    struct pair pair;

    CHECK_EQ(setenv("DDP_CUDA_SHORTCUTS", "1", 1), 0);
    need_gpu();
    train_residual_blocks(graph, false);
    train_residual_blocks(graph, true);
    pair = pair_new(&(struct pair_options){
        .arch = "resnet50", .level = "O2", .shape = {3, 224, 224, 1000}, .batch = 8});
    pair.tolerance = 5e-2;
    pair_step(&pair, 8, false);
    pair_free(&pair);
    CHECK_EQ(unsetenv("DDP_CUDA_SHORTCUTS"), 0);
    graph_free(&graph);
}

TEST(resnet50_with_statistics_in_the_convolution)
{
    need_gpu();
    for (int form = 1; form <= 2; form++) {
        struct pair pair;

        use_stats(form == 1 ? "1" : "2");
        pair = pair_new(&(struct pair_options){
            .arch = "resnet50", .level = "O2", .shape = {3, 224, 224, 1000}, .batch = 8});
        pair.tolerance = 5e-2;
        pair_step(&pair, 8, false);
        pair_free(&pair);
    }
}

TEST(every_optimizer)
{
    need_gpu();
    for (size_t i = 0; i < PAIR_OPTIMS; i++) {
        struct pair pair = pair_new(&(struct pair_options){
            .arch = "convnet", .level = "O2", .shape = mnist, .optim = pair_optims[i]});

        pair_train(&pair, 3);
        pair_free(&pair);
    }
}

/* Against steps that are not captured, to the bit. */
TEST(recorded_steps_are_the_same_steps)
{
    static const uint32_t sizes[] = {16, 16, 16, 16, 12, 12, 12, 16};

    need_gpu();
    for (size_t l = 0; l < LEVELS; l++) {
        struct pair pair = pair_new(&(struct pair_options){.arch = "convnet",
                                                           .level = levels[l],
                                                           .shape = mnist,
                                                           .batch = 16,
                                                           .deterministic = true,
                                                           .plain = &backend_cuda});

        pair.tolerance = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            pair_step(&pair, sizes[i], true);
            pair_check(&pair);
        }
        pair_free(&pair);
    }
}

/* Everything that a checkpoint has, through the host and back: then two more steps are equal to the
 * bit. */
TEST(resume_is_bit_exact)
{
    need_gpu();
    for (size_t l = 0; l < LEVELS; l++) {
        struct pair pair = pair_new(&(struct pair_options){.arch = "resnet18",
                                                           .level = levels[l],
                                                           .shape = {3, 64, 64, 10},
                                                           .batch = 16,
                                                           .deterministic = true,
                                                           .plain = &backend_cuda});

        pair.tolerance = 0;
        pair_resume(&pair, 3);
        for (int i = 0; i < 2; i++) {
            pair_step(&pair, 16, false);
            pair_check(&pair);
        }
        pair_free(&pair);
    }
}

TEST(clipping_and_accumulation)
{
    need_gpu();
    for (size_t l = 0; l < LEVELS; l++) {
        struct pair pair = pair_new(&(struct pair_options){.arch = "convnet",
                                                           .level = levels[l],
                                                           .shape = mnist,
                                                           .accumulate = true,
                                                           .clips = true});

        pair_train(&pair, 3);
        pair_free(&pair);
    }
}

TEST_MAIN
