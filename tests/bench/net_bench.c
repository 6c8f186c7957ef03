/* Training speed of one net on one process: forward, backward and SGD over synthetic images.
 *
 *   bench_convnet|bench_resnet [--arch NAME] [--size PIXELS] [--batch N] [--rounds R] [--steps S]
 * [--profile] [--opt-level LEVEL] [--low-type fp16|bf16]
 * [--device cpu|cuda]
 *
 * Prints one line a round, "round MILLISECONDS_A_STEP", as soon as the round is done, so that a
 * script can run rounds of another program in between (it waits for a line on stdin before each
 * round with --lockstep). Fixed values: seed 0. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/device.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/profile.h"

#define PROFILE_MAX 4096
#define TUNE_US 20000000 /* enough for a net's convolutions on an H100 */

/* What the two programs differ in; the build chooses a row by BENCH_CASE. */
struct bench_case {
    const char *name, *arch;
    uint32_t channels, size, classes; /* images are size x size */
    uint32_t batch, rounds, steps;    /* unless the command line says otherwise */
    uint32_t warm_up_steps;           /* not timed */
    bool has_variants;                /* --arch and --size are understood */
    enum status (*init)(struct net *net, const struct graph *graph, struct rng *rng,
                        struct err *err);
};
enum { CONVNET, RESNET };
/* The ConvNet on images of MNIST's shape, ResNets on images of ImageNet's. */
static const struct bench_case cases[] = {
    [CONVNET] = {"bench_convnet", "convnet", 1, 28, 10, 100, 5, 50, 5, false, init_torch_default},
    [RESNET] = {"bench_resnet", "resnet50", 3, 224, 1000, 16, 3, 1, 1, true,
                init_torchvision_resnet},
};
static const struct bench_case *const bench_case = &cases[BENCH_CASE];

struct bench {
    const char *arch, *opt_level, *half_type, *device_name;
    struct device device;
    uint32_t batch, rounds, steps, size;
    bool profile, lockstep;
    struct net *net;
    uint8_t *bytes;
    int64_t *labels;
    uint64_t warm_ns[PROFILE_MAX]; /* the profile before the first round: making primitives does not
                                      count */
};

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int complain(const struct err *err)
{
    (void)fprintf(stderr, "%s: %s\n", bench_case->name, err->text);
    return 1;
}

static enum status choose_types(const struct bench *bench, struct amp *amp, struct err *err)
{
    const struct amp_request request = {.level = bench->opt_level, .half_type = bench->half_type};

    return amp_resolve(amp, &request, err);
}

static enum status make_net(struct bench *bench, struct rng *rng, struct err *err)
{
    struct amp amp;
    const struct net_options options = {.batch_max = bench->batch,
                                        .profile = bench->profile,
                                        .tune_us = TUNE_US,
                                        .tunes_cold = true,
                                        .amp = &amp,
                                        .backend = bench->device.backend};
    const struct model_shape shape = {bench_case->channels, bench->size, bench->size,
                                      bench_case->classes};
    struct graph *graph = NULL;
    enum status status = choose_types(bench, &amp, err);

    if (status == STATUS_OK)
        status = model_build(&graph, bench->arch, &shape, err);
    if (status == STATUS_OK)
        status = net_new(&bench->net, graph, &options, err);
    if (status == STATUS_OK)
        status = bench_case->init(bench->net, graph, rng, err);
    graph_free(&graph);
    return status;
}

static enum status make(struct bench *bench, struct err *err)
{
    const size_t count = (size_t)bench->batch * bench_case->channels * bench->size * bench->size;
    struct err notice;
    struct rng rng;

    if (device_open(&bench->device, bench->device_name, 0, &notice, err) != STATUS_OK)
        return err->status;
    rng_seed(&rng, 0);
    bench->bytes = malloc(count);
    bench->labels = malloc(bench->batch * sizeof *bench->labels);
    if (bench->bytes == NULL || bench->labels == NULL)
        return err_set(err, STATUS_MEMORY, 0, "images: out of memory");
    if (make_net(bench, &rng, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < count; i++)
        bench->bytes[i] = (uint8_t)(rng_u32(&rng) >> 24);
    for (uint32_t i = 0; i < bench->batch; i++)
        bench->labels[i] = (int64_t)(rng_u32(&rng) % bench_case->classes);
    return STATUS_OK;
}

/* Takes outcomes: the newest may stay on its way, as in training, unless `all`. */
static enum status take(struct bench *bench, bool all, uint32_t *queued, double *loss,
                        struct err *err)
{
    enum status status = STATUS_OK;
    bool taken = true;

