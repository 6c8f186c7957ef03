/* Time of one convolution after the other on the CPU backend, for tests/bench/convolutions.py.
 *
 *   bench_conv [--low-type bf16]
 *
 * Reads one shape a line from stdin: "IMAGES IN OUT SIDE KERNEL STRIDE PAD FIRST". FIRST 1: it reads
 * the network's input, else the output of another convolution. Prints for each
 * "FORWARD DATA WEIGHTS": microseconds, the median of many runs; DATA is 0 for a first layer. The
 * copies that the layer makes count: those of backward half as DATA, half as WEIGHTS. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/data/rng.h"
#include "worker/model/init.h"
#include "worker/net/net.h"
#include "worker/net/profile.h"

enum { RUNS_MIN = 7, RUNS_MAX = 400, WARM_UP = 2, ENTRIES_MAX = 128 };
#define MEASURE_NS UINT64_C(30000000)

struct shape {
    uint32_t n, in, out, side, kernel, stride, pad, is_first;
};

enum direction { FORWARD, DATA, WEIGHTS, DIRECTIONS };

struct times {
    uint64_t ns[DIRECTIONS];
};

static struct amp amp;

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static struct graph *make_graph(const struct shape *shape)
{
    const struct graph_window one = {1, 1, 0}, window = {shape->kernel, shape->stride, shape->pad};
    struct graph *graph = graph_new();
    uint32_t x;

    if (graph == NULL)
        return NULL;
    x = graph_input(graph, shape->is_first ? shape->in : 1, shape->side, shape->side);
    if (!shape->is_first)
        x = graph_conv2d(graph, "before", x, shape->in, one, false);
    x = graph_conv2d(graph, "measured", x, shape->out, window, false);
    x = graph_avg_pool(graph, "pool", x);
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc", x, 2, true);
    (void)graph_cross_entropy(graph, "loss", x);
    return graph;
}

/* Sums since the net was made; copies are added as FORWARD. */
static struct times read_times(const struct net *net)
{
    struct times times = {{0}};
    struct net_profile p;

    for (uint32_t i = 0; i < ENTRIES_MAX && net_profile(net, i, &p); i++) {
        if (strcmp(p.layer, "measured") != 0)
            continue;
        if (strcmp(p.work, "conv backward data") == 0)
            times.ns[DATA] += p.ns;
        else if (strcmp(p.work, "conv backward weights") == 0)
            times.ns[WEIGHTS] += p.ns;
        else
            times.ns[FORWARD] += p.ns;
    }
    return times;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void print_medians(uint64_t runs[DIRECTIONS][RUNS_MAX], size_t count)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        uint64_t middle;

        qsort(runs[d], count, sizeof runs[d][0], compare);
        middle = runs[d][count / 2];
        (void)printf("%s%.2f", d > 0 ? " " : "", (double)middle * 1e-3);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

static enum status run(struct net *net, const struct shape *shape, const float *images,
                       const int64_t *labels, struct err *err)
{
    static uint64_t runs[DIRECTIONS][RUNS_MAX];
    const uint64_t begin = now_ns();
    struct times before = {{0}};
    size_t count = 0;
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && count < RUNS_MAX; i++) {
        struct times between, after;
        uint64_t copies;

        if (count >= RUNS_MIN && now_ns() - begin > MEASURE_NS)
            break;
        status = net_forward(net, images, labels, shape->n, true, NULL, err);
        between = read_times(net);
        if (status == STATUS_OK)
            status = net_backward(net, 1.0F, err);
        after = read_times(net);
        copies = after.ns[FORWARD] - between.ns[FORWARD];
        runs[FORWARD][count] = between.ns[FORWARD] - before.ns[FORWARD];
        runs[DATA][count] = shape->is_first ? 0 : after.ns[DATA] - before.ns[DATA] + copies / 2;
        runs[WEIGHTS][count] =
            after.ns[WEIGHTS] - before.ns[WEIGHTS] + (shape->is_first ? copies : copies / 2);
        count += i >= WARM_UP;
        before = after;
    }
    if (status == STATUS_OK)
        print_medians(runs, count);
    return status;
}

static enum status measure(const struct shape *shape, struct err *err)
{
    const struct net_options options = {.batch_max = shape->n, .profile = true, .amp = &amp};
    const size_t count =
        (size_t)shape->n * (shape->is_first ? shape->in : 1) * shape->side * shape->side;
    float *images = calloc(count, sizeof *images);
    int64_t *labels = calloc(shape->n, sizeof *labels);
    struct graph *graph = make_graph(shape);
    struct net *net = NULL;
    struct rng rng;
    enum status status = STATUS_MEMORY;

    rng_seed(&rng, 0);
    if (images != NULL && labels != NULL && graph != NULL) {
        rng_uniform_f32(&rng, -1.0F, 1.0F, images, count);
        status = net_new(&net, graph, &options, err);
    }
    if (status == STATUS_OK)
        status = init_torch_default(net, graph, &rng, err);
    if (status == STATUS_OK)
        status = run(net, shape, images, labels, err);
    net_free(&net);
    graph_free(&graph);
    free(images);
    free(labels);
    return status;
}

static bool read_shape(const char *line, struct shape *s)
{
    uint32_t *const numbers[] = {&s->n,      &s->in,     &s->out, &s->side,
                                 &s->kernel, &s->stride, &s->pad, &s->is_first};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char *end;

        *numbers[i] = (uint32_t)strtoul(line, &end, 10);
        if (end == line)
            return false;
        line = end;
    }
    return true;
}

int main(int argc, char **argv)
{
    const bool is_low = argc == 3 && strcmp(argv[1], "--low-type") == 0;
    const struct amp_request request = {.level = is_low ? "O1" : "O0",
                                        .half_type = is_low ? argv[2] : NULL};
    struct err err = {.text = "out of memory"};
    struct shape s;
    char line[128];

    if ((argc != 1 && !is_low) || amp_resolve(&amp, &request, &err) != STATUS_OK) {
        (void)fprintf(stderr, "usage: bench_conv [--low-type bf16], shapes on stdin\n");
        return 2;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!read_shape(line, &s) || measure(&s, &err) != STATUS_OK) {
            (void)fprintf(stderr, "bench_conv: %.60s: %s\n", line, err.text);
            return 1;
        }
    }
    return 0;
}
