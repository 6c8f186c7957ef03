/* The CUDA backend on stand-ins (tests/standin/cuda/standin.h) under its callers: ranks whose
 * gradients go through host memory, and the training loop with captures, late outcomes and a
 * resume. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "tests/unit/worker/comm/crew.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/comm/ddp.h"
#include "worker/device.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/options.h"
#include "worker/device.h"
#include "worker/net/state.h"
#include "worker/train/train.h"

enum { BATCH = 4, SIDE = 12, STEPS = 3, WORLD_MAX = 4 };

static void use_standin(void)
{
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
}

struct ranks {
    const struct backend *backend;
    const char *level;
    struct ddp_options options;
    uint32_t world; /* 1: BATCH images for each of the ranks that it stands for */
    uint32_t images_of;
    bool sync_bn;
    struct net *nets[WORLD_MAX];
    struct ddp *ddps[WORLD_MAX];
    double losses[WORLD_MAX][STEPS];
};

static enum status sum_over_ranks(void *user, double *values, size_t count, struct err *err)
{
    return ddp_sum(*(struct ddp *const *)user, values, count, err);
}

static struct net *make_net(struct ranks *ranks, uint32_t rank)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct amp_request request = {.level = ranks->level, .loss_scale = "128.0"};
    struct amp amp;
    const struct net_options options = {.batch_max = BATCH * ranks->images_of,
                                        .norm_sum = ranks->sync_bn ? sum_over_ranks : NULL,
                                        .norm_sum_user = &ranks->ddps[rank],
                                        .bucket_first_bytes = 4096,
                                        .bucket_bytes = 8192,
                                        .amp = &amp,
                                        .backend = ranks->backend};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct err err = {.text = ""};
    struct rng rng;

    CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    if (net_new(&net, graph, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    rng_seed(&rng, 1);
    CHECK_EQ(init_torch_default(net, graph, &rng, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

/* Images of `count` ranks from `rank` on, of one step. */
static void draw_batch(uint32_t seed, uint32_t count, float *images, int64_t *labels)
{
    struct rng rng;

    for (uint32_t r = 0; r < count; r++) {
        rng_seed(&rng, seed + r);
        rng_uniform_f32(&rng, 0.0F, 1.0F, images + (size_t)r * BATCH * SIDE * SIDE,
                        (size_t)BATCH * SIDE * SIDE);
        for (int i = 0; i < BATCH; i++)
            *labels++ = (int64_t)(rng_u32(&rng) % 10);
    }
}

static enum status step(struct ranks *ranks, uint32_t rank, uint32_t index, struct err *err)
{
    static _Thread_local float images[WORLD_MAX * BATCH * SIDE * SIDE];
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    const uint32_t n = BATCH * ranks->images_of;
    struct net *net = ranks->nets[rank];
    struct ddp *ddp = ranks->ddps[rank];
    int64_t labels[WORLD_MAX * BATCH];
    struct net_result result = {0};
    enum status status = ddp_forward_begin(ddp, err);

    draw_batch(index * WORLD_MAX + rank, ranks->images_of, images, labels);
    if (status == STATUS_OK)
        status = net_forward(net, images, labels, n, true, &result, err);
    ranks->losses[rank][index] = result.loss_sum / n;
    if (status == STATUS_OK)
        status = net_backward_reduce(net, 1.0F, err);
    if (status == STATUS_OK)
        net_update(net, &sgd);
    return status;
}

static int train_rank(struct crew_seat *seat)
{
    struct ranks *ranks = seat->user;
    struct ddp **ddp = &ranks->ddps[seat->rank];
    struct err err = {.text = ""};
    enum status status = ddp_new(ddp, seat->comm, ranks->nets[seat->rank], seat->rank, seat->world,
                                 &ranks->options, &err);
    struct reducer reducer;

    if (status == STATUS_OK)
        status = ddp_reducer(*ddp, &reducer, &err);
    if (status == STATUS_OK)
        net_set_reducer(ranks->nets[seat->rank], &reducer);
    for (uint32_t i = 0; status == STATUS_OK && i < STEPS; i++)
        status = step(ranks, seat->rank, i, &err);
    ddp_free(ddp);
    (void)snprintf(seat->text, sizeof seat->text, "%s", err.text);
    return status == STATUS_OK ? 0 : 1;
}

static void run_ranks(struct ranks *ranks)
{
    static struct crew crew;

    for (uint32_t i = 0; i < ranks->world; i++)
        ranks->nets[i] = make_net(ranks, i);
    crew_run(&crew, ranks->world, train_rank, ranks);
    for (uint32_t i = 0; i < ranks->world; i++)
        if (crew.seats[i].rc != 0)
            FAIL("rank %u: %s", i, crew.seats[i].text);
}

static void free_ranks(struct ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        net_free(&ranks->nets[i]);
}

/* Relative to the CPU's norm; equal to the bit where the tolerance is 0. */
static void check_near(struct net *a, struct net *b, double tolerance)
{
    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        const struct net_tensor *tensor = net_tensor(a, i);
        float *of_a = calloc(tensor->count, sizeof *of_a);
        float *of_b = calloc(tensor->count, sizeof *of_b);
        double norm = 0, diff = 0;

        CHECK(of_a != NULL && of_b != NULL);
        CHECK_EQ(net_tensor_read(a, i, of_a, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_read(b, i, of_b, NULL), STATUS_OK);
        for (size_t k = 0; k < tensor->count; k++) {
            norm += (double)of_b[k] * (double)of_b[k];
            diff += ((double)of_a[k] - (double)of_b[k]) * ((double)of_a[k] - (double)of_b[k]);
        }
        free(of_a);
        free(of_b);
        if (!(sqrt(diff) <= tolerance * (sqrt(norm) + 1e-2)))
            FAIL("%s is off by %g of %g", tensor->name, sqrt(diff), sqrt(norm));
    }
}

TEST(ranks_reduce_through_host_memory)
{
    const struct ddp_options all[] = {
        {.broadcast_buffers = true},
        {.delay_allreduce = true},
        {.predivide = 2.0F, .allreduce_always_fp32 = true, .broadcast_buffers = true},
    };

    use_standin();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int half = 0; half < 2; half++) {
            struct ranks cuda = {.backend = &backend_cuda,
                                 .level = half ? "O2" : "O0",
                                 .options = all[i],
                                 .world = 2,
                                 .images_of = 1};
            struct ranks cpu = cuda;

            cpu.backend = &backend_cpu;
            run_ranks(&cuda);
            run_ranks(&cpu);
            if (all[i].broadcast_buffers) /* after the last step each rank has its own buffers */
                check_near(cuda.nets[0], cpu.nets[0], half ? 2e-2 : 1e-4);
            free_ranks(&cuda);
            free_ranks(&cpu);
        }
}

/* --sync-bn: ranks with a part of the images each give the same result as one rank with all images,
 * on the CPU too. */
static void check_sync(uint32_t world, const char *level, double tolerance)
{
    struct ranks parts = {.backend = &backend_cuda,
                          .level = level,
                          .options = {.broadcast_buffers = true},
                          .world = world,
                          .images_of = 1,
                          .sync_bn = true};
    struct ranks whole = parts, cpu = parts;

    whole.world = 1;
    whole.images_of = world;
    cpu.backend = &backend_cpu;
    run_ranks(&parts);
    run_ranks(&whole);
    run_ranks(&cpu);
    for (uint32_t i = 0; i < STEPS; i++) {
        double mean = 0, of_cpu = 0;

        for (uint32_t rank = 0; rank < world; rank++) {
            mean += parts.losses[rank][i] / world;
            of_cpu += cpu.losses[rank][i] / world;
        }
        CHECK_NEAR(mean, whole.losses[0][i], tolerance * whole.losses[0][i]);
        CHECK_NEAR(mean, of_cpu, tolerance * of_cpu);
    }
    check_near(parts.nets[0], whole.nets[0], 20 * tolerance);
    check_near(parts.nets[0], cpu.nets[0], 20 * tolerance);
    free_ranks(&parts);
    free_ranks(&whole);
    free_ranks(&cpu);
}

TEST(statistics_over_all_ranks)
{
    use_standin();
    check_sync(2, "O0", 1e-5);
    check_sync(4, "O0", 1e-5);
    check_sync(2, "O2", 2e-3);
    check_sync(4, "O1", 2e-3);
}

/* -- the loop -- */

struct run {
    const struct backend *backend;
    const char *dir, *name, *level, *max_steps;
};

static void run_training(const struct run *run)
{
    char log[256], checkpoints[256];
    char *argv[] = {"ddp-worker",
                    "--batch-size",
                    "8",
                    "--momentum",
                    "0.9",
                    "--lr",
                    "0.01",
                    "--max-steps",
                    (char *)(uintptr_t)run->max_steps,
                    "--opt-level",
                    (char *)(uintptr_t)run->level,
                    "--loss-log",
                    log,
                    "--resume",
                    "auto",
                    "--print-freq",
                    "1000",
                    "--checkpoint-dir",
                    checkpoints,
                    (char *)(uintptr_t)run->dir};
    const struct agent_place place = {.world = 1, .local_world = 1, .generation = 1, .shim_fd = -1};
    const struct device device = {.backend = run->backend};
    struct signals signals = {.stop = false};
    struct options options;
    const struct train_setup setup = {&options, &place, &device, NULL};
    struct train *train = NULL;
    struct err err = {.text = ""};

    (void)snprintf(log, sizeof log, "%s/%s", run->dir, run->name);
    (void)snprintf(checkpoints, sizeof checkpoints, "%s/%s.ck", run->dir, run->name);
    if (options_read(&options, sizeof argv / sizeof argv[0], argv, &err) != STATUS_OK)
        FAIL("%s", err.text);
    if (train_new(&train, &setup, &err) != STATUS_OK ||
        train_run(train, &signals, &err) != STATUS_OK)
        FAIL("%s", err.text);
    train_free(&train);
}

static void write_whole(const char *dir, const char *name, const uint8_t *bytes, size_t count)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "we");
    CHECK(file != NULL && fwrite(bytes, 1, count, file) == count);
    CHECK_EQ(fclose(file), 0);
}

/* MNIST's format: `count` images of noise, few of them, since plain loops look at each. */
static void write_set(const char *dir, const char *set, uint8_t count)
{
    static uint8_t images[16 + 255 * SIDE * SIDE] = {0, 0, 8, 3, [11] = SIDE, [15] = SIDE};
    static uint8_t labels[8 + 255] = {0, 0, 8, 1};
    char name[64];
    struct rng rng;

    rng_seed(&rng, count);
    images[7] = labels[7] = count;
    for (size_t i = 0; i < (size_t)count * SIDE * SIDE; i++)
        images[16 + i] = (uint8_t)rng_u32(&rng);
    for (size_t i = 0; i < count; i++)
        labels[8 + i] = (uint8_t)(rng_u32(&rng) % 10);
    (void)snprintf(name, sizeof name, "%s-images-idx3-ubyte", set);
    write_whole(dir, name, images, 16 + (size_t)count * SIDE * SIDE);
    (void)snprintf(name, sizeof name, "%s-labels-idx1-ubyte", set);
    write_whole(dir, name, labels, 8 + (size_t)count);
}

/* Losses by step, from 1. */
static uint32_t read_losses(const char *dir, const char *name, double losses[16])
{
    char path[256], line[128];
    uint32_t count = 0;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "re");
    CHECK(file != NULL);
    while (count < 16 && fgets(line, sizeof line, file) != NULL) { /* epoch, step, loss */
        char *end;

        CHECK_EQ(strtoul(line, &end, 10), 1);
        CHECK_EQ(strtoul(end, &end, 10), count + 1);
        losses[count++] = strtod(end, NULL);
    }
    (void)fclose(file);
    return count;
}

