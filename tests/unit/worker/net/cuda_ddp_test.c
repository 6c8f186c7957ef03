/* The CUDA backend on stand-ins (tests/lib/standin.h) under what drives it: ranks whose gradients
 * travel through host memory, and the training loop with records, outcomes that come late, and a
 * resume. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/standin.h"
#include "tests/lib/test.h"
#include "tests/unit/comm/crew.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/ddp.h"
#include "worker/init.h"
#include "worker/model.h"
#include "worker/options.h"
#include "worker/train.h"

enum { BATCH = 4, SIDE = 12, STEPS = 3, WORLD = 2 };

static void use_standin(void)
{
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
}

struct ranks {
    const struct backend *backend;
    const char *level;
    struct ddp_options options;
    struct net *nets[WORLD];
};

static struct net *make_net(const struct ranks *ranks)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct amp_request request = {.level = ranks->level, .loss_scale = "128.0"};
    struct amp amp;
    const struct net_options options = {.batch_max = BATCH,
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

static enum status step(struct net *net, struct ddp *ddp, uint32_t seed, struct err *err)
{
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};
    float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];
    struct rng rng;
    enum status status = ddp_forward_begin(ddp, err);

    rng_seed(&rng, seed);
    rng_uniform_f32(&rng, 0.0F, 1.0F, images, sizeof images / sizeof images[0]);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int64_t)(rng_u32(&rng) % 10);
    if (status == STATUS_OK)
        status = net_forward(net, images, labels, BATCH, true, NULL, err);
    if (status == STATUS_OK)
        status = ddp_backward(ddp, 1.0F, err);
    if (status == STATUS_OK)
        net_update(net, &sgd);
    return status;
}

static int train_rank(struct crew_seat *seat)
{
    struct ranks *ranks = seat->user;
    struct net *net = ranks->nets[seat->rank];
    struct err err = {.text = ""};
    struct ddp *ddp = NULL;
    enum status status =
        ddp_new(&ddp, seat->comm, net, seat->rank, seat->world, &ranks->options, &err);

    for (uint32_t i = 0; status == STATUS_OK && i < STEPS; i++)
        status = step(net, ddp, i * WORLD + seat->rank, &err);
    ddp_free(&ddp);
    (void)snprintf(seat->text, sizeof seat->text, "%s", err.text);
    return status == STATUS_OK ? 0 : 1;
}

static void run_ranks(struct ranks *ranks)
{
    static struct crew crew;

    for (uint32_t i = 0; i < WORLD; i++)
        ranks->nets[i] = make_net(ranks);
    crew_run(&crew, WORLD, train_rank, ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        if (crew.seats[i].rc != 0)
            FAIL("rank %u: %s", i, crew.seats[i].text);
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
            struct ranks cuda = {&backend_cuda, half ? "O2" : "O0", all[i], {NULL}};
            struct ranks cpu = {&backend_cpu, half ? "O2" : "O0", all[i], {NULL}};

            run_ranks(&cuda);
            run_ranks(&cpu);
            if (all[i].broadcast_buffers) /* of the last step they are each rank's own */
                check_near(cuda.nets[0], cpu.nets[0], half ? 2e-2 : 1e-4);
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                net_free(&cuda.nets[rank]);
                net_free(&cpu.nets[rank]);
            }
        }
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
    const volatile bool stop = false;
    struct options options;
    struct train *train = NULL;
    struct err err = {.text = ""};

    (void)snprintf(log, sizeof log, "%s/%s", run->dir, run->name);
    (void)snprintf(checkpoints, sizeof checkpoints, "%s/%s.ck", run->dir, run->name);
    if (options_read(&options, sizeof argv / sizeof argv[0], argv, &err) != STATUS_OK)
        FAIL("%s", err.text);
    options.backend = run->backend;
    if (train_new(&train, &options, &place, NULL, &err) != STATUS_OK ||
        train_run(train, &stop, &err) != STATUS_OK)
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
    CHECK_EQ(standin_counts().repeated - before.repeated,
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
