/* The CUDA backend: sets up values, layers and plans, and frees them in order. */
#include "worker/backend/cuda/exec/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Shared by all nets: cuda_backend_use sets it once, before the first net. */
static struct {
    const struct cuda_runtime *runtime;
    const struct cuda_kernels *kernels;
    const struct cuda_plans *plans;
    struct cuda_backend_options options;
} used;

static bool is_set(const char *name, const char *value)
{
    const char *text = getenv(name);

    return text != NULL && strcmp(text, value) == 0;
}

static enum cuda_stats stats_wish(void)
{
    if (is_set("DDP_CUDA_STATS", "1"))
        return CUDA_STATS_APPLY;
    if (is_set("DDP_CUDA_STATS", "2"))
        return CUDA_STATS_PROLOGUE;
    return is_set("DDP_CUDA_STATS", "auto") ? CUDA_STATS_MEASURED : CUDA_STATS_NONE;
}

/* 0: the environment has no valid number. */
static uint32_t candidates_wish(void)
{
    const char *text = getenv("DDP_CUDA_CANDIDATES");
    const long wish = text != NULL ? strtol(text, NULL, 10) : 0;

    return wish > 0 && wish <= 32 ? (uint32_t)wish : 0;
}

void cuda_backend_use(const struct cuda_runtime *runtime, const struct cuda_kernels *kernels,
                      const struct cuda_plans *plans, uint32_t device_index)
{
    used.runtime = runtime;
    used.kernels = kernels;
    used.plans = plans;
    used.options = (struct cuda_backend_options){
        .device_index = device_index,
        .is_synchronous = is_set("DDP_CUDA_SYNC", "1"),
        .no_captures = is_set("DDP_CUDA_GRAPH", "0"),
        .stats = stats_wish(),
        .candidates = candidates_wish(),
        .norm_plans = is_set("DDP_CUDA_NORMS", "plans"),
        .no_masked_plans =
            !is_set("DDP_CUDA_SHORTCUTS", "auto") && !is_set("DDP_CUDA_SHORTCUTS", "1"),
        .masked_plans = is_set("DDP_CUDA_SHORTCUTS", "1"),
    };
}

void cuda_backend_share(struct plan_set *plans)
{
    used.options.shared = plans;
    used.options.shared_index = used.options.device_index;
}

void cuda_backend_choose(uint32_t device_index)
{
    used.options.device_index = device_index;
}

static const struct cuda_op *const ops[] = {
    [GRAPH_INPUT] = &cuda_op_input,       [GRAPH_CONV2D] = &cuda_op_conv,
    [GRAPH_BATCH_NORM] = &cuda_op_norm,   [GRAPH_RELU] = &cuda_op_relu,
    [GRAPH_MAX_POOL] = &cuda_op_pool,     [GRAPH_FLATTEN] = &cuda_op_flatten,
    [GRAPH_LINEAR] = &cuda_op_linear,     [GRAPH_ADD] = &cuda_op_add,
    [GRAPH_CAST] = &cuda_op_cast,         [GRAPH_CROSS_ENTROPY] = &cuda_op_loss,
    [GRAPH_AVG_POOL] = &cuda_op_avg_pool,
};

static void describe_layers(struct cuda *cuda)
{
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *layer = &cuda->layers[i];
        const struct graph_layer *graph = &cuda->graph->layers[i];

        layer->graph = graph;
        layer->op = ops[graph->op];
        layer->index = i;
        layer->tensors = cuda->tensors + graph->tensor_first;
        for (uint32_t k = 0; k < 2; k++)
            layer->in[k] =
                graph->inputs[k] != GRAPH_NONE ? &cuda->layers[graph->inputs[k]].out : NULL;
        cuda_describe_value(cuda, layer);
        cuda_describe_tensors(cuda, layer);
    }
}

/* With NET_TUNE_ALL alone: else a thread builds these plans while the first steps run, see sets.c. */
static enum status tune_last(struct cuda *cuda, struct err *err)
{
    enum status status;

    assert(cuda->batch_last <= cuda->batch_max);
    if (cuda->tune_us != NET_TUNE_ALL || cuda->batch_last == 0 || cuda->evaluate_only)
        return STATUS_OK;
    status = cuda_sets_use(cuda, cuda->batch_last, err);
    return status == STATUS_OK ? cuda_sets_use(cuda, cuda->batch_max, err) : status;
}

