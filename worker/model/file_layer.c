/* One entry of the list "layers". A table of fields has, for each operation, the fields that it
 * takes and their ranges. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "worker/model/internal.h"

#define OP(name) (1U << GRAPH_##name)

enum kind {
    KIND_OP,
    KIND_NAME,
    KIND_INPUT,
    KIND_INPUTS,
    KIND_WHOLE,
    KIND_COUNT,
    KIND_BOOL,
    KIND_REAL
};

/* COUNT is a whole number or "classes"; REAL is a number above 0, at most 1. */
static const struct field {
    const char *name;
    enum kind kind;
    uint32_t ops;      /* operations that take the field, a bit each */
    uint32_t required; /* operations that need it */
    size_t offset;     /* in struct model_file_layer */
    uint32_t min, max;
} fields[] = {
    {"op", KIND_OP, UINT32_MAX, UINT32_MAX, 0, 0, 0},
    {"name", KIND_NAME, UINT32_MAX, UINT32_MAX, 0, 0, 0},
    {"input", KIND_INPUT, ~OP(ADD), 0, 0, 0, 0},
    {"inputs", KIND_INPUTS, OP(ADD), OP(ADD), 0, 0, 0},
    {"out_channels", KIND_COUNT, OP(CONV2D), OP(CONV2D), offsetof(struct model_file_layer, out), 1,
     GRAPH_DIM_MAX},
    {"out_features", KIND_COUNT, OP(LINEAR), OP(LINEAR), offsetof(struct model_file_layer, out), 1,
     GRAPH_DIM_MAX},
    {"kernel", KIND_WHOLE, OP(CONV2D), OP(CONV2D), offsetof(struct model_file_layer, window.kernel),
     1, 255},
    {"kernel", KIND_WHOLE, OP(MAX_POOL), OP(MAX_POOL),
     offsetof(struct model_file_layer, window.kernel), 1, 15},
    {"stride", KIND_WHOLE, OP(CONV2D) | OP(MAX_POOL), 0,
     offsetof(struct model_file_layer, window.stride), 1, 255},
    {"padding", KIND_WHOLE, OP(CONV2D) | OP(MAX_POOL), 0,
     offsetof(struct model_file_layer, window.pad), 0, 255},
    {"bias", KIND_BOOL, OP(CONV2D) | OP(LINEAR), 0, offsetof(struct model_file_layer, has_bias), 0,
     0},
    {"eps", KIND_REAL, OP(BATCH_NORM), 0, offsetof(struct model_file_layer, eps), 0, 1},
    {"momentum", KIND_REAL, OP(BATCH_NORM), 0, offsetof(struct model_file_layer, momentum), 0, 1},
};

#define FIELD_COUNT (sizeof fields / sizeof fields[0])

/* What an error names, and where it goes. */
struct place {
    const struct model_file *file;
    const cJSON *item;
    char layer[MODEL_FILE_SHOWN + GRAPH_NAME_MAX]; /* the name of the layer, else its number */
    struct err *err;
};

__attribute__((format(printf, 3, 4))) static enum status
fail(const struct place *place, const cJSON *node, const char *format, ...)
{
    char what[160];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(place->err, STATUS_BAD_INPUT, 0, "%s, line %d, layer %s: %s", place->file->path,
                   node->valueint, place->layer, what);
}

/* -- fields -- */

static const struct field *field_named(const char *name, enum graph_op op)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (strcmp(fields[i].name, name) == 0 && (fields[i].ops & 1U << op) != 0)
            return &fields[i];
    return NULL;
}

static enum status unknown_field(const struct place *place, const cJSON *member, enum graph_op op)
{
    char shown[MODEL_FILE_SHOWN], known[128] = "";
    size_t used = 0;

    for (size_t i = 0; i < FIELD_COUNT; i++)
        if ((fields[i].ops & 1U << op) != 0 && used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     used == 0 ? "" : ", ", fields[i].name);
    model_file_shown(member->string, shown);
    return fail(place, member, "%s has no field \"%s\"; it has: %s", graph_op_name(op), shown,
                known);
}

