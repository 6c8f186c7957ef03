/* The CPU backend's table of functions: opens and closes the layers and runs them one by one. The
 * executor (worker/net) decides the order. */
#include "worker/backend/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "worker/backend/cpu/internal.h"

static const struct cpu_kernels *best_kernels(void)
{
    switch (cpu_dnnl_isa()) {
    case CPU_ISA_AMX:
    case CPU_ISA_AVX512_BF16:
    case CPU_ISA_AVX512:
        return &cpu_kernels_avx512;
    case CPU_ISA_AVX2:
        return &cpu_kernels_avx2;
    case CPU_ISA_ANY:
        break;
    }
    return &cpu_kernels_generic;
}

/* Whether bf16 is computed faster than fp32. With AVX512_BF16 alone it is faster on AMD's CPUs,
 * where a dot product of bf16 takes the time of an fp32 multiplication. On Intel's CPUs it takes
 * twice that time, and oneDNN's convolutions are slower than in fp32 (docs/results). */
static bool computes_bf16(void)
{
    const enum cpu_isa isa = cpu_dnnl_isa();

#if defined(__x86_64__)
    return isa == CPU_ISA_AMX || (isa == CPU_ISA_AVX512_BF16 && __builtin_cpu_is("amd"));
#else
    return isa == CPU_ISA_AMX;
#endif
}

static const struct cpu_op *const ops[] = {
    [GRAPH_INPUT] = &cpu_op_input,       [GRAPH_CONV2D] = &cpu_op_conv,
    [GRAPH_BATCH_NORM] = &cpu_op_norm,   [GRAPH_RELU] = &cpu_op_relu,
    [GRAPH_MAX_POOL] = &cpu_op_pool,     [GRAPH_FLATTEN] = &cpu_op_flatten,
    [GRAPH_LINEAR] = &cpu_op_linear,     [GRAPH_ADD] = &cpu_op_add,
    [GRAPH_CAST] = &cpu_op_cast,         [GRAPH_CROSS_ENTROPY] = &cpu_op_loss,
    [GRAPH_AVG_POOL] = &cpu_op_avg_pool,
};

/* Layers with code of their own for values that are stored in bf16. */
static const struct cpu_op *const ops_bf16[sizeof ops / sizeof ops[0]] = {
    [GRAPH_RELU] = &cpu_op_relu_bf16, [GRAPH_MAX_POOL] = &cpu_op_pool_bf16,
    [GRAPH_ADD] = &cpu_op_add_bf16,   [GRAPH_AVG_POOL] = &cpu_op_avg_pool_bf16,
    [GRAPH_CAST] = &cpu_op_cast_bf16,
};

/* fp32 values are stored in blocks from the first convolution on. An input of few channels, and
 * features, are row-major. */
static void shape_value(const struct cpu *cpu, struct cpu_layer *layer)
{
    const struct graph_value *shape = &layer->graph->out;
    struct cpu_value *value = &layer->out;
    const uint32_t block = cpu->kernels->block;
    const bool is_cast = layer->graph->op == GRAPH_CAST, is_image = shape->dim_count == 3;
    const enum cpu_type type = cpu->has_bf16 && shape->dtype == GRAPH_BF16 ? CPU_BF16 : CPU_F32;

    if (layer->graph->op == GRAPH_RELU || layer->graph->op == GRAPH_ADD ||
        (is_cast && layer->in->type == type)) {
        /* element-wise: the layout of the input, even if it is a flattened image */
        *value = *layer->in;
        return;
    }
    value->type = type;
    value->dims[0] = is_cast ? layer->in->dims[0] : shape->dims[0];
    for (int i = 1; i < 3; i++)
        value->dims[i] = is_cast ? layer->in->dims[i] : is_image ? shape->dims[i] : 1;
    value->image_size = graph_value_count(shape);
    value->blocked = type == CPU_F32 && (is_image || value->dims[1] * value->dims[2] > 1) &&
                     (layer->graph->op != GRAPH_INPUT || shape->dims[0] > 3);
    if (!value->blocked)
        return;
    value->blocks = (value->dims[0] + block - 1) / block;
    value->image_size = (size_t)value->blocks * block * value->dims[1] * value->dims[2];
}

