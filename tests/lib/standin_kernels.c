/* The kernels' twins as launches: each keeps a copy of its arguments, structs on the caller's stack
 * included, so that it can be run later. */
#include <assert.h>

#include "tests/lib/standin.h"
#include "tests/lib/standin_step.h"

struct cast_args {
    void *to;
    enum kernel_type to_type;
    const void *from;
    enum kernel_type from_type;
    size_t count;
};

static void cast_run(void *args)
{
    struct cast_args *a = args;

    kernel_cast_ref(a->to, a->to_type, a->from, a->from_type, a->count);
}

static int cast(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                size_t count, struct CUstream_st *stream)
{
    const struct cast_args args = {
        .to = to, .to_type = to_type, .from = from, .from_type = from_type, .count = count};

    assert(stream != NULL);
    return standin_queue(cast_run, &args, sizeof args);
}

struct add_args {
    void *y;
    const void *a;
    const void *b;
    enum kernel_type type;
    bool relu;
    size_t count;
};

static void add_run(void *args)
{
    struct add_args *a = args;

    kernel_add_ref(a->y, a->a, a->b, a->type, a->relu, a->count);
}

static int add(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
               size_t count, struct CUstream_st *stream)
{
    const struct add_args args = {
        .y = y, .a = a, .b = b, .type = type, .relu = relu, .count = count};

    assert(stream != NULL);
    return standin_queue(add_run, &args, sizeof args);
}

struct accumulate_args {
    void *to;
    enum kernel_type to_type;
    void *from;
    enum kernel_type from_type;
    float scale;
    bool clear;
    size_t count;
};

static void accumulate_run(void *args)
{
    struct accumulate_args *a = args;

    kernel_accumulate_ref(a->to, a->to_type, a->from, a->from_type, a->scale, a->clear, a->count);
}

static int accumulate(void *to, enum kernel_type to_type, void *from, enum kernel_type from_type,
                      float scale, bool clear, size_t count, struct CUstream_st *stream)
{
    const struct accumulate_args args = {.to = to,
                                         .to_type = to_type,
                                         .from = from,
                                         .from_type = from_type,
                                         .scale = scale,
                                         .clear = clear,
                                         .count = count};

    assert(stream != NULL);
    return standin_queue(accumulate_run, &args, sizeof args);
}

struct relu_args {
    void *y;
    const void *x;
    enum kernel_type type;
    size_t count;
};

static void relu_run(void *args)
{
    struct relu_args *a = args;

    kernel_relu_ref(a->y, a->x, a->type, a->count);
}

static int relu(void *y, const void *x, enum kernel_type type, size_t count,
                struct CUstream_st *stream)
{
    const struct relu_args args = {.y = y, .x = x, .type = type, .count = count};

    assert(stream != NULL);
    return standin_queue(relu_run, &args, sizeof args);
}

struct relu_backward_args {
    void *dx;
    const void *y;
    const void *dy;
    enum kernel_type type;
    size_t count;
};

static void relu_backward_run(void *args)
{
    struct relu_backward_args *a = args;

    kernel_relu_backward_ref(a->dx, a->y, a->dy, a->type, a->count);
}

static int relu_backward(void *dx, const void *y, const void *dy, enum kernel_type type,
                         size_t count, struct CUstream_st *stream)
{
    const struct relu_backward_args args = {
        .dx = dx, .y = y, .dy = dy, .type = type, .count = count};

    assert(stream != NULL);
    return standin_queue(relu_backward_run, &args, sizeof args);
}

struct images_args {
    struct kernel_images images;
    const void *x;
    void *y;
};

static void images_run(void *args)
{
    struct images_args *a = args;

    kernel_images_ref(&a->images, a->x, a->y);
}

static int images(const struct kernel_images *images, const void *x, void *y,
                  struct CUstream_st *stream)
{
    const struct images_args args = {.images = *images, .x = x, .y = y};

    assert(stream != NULL);
    return standin_queue(images_run, &args, sizeof args);
}

