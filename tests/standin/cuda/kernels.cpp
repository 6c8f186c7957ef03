/* The kernels as launches: each queues its reference in C (kernel_NAME_ref) with a copy of its
 * arguments. A struct on the caller's stack and a table of tensors are copied, as a launch copies
 * them; scratch memory is filled with noise over all the bytes that the kernel may use. */
#include <cassert>
#include <cstring>
#include <type_traits>

extern "C" {
#include "tests/standin/cuda/standin.h"
}

namespace fake
{
using stream = struct CUstream_st *;

/* Queues `call`, a closure that captures by value. */
template <typename F> int queue(stream on, F call)
{
    static_assert(std::is_trivially_copyable_v<F>, "the queue copies bytes");

    void (*const run)(void *) = [](void *args) { (*static_cast<F *>(args))(); };

    return standin_queue(on, run, &call, sizeof call);
}

constexpr uint32_t TABLE_MAX = 64; /* tensors that one launch carries */

template <typename T> struct table {
    T items[TABLE_MAX];
    uint32_t count;
};

/* A launch for every TABLE_MAX items; `launch` gets a copy of them. */
template <typename T, typename F> int in_parts(const T *items, uint32_t count, F launch)
{
    int code = 0;

    for (uint32_t first = 0; first < count && code == 0; first += TABLE_MAX) {
        table<T> part;

        part.count = count - first < TABLE_MAX ? count - first : TABLE_MAX;
        memcpy(part.items, items + first, part.count * sizeof *items);
        code = launch(part);
    }
    return code;
}

void spoil(void *scratch, size_t bytes)
{
    memset(scratch, 0x7b, bytes);
}

/* What every launch that has counters finds and leaves. */
void check_counters(const uint32_t *counters)
{
    for (uint32_t i = 0; i < KERNEL_COLUMNS_COUNTERS; i++)
        assert(counters[i] == 0);
}

/* -- elements -- */

int cast(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
         size_t count, stream on)
{
    return queue(on, [=] { kernel_cast_ref(to, to_type, from, from_type, count); });
}

int scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
          float factor, size_t count, stream on)
{
    return queue(on, [=] { kernel_scale_ref(to, to_type, from, from_type, factor, count); });
}

int add(void *y, const void *a, const void *b, enum kernel_type type, bool relu, size_t count,
        stream on)
{
    return queue(on, [=] { kernel_add_ref(y, a, b, type, relu, count); });
}

int accumulate(void *to, enum kernel_type to_type, void *from, enum kernel_type from_type,
               float scale, bool clear, size_t count, stream on)
{
    return queue(on,
                 [=] { kernel_accumulate_ref(to, to_type, from, from_type, scale, clear, count); });
}

int relu(void *y, const void *x, enum kernel_type type, size_t count, stream on)
{
    return queue(on, [=] { kernel_relu_ref(y, x, type, count); });
}

int relu_backward(void *dx, const void *y, const void *dy, enum kernel_type type, size_t count,
                  stream on)
{
    return queue(on, [=] { kernel_relu_backward_ref(dx, y, dy, type, count); });
}

/* -- layers -- */

int images(const struct kernel_images *given, const void *x, void *y, stream on)
{
    return queue(on, [=, images = *given] { kernel_images_ref(&images, x, y); });
}

int max_pool(const struct kernel_pool *given, const void *x, void *y, uint8_t *best, stream on)
{
    return queue(on, [=, pool = *given] { kernel_max_pool_ref(&pool, x, y, best); });
}

int max_pool_backward(const struct kernel_pool *given, const void *dy, const uint8_t *best,
                      void *dx, stream on)
{
    return queue(on, [=, pool = *given] { kernel_max_pool_backward_ref(&pool, dy, best, dx); });
}

int avg_pool(const void *x, void *y, enum kernel_type type, uint32_t images, uint32_t pixels,
             uint32_t channels, stream on)
{
    return queue(on, [=] { kernel_avg_pool_ref(x, y, type, images, pixels, channels); });
}

int avg_pool_backward(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                      uint32_t pixels, uint32_t channels, stream on)
{
    return queue(on, [=] { kernel_avg_pool_backward_ref(dy, dx, type, images, pixels, channels); });
}

int loss(const struct kernel_loss *given, const void *logits, const void *labels,
         const float *scale, void *grads, struct kernel_loss_row *rows_out,
         struct kernel_loss_result *result, stream on)
{
    return queue(on, [=, loss = *given] {
        kernel_loss_ref(&loss, logits, labels, scale, grads, rows_out, result);
    });
}

