/* Every plan of the CUDA module on a GPU against plain loops in double: odd shapes, all types,
 * fused or not, outputs poisoned. DDP_SEED=N repeats a run; the seed is printed. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/values.h"
#include "tests/gpu/device.h"
#include "tests/standin/cuda/standin.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/module/load.h"

#define POISON                                                                                     \
    0x7b /* as f32 1.3e36, as half 61,000: an element that was not written is far off              \
          */

static const struct cuda_module *cuda;
static struct CUstream_st *stream, *loops_stream;
static uint64_t random_state;

static void need_gpu(void)
{
    struct cuda_load_options options = {.device_index = 0};
    static struct err err;
    struct cuda_device device;
    const char *seed = getenv("DDP_SEED");

    if (cuda != NULL)
        return;
    if (cuda_load(&options, &cuda, &device, &err) != STATUS_OK)
        SKIP(err.text);
    if (cuda->plans == NULL)
        SKIP("the CUDA module was built without cuDNN");
    CHECK_CUDA(cuda->runtime->stream_new(&stream, &err_));
    standin_seed_order(0); /* loops run at once */
    CHECK_CUDA(standin_runtime.stream_new(&loops_stream, &err_));
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    (void)printf("# %s on %s, DDP_SEED=%llu\n", cuda->build, device.name,
                 (unsigned long long)random_state);
}

/* splitmix64 (Steele, Lea, Flood 2014) */
static float draw(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return (float)(int32_t)((z ^ z >> 31) >> 40) * 0x1p-23F - 1.0F;
}

#define BIT(port) (1U << PLAN_PORT_##port)

static bool is_in(enum plan_port port, uint32_t bits)
{
    return (bits >> port & 1U) != 0;
}

/* Room that the device has for a mask: a byte an element, of which it shall use the first eighth. */
#define MASK_ROOM 8

/* The element type of a port, KERNEL_F32 for statistics; a mask has none. */
static enum kernel_type type_of(const struct plan_request *request, enum plan_port port)
{
    static const uint32_t f32 = BIT(SCALE) | BIT(SHIFT) | BIT(DSCALE) | BIT(DSHIFT) | BIT(MEAN) |
                                BIT(INV_STD) | BIT(RUNNING_MEAN) | BIT(RUNNING_VAR) | BIT(SUM) |
                                BIT(SQ_SUM) | BIT(DY_FACTOR) | BIT(X_FACTOR) | BIT(TERM);

    return is_in(port, f32) ? KERNEL_F32 : (enum kernel_type)request->type;
}

/* Also read: written in place. */
static bool is_read_too(enum plan_kind kind, enum plan_port port)
{
    return port == PLAN_PORT_RUNNING_MEAN || port == PLAN_PORT_RUNNING_VAR ||
           (kind == PLAN_CONV_DGRAD_ADD && port == PLAN_PORT_DX);
}

static bool is_written(enum plan_kind kind, enum plan_port port)
{
    const uint32_t always = BIT(Y) | BIT(DX) | BIT(DW) | BIT(DBIAS) | BIT(DSCALE) | BIT(DSHIFT);
    const uint32_t statistics = BIT(MEAN) | BIT(INV_STD) | BIT(RUNNING_MEAN) | BIT(RUNNING_VAR);

    switch (kind) {
    case PLAN_NORM_FORWARD:
        return is_in(port, always | statistics | BIT(MASK));
    case PLAN_NORM_BACKWARD:
        return is_in(port, always | BIT(DADD));
    case PLAN_CONV_STATS:
    case PLAN_CONV_STATS_PROLOGUE:
        return is_in(port, always | BIT(SUM) | BIT(SQ_SUM));
    case PLAN_STATS_FINALIZE:
        return is_in(port, statistics | BIT(EQ_SCALE) | BIT(EQ_SHIFT));
    case PLAN_NORM_APPLY:
        return is_in(port, always | BIT(MASK));
    case PLAN_CONV_DGRAD_NORM:
        return is_in(port, always | BIT(DADD) | BIT(DY_FACTOR) | BIT(X_FACTOR) | BIT(TERM));
    default:
        return is_in(port, always);
    }
}

/* One plan's operands: the same bytes on the host, where the plain loops work, and on the device.
 */
struct operands {
    void *host[PLAN_PORTS], *device[PLAN_PORTS];
};

static size_t element_count(const struct plan_request *request, enum plan_port port)
{
    const size_t bytes = plan_port_bytes(request, port);

    assert(port != PLAN_PORT_MASK);
    return bytes / (type_of(request, port) == KERNEL_F32 ? 4 : 2);
}

