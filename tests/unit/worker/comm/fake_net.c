#include "tests/unit/worker/comm/fake_net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/half.h"

struct net {
    struct fake_plan plan;
    float *grads, *params; /* buffers lie behind the parameters */
    size_t param_count;
    uint32_t step;
    bool has_reducer;
    struct reducer reducer;
    volatile double sink; /* keeps the work from being optimised away */
};

struct fake_plan fake_plan_of(uint32_t rank)
{
    struct fake_plan plan = {
        .rank = rank,
        .tensors =
            {{.name = "layer1.0.weight",
              .dims = {16, 1, 5, 5},
              .dim_count = 4,
              .count = 400,
              .trainable = true},
             {.name = "layer1.1.running_mean", .dims = {16}, .dim_count = 1, .count = 16},
             {.name = "fc.bias", .dims = {10}, .dim_count = 1, .count = 10, .trainable = true}},
        .tensor_count = 3,
        .bucket_counts = {10, 0, 400},
        .bucket_count = 3,
        .buffer_count = 16,
        .fail_bucket = UINT32_MAX};

    return plan;
}

struct net *fake_net_new(const struct fake_plan *plan)
{
    struct net *net = calloc(1, sizeof *net);
    size_t grad_count = 0;

    assert(net != NULL);
    net->plan = *plan;
    for (uint32_t i = 0; i < plan->bucket_count; i++)
        grad_count += plan->bucket_counts[i];
    for (uint32_t i = 0; i < plan->tensor_count; i++)
        net->param_count += plan->tensors[i].count;
    net->grads = calloc(grad_count + 1, sizeof *net->grads);
    net->params = calloc(net->param_count + plan->buffer_count + 1, sizeof *net->params);
    assert(net->grads != NULL && net->params != NULL);
    for (size_t i = 0; i < net->param_count; i++)
        net->params[i] = (float)i + 1000.0F * (float)plan->rank;
    for (size_t i = 0; i < plan->buffer_count; i++)
        net->params[net->param_count + i] = -(float)i - 1000.0F * (float)plan->rank;
    return net;
}

void fake_net_free(struct net **net)
{
    free((*net)->grads);
    free((*net)->params);
    free(*net);
    *net = NULL;
}

void net_set_reducer(struct net *net, const struct reducer *reducer)
{
    net->has_reducer = reducer != NULL;
    if (reducer != NULL)
        net->reducer = *reducer;
}

uint32_t net_tensor_count(const struct net *net)
{
    return net->plan.tensor_count;
}

const struct net_tensor *net_tensor(const struct net *net, uint32_t index)
{
    assert(index < net->plan.tensor_count);
    return &net->plan.tensors[index];
}

enum status net_state_open(struct net *net, enum net_part part, struct net_view *view,
                           struct err *err)
{
    (void)err;
    *view = fake_buffers(net);
    if (part == NET_PARAMS)
        *view = (struct net_view){net->params, net->param_count + net->plan.buffer_count};
    return STATUS_OK;
}

enum status net_state_close(struct net *net, enum net_part part, const struct net_view *view,
                            struct err *err)
{
    (void)net;
    (void)part;
    (void)view;
    (void)err;
    return STATUS_OK;
}

struct net_view fake_params(struct net *net)
{
    return (struct net_view){net->params, net->param_count};
}

struct net_view fake_buffers(struct net *net)
{
    return (struct net_view){net->params + net->param_count, net->plan.buffer_count};
}

static void fold(uint64_t *hash, const void *bytes, size_t byte_count)
{
    const uint8_t *next = bytes;

    for (size_t i = 0; i < byte_count; i++)
        *hash = (*hash ^ next[i]) * UINT64_C(1099511628211);
}

static void fold_tensor(const struct net *net, uint32_t index, uint64_t *hash)
{
    const struct net_tensor *tensor = &net->plan.tensors[index];

    fold(hash, tensor->name, strlen(tensor->name));
    fold(hash, tensor->dims, sizeof tensor->dims);
    fold(hash, &net->plan.layouts[index], sizeof net->plan.layouts[index]);
}