/* A gradient is needed where the layer itself or one before it has parameters. */
static void describe_value(const struct cpu *cpu, struct cpu_layer *layer)
{
    if (layer->graph->op == GRAPH_FLATTEN)
        layer->out = *layer->in;
    else
        shape_value(cpu, layer);
    layer->out.data = layer->out.grad = NULL;
    layer->grad_of = GRAPH_NONE;
    layer->out.needs_grad =
        !cpu->evaluate_only && layer->graph->op != GRAPH_CROSS_ENTROPY &&
        (layer->graph->tensor_count > 0 || (layer->in != NULL && layer->in->needs_grad) ||
         (layer->in2 != NULL && layer->in2->needs_grad));
}

/* If a batch norm is the only reader of a convolution, the convolution computes the norm's sums
 * chunk by chunk, while its output is in the cache. */
static void link_norms(struct cpu *cpu)
{
    for (uint32_t i = 0; i < cpu->graph->layer_count; i++) {
        uint32_t user = graph_only_user(cpu->graph, i);

        if (cpu->graph->layers[i].op != GRAPH_CONV2D || user == GRAPH_NONE ||
            cpu->graph->layers[user].op != GRAPH_BATCH_NORM)
            continue;
        cpu->layers[i].norm = &cpu->layers[user];
        cpu->layers[user].conv = &cpu->layers[i];
    }
}

static const struct cpu_op *op_of(const struct cpu_layer *layer)
{
    const enum graph_op op = layer->graph->op;
    const bool from_bf16 = layer->in != NULL && layer->in->type == CPU_BF16;

    assert((size_t)op < sizeof ops / sizeof ops[0] && ops[op] != NULL);
    if (op == GRAPH_BATCH_NORM && layer->graph->out.dim_count == 1)
        return &cpu_op_norm_features;
    if (layer->out.type == CPU_BF16 || from_bf16)
        return ops_bf16[op] != NULL ? ops_bf16[op] : ops[op];
    return ops[op];
}

static enum status open_layers(struct cpu *cpu, struct err *err)
{
    enum status status = STATUS_OK;

    link_norms(cpu);
    for (uint32_t i = 0; i < cpu->graph->layer_count && status == STATUS_OK; i++) {
        struct cpu_layer *layer = &cpu->layers[i];
        const struct graph_layer *graph = &cpu->graph->layers[i];

        layer->graph = graph;
        assert(graph->tensor_first + graph->tensor_count <= cpu->graph->tensor_count);
        layer->tensors = cpu->tensors + graph->tensor_first;
        if (graph->inputs[0] != GRAPH_NONE)
            layer->in =
                &cpu->layers[graph->inputs[0]].out; /* an earlier layer: described already */
        if (graph->inputs[1] != GRAPH_NONE)
            layer->in2 = &cpu->layers[graph->inputs[1]].out;
        describe_value(cpu, layer);
        layer->op = op_of(layer);
        status = layer->op->open(cpu, layer, err);
    }
    return status == STATUS_OK ? cpu_memory_make(cpu, err) : status;
}

static void cpu_close(void **state)
{
    struct cpu *cpu = *state;

    for (uint32_t i = 0; cpu->layers != NULL && i < cpu->graph->layer_count; i++) {
        struct cpu_layer *layer = &cpu->layers[i];

        if (layer->op != NULL)
            layer->op->close(layer);
    }
    for (uint32_t i = 0; cpu->tensors != NULL && i < cpu->graph->tensor_count; i++)
        cpu_tensor_close(&cpu->tensors[i]);
    cpu_dnnl_close(&cpu->dnnl);
    free(cpu->requests);
    free(cpu->arena);
    free(cpu->labels);
    free(cpu->layers);
    free(cpu->tensors);
    free(cpu);
    *state = NULL;
}

static enum status cpu_open(void **state, const struct graph *graph,
                            const struct net_options *options, struct err *err)
{
    struct cpu *cpu = calloc(1, sizeof *cpu);
    enum status status;

    *state = cpu;
    if (cpu == NULL)
        return cpu_out_of_memory(NULL, err);
    cpu->graph = graph;
    cpu->kernels = best_kernels();
    cpu->has_bf16 = !options->emulate_half && computes_bf16();
    cpu->batch_max = options->batch_max;
    cpu->threads = options->threads;
    cpu->label_smoothing = options->label_smoothing;
    cpu->evaluate_only = options->evaluate_only;
    cpu->profile = cpu->has_profile = options->profile;
    cpu->norm_sum = options->norm_sum;
    cpu->widens = options->image_channels == 1 && graph->layers[0].out.dims[0] > 1;
    cpu->norm_sum_user = options->norm_sum_user;
    cpu->layers = calloc(graph->layer_count, sizeof *cpu->layers);
    cpu->tensors = calloc((size_t)graph->tensor_count + 1, sizeof *cpu->tensors);
    cpu->labels = calloc(options->batch_max, sizeof *cpu->labels);
    if (cpu->layers == NULL || cpu->tensors == NULL || cpu->labels == NULL) {
        cpu_close(state);
        return cpu_out_of_memory(NULL, err);
    }
    cpu_threads_use(cpu->threads);
    status = cpu_dnnl_open(&cpu->dnnl, err);
    if (status == STATUS_OK)
        status = open_layers(cpu, err);
    if (status != STATUS_OK)
        cpu_close(state);
    return status;
}

