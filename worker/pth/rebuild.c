/* What a pickle of tensors may refer to: one table, and what calling its rows gives. The layouts are those of
 * torch/_utils.py (_rebuild_tensor_v2, _rebuild_parameter) and torch/serialization.py (persistent_id), 1.6 to 2.x. */
#include "worker/pth/rebuild.h"

#include <string.h>

enum { ARGS_MAX = 8 };

/* The arguments of a call, as values. */
struct args {
    const struct pickle_value *at[ARGS_MAX];
    uint32_t index[ARGS_MAX];
    uint32_t count;
};

static bool take_args(const struct machine *m, uint32_t tuple, struct args *args)
{
    const struct pickle_value *from = &m->out->values[tuple];

    args->count = 0;
    if (from->kind != PICKLE_TUPLE || from->count > ARGS_MAX)
        return false;
    for (uint32_t i = from->first; i != PICKLE_NONE_INDEX; i = m->out->items[i].next) {
        args->index[args->count] = m->out->items[i].value;
        args->at[args->count++] = &m->out->values[m->out->items[i].value];
    }
    return true;
}

static bool is(const struct args *args, uint32_t index, enum pickle_kind kind)
{
    return index < args->count && args->at[index]->kind == kind;
}

/* A tuple of counts, none negative. */
static bool take_counts(const struct machine *m, const struct pickle_value *tuple,
                        uint64_t counts[PTH_DIMS_MAX])
{
    uint32_t at = 0;

    for (uint32_t i = tuple->first; i != PICKLE_NONE_INDEX; i = m->out->items[i].next) {
        const struct pickle_value *value = &m->out->values[m->out->items[i].value];

        if (value->kind != PICKLE_INT || value->number < 0)
            return false;
        counts[at++] = (uint64_t)value->number;
    }
    return true;
}

/* Whether every element lies in the storage. Strides may overlap and may be 0. */
static bool is_within(const struct pickle_tensor *tensor, uint64_t storage_count)
{
    uint64_t last = tensor->offset, span;

    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (tensor->dims[i] == 0)
            return tensor->offset <= storage_count;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (__builtin_mul_overflow(tensor->dims[i] - 1, tensor->strides[i], &span) ||
            __builtin_add_overflow(last, span, &last))
            return false;
    return last < storage_count;
}

/* (storage, offset, size, stride, requires_grad, backward_hooks[, metadata]) */
static enum status call_tensor(struct machine *m, const struct args *args, struct err *err)
{
    struct pickle_tensor tensor = {.offset = 0};

    if (args->count < 6 || !is(args, 0, PICKLE_STORAGE) || !is(args, 1, PICKLE_INT) ||
        !is(args, 2, PICKLE_TUPLE) || !is(args, 3, PICKLE_TUPLE) || args->at[1]->number < 0 ||
        args->at[2]->count != args->at[3]->count)
        return machine_bad(m, err, "a tensor with other arguments than _rebuild_tensor_v2 has");
    if (args->at[2]->count > PTH_DIMS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "%s: a tensor of %u dimensions, over the limit of %u", m->what,
                       args->at[2]->count, PTH_DIMS_MAX);
    tensor.storage = args->index[0];
    tensor.dim_count = args->at[2]->count;
    tensor.offset = (uint64_t)args->at[1]->number;
    if (!take_counts(m, args->at[2], tensor.dims) || !take_counts(m, args->at[3], tensor.strides))
        return machine_bad(m, err, "a tensor whose size or stride is not made of counts");
    if (!is_within(&tensor, (uint64_t)args->at[0]->number))
        return machine_bad(m, err, "a tensor that reaches out of its storage");
    return machine_new_tensor(m, &tensor, err);
}

/* (data, requires_grad, backward_hooks) */
static enum status call_parameter(struct machine *m, const struct args *args, struct err *err)
{
    if (!is(args, 0, PICKLE_TENSOR))
        return machine_bad(m, err, "a parameter that is made of no tensor");
    return machine_push(m, args->index[0], err);
}

static enum status call_dict(struct machine *m, const struct args *args, struct err *err)
{
    if (args->count != 0)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: an OrderedDict with its items as arguments, as Python 2 wrote it: save "
                       "it anew with torch.save of today",
                       m->what);
    return machine_new(m, &(struct pickle_value){.kind = PICKLE_DICT}, err);
}

/* torch.Size((1, 2)) is that tuple. */
static enum status call_size(struct machine *m, const struct args *args, struct err *err)
{
    if (args->count != 1 || !is(args, 0, PICKLE_TUPLE))
        return machine_bad(m, err, "a torch.Size that is made of no tuple");
    return machine_push(m, args->index[0], err);
}