void net_hash(const struct net *net, uint32_t index, uint8_t hash[32])
{
    uint64_t folded = UINT64_C(14695981039346656037);

    if (index != UINT32_MAX) {
        fold_tensor(net, index, &folded);
    } else {
        for (uint32_t i = 0; i < net->plan.tensor_count; i++)
            fold_tensor(net, i, &folded);
        fold(&folded, &net->plan.order, sizeof net->plan.order);
    }
    for (uint32_t i = 0; i < 4; i++)
        memcpy(hash + (size_t)i * 8, &folded, 8);
}

uint32_t net_bucket_count(const struct net *net)
{
    return net->plan.bucket_count;
}

struct net_bucket net_bucket(const struct net *net, uint32_t index)
{
    struct net_bucket bucket = {.count = net->plan.bucket_counts[index],
                                .dtype = net->plan.is_f16 ? GRAPH_F16 : GRAPH_F32};

    assert(index < net->plan.bucket_count);
    for (uint32_t i = 0; i < index; i++)
        bucket.at += net->plan.bucket_counts[i];
    return bucket;
}

struct net_view fake_bucket(struct net *net, uint32_t index)
{
    const struct net_bucket bucket = net_bucket(net, index);

    return (struct net_view){net->grads + bucket.at, bucket.count};
}

enum status net_bucket_open(struct net *net, uint32_t index, struct net_view *view, struct err *err)
{
    (void)err;
    *view = fake_bucket(net, index);
    return STATUS_OK;
}

enum status net_bucket_close(struct net *net, uint32_t index, const struct net_view *view,
                             struct err *err)
{
    (void)index;
    (void)err;
    for (size_t i = 0; net->plan.is_f16 && i < view->count; i++)
        view->values[i] = half_f16_to(half_f16_from(view->values[i]));
    return STATUS_OK;
}

float fake_grad(uint32_t rank, uint32_t step, uint32_t index, size_t i)
{
    return (float)(i % 1009) + 0.25F * (float)rank + 3.0F * (float)index + 7.0F * (float)step;
}

static void work(struct net *net, uint32_t work_us)
{
    struct timespec begin, now;
    double value = net->sink;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (uint32_t i = 0; i < 1000; i++)
            value = value * 0.999 + 1.0;
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 <
             (long)work_us);
    net->sink = value;
}

static enum status backward(struct net *net, float grad_scale, const struct reducer *reducer,
                            struct err *err)
{
    const float scale = net->has_reducer ? grad_scale * net->reducer.prescale : grad_scale;
    enum status status = STATUS_OK;

    for (uint32_t index = 0; index < net->plan.bucket_count && status == STATUS_OK; index++) {
        const struct net_view bucket = fake_bucket(net, index);

        if (index == net->plan.fail_bucket)
            return err_set(err, STATUS_LIBRARY, 0, "backward fails on purpose");
        if (net->plan.work_us > 0)
            work(net, net->plan.work_us);
        for (size_t i = 0; i < bucket.count; i++)
            bucket.values[i] = scale * fake_grad(net->plan.rank, net->step, index, i);
        for (size_t i = 0; net->plan.is_f16 && i < bucket.count; i++)
            bucket.values[i] = half_f16_to(half_f16_from(bucket.values[i] * FAKE_TINY));
        if (reducer != NULL)
            status = reducer->bucket_ready(reducer->context, index, err);
    }
    net->step++;
    return status;
}

enum status net_backward(struct net *net, float grad_scale, struct err *err)
{
    return backward(net, grad_scale, NULL, err);
}

enum status net_backward_reduce(struct net *net, float grad_scale, struct err *err)
{
    const struct reducer *reducer = &net->reducer;
    enum status status, finished;
    struct err why = {.text = ""};

    if (!net->has_reducer)
        return net_backward(net, grad_scale, err);
    status = reducer->begin(reducer->context, err);
    if (status != STATUS_OK)
        return status;
    status = backward(net, grad_scale, reducer, err);
    finished = reducer->finish(reducer->context, &why);
    if (status != STATUS_OK || finished == STATUS_OK)
        return status;
    return err_set(err, finished, why.code, "%s", why.text);
}