static void *cpu_memory_new(void *state, size_t bytes)
{
    struct cpu *cpu = state;
    void *memory = cpu_alloc(cpu, bytes);

    if (memory != NULL)
        cpu->bytes -= bytes; /* the executor counts its arenas itself */
    return memory;
}

static void cpu_memory_free(void *state, void *memory)
{
    (void)state;
    free(memory);
}

static void cpu_bind(void *state, uint32_t index, float *param, void *half, void *grad)
{
    struct cpu_tensor *tensor = &((struct cpu *)state)->tensors[index];

    tensor->param = half != NULL ? half : param;
    tensor->grad = grad;
}

static enum status cpu_step_begin(void *state, const struct net_images *given,
                                  const int64_t *labels, uint32_t n, bool training, struct err *err)
{
    struct cpu *cpu = state;
    uint64_t start = cpu_clock(cpu);

    (void)err;
    assert(n > 0 && n <= cpu->batch_max);
    cpu_threads_use(cpu->threads); /* set per thread, and the calling thread may change */
    cpu->n = n;
    cpu->training = training;
    memcpy(cpu->labels, labels, n * sizeof *labels);
    cpu_images_take(cpu, given);
    cpu_count_part(cpu, CPU_IMAGES, start);
    return STATUS_OK;
}

/* Whether a value is rounded after its layer. Layers that only select or copy rounded values need
 * no rounding; convolution, batch norm and addition have rounded their output piece by piece. */
static bool rounds_value(const struct cpu_layer *layer)
{
    const enum graph_op op = layer->graph->op;
    const bool is_fused = layer->graph->fused_pool || layer->graph->fused_add;

    if (layer->out.type == CPU_BF16)
        return false;
    if (layer->op == &cpu_op_norm)
        return is_fused;
    return op != GRAPH_ADD && op != GRAPH_INPUT && op != GRAPH_CONV2D && op != GRAPH_RELU &&
           op != GRAPH_MAX_POOL && op != GRAPH_FLATTEN;
}

/* Rounds each gradient that the layer wrote to the type of its parameter or value. Batch norm,
 * convolution and addition have rounded the gradients of their inputs piece by piece. */
static void round_gradients(const struct cpu *cpu, struct cpu_layer *layer)
{
    const struct graph_layer *graph = layer->graph;
    struct cpu_value *const inputs[] = {layer->in, layer->in2};

    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &cpu->graph->tensors[graph->tensor_first + i];

        if (tensor->trainable)
            cpu_round(cpu, tensor->dtype, layer->tensors[i].grad, layer->tensors[i].size);
    }
    if (graph->op == GRAPH_BATCH_NORM || graph->op == GRAPH_RELU || graph->op == GRAPH_FLATTEN ||
        graph->op == GRAPH_CONV2D || graph->op == GRAPH_ADD)
        return;
    for (uint32_t k = 0; k < 2; k++)
        if (inputs[k] != NULL && inputs[k]->grad != NULL && inputs[k]->type == CPU_F32)
            cpu_round(cpu, cpu->graph->layers[graph->inputs[k]].out.dtype, inputs[k]->grad,
                      cpu->n * inputs[k]->image_size);
}

static enum status cpu_layer_forward(void *state, uint32_t index, struct err *err)
{
    struct cpu *cpu = state;
    struct cpu_layer *layer = &cpu->layers[index];
    uint64_t start = cpu_clock(cpu);
    enum status status;

    assert(index < cpu->graph->layer_count && cpu->n > 0);
    status = layer->op->forward(cpu, layer, err);

    if (status == STATUS_OK && rounds_value(layer))
        cpu_round(cpu, layer->graph->out.dtype, layer->out.data, cpu->n * layer->out.image_size);
    if (layer->graph->op != GRAPH_CONV2D && layer->graph->op != GRAPH_INPUT)
        cpu_count(cpu, layer, CPU_FORWARD, start);
    return status;
}

