/* Every kind of batch norm of a net on a GPU: our own kernels, part by part, beside cuDNN's plans,
 * as GB/s and as a share of what a copy reaches on this device; and which of them training uses.
 *
 *   bench_norms [--arch NAME] [--size PIXELS] [--batch N] [--opt-level LEVEL] [--low-type TYPE]
 *
 * Prints a table in Markdown, a row for each kind as it is measured, then one line "figure: ...".
 * Plans are the first engines that cuDNN proposes, so that all of it takes less than 20 s on a card; `choice` is the faster
 * by these figures. The bytes are the least that such a norm moves: x once for its
 * sums and once to apply them, both ways, since sums must be complete before they are used; with a
 * pool the backward sums read what forward kept. Small values stay in the device's cache between runs and between parts: those rates can be above a
 * copy's, which is of the largest norm's input. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/exec/internal.h"
#include "worker/device.h"
#include "worker/model/model.h"
#include "worker/net/net.h"

/* `parts`: of our own kernels. Plans include the pool. Microseconds; 0: not known. */
struct times {
    float parts[CUDA_NORM_PARTS], plan_forward, plan_backward;
};

struct options {
    const char *arch, *opt_level, *half_type;
    uint32_t batch, size;
};

/* Of a whole step, over norms for which both times are known. */
struct sums {
    double bytes, own_us, plans_us;
    uint32_t norms, by_plans, without;
};

static const struct backend *real;
static struct cuda *opened; /* the backend's state of the net */

static enum status open_and_keep(void **state, const struct graph *graph,
                                 const struct net_options *options, struct err *err)
{
    const enum status status = real->open(state, graph, options, err);

    opened = status == STATUS_OK ? *state : NULL;
    return status;
}

/* -- passes -- */

/* What the parts read of one another. */
static enum status own_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_pass(cuda, user, err);
}

static enum status sums_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_part(cuda, user, CUDA_NORM_SUMS, err);
}

static enum status apply_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_part(cuda, user, CUDA_NORM_APPLY, err);
}

static enum status backward_sums_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_part(cuda, user, CUDA_NORM_BACKWARD_SUMS, err);
}

static enum status backward_apply_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_part(cuda, user, CUDA_NORM_BACKWARD_APPLY, err);
}

static enum status plan_forward_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_plan_forward(cuda, user, err);
}

static enum status plan_backward_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_plan_backward(cuda, user, err);
}

static enum status copy_pass(struct cuda *cuda, void *user, struct err *err)
{
    const struct cuda_layer *norm = user;

    return cuda->runtime->queue_copy(norm->dx[0], norm->in[0]->data,
                                     cuda_value_bytes(cuda, norm->in[0]), cuda->stream, err);
}

/* -- bytes -- */

/* What the part reads and writes. */
static double part_bytes(const struct cuda *cuda, const struct cuda_layer *norm,
                         enum cuda_norm_part part)
{
    const double value = (double)cuda_value_bytes(cuda, norm->in[0]);
    const double elements = value / graph_dtype_bytes(norm->in[0]->dtype);
    const double out = (double)cuda_value_bytes(cuda, &norm->out);
    const bool pools = norm->graph->fused_pool;
    const double places = (double)norm->out.image_size * cuda->rows;
    const double mask = norm->graph->fused_relu ? elements / 8 : 0;
    const double add = norm->graph->fused_add ? value : 0;

    switch (part) {
    case CUDA_NORM_SUMS:
        return value;
    case CUDA_NORM_APPLY:
        return pools ? value + 2 * out + places : 2 * value + add + mask;
    case CUDA_NORM_BACKWARD_SUMS:
        return pools ? 2 * out + places : 2 * value + mask;
    case CUDA_NORM_BACKWARD_APPLY:
        return pools ? 2 * value + out + places : 3 * value + add + mask;
    case CUDA_NORM_PARTS:
        break;
    }
    return 0;
}

static double gb_per_s(double bytes, double us)
{
    return us > 0 ? bytes / us * 1e-3 : 0;
}

/* -- one kind of norm -- */

static void measure(struct cuda *cuda, const struct cuda_layer *norm, struct times *times)
{
    static const cuda_measured passes[CUDA_NORM_PARTS] = {
        [CUDA_NORM_SUMS] = sums_pass,
        [CUDA_NORM_APPLY] = apply_pass,
        [CUDA_NORM_BACKWARD_SUMS] = backward_sums_pass,
        [CUDA_NORM_BACKWARD_APPLY] = backward_apply_pass};

    for (uint32_t part = 0; part < CUDA_NORM_PARTS; part++)
        times->parts[part] = cuda_norm_time_us(cuda, norm, own_pass, passes[part]);
    if (cuda_has_plan(cuda, norm, PLAN_NORM_FORWARD))
        times->plan_forward = cuda_norm_time_us(cuda, norm, NULL, plan_forward_pass);
    if (cuda_has_plan(cuda, norm, PLAN_NORM_BACKWARD))
        times->plan_backward = cuda_norm_time_us(cuda, norm, plan_forward_pass, plan_backward_pass);
}

