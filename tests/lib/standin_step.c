/* Twins of the step's end as launches: each keeps a copy of its arguments, structs on the caller's
 * stack included, so that it can be run later. */
#include <assert.h>
#include <string.h>

#include "tests/lib/standin.h"
#include "tests/lib/standin_step.h"

enum { TABLE_MAX = 64 }; /* tensors that the twin gets at once */

struct finite_args {
    struct kernel_values tensors[TABLE_MAX];
    uint32_t tensor_count;
    enum kernel_type type;
    uint32_t *found;
};

static void finite_run(void *args)
{
    struct finite_args *a = args;

    kernel_finite_ref(a->tensors, a->tensor_count, a->type, a->found);
}

int standin_finite(const struct kernel_values *tensors, uint32_t tensor_count,
                   enum kernel_type type, uint32_t *found, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct finite_args args = {.tensor_count = tensor_count, .type = type, .found = found};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(finite_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}

struct sgd_args {
    struct kernel_sgd_tensor tensors[TABLE_MAX];
    uint32_t tensor_count;
    struct kernel_sgd sgd;
    const struct kernel_rates *rates;
    const float *scale;
    const uint32_t *found;
};

static void sgd_run(void *args)
{
    struct sgd_args *a = args;

    if (a->rates != NULL) {
        a->sgd.lr = a->rates->lr;
        a->sgd.momentum = a->rates->momentum;
        a->sgd.is_first_step = a->rates->is_first_step != 0;
    }
    kernel_sgd_ref(a->tensors, a->tensor_count, &a->sgd, a->scale, a->found);
}

int standin_sgd(const struct kernel_sgd_tensor *tensors, uint32_t tensor_count,
                const struct kernel_sgd *sgd, const struct kernel_rates *rates, const float *scale,
                const uint32_t *found, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct sgd_args args = {.tensor_count = tensor_count,
                                .sgd = *sgd,
                                .rates = rates,
                                .scale = scale,
                                .found = found};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(sgd_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}

struct rates_args {
    struct kernel_rates *rates;
    struct kernel_rates values;
};

static void rates_run(void *args)
{
    struct rates_args *a = args;

    kernel_rates_ref(a->rates, &a->values);
}

int standin_rates(struct kernel_rates *rates, const struct kernel_rates *values,
                  struct CUstream_st *stream)
{
    const struct rates_args args = {.rates = rates, .values = *values};

    assert(stream != NULL);
    return standin_queue(rates_run, &args, sizeof args);
}

struct scale_args {
    void *to;
    enum kernel_type to_type;
    const void *from;
    enum kernel_type from_type;
    float factor;
    size_t count;
};

static void scale_run(void *args)
{
    struct scale_args *a = args;

    kernel_scale_ref(a->to, a->to_type, a->from, a->from_type, a->factor, a->count);
}

int standin_scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                  float factor, size_t count, struct CUstream_st *stream)
{
    const struct scale_args args = {.to = to,
                                    .to_type = to_type,
                                    .from = from,
                                    .from_type = from_type,
                                    .factor = factor,
                                    .count = count};

    assert(stream != NULL);
    return standin_queue(scale_run, &args, sizeof args);
}

struct clip_args {
    struct kernel_span spans[TABLE_MAX];
    uint32_t span_count;
    struct kernel_clip clip;
    const float *scale;
    const uint32_t *found;
    void *scratch;
};

static void clip_run(void *args)
{
    struct clip_args *a = args;

    kernel_clip_ref(a->spans, a->span_count, &a->clip, a->scale, a->found, a->scratch);
}

int standin_clip(const struct kernel_span *spans, uint32_t span_count,
                 const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                 void *scratch, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < span_count; first += TABLE_MAX) {
        uint32_t n = span_count - first < TABLE_MAX ? span_count - first : TABLE_MAX;
        struct clip_args args = {.span_count = span_count,
                                 .clip = *clip,
                                 .scale = scale,
                                 .found = found,
                                 .scratch = scratch};
        int code;

        args.span_count = n;
        memcpy(args.spans, spans + first, n * sizeof *spans);
        assert(stream != NULL);
        code = standin_queue(clip_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}

struct scaler_step_args {
    struct kernel_scaler *scaler;
    bool used_momentum;
};

static void scaler_step_run(void *args)
{
    struct scaler_step_args *a = args;

    kernel_scaler_step_ref(a->scaler, a->used_momentum);
}

int standin_scaler_step(struct kernel_scaler *scaler, bool used_momentum,
                        struct CUstream_st *stream)
{
    const struct scaler_step_args args = {.scaler = scaler, .used_momentum = used_momentum};

    assert(stream != NULL);
    return standin_queue(scaler_step_run, &args, sizeof args);
}

struct adam_args {
    struct kernel_adam_tensor tensors[TABLE_MAX];
    uint32_t tensor_count;
    struct kernel_adam adam;
    const struct kernel_rates *rates;
    const float *scale;
    const uint32_t *found;
    const uint32_t *applied;
};

static void adam_run(void *args)
{
    struct adam_args *a = args;

    if (a->rates != NULL) {
        a->adam.lr = a->rates->wide_lr;
        a->adam.beta1 = a->rates->beta1;
    }
    kernel_adam_ref(a->tensors, a->tensor_count, &a->adam, a->scale, a->found, a->applied);
}

int standin_adam(const struct kernel_adam_tensor *tensors, uint32_t tensor_count,
                 const struct kernel_adam *adam, const struct kernel_rates *rates,
                 const float *scale, const uint32_t *found, const uint32_t *applied,
                 struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct adam_args args = {.tensor_count = tensor_count,
                                 .adam = *adam,
                                 .rates = rates,
                                 .scale = scale,
                                 .found = found,
                                 .applied = applied};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(adam_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Our twins need none: some, so that it is passed on. */
size_t standin_lars_workspace(const struct kernel_lars_tensor *tensors, uint32_t tensor_count)
{
    (void)tensors;
    (void)tensor_count;
    return 64;
}

struct lars_args {
    struct kernel_lars_tensor tensors[TABLE_MAX];
    uint32_t tensor_count;
    struct kernel_lars lars;
    const struct kernel_rates *rates;
    const float *scale;
    const uint32_t *found;
};

static void lars_run(void *args)
{
    struct lars_args *a = args;

    if (a->rates != NULL) {
        a->lars.lr = a->rates->lr;
        a->lars.momentum = a->rates->momentum;
    }
    kernel_lars_ref(a->tensors, a->tensor_count, &a->lars, a->scale, a->found);
}

int standin_lars(const struct kernel_lars_tensor *tensors, uint32_t tensor_count,
                 const struct kernel_lars *lars, const struct kernel_rates *rates, void *workspace,
                 const float *scale, const uint32_t *found, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct lars_args args = {.tensor_count = tensor_count,
                                 .lars = *lars,
                                 .rates = rates,
                                 .scale = scale,
                                 .found = found};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(lars_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    (void)workspace;
    return 0;
}

struct lookahead_before_args {
    struct kernel_lookahead_tensor tensors[TABLE_MAX];
    uint32_t tensor_count;
    struct kernel_lookahead lookahead;
    const uint32_t *found;
    const uint32_t *applied;
};

static void lookahead_before_run(void *args)
{
    struct lookahead_before_args *a = args;

    kernel_lookahead_before_ref(a->tensors, a->tensor_count, &a->lookahead, a->found, a->applied);
}

int standin_lookahead_before(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                             const struct kernel_lookahead *lookahead, const uint32_t *found,
                             const uint32_t *applied, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct lookahead_before_args args = {.tensor_count = tensor_count,
                                             .lookahead = *lookahead,
                                             .found = found,
                                             .applied = applied};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(lookahead_before_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}

struct lookahead_args {
    struct kernel_lookahead_tensor tensors[TABLE_MAX];
    uint32_t tensor_count;
    struct kernel_lookahead lookahead;
    const uint32_t *found;
    const uint32_t *applied;
};

static void lookahead_run(void *args)
{
    struct lookahead_args *a = args;

    kernel_lookahead_ref(a->tensors, a->tensor_count, &a->lookahead, a->found, a->applied);
}

int standin_lookahead(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                      const struct kernel_lookahead *lookahead, const uint32_t *found,
                      const uint32_t *applied, struct CUstream_st *stream)
{
    for (uint32_t first = 0; first < tensor_count; first += TABLE_MAX) {
        uint32_t n = tensor_count - first < TABLE_MAX ? tensor_count - first : TABLE_MAX;
        struct lookahead_args args = {.tensor_count = tensor_count,
                                      .lookahead = *lookahead,
                                      .found = found,
                                      .applied = applied};
        int code;

        args.tensor_count = n;
        memcpy(args.tensors, tensors + first, n * sizeof *tensors);
        assert(stream != NULL);
        code = standin_queue(lookahead_run, &args, sizeof args);
        if (code != 0)
            return code;
    }
    return 0;
}