/* Used if another layer has written its share of the input's gradient before: computes this layer's
 * share in a separate buffer and adds it. */
static enum status backward_and_add(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                    struct err *err)
{
    const size_t count = cpu->n * layer->in->image_size;
    float *const sum = layer->in->grad;
    enum graph_dtype dtype = cpu->graph->layers[layer->graph->inputs[0]].out.dtype;
    enum status status;

    layer->in->grad = layer->spare;
    status = layer->op->backward(cpu, layer, grad_scale, err);
    layer->in->grad = sum;
    if (layer->in->type == CPU_F32)
        cpu_round(cpu, dtype, layer->spare, count);
    cpu_value_add_grad(cpu, layer->in, dtype, sum, layer->spare, count, true);
    return status;
}

static enum status cpu_layer_backward(void *state, uint32_t index, float grad_scale,
                                      struct err *err)
{
    struct cpu *cpu = state;
    struct cpu_layer *layer = &cpu->layers[index];
    uint64_t start = cpu_clock(cpu);
    enum status status;

    assert(index < cpu->graph->layer_count && cpu->training && !cpu->evaluate_only);
    status = layer->spare != NULL ? backward_and_add(cpu, layer, grad_scale, err)
                                  : layer->op->backward(cpu, layer, grad_scale, err);

    if (status == STATUS_OK)
        round_gradients(cpu, layer);
    if (layer->graph->op != GRAPH_CONV2D)
        cpu_count(cpu, layer, CPU_BACKWARD, start);
    return status;
}

/* The memory of the values has been reused by now. So forward runs again from the images, which are
 * kept for this, and each value is checked right after it is computed. Running statistics are
 * updated a second time, which does not matter: training stops after this. */
static uint32_t cpu_first_nonfinite(void *state)
{
    struct cpu *cpu = state;

    cpu->norm_sum = NULL; /* the other ranks may not call this: no collectives */
    for (uint32_t i = 0; i < cpu->graph->layer_count; i++) {
        struct cpu_layer *layer = &cpu->layers[i];
        const struct kernel_values values = {layer->out.data, cpu->n * layer->out.image_size};
        uint32_t found = 0;

        if (cpu_layer_forward(cpu, i, NULL) != STATUS_OK)
            return GRAPH_NONE;
        kernel_finite_ref(&values, 1, layer->out.type == CPU_BF16 ? KERNEL_BF16 : KERNEL_F32,
                          &found);
        if (found)
            return i;
    }
    return GRAPH_NONE;
}

static bool cpu_computes_half(const void *state, uint32_t layer)
{
    return ((const struct cpu *)state)->layers[layer].is_half;
}

static size_t cpu_bytes(const void *state)
{
    const struct cpu *cpu = state;

    return cpu->bytes + cpu_dnnl_bytes(cpu->dnnl);
}

const struct backend backend_cpu = {
    .name = "cpu",
    .rounds_norms = true,
    .open = cpu_open,
    .close = cpu_close,
    .tensor_size = cpu_tensor_size,
    .tensor_layout = cpu_tensor_layout,
    .tensor_pack = cpu_tensor_pack,
    .tensor_unpack = cpu_tensor_unpack,
    .memory_new = cpu_memory_new,
    .memory_free = cpu_memory_free,
    .memory_read = cpu_memory_read,
    .memory_write = cpu_memory_write,
    .view_open = cpu_view_open,
    .view_close = cpu_view_close,
    .bind = cpu_bind,
    .step_graphable = cpu_step_graphable,
    .step_begin = cpu_step_begin,
    .layer_forward = cpu_layer_forward,
    .layer_backward = cpu_layer_backward,
    .bucket_ready = cpu_bucket_ready,
    .result = cpu_result,
    .bind_scaler = cpu_bind_scaler,
    .finite = cpu_finite,
    .clip = cpu_clip,
    .update = cpu_update,
    .scaler_end = cpu_scaler_end,
    .step_end = cpu_step_end,
    .outcome_take = cpu_outcome_take,
    .add = cpu_add,
    .refresh = cpu_refresh,
    .is_finite = cpu_is_finite,
    .first_nonfinite = cpu_first_nonfinite,
    .computes_half = cpu_computes_half,
    .bytes = cpu_bytes,
    .threads = cpu_threads,
    .profile = cpu_profile,
    .profile_set = cpu_profile_set,
};