static enum status take_name(const struct place *place, const cJSON *value,
                             struct model_file_layer *layer)
{
    const char *name = cJSON_IsString(value) ? value->valuestring : "";

    if (!model_file_is_name(name, GRAPH_NAME_MAX - 1))
        return fail(
            place, value,
            "\"name\" must be 1 to 63 letters, digits, \"_\", \"-\" and single dots within");
    if (strcmp(name, "input") == 0 || strncmp(name, "optimizer.", 10) == 0)
        return fail(place, value,
                    "the name is taken: \"input\" is the images, \"optimizer.\" is "
                    "for checkpoints");
    if (strcmp(name, "loss") == 0 && layer->op != GRAPH_CROSS_ENTROPY)
        return fail(place, value, "the name \"loss\" is for cross_entropy");
    for (uint32_t i = 0; i < place->file->layer_count; i++)
        if (strcmp(place->file->layers[i].name, name) == 0)
            return fail(place, value, "the name is used twice, first in line %u",
                        place->file->layers[i].line);
    (void)snprintf(layer->name, sizeof layer->name, "%s", name);
    return STATUS_OK;
}

/* The line of the first later entry with this name; 0: there is none. */
static int line_below(const struct place *place, const char *name)
{
    for (const cJSON *item = place->item->next; item != NULL; item = item->next) {
        const cJSON *other = json_member(item, "name");

        if (cJSON_IsString(other) && strcmp(other->valuestring, name) == 0)
            return other->valueint;
    }
    return 0;
}

static enum status find_input(const struct place *place, const cJSON *value, uint32_t *input)
{
    const char *name = cJSON_IsString(value) ? value->valuestring : NULL;
    char shown[MODEL_FILE_SHOWN];
    int line;

    if (name == NULL)
        return fail(place, value, "an input must be the name of a layer above, or \"input\"");
    *input = 0;
    if (strcmp(name, "input") == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < place->file->layer_count; i++)
        if (strcmp(place->file->layers[i].name, name) == 0) {
            *input = i + 1;
            return STATUS_OK;
        }
    model_file_shown(name, shown);
    line = line_below(place, name);
    if (strcmp(shown, place->layer) == 0)
        return fail(place, value, "it cannot read itself");
    if (line > 0)
        return fail(place, value, "it reads \"%s\", which comes later, in line %d", shown, line);
    return fail(place, value, "it reads \"%s\", and there is no such layer", shown);
}

static enum status take_inputs(const struct place *place, const cJSON *value,
                               struct model_file_layer *layer)
{
    enum status status;

    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2)
        return fail(place, value, "\"inputs\" must be two names: [\"a\", \"b\"]");
    status = find_input(place, value->child, &layer->inputs[0]);
    if (status == STATUS_OK)
        status = find_input(place, value->child->next, &layer->inputs[1]);
    if (status == STATUS_OK && layer->inputs[0] == layer->inputs[1])
        return fail(place, value, "its two inputs are the same");
    return status;
}

static enum status take_number(const struct place *place, const cJSON *value,
                               const struct field *field, void *to)
{
    uint32_t whole;
    float real;

    assert(field->offset + sizeof whole <= sizeof(struct model_file_layer));
    if (field->kind == KIND_COUNT && cJSON_IsString(value) &&
        strcmp(value->valuestring, "classes") == 0) {
        whole = MODEL_FILE_CLASSES;
        memcpy(to, &whole, sizeof whole);
        return STATUS_OK;
    }
    if (field->kind == KIND_REAL) {
        if (!cJSON_IsNumber(value) || !(value->valuedouble > 0 && value->valuedouble <= 1))
            return fail(place, value, "\"%s\" must be a number above 0, at most 1", field->name);
        real = (float)value->valuedouble;
        memcpy(to, &real, sizeof real);
        return STATUS_OK;
    }
    if (!model_file_whole(value, field->min, field->max, &whole))
        return fail(place, value, "\"%s\" must be a whole number from %u to %u%s", field->name,
                    field->min, field->max, field->kind == KIND_COUNT ? " or \"classes\"" : "");
    memcpy(to, &whole, sizeof whole);
    return STATUS_OK;
}