int columns(const void *x, enum kernel_type type, size_t rows, uint32_t channels, void *sums,
            enum kernel_type sums_type, void *scratch, uint32_t *counters, stream on)
{
    return queue(on, [=] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(type, rows, channels, 1));
        kernel_columns_ref(x, type, rows, channels, sums, sums_type);
    });
}

/* -- batch norm -- */

int norm_sums(const struct kernel_norm *given, const void *x, double *sums, void *scratch,
              uint32_t *counters, stream on)
{
    return queue(on, [=, norm = *given] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_sums_ref(&norm, x, sums);
    });
}

int norm_finish(const struct kernel_norm *given, const double *sums, const void *gamma,
                const void *beta, float *running_mean, float *running_var, float *stats, stream on)
{
    return queue(on, [=, norm = *given] {
        kernel_norm_finish_ref(&norm, sums, gamma, beta, running_mean, running_var, stats);
    });
}

int norm_statistics(const struct kernel_norm *given, const void *x, const void *gamma,
                    const void *beta, float *running_mean, float *running_var, float *stats,
                    double *sums, void *scratch, uint32_t *counters, stream on)
{
    return queue(on, [=, norm = *given] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_statistics_ref(&norm, x, gamma, beta, running_mean, running_var, stats, sums);
    });
}

int norm_running(const struct kernel_norm *given, const void *gamma, const void *beta,
                 const float *running_mean, const float *running_var, float *stats, stream on)
{
    return queue(on, [=, norm = *given] {
        kernel_norm_running_ref(&norm, gamma, beta, running_mean, running_var, stats);
    });
}

int norm_apply(const struct kernel_norm *given, const void *x, const float *stats,
               const void *residual, void *y, uint8_t *mask, stream on)
{
    return queue(on,
                 [=, norm = *given] { kernel_norm_apply_ref(&norm, x, stats, residual, y, mask); });
}

int norm_backward_sums(const struct kernel_norm *given, const void *x, const void *dy,
                       const uint8_t *mask, const float *stats, double *sums, void *scratch,
                       uint32_t *counters, stream on)
{
    return queue(on, [=, norm = *given] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_backward_sums_ref(&norm, x, dy, mask, stats, sums);
    });
}

int norm_backward_finish(const struct kernel_norm *given, const double *own, const double *all,
                         const float *stats, void *dgamma, void *dbeta, float *coefs, stream on)
{
    return queue(on, [=, norm = *given] {
        kernel_norm_backward_finish_ref(&norm, own, all, stats, dgamma, dbeta, coefs);
    });
}

int norm_gradients(const struct kernel_norm *given, const void *x, const void *dy,
                   const uint8_t *mask, const float *stats, void *dgamma, void *dbeta, float *coefs,
                   double *sums, void *scratch, uint32_t *counters, stream on)
{
    return queue(on, [=, norm = *given] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_gradients_ref(&norm, x, dy, mask, stats, dgamma, dbeta, coefs, sums);
    });
}

int norm_backward_apply(const struct kernel_norm *given, const void *x, const void *dy,
                        const uint8_t *mask, const float *stats, const float *coefs, void *dx,
                        void *dskip, stream on)
{
    return queue(on, [=, norm = *given] {
        kernel_norm_backward_apply_ref(&norm, x, dy, mask, stats, coefs, dx, dskip);
    });
}

int norm_pool(const struct kernel_norm *given, const struct kernel_pool *windows, const void *x,
              const float *stats, void *y, uint8_t *places, void *kept, stream on)
{
    return queue(on, [=, norm = *given, pool = *windows] {
        kernel_norm_pool_ref(&norm, &pool, x, stats, y, places, kept);
    });
}

int norm_pool_backward_sums(const struct kernel_norm *given, const struct kernel_pool *windows,
                            const void *kept, const void *dy, const uint8_t *places,
                            const float *stats, double *sums, void *scratch, uint32_t *counters,
                            stream on)
{
    return queue(on, [=, norm = *given, pool = *windows] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_pool_backward_sums_ref(&norm, &pool, kept, dy, places, stats, sums);
    });
}

int norm_pool_gradients(const struct kernel_norm *given, const struct kernel_pool *windows,
                        const void *kept, const void *dy, const uint8_t *places, const float *stats,
                        void *dgamma, void *dbeta, float *coefs, double *sums, void *scratch,
                        uint32_t *counters, stream on)
{
    return queue(on, [=, norm = *given, pool = *windows] {
        check_counters(counters);
        spoil(scratch, kernel_columns_bytes(norm.type, norm.rows, norm.channels, 2));
        kernel_norm_pool_gradients_ref(&norm, &pool, kept, dy, places, stats, dgamma, dbeta, coefs,
                                       sums);
    });
}

