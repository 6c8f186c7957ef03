#include "tests/lib/fenced.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FENCES_MAX = 16, ALIGN = 64 };

static const size_t fence_bytes = (size_t)1 << 30; /* of addresses: pages come as they are used */

/* Where a promised step is; any call that does not belong there aborts. */
enum promise { PROMISE_NONE, PROMISE_GIVEN, PROMISE_RUNNING };

struct fence {
    void *cpu;
    char *memory;
    size_t used;
    pthread_mutex_t lock;
    uint32_t inside; /* threads in a call */
    enum promise promise;
    uint32_t outcome_count;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *fences[FENCES_MAX];
static uint32_t whole_steps;

static void protect(struct fence *fence, int protection)
{
    int rc = mprotect(fence->memory, fence->used > 0 ? fence->used : 1, protection);

    assert(rc == 0);
    (void)rc;
}

static void *enter(void *state)
{
    struct fence *fence = state;

    (void)pthread_mutex_lock(&fence->lock);
    if (fence->inside++ == 0)
        protect(fence, PROT_READ | PROT_WRITE);
    (void)pthread_mutex_unlock(&fence->lock);
    return fence->cpu;
}

static void leave(void *state)
{
    struct fence *fence = state;

    (void)pthread_mutex_lock(&fence->lock);
    if (--fence->inside == 0)
        protect(fence, PROT_NONE);
    (void)pthread_mutex_unlock(&fence->lock);
}

/* A call that needs the host between the parts of a step. */
static void *enter_host(void *state)
{
    assert(((struct fence *)state)->promise == PROMISE_NONE);
    return enter(state);
}

static void list(const char *old, const char *new)
{
    uint32_t i = 0;

    (void)pthread_mutex_lock(&table_lock);
    while (i < FENCES_MAX && fences[i] != old)
        i++;
    assert(i < FENCES_MAX);
    fences[i] = new;
    (void)pthread_mutex_unlock(&table_lock);
}

bool fenced_is_inside(const void *memory)
{
    const char *at = memory;
    bool found = false;

    (void)pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < FENCES_MAX; i++)
        found = found || (fences[i] != NULL && at >= fences[i] && at < fences[i] + fence_bytes);
    (void)pthread_mutex_unlock(&table_lock);
    return found;
}

uint32_t fenced_whole_steps(void)
{
    return whole_steps;
}