    while (status == STATUS_OK && taken && *queued > (all ? 0 : NET_OUTCOMES - 1)) {
        struct net_outcome outcome;

        status = net_outcome_take(bench->net, true, &outcome, &taken, err);
        if (status != STATUS_OK || !taken)
            break;
        (*queued)--;
        *loss = outcome.result.loss_sum / bench->batch;
    }
    return status;
}

static enum status run_steps(struct bench *bench, uint32_t steps, double *loss, struct err *err)
{
    const struct optim optim = {.lr = 1e-4F};
    const struct net_images images = {.bytes = bench->bytes};
    uint32_t queued = 0;

    for (uint32_t i = 0; i < steps; i++) {
        enum status status;

        net_step_graphable(bench->net);
        status =
            net_forward_images(bench->net, &images, bench->labels, bench->batch, true, NULL, err);
        if (status == STATUS_OK)
            status = net_backward(bench->net, 1.0F, err);
        if (status != STATUS_OK)
            return status;
        net_update(bench->net, &optim);
        queued++;
        status = take(bench, false, &queued, loss, err);
        if (status != STATUS_OK)
            return status;
    }
    return take(bench, true, &queued, loss, err);
}

static enum status run_rounds(struct bench *bench, struct err *err)
{
    double loss = 0.0;
    enum status status =
        run_steps(bench, bench_case->warm_up_steps, &loss, err); /* primitives, pages, clocks */
    char line[16];
    struct net_profile p;

    for (uint32_t i = 0; i < PROFILE_MAX && net_profile(bench->net, i, &p); i++)
        bench->warm_ns[i] = p.ns;

    for (uint32_t i = 0; i < bench->rounds && status == STATUS_OK; i++) {
        double start;

        if (bench->lockstep && fgets(line, sizeof line, stdin) == NULL)
            break;
        start = now_ms();
        status = run_steps(bench, bench->steps, &loss, err);
        (void)printf("round %.6f\n", (now_ms() - start) / bench->steps);
        (void)fflush(stdout);
    }
    (void)printf("loss %.6f\nbytes %zu\n", loss, net_bytes(bench->net));
    return status;
}

static void print_profile(const struct bench *bench)
{
    const double steps = (double)bench->steps * bench->rounds;
    struct net_profile p;

    for (uint32_t i = 0; i < PROFILE_MAX && net_profile(bench->net, i, &p); i++)
        if (p.calls > 0)
            (void)printf("profile %s | %s | %.1f us/step\n", p.layer, p.work,
                         (double)(p.ns - bench->warm_ns[i]) * 1e-3 / steps);
}

static bool parse(struct bench *bench, int argc, char **argv)
{
    static const struct option options[] = {
        {"batch", required_argument, NULL, 'b'},
        {"arch", required_argument, NULL, 'a'},
        {"size", required_argument, NULL, 'x'},
        {"rounds", required_argument, NULL, 'r'},
        {"steps", required_argument, NULL, 's'},
        {"profile", no_argument, NULL, 'p'},
        {"lockstep", no_argument, NULL, 'l'},
        {"opt-level", required_argument, NULL, 'o'},
        {"low-type", required_argument, NULL, 't'},
        {"device", required_argument, NULL, 'd'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long value =
            optarg != NULL && strchr("aotd", option) == NULL ? strtoul(optarg, NULL, 10) : 1;

        if (option == '?' || value < 1 || value > 100000)
            return false;
        if (option == 'b')
            bench->batch = (uint32_t)value;
        else if (option == 'r')
            bench->rounds = (uint32_t)value;
        else if (option == 's')
            bench->steps = (uint32_t)value;
        else if ((option == 'x' || option == 'a') && !bench_case->has_variants)
            return false;
        else if (option == 'x')
            bench->size = (uint32_t)value;
        else if (option == 'a')
            bench->arch = optarg;
        else if (option == 'p')
            bench->profile = true;
        else if (option == 'o')
            bench->opt_level = optarg;
        else if (option == 'd')
            bench->device_name = optarg;
        else if (option == 't')
            bench->half_type = optarg;
        else
            bench->lockstep = true;
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct bench bench = {.arch = bench_case->arch,
                          .opt_level = "O0",
                          .device_name = "cpu",
                          .batch = bench_case->batch,
                          .rounds = bench_case->rounds,
                          .steps = bench_case->steps,
                          .size = bench_case->size};
    struct err err = {0};
    int rc = 0;

    if (!parse(&bench, argc, argv)) {
        (void)fprintf(stderr,
                      "usage: %s %s[--batch N] [--rounds N] [--steps N] [--profile] [--lockstep] "
                      "[--opt-level LEVEL] [--low-type TYPE] [--device NAME]\n",
                      bench_case->name,
                      bench_case->has_variants ? "[--arch NAME] [--size PIXELS] " : "");
        return 2;
    }
    if (make(&bench, &err) != STATUS_OK || run_rounds(&bench, &err) != STATUS_OK)
        rc = complain(&err);
    else if (bench.profile)
        print_profile(&bench);
    net_free(&bench.net);
    device_close(&bench.device);
    free(bench.bytes);
    free(bench.labels);
    return rc;
}