struct max_pool_args {
    struct kernel_pool pool;
    const void *x;
    void *y;
    uint8_t *best;
};

static void max_pool_run(void *args)
{
    struct max_pool_args *a = args;

    kernel_max_pool_ref(&a->pool, a->x, a->y, a->best);
}

static int max_pool(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best,
                    struct CUstream_st *stream)
{
    const struct max_pool_args args = {.pool = *pool, .x = x, .y = y, .best = best};

    assert(stream != NULL);
    return standin_queue(max_pool_run, &args, sizeof args);
}

struct max_pool_backward_args {
    struct kernel_pool pool;
    const void *dy;
    const uint8_t *best;
    void *dx;
};

static void max_pool_backward_run(void *args)
{
    struct max_pool_backward_args *a = args;

    kernel_max_pool_backward_ref(&a->pool, a->dy, a->best, a->dx);
}

static int max_pool_backward(const struct kernel_pool *pool, const void *dy, const uint8_t *best,
                             void *dx, struct CUstream_st *stream)
{
    const struct max_pool_backward_args args = {.pool = *pool, .dy = dy, .best = best, .dx = dx};

    assert(stream != NULL);
    return standin_queue(max_pool_backward_run, &args, sizeof args);
}

struct avg_pool_args {
    const void *x;
    void *y;
    enum kernel_type type;
    uint32_t images;
    uint32_t pixels;
    uint32_t channels;
};

static void avg_pool_run(void *args)
{
    struct avg_pool_args *a = args;

    kernel_avg_pool_ref(a->x, a->y, a->type, a->images, a->pixels, a->channels);
}

static int avg_pool(const void *x, void *y, enum kernel_type type, uint32_t images, uint32_t pixels,
                    uint32_t channels, struct CUstream_st *stream)
{
    const struct avg_pool_args args = {
        .x = x, .y = y, .type = type, .images = images, .pixels = pixels, .channels = channels};

    assert(stream != NULL);
    return standin_queue(avg_pool_run, &args, sizeof args);
}

struct avg_pool_backward_args {
    const void *dy;
    void *dx;
    enum kernel_type type;
    uint32_t images;
    uint32_t pixels;
    uint32_t channels;
};

static void avg_pool_backward_run(void *args)
{
    struct avg_pool_backward_args *a = args;

    kernel_avg_pool_backward_ref(a->dy, a->dx, a->type, a->images, a->pixels, a->channels);
}

static int avg_pool_backward(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                             uint32_t pixels, uint32_t channels, struct CUstream_st *stream)
{
    const struct avg_pool_backward_args args = {
        .dy = dy, .dx = dx, .type = type, .images = images, .pixels = pixels, .channels = channels};

    assert(stream != NULL);
    return standin_queue(avg_pool_backward_run, &args, sizeof args);
}

struct loss_args {
    struct kernel_loss loss;
    const void *logits;
    const void *labels;
    const float *scale;
    void *grads;
    struct kernel_loss_row *rows_out;
    struct kernel_loss_result *result;
};

static void loss_run(void *args)
{
    struct loss_args *a = args;

    kernel_loss_ref(&a->loss, a->logits, a->labels, a->scale, a->grads, a->rows_out, a->result);
}

static int loss(const struct kernel_loss *loss, const void *logits, const void *labels,
                const float *scale, void *grads, struct kernel_loss_row *rows_out,
                struct kernel_loss_result *result, struct CUstream_st *stream)
{
    const struct loss_args args = {.loss = *loss,
                                   .logits = logits,
                                   .labels = labels,
                                   .scale = scale,
                                   .grads = grads,
                                   .rows_out = rows_out,
                                   .result = result};

    assert(stream != NULL);
    return standin_queue(loss_run, &args, sizeof args);
}

struct columns_args {
    const void *x;
    enum kernel_type type;
    size_t rows;
    uint32_t channels;
    void *sums;
    enum kernel_type sums_type;
};

static void columns_run(void *args)
{
    struct columns_args *a = args;

    kernel_columns_ref(a->x, a->type, a->rows, a->channels, a->sums, a->sums_type);
}