int norm_pool_backward_apply(const struct kernel_norm *given, const struct kernel_pool *windows,
                             const void *x, const void *dy, const uint8_t *places,
                             const float *stats, const float *coefs, void *dx, stream on)
{
    return queue(on, [=, norm = *given, pool = *windows] {
        kernel_norm_pool_backward_apply_ref(&norm, &pool, x, dy, places, stats, coefs, dx);
    });
}

/* -- the end of a step -- */

int finite(const struct kernel_values *tensors, uint32_t count, enum kernel_type type,
           uint32_t *found, stream on)
{
    return in_parts(tensors, count, [=](const auto &part) {
        return queue(on, [=] { kernel_finite_ref(part.items, part.count, type, found); });
    });
}

int rates(struct kernel_rates *rates, const struct kernel_rates *given, stream on)
{
    return queue(on, [=, values = *given] { kernel_rates_ref(rates, &values); });
}

int clip(const struct kernel_span *spans, uint32_t count, const struct kernel_clip *given,
         const float *scale, const uint32_t *found, void *scratch, stream on)
{
    assert(count <= TABLE_MAX); /* one norm over all of them */
    return in_parts(spans, count, [=, clip = *given](const auto &part) {
        return queue(on, [=] {
            spoil(scratch, KERNEL_CLIP_SCRATCH_BYTES);
            kernel_clip_ref(part.items, part.count, &clip, scale, found, scratch);
        });
    });
}

int scaler_step(struct kernel_scaler *scaler, bool used_momentum, stream on)
{
    return queue(on, [=] { kernel_scaler_step_ref(scaler, used_momentum); });
}

int sgd(const struct kernel_sgd_tensor *tensors, uint32_t count, const struct kernel_sgd *given,
        const struct kernel_rates *rates, const float *scale, const uint32_t *found, stream on)
{
    return in_parts(tensors, count, [=, sgd = *given](const auto &part) {
        return queue(on, [=, sgd = sgd]() mutable {
            if (rates != nullptr) {
                sgd.lr = rates->lr;
                sgd.momentum = rates->momentum;
                sgd.is_first_step = rates->is_first_step != 0;
            }
            kernel_sgd_ref(part.items, part.count, &sgd, scale, found);
        });
    });
}

int adam(const struct kernel_adam_tensor *tensors, uint32_t count, const struct kernel_adam *given,
         const struct kernel_rates *rates, const float *scale, const uint32_t *found,
         const uint32_t *applied, stream on)
{
    return in_parts(tensors, count, [=, adam = *given](const auto &part) {
        return queue(on, [=, adam = adam]() mutable {
            if (rates != nullptr) {
                adam.lr = rates->wide_lr;
                adam.beta1 = rates->beta1;
            }
            kernel_adam_ref(part.items, part.count, &adam, scale, found, applied);
        });
    });
}

int lars(const struct kernel_lars_tensor *tensors, uint32_t count, const struct kernel_lars *given,
         const struct kernel_rates *rates, void *workspace, const float *scale,
         const uint32_t *found, stream on)
{
    return in_parts(tensors, count, [=, lars = *given](const auto &part) {
        return queue(on, [=, lars = lars]() mutable {
            if (rates != nullptr) {
                lars.lr = rates->lr;
                lars.momentum = rates->momentum;
            }
            spoil(workspace, kernel_lars_workspace(part.items, part.count));
            kernel_lars_ref(part.items, part.count, &lars, scale, found);
        });
    });
}

int lookahead_before(const struct kernel_lookahead_tensor *tensors, uint32_t count,
                     const struct kernel_lookahead *given, const uint32_t *found,
                     const uint32_t *applied, stream on)
{
    return in_parts(tensors, count, [=, lookahead = *given](const auto &part) {
        return queue(on, [=, lookahead = lookahead] {
            kernel_lookahead_before_ref(part.items, part.count, &lookahead, found, applied);
        });
    });
}

int lookahead(const struct kernel_lookahead_tensor *tensors, uint32_t count,
              const struct kernel_lookahead *given, const uint32_t *found, const uint32_t *applied,
              stream on)
{
    return in_parts(tensors, count, [=, lookahead = *given](const auto &part) {
        return queue(on, [=, lookahead = lookahead] {
            kernel_lookahead_ref(part.items, part.count, &lookahead, found, applied);
        });
    });
}
} // namespace fake

/* By the provider's list: a kernel that is not here does not compile. */
extern const struct cuda_kernels standin_kernels = {
#define FAKE_ENTRY(name) fake::name,
    KERNEL_TABLE(FAKE_ENTRY)
#undef FAKE_ENTRY
};