static void one_level(const char *dir, const char *level)
{
    const struct standin_counts before = standin_counts();
    double whole[16] = {0}, parts[16] = {0}, cpu[16] = {0};
    char names[3][16];

    (void)snprintf(names[0], sizeof names[0], "whole-%s", level);
    (void)snprintf(names[1], sizeof names[1], "parts-%s", level);
    (void)snprintf(names[2], sizeof names[2], "cpu-%s", level);
    run_training(&(struct run){&backend_cuda, dir, names[0], level, "8"});
    run_training(&(struct run){&backend_cuda, dir, names[1], level, "5"});
    run_training(&(struct run){&backend_cuda, dir, names[1], level, "8"});
    run_training(&(struct run){&backend_cpu, dir, names[2], level, "8"});
    CHECK_EQ(read_losses(dir, names[0], whole), 8);
    CHECK_EQ(read_losses(dir, names[1], parts), 8);
    CHECK_EQ(read_losses(dir, names[2], cpu), 8);
    for (int i = 0; i < 8; i++) {
        CHECK(whole[i] == parts[i]);
        CHECK_NEAR(whole[i], cpu[i], (strcmp(level, "O0") == 0 ? 1e-3 : 5e-2) * cpu[i]);
    }
    CHECK_EQ(standin_counts().replayed - before.replayed,
             2 * (7 + 4 + 2)); /* all but the first ones */
    CHECK_EQ(standin_counts().device_blocks, before.device_blocks);
}

TEST(training_with_resume)
{
    const char *dir = test_dir();

    use_standin();
    write_set(dir, "train", 80);
    write_set(dir, "t10k", 12);
    one_level(dir, "O0");
    one_level(dir, "O1");
    one_level(dir, "O2");
}

TEST_MAIN