static int columns(const void *x, enum kernel_type type, size_t rows, uint32_t channels, void *sums,
                   enum kernel_type sums_type, void *scratch, struct CUstream_st *stream)
{
    const struct columns_args args = {.x = x,
                                      .type = type,
                                      .rows = rows,
                                      .channels = channels,
                                      .sums = sums,
                                      .sums_type = sums_type};

    assert(stream != NULL);
    (void)scratch;
    return standin_queue(columns_run, &args, sizeof args);
}

/* Our twins need none: some, so that it is passed on. */
static size_t columns_bytes(enum kernel_type type, size_t rows, uint32_t channels, uint32_t kinds)
{
    (void)type;
    (void)rows;
    (void)channels;
    (void)kinds;
    return 64;
}

struct norm_sums_args {
    struct kernel_norm norm;
    const void *x;
    double *sums;
};

static void norm_sums_run(void *args)
{
    struct norm_sums_args *a = args;

    kernel_norm_sums_ref(&a->norm, a->x, a->sums);
}

static int norm_sums(const struct kernel_norm *norm, const void *x, double *sums, void *scratch,
                     struct CUstream_st *stream)
{
    const struct norm_sums_args args = {.norm = *norm, .x = x, .sums = sums};

    assert(stream != NULL);
    (void)scratch;
    return standin_queue(norm_sums_run, &args, sizeof args);
}

struct norm_finish_args {
    struct kernel_norm norm;
    const double *sums;
    const void *gamma;
    const void *beta;
    float *running_mean;
    float *running_var;
    float *stats;
};

static void norm_finish_run(void *args)
{
    struct norm_finish_args *a = args;

    kernel_norm_finish_ref(&a->norm, a->sums, a->gamma, a->beta, a->running_mean, a->running_var,
                           a->stats);
}

static int norm_finish(const struct kernel_norm *norm, const double *sums, const void *gamma,
                       const void *beta, float *running_mean, float *running_var, float *stats,
                       struct CUstream_st *stream)
{
    const struct norm_finish_args args = {.norm = *norm,
                                          .sums = sums,
                                          .gamma = gamma,
                                          .beta = beta,
                                          .running_mean = running_mean,
                                          .running_var = running_var,
                                          .stats = stats};

    assert(stream != NULL);
    return standin_queue(norm_finish_run, &args, sizeof args);
}

struct norm_running_args {
    struct kernel_norm norm;
    const void *gamma;
    const void *beta;
    const float *running_mean;
    const float *running_var;
    float *stats;
};

static void norm_running_run(void *args)
{
    struct norm_running_args *a = args;

    kernel_norm_running_ref(&a->norm, a->gamma, a->beta, a->running_mean, a->running_var, a->stats);
}

static int norm_running(const struct kernel_norm *norm, const void *gamma, const void *beta,
                        const float *running_mean, const float *running_var, float *stats,
                        struct CUstream_st *stream)
{
    const struct norm_running_args args = {.norm = *norm,
                                           .gamma = gamma,
                                           .beta = beta,
                                           .running_mean = running_mean,
                                           .running_var = running_var,
                                           .stats = stats};

    assert(stream != NULL);
    return standin_queue(norm_running_run, &args, sizeof args);
}

struct norm_apply_args {
    struct kernel_norm norm;
    const void *x;
    const float *stats;
    const void *residual;
    void *y;
    uint8_t *mask;
};

static void norm_apply_run(void *args)
{
    struct norm_apply_args *a = args;

    kernel_norm_apply_ref(&a->norm, a->x, a->stats, a->residual, a->y, a->mask);
}

static int norm_apply(const struct kernel_norm *norm, const void *x, const float *stats,
                      const void *residual, void *y, uint8_t *mask, struct CUstream_st *stream)
{
    const struct norm_apply_args args = {
        .norm = *norm, .x = x, .stats = stats, .residual = residual, .y = y, .mask = mask};

    assert(stream != NULL);
    return standin_queue(norm_apply_run, &args, sizeof args);
}