static enum status fence_open(void **state, const struct graph *graph,
                              const struct net_options *options, struct err *err)
{
    struct fence *fence = calloc(1, sizeof *fence);
    enum status status;

    assert(fence != NULL);
    fence->memory =
        mmap(NULL, fence_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(fence->memory != MAP_FAILED);
    (void)pthread_mutex_init(&fence->lock, NULL);
    status = backend_cpu.open(&fence->cpu, graph, options, err);
    if (status != STATUS_OK) {
        (void)munmap(fence->memory, fence_bytes);
        free(fence);
        return status;
    }
    list(NULL, fence->memory);
    *state = fence;
    return STATUS_OK;
}

static void fence_close(void **state)
{
    struct fence *fence = *state;

    backend_cpu.close(&fence->cpu);
    list(fence->memory, NULL);
    (void)munmap(fence->memory, fence_bytes);
    (void)pthread_mutex_destroy(&fence->lock);
    free(fence);
    *state = NULL;
}

static size_t fence_tensor_size(const void *state, uint32_t index)
{
    return backend_cpu.tensor_size(((const struct fence *)state)->cpu, index);
}

static uint32_t fence_tensor_layout(const void *state, uint32_t index,
                                    uint64_t words[BACKEND_LAYOUT_WORDS])
{
    return backend_cpu.tensor_layout(((const struct fence *)state)->cpu, index, words);
}

static enum status fence_tensor_pack(void *state, uint32_t index, const float *row_major,
                                     float *stored, struct err *err)
{
    enum status status = backend_cpu.tensor_pack(enter_host(state), index, row_major, stored, err);

    leave(state);
    return status;
}

static enum status fence_tensor_unpack(void *state, uint32_t index, const void *stored,
                                       enum graph_dtype dtype, float *row_major, struct err *err)
{
    enum status status =
        backend_cpu.tensor_unpack(enter_host(state), index, stored, dtype, row_major, err);

    leave(state);
    return status;
}

static void *fence_memory_new(void *state, size_t bytes)
{
    struct fence *fence = state;
    char *memory = fence->memory + fence->used;

    if (bytes > fence_bytes - fence->used)
        return NULL;
    fence->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return memory;
}

static void fence_memory_free(void *state, void *memory)
{
    (void)state;
    assert(memory == NULL || fenced_is_inside(memory)); /* it goes with the fence */
}

static enum status fence_memory_read(void *state, const void *memory, void *host, size_t bytes,
                                     struct err *err)
{
    enum status status = backend_cpu.memory_read(enter_host(state), memory, host, bytes, err);

    assert(fenced_is_inside(memory) && !fenced_is_inside(host));
    leave(state);
    return status;
}

static enum status fence_memory_write(void *state, void *memory, const void *host, size_t bytes,
                                      struct err *err)
{
    enum status status = backend_cpu.memory_write(enter_host(state), memory, host, bytes, err);

    assert(fenced_is_inside(memory) && !fenced_is_inside(host));
    leave(state);
    return status;
}

static enum status fence_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                                   float **values, struct err *err)
{
    (void)bucket;
    (void)err;
    *values = malloc(span->count * sizeof **values + 1);
    assert(*values != NULL);
    (void)enter_host(state);
    memcpy(*values, span->memory, span->count * sizeof **values);
    leave(state);
    return STATUS_OK;
}

static enum status fence_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                                    float *values, struct err *err)
{
    void *cpu = enter_host(state);
    enum status status;

    memcpy(span->memory, values, span->count * sizeof *values);
    status = backend_cpu.view_close(cpu, span, bucket, span->memory, err);
    leave(state);
    memset(values, 0xff, span->count * sizeof *values);
    free(values);
    return status;
}

static void fence_bind(void *state, uint32_t index, float *param, void *low, void *grad)
{
    backend_cpu.bind(((struct fence *)state)->cpu, index, param, low, grad);
}

static void fence_step_whole(void *state)
{
    struct fence *fence = state;

    assert(fence->promise == PROMISE_NONE);
    fence->promise = PROMISE_GIVEN;
}

static enum status fence_step_begin(void *state, const struct net_images *images,
                                    const int64_t *labels, uint32_t n, bool training,
                                    struct err *err)
{
    struct fence *fence = state;
    enum status status;

    assert(fence->promise != PROMISE_RUNNING && (fence->promise == PROMISE_NONE || training));
    if (fence->promise == PROMISE_GIVEN)
        fence->promise = PROMISE_RUNNING;
    status = backend_cpu.step_begin(enter(state), images, labels, n, training, err);
    leave(state);
    return status;
}

static enum status fence_layer_forward(void *state, uint32_t layer, struct err *err)
{
    enum status status = backend_cpu.layer_forward(enter(state), layer, err);

    leave(state);
    return status;
}

static enum status fence_layer_backward(void *state, uint32_t layer, float grad_scale,
                                        struct err *err)
{
    enum status status = backend_cpu.layer_backward(enter(state), layer, grad_scale, err);

    leave(state);
    return status;
}

static void fence_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads)
{
    backend_cpu.bucket_ready(enter(state), bucket, grads);
    leave(state);
}

static enum status fence_result(void *state, struct net_result *result, struct err *err)
{
    enum status status = backend_cpu.result(enter_host(state), result, err);

    leave(state);
    return status;
}

static void fence_bind_scaler(void *state, struct scaler *scaler)
{
    assert(fenced_is_inside(scaler));
    backend_cpu.bind_scaler(((struct fence *)state)->cpu, scaler);
}