/* Images times height times width: of what a convolution makes, else of what is read. */
static double rows_of(const struct plan_request *request)
{
    const bool is_conv =
        request->kind == PLAN_CONV_STATS || request->kind == PLAN_CONV_STATS_PROLOGUE;

    return (double)request->n *
           (is_conv ? request->out_h * request->out_w : request->h * request->w);
}

/* Sums of so many values, whose mean is at most 0.5 and whose mean square at least that. */
static float draw_sum(const struct plan_request *request, enum plan_port port, float value)
{
    return (float)rows_of(request) * (port == PLAN_PORT_SUM ? 0.5F * value : value * value + 0.5F);
}

static void fill(const struct plan_request *request, enum plan_port port, void *memory)
{
    if (is_written(request->kind, port) && !is_read_too(request->kind, port)) {
        memset(memory, POISON, plan_port_bytes(request, port));
        return;
    }
    if (port == PLAN_PORT_MASK) {
        for (size_t i = 0; i < plan_port_bytes(request, port); i++) {
            (void)draw();
            ((uint8_t *)memory)[i] = (uint8_t)(random_state >> 32);
        }
        return;
    }
    for (size_t i = 0; i < element_count(request, port); i++) {
        const float value = draw();
        const bool is_positive = port == PLAN_PORT_INV_STD || port == PLAN_PORT_RUNNING_VAR;

        if (port == PLAN_PORT_SUM || port == PLAN_PORT_SQ_SUM)
            values_set(memory, KERNEL_F32, i, draw_sum(request, port, value));
        else
            values_set(memory, type_of(request, port), i,
                       is_positive ? value * value + 0.5F : value);
    }
}

/* No value of a batch norm so near 0 that roundings decide whether the ReLU lets it through. */
static void keep_clear(const struct plan_request *request, const struct operands *operands)
{
    const float *mean = operands->host[PLAN_PORT_MEAN], *scale = operands->host[PLAN_PORT_SCALE];
    const float *inv_std = operands->host[PLAN_PORT_INV_STD];
    const float *shift = operands->host[PLAN_PORT_SHIFT];

    for (size_t i = 0; i < element_count(request, PLAN_PORT_X); i++) {
        void *x = operands->host[PLAN_PORT_X];
        const size_t c = i % request->c;
        const float value = values_get(x, (enum kernel_type)request->type, i);
        const float y = (value - mean[c]) * inv_std[c] * scale[c] + shift[c];

        if (fabsf(y) < 1e-4F)
            values_set(x, (enum kernel_type)request->type, i, value > 0.0F ? value - 1 : value + 1);
    }
}

static void make_operands(const struct plan_request *request, struct operands *operands)
{
    for (uint32_t p = 0; p < PLAN_PORTS; p++) {
        const enum plan_port port = (enum plan_port)p;
        const size_t bytes = plan_port_bytes(request, port);

        operands->host[p] = operands->device[p] = NULL;
        if (!plan_takes(request, port))
            continue;
        operands->host[p] = malloc(bytes);
        CHECK(operands->host[p] != NULL);
        fill(request, port, operands->host[p]);
        CHECK_CUDA(cuda->memory_new(&operands->device[p],
                                    port == PLAN_PORT_MASK ? MASK_ROOM * bytes : bytes, POISON,
                                    &err_));
    }
    if (request->kind == PLAN_CONV_DGRAD_NORM)
        keep_clear(request, operands);
    for (uint32_t p = 0; p < PLAN_PORTS; p++)
        if (operands->host[p] != NULL)
            CHECK_CUDA(cuda->copy_in(operands->device[p], operands->host[p],
                                     plan_port_bytes(request, (enum plan_port)p), &err_));
}

static void free_operands(struct operands *operands)
{
    for (uint32_t p = 0; p < PLAN_PORTS; p++) {
        free(operands->host[p]);
        cuda->memory_free(&operands->device[p]);
    }
}

/* Of one rounding to the type, and of sums of a few thousand products in f32. Sums over what a
 * convolution makes, about 10 in size, may be taken before or behind its rounding to 16 bit. */
