/* --accumulation-steps over two ranks, through ddp-worker itself: losses, parameters, momentum and
 * running statistics are those of PyTorch's DistributedDataParallel with no_sync(), and the ranks
 * reduce once a step, after its last batch. accumulate_values.py made the values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/accumulate_values.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"
#include "worker/data/rng.h"
#include "worker/checkpoint/safetensors.h"

#define LOSS_TOLERANCE 1e-5   /* of its value */
#define TENSOR_TOLERANCE 1e-4 /* of the norm, and of the root mean square for an entry */
/* The gradient of a bias before a norm is 0 but for rounding; its momentum stays below this. */
#define NOISE 1e-5
#define POINTS 5

/* torch.randint takes one 32-bit number of the generator for each of its own. */
static void draw(struct rng *rng, uint32_t below, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(rng_u32(rng) % below);
}

static void write_data(void)
{
    static uint8_t pixels[IMAGES * SMALL_DATA_PIXELS], labels[IMAGES];
    struct rng rng;

    rng_seed(&rng, 5);
    draw(&rng, 256, pixels, sizeof pixels);
    draw(&rng, 10, labels, sizeof labels);
    small_data_write(test_dir(), "train", pixels, labels, IMAGES);
    small_data_write(test_dir(), "t10k", pixels, labels, IMAGES);
}

static void train(void)
{
    char args[2048], calls[512];
    const char *dir = test_dir();

    write_data();
    (void)snprintf(calls, sizeof calls, "%s/calls", dir);
    (void)setenv("DDP_TEST_CALLS", calls, 1);
    (void)snprintf(args, sizeof args,
                   "--device cpu -a convnet -b %d --accumulation-steps %d --max-steps %d " RATES
                   " --seed 0 --checkpoint-dir %s/checkpoints --loss-log %s/loss-%%r.txt %s",
                   BATCH, BATCHES, STEPS, dir, dir, dir);
    CHECK_EQ(gang_run(WORLD, args), 0);
}

static void check_losses(int rank)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/loss-%d.txt", test_dir(), rank);
    file = fopen(path, "re");
    CHECK(file != NULL);
    for (int i = 0; i < STEPS; i++) {
        const double expected = torch_losses[rank][i];
        unsigned epoch, step;
        double loss = 0;

        /* our own numbers: NOLINTNEXTLINE(cert-err34-c) */
        CHECK_EQ(fscanf(file, "%u %u %lf", &epoch, &step, &loss), 3);
        (void)printf("# rank %d, step %d: loss %.8f, PyTorch %.8f\n", rank, i + 1, loss, expected);
        CHECK_NEAR(loss, expected, LOSS_TOLERANCE * expected);
    }
    (void)fclose(file);
}

/* How far off, in tolerances. */
static double tensor_off(const struct torch_tensor *theirs, const float *ours, size_t count)
{
    const size_t last = count - 1, places[POINTS] = {0, 0, last / 3, 2 * last / 3, last};
    const double rms = theirs->values[0] / sqrt((double)count);
    double squares = 0.0, worst;

    for (size_t i = 0; i < count; i++)
        squares += (double)ours[i] * (double)ours[i];
    worst = fabs(sqrt(squares) - theirs->values[0]) / theirs->values[0];
    for (int k = 1; k < POINTS; k++) {
        const double off = fabs((double)ours[places[k]] - theirs->values[k]);

        worst = fmax(worst, off / fmax(rms, fabs(theirs->values[k])));
    }
    return squares >= 0.0 ? worst / TENSOR_TOLERANCE : (double)NAN;
}

static void check_tensor(const struct safetensors *file, const struct torch_tensor *theirs)
{
    const struct safetensors_tensor *tensor;
    char name[128];
    float *values;
    double off;

    (void)snprintf(name, sizeof name, "%s%s", theirs->is_momentum ? "optimizer.momentum." : "",
                   theirs->name);
    tensor = safetensors_find(file, name);
    if (tensor == NULL)
        FAIL("the checkpoint has no %s", name);
    CHECK(tensor->type == SAFETENSORS_F32 && tensor->byte_count >= sizeof *values);
    values = malloc(tensor->byte_count);
    CHECK(values != NULL);
    CHECK_EQ(safetensors_read(file, tensor, values, NULL), STATUS_OK);
    off = tensor_off(theirs, values, tensor->byte_count / sizeof *values);
    if (theirs->values[0] < NOISE)
        off = fabs((double)values[0]) / NOISE;
    (void)printf("# %s: %.2g of its tolerance\n", name, off);
    if (!(off <= 1.0))
        FAIL("%s is off by %.3g of its tolerance", name, off);
    free(values);
}

/* A step is one b for every batch, then nothing but the buckets' r, as many in every step. */
static void check_calls(int rank)
{
    char path[512], calls[4096], step[256];
    const char *at = calls;
    size_t count, reductions;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/calls-%d", test_dir(), rank);
    file = fopen(path, "re");
    CHECK(file != NULL);
    count = fread(calls, 1, sizeof calls - 1, file);
    calls[count] = '\0';
    (void)fclose(file);
    (void)printf("# rank %d: %s\n", rank, calls);
    reductions = strspn(calls + strspn(calls, "b"), "r");
    CHECK(reductions >= 1 && BATCHES + reductions < sizeof step);
    memset(step, 'b', BATCHES);
    memset(step + BATCHES, 'r', reductions);
    for (int i = 0; i < STEPS; i++, at += BATCHES + reductions)
        if (strncmp(at, step, BATCHES + reductions) != 0)
            FAIL("rank %d, step %d: not %.*s but %s", rank, i + 1, (int)(BATCHES + reductions),
                 step, at);
    CHECK_STR(at, "");
}

TEST(two_ranks_that_accumulate_are_those_of_torch)
{
    struct safetensors file;
    char path[512];
    struct err err = {.text = ""};

    train();
    for (int rank = 0; rank < WORLD; rank++)
        check_losses(rank);
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08d.safetensors", test_dir(), STEPS);
    if (safetensors_open(&file, path, &err) != STATUS_OK)
        FAIL("%s", err.text);
    for (size_t i = 0; i < sizeof torch_tensors / sizeof torch_tensors[0]; i++)
        check_tensor(&file, &torch_tensors[i]);
    safetensors_close(&file);
}

TEST(they_reduce_once_a_step)
{
    train();
    for (int rank = 0; rank < WORLD; rank++)
        check_calls(rank);
}

TEST_MAIN