static enum status make(struct cuda *cuda, void **memory, size_t bytes, struct err *err)
{
    enum status status = cuda->runtime->memory_new(memory, bytes, err);

    if (status == STATUS_OK)
        cuda->bytes += bytes;
    return status;
}

static enum status open_layers(struct cuda *cuda, struct err *err)
{
    const size_t counters = KERNEL_COLUMNS_COUNTERS * sizeof *cuda->counters;
    enum status status;
    void *zeros = NULL;

    cuda->rows = cuda->batch_max;
    describe_layers(cuda);
    cuda_find_adds(cuda);
    cuda_residuals_find(cuda);
    status = make(cuda, &zeros, counters, err); /* memory_new clears it */
    cuda->counters = zeros;
    if (status == STATUS_OK)
        status = cuda_sets_use(cuda, cuda->batch_max, err);
    if (status == STATUS_OK) {
        cuda_norms_choose(cuda);
        cuda_norms_share(cuda);
        cuda_additions_time(cuda);
        cuda_residuals_choose(cuda);
    }
    if (status == STATUS_OK)
        status = tune_last(cuda, err); /* while the device's memory is free */
    for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++)
        status = cuda->layers[i].op->open(cuda, &cuda->layers[i], err);
    return status == STATUS_OK ? cuda_memory_make(cuda, err) : status;
}

static enum status open_streams(struct cuda *cuda, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    enum status status = runtime->device_use(cuda->options.device_index, err);

    if (status == STATUS_OK)
        status = runtime->stream_new(&cuda->stream, err);
    if (status == STATUS_OK)
        status = runtime->stream_new(&cuda->copies, err);
    if (status == STATUS_OK)
        status = runtime->stream_new(&cuda->views, err);
    if (status == STATUS_OK)
        status = runtime->stream_new(&cuda->reduces, err);
    if (status == STATUS_OK)
        status = runtime->event_new(&cuda->reduced, err);
    for (uint32_t i = 0; i < cuda->graph->bucket_count && status == STATUS_OK; i++)
        status = runtime->event_new(&cuda->bucket_done[i], err);
    for (uint32_t i = 0; i < CUDA_OUTCOMES && status == STATUS_OK; i++)
        status = runtime->event_new_timed(&cuda->outcome_done[i], err);
    return status == STATUS_OK ? cuda_outcomes_begin(cuda, err) : status;
}

/* Bytes of the largest tensor that cuda_round_floats rounds, as 16-bit values. */
static size_t rounded_bytes(const struct cuda *cuda)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < cuda->graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &cuda->graph->tensors[i];

        if (tensor->dtype != GRAPH_F32 && !tensor->has_master && cuda->tensors[i].size * 2 > bytes)
            bytes = cuda->tensors[i].size * 2;
    }
    return bytes;
}

static enum status open_small(struct cuda *cuda, struct err *err)
{
    void *rows = NULL, *result = NULL, *flag = NULL, *rates = NULL, *outcomes = NULL;
    enum status status = make(cuda, &rows, cuda->batch_max * sizeof *cuda->loss_rows, err);

    if (status == STATUS_OK)
        status = make(cuda, &result, sizeof *cuda->loss_result, err);
    if (status == STATUS_OK)
        status = make(cuda, &flag, sizeof *cuda->flag, err);
    if (status == STATUS_OK)
        status = make(cuda, &rates, sizeof *cuda->rates, err);
    if (status == STATUS_OK)
        status = make(cuda, &cuda->clip_scratch, KERNEL_CLIP_SCRATCH_BYTES, err);
    if (status == STATUS_OK)
        status = make(cuda, &cuda->rounded, rounded_bytes(cuda), err);
    if (status == STATUS_OK)
        status = cuda->runtime->pinned_new(&outcomes, CUDA_OUTCOMES * sizeof *cuda->outcomes, err);
    cuda->loss_rows = rows;
    cuda->loss_result = result;
    cuda->flag = flag;
    cuda->rates = rates;
    cuda->outcomes = outcomes;
    return status;
}