struct norm_backward_sums_args {
    struct kernel_norm norm;
    const void *x;
    const void *dy;
    const uint8_t *mask;
    const float *stats;
    double *sums;
};

static void norm_backward_sums_run(void *args)
{
    struct norm_backward_sums_args *a = args;

    kernel_norm_backward_sums_ref(&a->norm, a->x, a->dy, a->mask, a->stats, a->sums);
}

static int norm_backward_sums(const struct kernel_norm *norm, const void *x, const void *dy,
                              const uint8_t *mask, const float *stats, double *sums, void *scratch,
                              struct CUstream_st *stream)
{
    const struct norm_backward_sums_args args = {
        .norm = *norm, .x = x, .dy = dy, .mask = mask, .stats = stats, .sums = sums};

    assert(stream != NULL);
    (void)scratch;
    return standin_queue(norm_backward_sums_run, &args, sizeof args);
}

struct norm_backward_finish_args {
    struct kernel_norm norm;
    const double *own;
    const double *all;
    const float *stats;
    void *dgamma;
    void *dbeta;
    float *coefs;
};

static void norm_backward_finish_run(void *args)
{
    struct norm_backward_finish_args *a = args;

    kernel_norm_backward_finish_ref(&a->norm, a->own, a->all, a->stats, a->dgamma, a->dbeta,
                                    a->coefs);
}

static int norm_backward_finish(const struct kernel_norm *norm, const double *own,
                                const double *all, const float *stats, void *dgamma, void *dbeta,
                                float *coefs, struct CUstream_st *stream)
{
    const struct norm_backward_finish_args args = {.norm = *norm,
                                                   .own = own,
                                                   .all = all,
                                                   .stats = stats,
                                                   .dgamma = dgamma,
                                                   .dbeta = dbeta,
                                                   .coefs = coefs};

    assert(stream != NULL);
    return standin_queue(norm_backward_finish_run, &args, sizeof args);
}

struct norm_backward_apply_args {
    struct kernel_norm norm;
    const void *x;
    const void *dy;
    const uint8_t *mask;
    const float *stats;
    const float *coefs;
    void *dx;
    void *dskip;
};

static void norm_backward_apply_run(void *args)
{
    struct norm_backward_apply_args *a = args;

    kernel_norm_backward_apply_ref(&a->norm, a->x, a->dy, a->mask, a->stats, a->coefs, a->dx,
                                   a->dskip);
}

static int norm_backward_apply(const struct kernel_norm *norm, const void *x, const void *dy,
                               const uint8_t *mask, const float *stats, const float *coefs,
                               void *dx, void *dskip, struct CUstream_st *stream)
{
    const struct norm_backward_apply_args args = {.norm = *norm,
                                                  .x = x,
                                                  .dy = dy,
                                                  .mask = mask,
                                                  .stats = stats,
                                                  .coefs = coefs,
                                                  .dx = dx,
                                                  .dskip = dskip};

    assert(stream != NULL);
    return standin_queue(norm_backward_apply_run, &args, sizeof args);
}

const struct cuda_kernels standin_kernels = {
    .finite = standin_finite,
    .rates = standin_rates,
    .sgd = standin_sgd,
    .cast = cast,
    .scale = standin_scale,
    .add = add,
    .accumulate = accumulate,
    .relu = relu,
    .relu_backward = relu_backward,
    .images = images,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
    .loss = loss,
    .columns = columns,
    .columns_bytes = columns_bytes,
    .norm_sums = norm_sums,
    .norm_finish = norm_finish,
    .norm_running = norm_running,
    .norm_apply = norm_apply,
    .norm_backward_sums = norm_backward_sums,
    .norm_backward_finish = norm_backward_finish,
    .norm_backward_apply = norm_backward_apply,
    .clip = standin_clip,
    .scaler_step = standin_scaler_step,
    .adam = standin_adam,
    .lars_workspace = standin_lars_workspace,
    .lars = standin_lars,
    .lookahead_before = standin_lookahead_before,
    .lookahead = standin_lookahead,
};