static enum status take_field(const struct place *place, const cJSON *value,
                              const struct field *field, struct model_file_layer *layer)
{
    switch (field->kind) {
    case KIND_OP:
        return STATUS_OK; /* take_op() read it before the others */
    case KIND_NAME:
        return take_name(place, value, layer);
    case KIND_INPUT:
        return find_input(place, value, &layer->inputs[0]);
    case KIND_INPUTS:
        return take_inputs(place, value, layer);
    case KIND_WHOLE:
    case KIND_COUNT:
    case KIND_REAL:
        return take_number(place, value, field, (char *)layer + field->offset);
    case KIND_BOOL:
        if (!cJSON_IsBool(value))
            return fail(place, value, "\"%s\" must be true or false", field->name);
        layer->has_bias = cJSON_IsTrue(value);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* -- the layer -- */

static enum status take_op(const struct place *place, enum graph_op *op)
{
    const cJSON *value = json_member(place->item, "op");
    const char *name = cJSON_IsString(value) ? value->valuestring : "";
    char shown[MODEL_FILE_SHOWN];

    if (value == NULL)
        return fail(place, place->item, "\"op\" is missing");
    for (int i = GRAPH_INPUT; i <= GRAPH_CROSS_ENTROPY; i++) {
        *op = (enum graph_op)i;
        if (i != GRAPH_INPUT && i != GRAPH_CAST && strcmp(graph_op_name(*op), name) == 0)
            return STATUS_OK;
    }
    model_file_shown(name, shown);
    return fail(place, value,
                "no such op: \"%s\"; there are: conv2d, batch_norm, relu, max_pool, avg_pool, "
                "flatten, linear, add and cross_entropy",
                shown);
}

static void begin(struct place *place, struct model_file_layer *layer)
{
    const cJSON *name = json_member(place->item, "name");
    const uint32_t number = place->file->layer_count + 1;

    (void)snprintf(place->layer, sizeof place->layer, "%u", number);
    if (cJSON_IsString(name) && name->valuestring[0] != '\0')
        model_file_shown(name->valuestring, place->layer);
    *layer = (struct model_file_layer){
        .line = (uint32_t)place->item->valueint,
        .inputs = {number - 1, 0},
        .has_bias = true,
        .eps = 1e-5F,
        .momentum = 0.1F,
    };
}

static enum status take_members(const struct place *place, struct model_file_layer *layer)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, place->item)
    {
        const struct field *field = field_named(member->string, layer->op);
        enum status status;

        if (field == NULL)
            return unknown_field(place, member, layer->op);
        if (model_file_is_repeated(place->item, member))
            return fail(place, member, "\"%s\" is there twice", member->string);
        status = take_field(place, member, field, layer);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status check_required(const struct place *place, enum graph_op op)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if ((fields[i].required & 1U << op) != 0 &&
            json_member(place->item, fields[i].name) == NULL)
            return fail(place, place->item, "\"%s\" is missing", fields[i].name);
    return STATUS_OK;
}

enum status model_file_read_layer(struct model_file *file, const cJSON *item, struct err *err)
{
    struct model_file_layer *layer = &file->layers[file->layer_count];
    struct place place = {.file = file, .item = item, .err = err};
    enum status status;

    begin(&place, layer);
    if (!cJSON_IsObject(item))
        return fail(&place, item, "a layer is an object: {\"op\": ..., \"name\": ...}");
    status = take_op(&place, &layer->op);
    if (status == STATUS_OK)
        status = take_members(&place, layer);
    if (status == STATUS_OK)
        status = check_required(&place, layer->op);
    if (status != STATUS_OK)
        return status;
    if (layer->op == GRAPH_CROSS_ENTROPY && item->next != NULL)
        return fail(&place, item, "the loss must be the last layer");
    assert(layer->inputs[0] <= file->layer_count && layer->inputs[1] <= file->layer_count);
    if (layer->window.stride == 0) /* the default of PyTorch: a pool's stride is its kernel */
        layer->window.stride = layer->op == GRAPH_MAX_POOL ? layer->window.kernel : 1;
    return STATUS_OK;
}