/* 0: a part is not known. */
static double own_us(const struct times *times)
{
    double us = 0;

    for (uint32_t part = 0; part < CUDA_NORM_PARTS; part++) {
        if (times->parts[part] <= 0)
            return 0;
        us += (double)times->parts[part];
    }
    return us;
}

static double plans_us(const struct times *times)
{
    if (times->plan_forward <= 0 || times->plan_backward <= 0)
        return 0;
    return (double)times->plan_forward + (double)times->plan_backward;
}

static void print_rate(double bytes, double us, double copy)
{
    if (us > 0 && copy > 0)
        (void)printf(" %.0f (%.0f %%) |", gb_per_s(bytes, us), 100 * gb_per_s(bytes, us) / copy);
    else
        (void)printf(" - |");
}

static bool is_by_plans(const struct times *times)
{
    return plans_us(times) > 0 && plans_us(times) <= own_us(times);
}

static const char *choice_of(const struct times *times)
{
    if (is_by_plans(times))
        return "plans";
    return plans_us(times) > 0 ? "own" : "own: no plan";
}

/* copy: GB/s. */
static void print_row(const struct cuda *cuda, const struct cuda_layer *norm, uint32_t count,
                      const struct times *times, double copy)
{
    double bytes[CUDA_NORM_PARTS], forward, all;

    for (uint32_t part = 0; part < CUDA_NORM_PARTS; part++)
        bytes[part] = part_bytes(cuda, norm, (enum cuda_norm_part)part);
    forward = bytes[CUDA_NORM_SUMS] + bytes[CUDA_NORM_APPLY];
    all = forward + bytes[CUDA_NORM_BACKWARD_SUMS] + bytes[CUDA_NORM_BACKWARD_APPLY];
    (void)printf("| %s %ux%ux%u%s%s%s | %u |", norm->graph->name, norm->in[0]->channels,
                 norm->in[0]->h, norm->in[0]->w, norm->graph->fused_add ? " +add" : "",
                 norm->graph->fused_relu ? " +relu" : "", norm->graph->fused_pool ? " +pool" : "",
                 count);
    for (uint32_t part = 0; part < CUDA_NORM_PARTS; part++)
        print_rate(bytes[part], (double)times->parts[part], copy);
    (void)printf(" %.1f |", own_us(times));
    print_rate(all, own_us(times), copy);
    print_rate(forward, (double)times->plan_forward, copy);
    print_rate(all - forward, (double)times->plan_backward, copy);
    (void)printf(" %.1f |", plans_us(times));
    print_rate(all, plans_us(times), copy);
    (void)printf(" %s |\n", choice_of(times));
    (void)fflush(stdout);
}

static void add_up(const struct cuda *cuda, const struct cuda_layer *norm, uint32_t count,
                   const struct times *times, struct sums *sums)
{
    sums->norms += count;
    sums->by_plans += is_by_plans(times) ? count : 0;
    if (own_us(times) <= 0 || plans_us(times) <= 0) {
        sums->without += count;
        return;
    }
    for (uint32_t part = 0; part < CUDA_NORM_PARTS; part++)
        sums->bytes += count * part_bytes(cuda, norm, (enum cuda_norm_part)part);
    sums->own_us += count * own_us(times);
    sums->plans_us += count * plans_us(times);
}

/* -- all of them -- */

static bool is_norm(const struct cuda *cuda, uint32_t layer)
{
    return cuda->layers[layer].graph->op == GRAPH_BATCH_NORM;
}

/* How many norms do the same work; 0: an earlier one stands for it. */
static uint32_t count_of(const struct cuda *cuda, uint32_t layer)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        if (!is_norm(cuda, i) || !cuda_norm_same_work(&cuda->layers[i], &cuda->layers[layer]))
            continue;
        if (i < layer)
            return 0;
        count++;
    }
    return count;
}

/* GB/s of a copy of the largest norm's input. */
static double copy_rate(struct cuda *cuda)
{
    const struct cuda_layer *largest = NULL;

    for (uint32_t i = 0; i < cuda->graph->layer_count; i++)
        if (is_norm(cuda, i) && (largest == NULL || cuda_value_bytes(cuda, cuda->layers[i].in[0]) >
                                                        cuda_value_bytes(cuda, largest->in[0])))
            largest = &cuda->layers[i];
    if (largest == NULL)
        return 0;
    return gb_per_s(2 * (double)cuda_value_bytes(cuda, largest->in[0]),
                    (double)cuda_norm_time_us(cuda, largest, NULL, copy_pass));
}