static double tolerance(const struct plan_request *request, enum plan_port port, double expected)
{
    static const double ulp[] = {[KERNEL_F32] = 2e-5, [KERNEL_F16] = 2e-3, [KERNEL_BF16] = 1.6e-2};

    if (request->kind == PLAN_CONV_STATS || request->kind == PLAN_CONV_STATS_PROLOGUE ||
        request->kind == PLAN_CONV_DGRAD_NORM)
        switch (port) {
        case PLAN_PORT_SQ_SUM:
            return 2e-3 * expected;
        case PLAN_PORT_SUM:
        case PLAN_PORT_DSCALE:
        case PLAN_PORT_DSHIFT:
            return 0.05 * sqrt(rows_of(request));
        case PLAN_PORT_X_FACTOR:
        case PLAN_PORT_TERM:
            return 0.3 / sqrt(rows_of(request));
        default:
            break;
        }
    return ulp[type_of(request, port)] * (fabs(expected) + 1) +
           ulp[request->type] * (request->kind == PLAN_NORM_BACKWARD ? 0.2 : 0);
}

/* Bits, but where the value is so near 0 that roundings decide. got: also what lies behind them. */
static bool same_mask(const struct plan_request *request, const struct operands *operands,
                      const uint8_t *got)
{
    const size_t count = element_count(request, PLAN_PORT_Y), bytes = (count + 7) / 8;
    const uint8_t *expected = operands->host[PLAN_PORT_MASK];

    for (size_t i = bytes; i < MASK_ROOM * bytes; i++)
        if (got[i] != POISON) {
            (void)printf("# %s %s, %s: the mask takes more than a bit an element\n",
                         plan_kind_name(request->kind), request->name,
                         plan_type_name(request->type));
            return false;
        }
    for (size_t i = 0; i < count; i++) {
        const float y = values_get(operands->host[PLAN_PORT_Y], (enum kernel_type)request->type, i);

        if ((got[i / 8] >> i % 8 & 1) == (expected[i / 8] >> i % 8 & 1) ||
            (double)y <= tolerance(request, PLAN_PORT_Y, 0))
            continue;
        (void)printf("# %s %s, %s: the mask differs at %zu of %zu\n", plan_kind_name(request->kind),
                     request->name, plan_type_name(request->type), i, count);
        return false;
    }
    return true;
}

static bool same_values(const struct plan_request *request, const struct operands *operands,
                        enum plan_port port, const void *got)
{
    const enum kernel_type type = type_of(request, port);

    for (size_t i = 0; i < element_count(request, port); i++) {
        const double actual = (double)values_get(got, type, i);
        const double expected = (double)values_get(operands->host[port], type, i);

        if (fabs(actual - expected) <= tolerance(request, port, expected))
            continue;
        (void)printf("# %s %s, %s, %s at %zu: %g, expected %g\n", plan_kind_name(request->kind),
                     request->name, plan_type_name(request->type), plan_port_name(port), i, actual,
                     expected);
        return false;
    }
    return true;
}

static bool same_outputs(const struct plan_request *request, const struct operands *operands,
                         bool lacks_bias)
{
    bool same = true;

    for (uint32_t p = 0; p < PLAN_PORTS; p++) {
        const enum plan_port port = (enum plan_port)p;
        const size_t bytes =
            plan_port_bytes(request, port) * (port == PLAN_PORT_MASK ? MASK_ROOM : 1);
        void *got;

        if (!plan_takes(request, port) || !is_written(request->kind, port) ||
            (port == PLAN_PORT_DBIAS && lacks_bias))
            continue;
        got = malloc(bytes);
        CHECK(got != NULL);
        CHECK_CUDA(cuda->copy_out(got, operands->device[p], bytes, &err_));
        if (!(port == PLAN_PORT_MASK ? same_mask(request, operands, got)
                                     : same_values(request, operands, port, got)))
            same = false;
        free(got);
    }
    return same;
}

/* Says that there is no plan, and what takes over; false where nothing does. For a batch norm that
 * are our own kernels: cuDNN 9.19 has no engine on an H100 for the forward pass with an addition and
 * without a ReLU in fp16, which no model that comes with this project has. */
static bool may_lack(const struct plan_request *request, const struct plan_info *info)
{
    const bool is_norm = request->kind == PLAN_NORM_FORWARD || request->kind == PLAN_NORM_BACKWARD;
    const bool is_stage_two =
        request->kind == PLAN_NORM_EVALUATE || request->kind > PLAN_LINEAR_WGRAD;

    if (is_norm)
        (void)printf("figure: no plan for %s%s, with%s ReLU, %s, %ux%ux%ux%u: our own kernels take "
                     "over: %s\n",
                     plan_kind_name(request->kind), request->has_add ? " with an addition" : "",
                     request->has_relu ? "" : "out", plan_type_name(request->type), request->n,
                     request->c, request->h, request->w, info->engine);
    else
        (void)printf("# no plan: %s %s, %s: %s%s\n", plan_kind_name(request->kind), request->name,
                     plan_type_name(request->type), info->engine,
                     is_stage_two ? "; such layers run the ordinary way" : "");
    return is_norm || is_stage_two;
}