static void fence_finite(void *state, const struct backend_span *grads, uint32_t count,
                         struct scaler *scaler)
{
    backend_cpu.finite(enter(state), grads, count, scaler);
    leave(state);
}

static void fence_clip(void *state, const struct backend_span *grads, uint32_t count,
                       const struct net_clip *clip, const struct scaler *scaler)
{
    backend_cpu.clip(enter(state), grads, count, clip, scaler);
    leave(state);
}

static void fence_update(void *state, const struct backend_param *params, uint32_t count,
                         const struct optim *optim, const struct scaler *scaler)
{
    backend_cpu.update(enter(state), params, count, optim, scaler);
    leave(state);
}

static void fence_scaler_end(void *state, struct scaler *scaler, bool used_momentum)
{
    backend_cpu.scaler_end(enter(state), scaler, used_momentum);
    leave(state);
}

static void fence_step_end(void *state, const struct scaler *scaler)
{
    struct fence *fence = state;

    backend_cpu.step_end(enter(state), scaler);
    leave(state);
    if (fence->promise == PROMISE_RUNNING)
        whole_steps++;
    fence->promise = PROMISE_NONE;
    if (fence->outcome_count < NET_OUTCOMES)
        fence->outcome_count++;
}

static enum status fence_outcome_take(void *state, bool wait, struct net_outcome *outcome,
                                      bool *taken, struct err *err)
{
    struct fence *fence = state;
    enum status status;

    *taken = false;
    if (!wait && fence->outcome_count <= 1)
        return STATUS_OK; /* the device is still at it */
    status = backend_cpu.outcome_take(enter(state), wait, outcome, taken, err);
    leave(state);
    fence->outcome_count -= *taken;
    return status;
}

static void fence_add(void *state, const struct backend_span *to, const struct backend_span *from,
                      bool clear)
{
    backend_cpu.add(enter(state), to, from, clear);
    leave(state);
}

static void fence_refresh(void *state, const struct backend_param *param)
{
    backend_cpu.refresh(enter(state), param);
    leave(state);
}

static bool fence_is_finite(void *state, const struct backend_span *span)
{
    bool is_finite = backend_cpu.is_finite(enter_host(state), span);

    leave(state);
    return is_finite;
}

static uint32_t fence_first_nonfinite(void *state)
{
    uint32_t layer = backend_cpu.first_nonfinite(enter_host(state));

    leave(state);
    return layer;
}

static size_t fence_net_bytes(const void *state)
{
    return backend_cpu.bytes(((const struct fence *)state)->cpu);
}

static bool fence_profile(const void *state, uint32_t index, struct net_profile *profile)
{
    return backend_cpu.profile(((const struct fence *)state)->cpu, index, profile);
}

const struct backend backend_fenced = {
    .name = "fenced",
    .open = fence_open,
    .close = fence_close,
    .tensor_size = fence_tensor_size,
    .tensor_layout = fence_tensor_layout,
    .tensor_pack = fence_tensor_pack,
    .tensor_unpack = fence_tensor_unpack,
    .memory_new = fence_memory_new,
    .memory_free = fence_memory_free,
    .memory_read = fence_memory_read,
    .memory_write = fence_memory_write,
    .view_open = fence_view_open,
    .view_close = fence_view_close,
    .bind = fence_bind,
    .step_whole = fence_step_whole,
    .step_begin = fence_step_begin,
    .layer_forward = fence_layer_forward,
    .layer_backward = fence_layer_backward,
    .bucket_ready = fence_bucket_ready,
    .result = fence_result,
    .bind_scaler = fence_bind_scaler,
    .finite = fence_finite,
    .clip = fence_clip,
    .update = fence_update,
    .scaler_end = fence_scaler_end,
    .step_end = fence_step_end,
    .outcome_take = fence_outcome_take,
    .add = fence_add,
    .refresh = fence_refresh,
    .is_finite = fence_is_finite,
    .first_nonfinite = fence_first_nonfinite,
    .bytes = fence_net_bytes,
    .profile = fence_profile,
};