static enum status call_other(struct machine *m, const struct args *args, struct err *err)
{
    (void)args;
    return machine_new(m, &(struct pickle_value){.kind = PICKLE_OTHER}, err);
}

/* call: NULL: a class or constant that is only referred to; type: PTH_TYPE_COUNT: no storage */
static const struct global {
    const char *module, *name;
    enum status (*call)(struct machine *m, const struct args *args, struct err *err);
    enum pth_type type;
} globals[] = {{"torch._utils", "_rebuild_tensor_v2", call_tensor, PTH_TYPE_COUNT},
               {"torch._utils", "_rebuild_parameter", call_parameter, PTH_TYPE_COUNT},
               {"collections", "OrderedDict", call_dict, PTH_TYPE_COUNT},
               {"collections", "Counter", call_other, PTH_TYPE_COUNT}, /* in MultiStepLR's state */
               {"torch", "Size", call_size, PTH_TYPE_COUNT},
               {"torch", "device", call_other, PTH_TYPE_COUNT},
               /* What scripts keep beside a state_dict. They become nothing. */
               {"argparse", "Namespace", call_other, PTH_TYPE_COUNT},
               {"numpy.core.multiarray", "scalar", call_other, PTH_TYPE_COUNT},
               {"numpy._core.multiarray", "scalar", call_other, PTH_TYPE_COUNT},
               {"numpy", "dtype", call_other, PTH_TYPE_COUNT},
               {"_codecs", "encode", call_other, PTH_TYPE_COUNT},
               {"torch", "float32", NULL, PTH_TYPE_COUNT},
               {"torch", "float16", NULL, PTH_TYPE_COUNT},
               {"torch", "bfloat16", NULL, PTH_TYPE_COUNT},
               {"torch", "float64", NULL, PTH_TYPE_COUNT},
               {"torch", "int64", NULL, PTH_TYPE_COUNT},
#define PTH_GLOBAL_ROW(type_name, bytes, class_name) {"torch", class_name, NULL, PTH_##type_name},
               PTH_TYPES(PTH_GLOBAL_ROW)
#undef PTH_GLOBAL_ROW
};

static bool is_text(struct machine_text text, const char *word)
{
    return text.byte_count == strlen(word) && memcmp(text.bytes, word, text.byte_count) == 0;
}

bool rebuild_find(struct machine_text module, struct machine_text name, uint32_t *index)
{
    for (uint32_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (!is_text(module, globals[i].module) || !is_text(name, globals[i].name))
            continue;
        *index = i;
        return true;
    }
    return false;
}

enum status rebuild_call(struct machine *m, uint32_t what, uint32_t args_index, struct err *err)
{
    const struct pickle_value *function = &m->out->values[what];
    struct args args;

    if (function->kind != PICKLE_GLOBAL || globals[function->sub].call == NULL)
        return machine_bad(m, err, "it calls something that is no function");
    if (!take_args(m, args_index, &args))
        return machine_bad(m, err, "it calls something with arguments that no tensor has");
    return globals[function->sub].call(m, &args, err);
}

bool rebuild_is_nothing(const struct machine *m, uint32_t what)
{
    const struct pickle_value *class = &m->out->values[what];

    return class->kind == PICKLE_GLOBAL && globals[class->sub].call == call_other;
}

/* ("storage", class, key, location, elements); the location does not matter here. */
enum status rebuild_storage(struct machine *m, uint32_t id, struct err *err)
{
    struct args args;
    enum pth_type type;

    if (!take_args(m, id, &args) || args.count != 5 || !is(&args, 0, PICKLE_TEXT) ||
        !is_text((struct machine_text){args.at[0]->text, args.at[0]->count}, "storage") ||
        !is(&args, 1, PICKLE_GLOBAL) || !is(&args, 2, PICKLE_TEXT) || !is(&args, 4, PICKLE_INT) ||
        args.at[4]->number < 0)
        return machine_bad(m, err, "a storage that is not named as torch.save names it");
    type = globals[args.at[1]->sub].type;
    if (type == PTH_TYPE_COUNT)
        return machine_bad(m, err, "a storage of no type");
    return machine_new(m,
                       &(struct pickle_value){.kind = PICKLE_STORAGE,
                                              .sub = type,
                                              .text = args.at[2]->text,
                                              .count = args.at[2]->count,
                                              .number = args.at[4]->number},
                       err);
}