static void close_small(struct cuda *cuda)
{
    void *const memory[] = {
        cuda->loss_rows, cuda->loss_result,    cuda->flag,  cuda->rates, cuda->clip_scratch,
        cuda->rounded,   cuda->lars_workspace, cuda->arena, cuda->wide,  cuda->counters};
    void *outcomes = cuda->outcomes;

    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        void *one = memory[i];

        cuda->runtime->memory_free(&one);
    }
    cuda->runtime->pinned_free(&outcomes);
}

static void close_streams(struct cuda *cuda)
{
    const struct cuda_runtime *runtime = cuda->runtime;

    for (uint32_t i = 0; cuda->bucket_done != NULL && i < cuda->graph->bucket_count; i++)
        runtime->event_free(&cuda->bucket_done[i]);
    for (uint32_t i = 0; i < CUDA_OUTCOMES; i++)
        runtime->event_free(&cuda->outcome_done[i]);
    runtime->event_free(&cuda->reduced);
    runtime->stream_free(&cuda->reduces);
    runtime->stream_free(&cuda->views);
    runtime->stream_free(&cuda->copies);
    runtime->stream_free(&cuda->stream);
}

/* Frees what uses other objects before the objects that it uses. */
static void cuda_close(void **state)
{
    struct cuda *cuda = *state;
    struct err ignored;

    if (cuda->stream != NULL)
        (void)cuda->runtime->stream_sync(cuda->stream, &ignored);
    if (cuda->copies != NULL)
        (void)cuda->runtime->stream_sync(cuda->copies, &ignored);
    cuda_drop_captures(cuda);
    cuda_sets_close(cuda);
    cuda_slots_close(cuda);
    cuda_stage_free(cuda, &cuda->state_stage);
    cuda_stage_free(cuda, &cuda->bucket_stage);
    close_small(cuda);
    cuda_profile_close(cuda);
    close_streams(cuda);
    free(cuda->requests);
    free(cuda->tables);
    free(cuda->bucket_done);
    free(cuda->buckets);
    free(cuda->layers);
    free(cuda->tensors);
    free(cuda);
    *state = NULL;
}

/* The size of the largest table entry of an optimizer launch. */
#define TABLE_ENTRY_BYTES 64
static_assert(sizeof(struct kernel_sgd_tensor) <= TABLE_ENTRY_BYTES, "a table's entry");
static_assert(sizeof(struct kernel_adam_tensor) <= TABLE_ENTRY_BYTES, "a table's entry");
static_assert(sizeof(struct kernel_lars_tensor) <= TABLE_ENTRY_BYTES, "a table's entry");
static_assert(sizeof(struct kernel_lookahead_tensor) <= TABLE_ENTRY_BYTES, "a table's entry");
static_assert(sizeof(struct kernel_scaler) == sizeof(struct scaler), "one scaler");

static struct cuda *make_state(const struct graph *graph, const struct net_options *options)
{
    struct cuda *cuda = calloc(1, sizeof *cuda);

    if (cuda == NULL)
        return NULL;
    cuda->graph = graph;
    cuda->runtime = used.runtime;
    cuda->kernels = used.kernels;
    cuda->plans = used.plans;
    cuda->options = used.options;
    cuda->captures = !used.options.no_captures;
    cuda->batch_max = options->batch_max;
    cuda->batch_last = options->batch_last;
    cuda->tune_us = options->tune_us;
    cuda->tunes_cold = options->tunes_cold;
    cuda->evaluate_only = options->evaluate_only;
    cuda->deterministic = options->deterministic;
    cuda->tf32 = options->tf32;
    cuda->collective_sms = options->collective_sms;
    cuda->label_smoothing = options->label_smoothing;
    cuda->image_channels =
        options->image_channels != 0 ? options->image_channels : graph->layers[0].out.dims[0];
    cuda->norm_sum = options->norm_sum;
    cuda->norm_sum_user = options->norm_sum_user;
    cuda->layers = calloc(graph->layer_count, sizeof *cuda->layers);
    cuda->tensors = calloc((size_t)graph->tensor_count + 1, sizeof *cuda->tensors);
    cuda->tables = calloc((size_t)graph->tensor_count + 1, TABLE_ENTRY_BYTES);
    cuda->buckets = calloc((size_t)graph->bucket_count + 1, sizeof *cuda->buckets);
    cuda->bucket_done = calloc((size_t)graph->bucket_count + 1, sizeof(void *));
    return cuda;
}