static void print_figure(const struct sums *sums, double copy)
{
    (void)printf("\nfigure: %u of %u norms by plans", sums->by_plans, sums->norms);
    if (sums->plans_us > 0)
        (void)printf("; plans %.3f ms a step at %.0f %% of a copy's rate, own kernels %.3f ms at "
                     "%.0f %% (plans are %.2f x as fast)",
                     sums->plans_us * 1e-3, 100 * gb_per_s(sums->bytes, sums->plans_us) / copy,
                     sums->own_us * 1e-3, 100 * gb_per_s(sums->bytes, sums->own_us) / copy,
                     sums->own_us / sums->plans_us);
    if (sums->without > 0)
        (void)printf("; not both timed: %u", sums->without);
    (void)printf("; a copy reaches %.0f GB/s\n", copy);
}

static void print_table(struct cuda *cuda)
{
    const double copy = copy_rate(cuda);
    struct sums sums = {0};

    (void)printf(
        "| norm, one image | of them | own sums GB/s | apply | backward sums | backward apply "
        "| own us | own GB/s | plan forward GB/s | backward | plans us | plans GB/s | choice |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        const uint32_t count = is_norm(cuda, i) ? count_of(cuda, i) : 0;
        struct times times = {0};

        if (count == 0)
            continue;
        measure(cuda, &cuda->layers[i], &times);
        print_row(cuda, &cuda->layers[i], count, &times, copy);
        add_up(cuda, &cuda->layers[i], count, &times, &sums);
    }
    print_figure(&sums, copy);
}

static enum status make_net(struct net **net, const struct options *options,
                            const struct backend *backend, struct err *err)
{
    const bool is_small = strcmp(options->arch, "convnet") == 0;
    const struct model_shape shape = {is_small ? 1 : 3, options->size, options->size,
                                      is_small ? 10 : 1000};
    const struct amp_request request = {.level = options->opt_level,
                                        .half_type = options->half_type};
    struct graph *graph = NULL;
    struct amp amp;
    const struct net_options net_options = {
        .batch_max = options->batch, .amp = &amp, .backend = backend};
    enum status status = amp_resolve(&amp, &request, err);

    if (status == STATUS_OK)
        status = model_build(&graph, options->arch, &shape, err);
    if (status == STATUS_OK)
        status = net_new(net, graph, &net_options, err);
    graph_free(&graph);
    return status;
}

static bool parse(struct options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"arch", required_argument, NULL, 'a'},     {"size", required_argument, NULL, 'x'},
        {"batch", required_argument, NULL, 'b'},    {"opt-level", required_argument, NULL, 'o'},
        {"low-type", required_argument, NULL, 't'}, {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        const unsigned long value = option == 'x' || option == 'b' ? strtoul(optarg, NULL, 10) : 1;

        if (option == '?' || value < 1 || value > 100000)
            return false;
        if (option == 'a')
            options->arch = optarg;
        else if (option == 'x')
            options->size = (uint32_t)value;
        else if (option == 'b')
            options->batch = (uint32_t)value;
        else if (option == 'o')
            options->opt_level = optarg;
        else
            options->half_type = optarg;
    }
    if (options->size == 0)
        options->size = strcmp(options->arch, "convnet") == 0 ? 28 : 224;
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct options options = {.arch = "resnet50", .opt_level = "O2", .batch = 256};
    struct device device = {0};
    struct net *net = NULL;
    struct backend keeps;
    struct err notice, err = {0};
    enum status status;

    if (!parse(&options, argc, argv)) {
        (void)fprintf(stderr, "usage: bench_norms [--arch NAME] [--size PIXELS] [--batch N] "
                              "[--opt-level LEVEL] [--low-type TYPE]\n");
        return 2;
    }
    (void)setenv("DDP_CUDA_NORMS", "plans", 1);
    (void)setenv("DDP_CUDA_CANDIDATES", "1", 1);
    status = device_open(&device, "cuda", 0, &notice, &err);
    if (status == STATUS_OK) {
        real = device.backend;
        keeps = *real;
        keeps.open = open_and_keep;
        status = make_net(&net, &options, &keeps, &err);
    }
    if (status == STATUS_OK)
        print_table(opened);
    else
        (void)fprintf(stderr, "bench_norms: %s\n", err.text);
    net_free(&net);
    device_close(&device);
    return status == STATUS_OK ? 0 : 1;
}