/* Runs plan `index` of both sets on fresh operands; false where they differ, which is said. */
static bool run_both(struct plan_set *real, struct plan_set *loops, uint32_t index,
                     const struct plan_request *request)
{
    const struct plan_info *info = cuda->plans->info(real, index);
    static uint64_t no_workspace;
    struct operands operands;
    void *workspace = NULL;
    bool same;

    if (info->status != STATUS_OK)
        return may_lack(request, info);
    make_operands(request, &operands);
    CHECK_CUDA(cuda->memory_new(&workspace, info->workspace_bytes, POISON, &err_));
    CHECK_CUDA(cuda->sync(&err_));
    CHECK_CUDA(cuda->plans->run(real, index, stream, workspace, operands.device, &err_));
    CHECK_CUDA(cuda->sync(&err_));
    CHECK_CUDA(standin_plans.run(loops, index, loops_stream, &no_workspace, operands.host, &err_));
    same = same_outputs(request, &operands, info->lacks_bias);
    cuda->memory_free(&workspace);
    free_operands(&operands);
    return same;
}

/* All of them, also behind one that differs: a GPU is not had every day. */
static void run_requests(const struct plan_request *requests, uint32_t count,
                         struct plan_options options)
{
    struct plan_set *real = NULL, *loops = NULL;
    uint32_t differ = 0;

    options.cache_folder = "";
    CHECK_CUDA(cuda->plans->open(&real, &options, &err_));
    CHECK_CUDA(standin_plans.open(&loops, &options, &err_));
    CHECK_CUDA(cuda->plans->build(real, requests, count, &err_));
    CHECK_CUDA(standin_plans.build(loops, requests, count, &err_));
    for (uint32_t i = 0; i < count; i++)
        differ += !run_both(real, loops, i, &requests[i]);
    cuda->plans->close(&real);
    standin_plans.close(&loops);
    if (differ > 0)
        FAIL("%u of %u plans", differ, count);
}

static void run_convs(enum graph_dtype type, bool deterministic)
{
    static const struct {
        uint32_t n, c, h, w, k;
        struct graph_window window;
    } shapes[] = {{3, 4, 17, 13, 16, {7, 2, 3}}, {2, 64, 9, 11, 32, {3, 1, 1}},
                  {5, 40, 8, 8, 24, {1, 1, 0}},  {2, 16, 14, 14, 64, {5, 1, 2}},
                  {4, 32, 15, 15, 8, {1, 2, 0}}, {1, 128, 7, 7, 128, {3, 2, 1}}};
    struct plan_request requests[6 * sizeof shapes / sizeof shapes[0]];
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct graph_window window = shapes[i].window;
        struct plan_request request = {
            .kind = PLAN_CONV_FORWARD,
            .type = type,
            .n = shapes[i].n,
            .c = shapes[i].c,
            .h = shapes[i].h,
            .w = shapes[i].w,
            .k = shapes[i].k,
            .out_h = (shapes[i].h + 2 * window.pad - window.kernel) / window.stride + 1,
            .out_w = (shapes[i].w + 2 * window.pad - window.kernel) / window.stride + 1,
            .window = window,
        };

        (void)snprintf(request.name, sizeof request.name, "shape %zu", i);
        for (int bias = 0; bias < 2; bias++) {
            request.has_bias = bias == 1;
            requests[count++] = request;
        }
        request.has_bias = false;
        request.kind = PLAN_CONV_DGRAD;
        requests[count++] = request;
        request.kind = PLAN_CONV_DGRAD_ADD;
        requests[count++] = request;
        request.kind =
            PLAN_CONV_DGRAD_MASKED; /* used in 16 bits alone, never with --deterministic */
        if (type != GRAPH_F32 && !deterministic)
            requests[count++] = request;
        request.kind = PLAN_CONV_WGRAD;
        requests[count++] = request;
    }
    run_requests(requests, count,
                 (struct plan_options){.candidates = 1, .deterministic = deterministic});
}

TEST(convolutions)
{
    need_gpu();
    run_convs(GRAPH_F16, false);
    run_convs(GRAPH_BF16, false);
    run_convs(GRAPH_F32, false);
}

TEST(deterministic_convolutions)
{
    need_gpu();
    run_convs(GRAPH_F16, true);
    run_convs(GRAPH_F32, true);
}