static enum status cuda_open(void **state, const struct graph *graph,
                             const struct net_options *options, struct err *err)
{
    struct cuda *cuda = make_state(graph, options);
    enum status status = STATUS_OK;

    assert(used.runtime != NULL); /* call cuda_backend_use first */
    *state = cuda;
    if (cuda == NULL)
        return cuda_out_of_memory(NULL, err);
    if (cuda->layers == NULL || cuda->tensors == NULL || cuda->tables == NULL ||
        cuda->bucket_done == NULL || cuda->buckets == NULL)
        status = cuda_out_of_memory(NULL, err);
    if (status == STATUS_OK)
        status = open_streams(cuda, err);
    if (status == STATUS_OK)
        status = open_layers(cuda, err);
    if (status == STATUS_OK)
        status = cuda_slots_open(cuda, err);
    if (status == STATUS_OK)
        status = open_small(cuda, err);
    if (status == STATUS_OK && options->profile)
        status = cuda_profile_open(cuda, err);
    if (status != STATUS_OK)
        cuda_close(state);
    return status;
}

static size_t cuda_tensor_size(const void *state, uint32_t index)
{
    return ((const struct cuda *)state)->tensors[index].size;
}

static uint32_t cuda_tensor_layout(const void *state, uint32_t index,
                                   uint64_t words[BACKEND_LAYOUT_WORDS])
{
    const struct cuda_tensor *tensor = &((const struct cuda *)state)->tensors[index];
    uint32_t count = 0;

    words[count++] = tensor->size;
    for (uint32_t a = 0; a < tensor->axis_count; a++) {
        words[count++] = tensor->axes[a].planes;
        words[count++] = tensor->axes[a].step;
        words[count++] = tensor->axes[a].plane;
    }
    return count;
}

static void *cuda_memory_new(void *state, size_t bytes)
{
    struct cuda *cuda = state;
    void *memory = NULL;
    struct err err;

    cuda_keep(cuda, cuda->runtime->memory_new(&memory, bytes > 0 ? bytes : 1, &err), &err);
    return memory;
}

static void cuda_memory_free(void *state, void *memory)
{
    ((struct cuda *)state)->runtime->memory_free(&memory);
}

static void cuda_bind(void *state, uint32_t index, float *param, void *half, void *grad)
{
    struct cuda_tensor *tensor = &((struct cuda *)state)->tensors[index];

    tensor->param = param;
    tensor->half = half;
    tensor->grad = grad;
}

static size_t cuda_bytes(const void *state)
{
    return ((const struct cuda *)state)->bytes;
}

const struct backend backend_cuda = {
    .name = "cuda",
    .stores_types = true,
    .fuses_pools = true,
    .adds_half = true,
    .open = cuda_open,
    .close = cuda_close,
    .tensor_size = cuda_tensor_size,
    .tensor_layout = cuda_tensor_layout,
    .tensor_pack = cuda_tensor_pack,
    .tensor_unpack = cuda_tensor_unpack,
    .memory_new = cuda_memory_new,
    .memory_free = cuda_memory_free,
    .memory_read = cuda_memory_read,
    .memory_write = cuda_memory_write,
    .view_open = cuda_view_open,
    .view_close = cuda_view_close,
    .bind = cuda_bind,
    .images_new = cuda_images_new,
    .images_free = cuda_images_free,
    .images_settle = cuda_images_settle,
    .images_held = CUDA_SLOTS,
    .step_graphable = cuda_step_graphable,
    .step_begin = cuda_step_begin,
    .layer_forward = cuda_layer_forward,
    .layer_backward = cuda_layer_backward,
    .device_reducer = cuda_device_reducer,
    .drop_captures = cuda_drop_captures,
    .bucket_ready = cuda_bucket_ready,
    .backward_end = cuda_backward_end,
    .result = cuda_result,
    .bind_scaler = cuda_bind_scaler,
    .finite = cuda_finite,
    .clip = cuda_clip,
    .update = cuda_update,
    .scaler_end = cuda_scaler_end,
    .step_end = cuda_step_end,
    .outcome_take = cuda_outcome_take,
    .add = cuda_add,
    .refresh = cuda_refresh,
    .is_finite = cuda_is_finite,
    .first_nonfinite = cuda_first_nonfinite,
    .bytes = cuda_bytes,
    .profile = cuda_profile_entry,
    .profile_set = cuda_profile_set,
};