static void run_norms(enum graph_dtype type)
{
    static const enum plan_kind kinds[] = {PLAN_NORM_FORWARD, PLAN_NORM_EVALUATE,
                                           PLAN_NORM_BACKWARD};
    struct plan_request requests[2 * 3 * 4];
    uint32_t count = 0;

    for (int shape = 0; shape < 2; shape++)
        for (int kind = 0; kind < 3; kind++)
            for (int flags = 0; flags < 4; flags++) {
                struct plan_request request = {.kind = kinds[kind],
                                               .type = type,
                                               .n = shape == 0 ? 4 : 16,
                                               .c = shape == 0 ? 64 : 16,
                                               .h = shape == 0 ? 7 : 28,
                                               .w = shape == 0 ? 9 : 28,
                                               .eps = 1e-5F,
                                               .momentum = 0.1F,
                                               .has_add = (flags & 1) != 0,
                                               .has_relu = (flags & 2) != 0};

                request.k = request.c;
                (void)snprintf(request.name, sizeof request.name, "shape %d flags %d", shape,
                               flags);
                requests[count++] = request;
            }
    run_requests(requests, count, (struct plan_options){.candidates = 1});
}

TEST(batch_norms)
{
    need_gpu();
    run_norms(GRAPH_F16);
    run_norms(GRAPH_BF16);
    run_norms(GRAPH_F32);
}

TEST(linear_layers)
{
    struct plan_request requests[3 * 2 * 3];
    uint32_t count = 0;

    need_gpu();
    for (int type = 0; type < 3; type++)
        for (int shape = 0; shape < 2; shape++)
            for (int kind = PLAN_LINEAR_FORWARD; kind <= PLAN_LINEAR_WGRAD; kind++) {
                requests[count] = (struct plan_request){.kind = (enum plan_kind)kind,
                                                        .type = (enum graph_dtype)type,
                                                        .n = shape == 0 ? 100 : 8,
                                                        .c = shape == 0 ? 1568 : 512,
                                                        .h = 1,
                                                        .w = 1,
                                                        .k = shape == 0 ? 16 : 1000,
                                                        .has_bias = kind != PLAN_LINEAR_DGRAD};
                (void)snprintf(requests[count].name, sizeof requests[count].name, "shape %d",
                               shape);
                count++;
            }
    run_requests(requests, count, (struct plan_options){.candidates = 1});
}

/* Stage two: statistics in the convolution, values made on the way into one. A device without an
 * engine for a kind runs its layers the ordinary way: that is said, and no failure. */
static void run_statistics(bool deterministic)
{
    static const struct {
        uint32_t n, c, h, w, k;
        struct graph_window window;
    } shapes[] = {{3, 64, 14, 14, 64, {3, 1, 1}},
                  {2, 64, 9, 11, 128, {1, 1, 0}},
                  {2, 128, 14, 14, 64, {3, 2, 1}}};
    static const enum plan_kind kinds[] = {
        PLAN_CONV_STATS,          PLAN_CONV_STATS_PROLOGUE, PLAN_STATS_FINALIZE, PLAN_NORM_APPLY,
        PLAN_CONV_WGRAD_PROLOGUE, PLAN_CONV_DGRAD_NORM,     PLAN_NORM_DX,        PLAN_NORM_APPLY};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    struct plan_request requests[KINDS * sizeof shapes / sizeof shapes[0]];
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t kind = 0; kind < KINDS; kind++) {
            const struct graph_window window = shapes[i].window;
            const bool is_norm = kinds[kind] == PLAN_STATS_FINALIZE ||
                                 kinds[kind] == PLAN_NORM_APPLY || kinds[kind] == PLAN_NORM_DX;
            struct plan_request request = {.kind = kinds[kind],
                                           .type = GRAPH_F16,
                                           .n = shapes[i].n,
                                           .c = shapes[i].c,
                                           .h = shapes[i].h,
                                           .w = shapes[i].w,
                                           .k = is_norm ? shapes[i].c : shapes[i].k,
                                           .eps = 1e-5F,
                                           .momentum = 0.1F,
                                           .has_add = kind + 1 == KINDS,
                                           .has_relu = is_norm};

            if (!is_norm) {
                request.window = window;
                request.out_h = (request.h + 2 * window.pad - window.kernel) / window.stride + 1;
                request.out_w = (request.w + 2 * window.pad - window.kernel) / window.stride + 1;
            }
            (void)snprintf(request.name, sizeof request.name, "shape %zu", i);
            requests[count++] = request;
        }
    run_requests(requests, count,
                 (struct plan_options){.candidates = 1, .deterministic = deterministic});
}

TEST(statistics_in_the_convolution)
{
    need_gpu();
    run_statistics(false);
    run_statistics(true);
}

TEST_MAIN
