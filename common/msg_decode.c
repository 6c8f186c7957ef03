/* Decodes messages: json_strict, then one walk over the tables of msg_table.h. */
#include "common/msg.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/arena.h"
#include "common/base64.h"
#include "common/json_strict.h"
#include "common/msg_check.h"
#include "common/msg_schema.h"
#include "common/msg_table.h"
#include "common/msg_version.h"
#include "common/utf8.h"

struct decoder {
    struct arena *arena;
    struct msg_where where;
    struct err *err;
    bool is_lenient; /* msg_decode_stored */
    struct msg_protocols protocols;
};

typedef enum status decode_one(struct decoder *decoder, const struct msg_field *field,
                               const cJSON *value, void *into);

static enum status expected(struct decoder *decoder, const char *what)
{
    return msg_refuse(&decoder->where, decoder->err, STATUS_BAD_INPUT, "expected %s", what);
}

static enum status no_memory(struct decoder *decoder)
{
    return msg_refuse(&decoder->where, decoder->err, STATUS_MEMORY, "no memory for it");
}

/* -- numbers ----------------------------------------------------------------------------------- */

/* A JSON number that is an integer, exactly: doubles hold those up to 2^53. */
static bool number_to_integer(const cJSON *value, int64_t *integer)
{
    double number = value->valuedouble;

    if (!cJSON_IsNumber(value) || !(fabs(number) <= (double)JOB_ID_MAX) || floor(number) != number)
        return false;
    *integer = (int64_t)number;
    return true;
}

static enum status decode_number(struct decoder *decoder, const struct msg_field *field,
                                 const cJSON *value, void *into)
{
    char shown[32];
    int64_t integer;

    if (!cJSON_IsNumber(value))
        return expected(decoder, "a number");
    (void)snprintf(shown, sizeof shown, "%.10g", value->valuedouble);
    if (!number_to_integer(value, &integer) || !msg_in_range_signed(field, integer))
        return msg_refuse_integer(&decoder->where, field, shown, decoder->err);
    if (field->kind == MSG_KIND_U32)
        *(uint32_t *)into = (uint32_t)integer;
    else
        *(int32_t *)into = (int32_t)integer;
    return STATUS_OK;
}

static enum status decode_real(struct decoder *decoder, const struct msg_field *field,
                               const cJSON *value, void *into)
{
    if (!cJSON_IsNumber(value))
        return expected(decoder, "a number");
    *(double *)into = value->valuedouble;
    return msg_check_real(&decoder->where, field, value->valuedouble, decoder->err);
}

/* Decimal digits without a sign and without leading zeros: each value has one text. */
static bool text_to_magnitude(const char *text, uint64_t *magnitude)
{
    uint64_t value = 0;

    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0'))
        return false;
    for (; *text != '\0'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (*text < '0' || *text > '9' || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *magnitude = value;
    return true;
}

static enum status decode_string_integer(struct decoder *decoder, const struct msg_field *field,
                                         const cJSON *value, void *into)
{
    const char *text = value->valuestring;
    bool is_negative;
    uint64_t magnitude;
    char shown[40];

    if (!cJSON_IsString(value))
        return expected(decoder, "an integer in a string");
    is_negative = field->kind == MSG_KIND_I64 && text[0] == '-';
    utf8_printable(text, strlen(text), shown, sizeof shown);
    if (!text_to_magnitude(text + (is_negative ? 1 : 0), &magnitude) ||
        (is_negative && (magnitude == 0 || magnitude > (uint64_t)INT64_MAX + 1)))
        return msg_refuse_integer(&decoder->where, field, shown, decoder->err);
    if (is_negative ? !msg_in_range_signed(field, (int64_t)-magnitude)
                    : !msg_in_range_unsigned(field, magnitude))
        return msg_refuse_integer(&decoder->where, field, shown, decoder->err);
    *(uint64_t *)into = is_negative ? -magnitude : magnitude; /* I64: the same bits */
    return STATUS_OK;
}

static enum status decode_bool(struct decoder *decoder, const cJSON *value, void *into)
{
    if (!cJSON_IsBool(value))
        return expected(decoder, "true or false");
    *(bool *)into = cJSON_IsTrue(value);
    return STATUS_OK;
}

static enum status decode_enum(struct decoder *decoder, const struct msg_field *field,
                               const cJSON *value, void *into)
{
    char shown[40];

    if (!cJSON_IsString(value))
        return expected(decoder, "a name in a string");
    for (uint32_t i = 0; i < field->names->count; i++)
        if (strcmp(value->valuestring, field->names->items[i]) == 0) {
            memcpy(into, &i, sizeof i); /* an enum of 32 bits: see msg_table.c */
            return STATUS_OK;
        }
    utf8_printable(value->valuestring, strlen(value->valuestring), shown, sizeof shown);
    return msg_refuse(&decoder->where, decoder->err, STATUS_BAD_INPUT,
                      "\"%s\" is none of its names (%s to %s)", shown, field->names->items[0],
                      field->names->items[field->names->count - 1]);
}

/* -- texts and bytes --------------------------------------------------------------------------- */

static enum status copy_text(struct decoder *decoder, const cJSON *value, const char **into)
{
    if (!cJSON_IsString(value))
        return expected(decoder, "a string");
    *into = arena_text(decoder->arena, value->valuestring, strlen(value->valuestring));
    return *into != NULL ? STATUS_OK : no_memory(decoder);
}

static enum status decode_text(struct decoder *decoder, const struct msg_field *field,
                               const cJSON *value, void *into)
{
    enum status status;

    if (!cJSON_IsString(value))
        return expected(decoder, "a string");
    status = msg_check_text(&decoder->where, field, value->valuestring, strlen(value->valuestring),
                            decoder->err);
    return status != STATUS_OK ? status : copy_text(decoder, value, into);
}

static uint32_t count_children(const cJSON *value)
{
    uint32_t count = 0;

    for (const cJSON *child = value->child; child != NULL; child = child->next)
        count++;
    return count;
}

/* Allocates memory for the children of an array or object, after checking their count. Without
 * children *items is NULL. */
static enum status alloc_items(struct decoder *decoder, const struct msg_field *field,
                               uint32_t count, const char *what, size_t item_bytes, void **items)
{
    enum status status = msg_check_count(&decoder->where, field, count, what, decoder->err);

    *items = NULL;
    if (status != STATUS_OK || count == 0)
        return status;
    *items = arena_alloc(decoder->arena, count * item_bytes);
    return *items != NULL ? STATUS_OK : no_memory(decoder);
}

static enum status decode_texts(struct decoder *decoder, const struct msg_field *field,
                                const cJSON *value, struct msg_text_list *into)
{
    uint32_t count = count_children(value), i = 0;
    enum status status;
    const char **items;
    void *memory;

    if (!cJSON_IsArray(value))
        return expected(decoder, "an array of strings");
    status = alloc_items(decoder, field, count, "strings", sizeof *items, &memory);
    items = memory;
    if (status != STATUS_OK || items == NULL)
        return status;
    for (const cJSON *child = value->child; child != NULL && status == STATUS_OK;
         child = child->next)
        status = copy_text(decoder, child, &items[i++]);
    if (status == STATUS_OK)
        *into = (struct msg_text_list){.items = items, .count = count};
    return status;
}

static enum status decode_pair(struct decoder *decoder, const cJSON *value, struct msg_pair *into)
{
    if (value->string[0] == '\0')
        return msg_refuse(&decoder->where, decoder->err, STATUS_BAD_INPUT, "an empty name");
    into->name = arena_text(decoder->arena, value->string, strlen(value->string));
    return into->name == NULL ? no_memory(decoder) : copy_text(decoder, value, &into->value);
}

static enum status decode_pairs(struct decoder *decoder, const struct msg_field *field,
                                const cJSON *value, struct msg_pair_list *into)
{
    uint32_t count = count_children(value), i = 0;
    struct msg_pair *items;
    enum status status;
    void *memory;

    if (!cJSON_IsObject(value))
        return expected(decoder, "an object of strings");
    status = alloc_items(decoder, field, count, "pairs", sizeof *items, &memory);
    items = memory;
    if (status != STATUS_OK || items == NULL)
        return status;
    for (const cJSON *child = value->child; child != NULL && status == STATUS_OK;
         child = child->next)
        status = decode_pair(decoder, child, &items[i++]);
    if (status == STATUS_OK)
        *into = (struct msg_pair_list){.items = items, .count = count};
    return status;
}

static enum status decode_bytes(struct decoder *decoder, const struct msg_field *field,
                                const cJSON *value, struct msg_bytes *into)
{
    size_t chars, byte_count;
    enum status status;
    uint8_t *items;

    if (!cJSON_IsString(value))
        return expected(decoder, "base64 in a string");
    chars = strlen(value->valuestring);
    if (chars > BASE64_CHARS(field->max))
        return msg_check_count(&decoder->where, field, base64_bytes_max(chars), "bytes",
                               decoder->err);
    items = arena_alloc(decoder->arena, base64_bytes_max(chars));
    if (items == NULL)
        return no_memory(decoder);
    if (!base64_decode(value->valuestring, chars, items, &byte_count))
        return expected(decoder, "base64, padded and canonical");
    status = msg_check_count(&decoder->where, field, byte_count, "bytes", decoder->err);
    if (status == STATUS_OK && byte_count > 0)
        *into = (struct msg_bytes){.items = items, .count = (uint32_t)byte_count};
    return status;
}

/* -- objects ----------------------------------------------------------------------------------- */

static enum status decode_field(struct decoder *decoder, const struct msg_field *field,
                                const cJSON *value, void *into)
{
    switch (field->kind) {
    case MSG_KIND_U32:
    case MSG_KIND_I32:
        return decode_number(decoder, field, value, into);
    case MSG_KIND_F64:
        return decode_real(decoder, field, value, into);
    case MSG_KIND_U64:
    case MSG_KIND_I64:
        return decode_string_integer(decoder, field, value, into);
    case MSG_KIND_BOOL:
        return decode_bool(decoder, value, into);
    case MSG_KIND_ENUM:
        return decode_enum(decoder, field, value, into);
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        return decode_text(decoder, field, value, into);
    case MSG_KIND_TEXTS:
        return decode_texts(decoder, field, value, into);
    case MSG_KIND_PAIRS:
        return decode_pairs(decoder, field, value, into);
    case MSG_KIND_BYTES:
        return decode_bytes(decoder, field, value, into);
    case MSG_KIND_LIST:
        break;
    }
    assert(field->kind != MSG_KIND_LIST); /* parts hold no lists */
    return STATUS_BAD_INPUT;
}

static const struct msg_field *find_field(const struct msg_shape *shape, const char *name)
{
    for (uint32_t i = 0; i < shape->field_count; i++)
        if (strcmp(shape->fields[i].name, name) == 0)
            return &shape->fields[i];
    return NULL;
}

/* Whether the field was introduced after that version. */
static bool is_later(const struct msg_shape *shape, const struct msg_field *field, uint32_t version)
{
    return version < PROTOCOL_VERSION && msg_field_since(shape->name, field->name) > version;
}

static enum status refuse_unknown(struct decoder *decoder, const char *name)
{
    char shown[48];

    utf8_printable(name, strlen(name), shown, sizeof shown);
    return msg_refuse(&decoder->where, decoder->err, STATUS_BAD_INPUT, "unknown field \"%s\"",
                      shown);
}

/* Sets the value that stands for a field which an earlier version does not have. False: the field
 * cannot be left out. `into` is zeroed. */
static bool set_default(const struct msg_field *field, void *into)
{
    static const char nothing[] = "";
    const char *text = nothing;

    switch (field->kind) {
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        memcpy(into, &text, sizeof text);
        return field->min == 0;
    case MSG_KIND_F64:
        return field->real_min <= 0 && field->real_max >= 0;
    case MSG_KIND_BOOL:
    case MSG_KIND_ENUM:
        return true;
    default:
        return field->min <= 0; /* 0, or nothing in it */
    }
}

static enum status check_all_seen(struct decoder *decoder, const struct msg_shape *shape,
                                  uint64_t seen, char *record)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];

        if ((seen >> i & 1) != 0)
            continue;
        if ((decoder->is_lenient || is_later(shape, field, decoder->protocols.peer) ||
             is_later(shape, field, decoder->protocols.own)) &&
            set_default(field, record + field->offset))
            continue;
        decoder->where.field = field->name;
        return msg_refuse(&decoder->where, decoder->err, STATUS_BAD_INPUT, "missing");
    }
    return STATUS_OK;
}

/* Decodes the members of `object`, from `first` on, into `record`: all fields of `shape` and
 * nothing else, unless the decoder is lenient or the peer has a later version. */
static enum status decode_members(struct decoder *decoder, const struct msg_shape *shape,
                                  const cJSON *first, decode_one *decode, char *record)
{
    uint64_t seen = 0;

    for (const cJSON *value = first; value != NULL; value = value->next) {
        const struct msg_field *field = find_field(shape, value->string);
        enum status status;

        decoder->where.field = NULL;
        if (field != NULL && is_later(shape, field, decoder->protocols.own))
            field = NULL;
        if (field == NULL &&
            (decoder->is_lenient || decoder->protocols.peer > decoder->protocols.own))
            continue;
        if (field == NULL)
            return refuse_unknown(decoder, value->string);
        seen |= UINT64_C(1) << (field - shape->fields);
        decoder->where.field = field->name;
        status = decode(decoder, field, value, record + field->offset);
        if (status != STATUS_OK)
            return status;
    }
    return check_all_seen(decoder, shape, seen, record);
}

static enum status decode_part(struct decoder *decoder, const struct msg_shape *shape,
                               const cJSON *value, char *record)
{
    if (!cJSON_IsObject(value)) {
        decoder->where.field = NULL;
        return expected(decoder, "an object");
    }
    return decode_members(decoder, shape, value->child, decode_field, record);
}

static enum status decode_list(struct decoder *decoder, const struct msg_field *field,
                               const cJSON *value, void *into)
{
    const struct msg_shape *shape = field->part();
    struct msg_list list = {.count = count_children(value)};
    enum status status;
    void *memory;
    char *items;

    if (!cJSON_IsArray(value))
        return expected(decoder, "an array of objects");
    status = alloc_items(decoder, field, list.count, "entries", shape->byte_count, &memory);
    if (status != STATUS_OK || list.count == 0)
        return status;
    items = memory;
    list.items = items;
    decoder->where.list = field->name;
    decoder->where.index = 0;
    for (const cJSON *part = value->child; part != NULL; part = part->next) {
        status = decode_part(decoder, shape, part, items);
        if (status != STATUS_OK)
            return status;
        items += shape->byte_count;
        decoder->where.index++;
    }
    decoder->where.list = NULL;
    memcpy(into, &list, sizeof list);
    return STATUS_OK;
}

static enum status decode_field_or_list(struct decoder *decoder, const struct msg_field *field,
                                        const cJSON *value, void *into)
{
    return field->kind == MSG_KIND_LIST ? decode_list(decoder, field, value, into)
                                        : decode_field(decoder, field, value, into);
}

/* -- the message ------------------------------------------------------------------------------- */

static enum status decode_type(struct decoder *decoder, const cJSON *value, enum msg_type *type)
{
    char shown[48];

    if (!cJSON_IsString(value))
        return err_set(decoder->err, STATUS_BAD_INPUT, 0, "message: expected a string as \"type\"");
    for (uint32_t i = 0; i < MSG_TYPE_COUNT; i++)
        if (strcmp(value->valuestring, msg_type_name((enum msg_type)i)) == 0) {
            *type = (enum msg_type)i;
            decoder->where.message = msg_type_name(*type);
            return STATUS_OK;
        }
    utf8_printable(value->valuestring, strlen(value->valuestring), shown, sizeof shown);
    return err_set(decoder->err, STATUS_BAD_INPUT, 0, "message: \"%s\" is no type of message",
                   shown);
}

/* A first message contains its sender's version and is decoded as of that version. */
static void take_version(struct decoder *decoder, const cJSON *root, enum msg_type type)
{
    const cJSON *said = json_member(root, "protocol");
    int64_t version = 1;

    if (!msg_says_protocol(type))
        return;
    if (said == NULL ||
        (number_to_integer(said, &version) && version >= 0 && version <= UINT32_MAX))
        decoder->protocols.peer = version > 0 ? (uint32_t)version : 1; /* there is no version 0 */
}

/* A hello of a protocol that is not understood here, or of a build with other messages but the same
 * protocol, is read as far as it is known, so that it is refused for that reason, and not for a field. */
static void take_schema(struct decoder *decoder, const cJSON *root, enum msg_type type)
{
    const char *said = cJSON_GetStringValue(json_member(root, "schema"));

    if (!msg_says_protocol(type) || json_member(root, "protocol") == NULL)
        return;
    if (!msg_protocol_is_near(decoder->protocols.own, decoder->protocols.peer) ||
        (said != NULL && msg_schema_differs(decoder->protocols.own, decoder->protocols.peer, said)))
        decoder->is_lenient = true;
}

/* The object begins with "type"; then come the fields, in any order. */
static enum status decode_object(struct decoder *decoder, const cJSON *root, size_t byte_count,
                                 struct msg *msg)
{
    const cJSON *type = cJSON_IsObject(root) ? root->child : NULL;
    const struct msg_shape *shape;
    enum status status;

    if (type == NULL || strcmp(type->string, "type") != 0)
        return err_set(decoder->err, STATUS_BAD_INPUT, 0,
                       "message: expected an object that begins with \"type\"");
    status = decode_type(decoder, type, &msg->type);
    if (status != STATUS_OK)
        return status;
    shape = msg_shape(msg->type);
    if (byte_count > shape->frame_bytes_max)
        return msg_refuse(&decoder->where, decoder->err, STATUS_TOO_BIG,
                          "%zu bytes, at most %zu allowed", byte_count, shape->frame_bytes_max);
    take_version(decoder, root, msg->type);
    take_schema(decoder, root, msg->type);
    return decode_members(decoder, shape, type->next, decode_field_or_list,
                          (char *)msg + MSG_BODY_OFFSET);
}

static enum status decode_with(struct decoder *decoder, const char *json, size_t byte_count,
                               struct msg *msg)
{
    enum status status;
    cJSON *root;

    memset(msg, 0, sizeof *msg);
    if (byte_count > FRAME_LARGE_BYTES_MAX)
        return err_set(decoder->err, STATUS_TOO_BIG, 0, "message: %zu bytes, at most %u allowed",
                       byte_count, FRAME_LARGE_BYTES_MAX);
    status = json_strict_parse(json, byte_count, NULL, &root, decoder->err);
    if (status != STATUS_OK)
        return status;
    status = decode_object(decoder, root, byte_count, msg);
    cJSON_Delete(root);
    return status;
}

enum status msg_decode_between(const char *json, size_t byte_count, struct msg_protocols *protocols,
                               struct arena *arena, struct msg *msg, struct err *err)
{
    struct decoder decoder = {
        .arena = arena, .where = {.message = "message"}, .err = err, .protocols = *protocols};
    enum status status = decode_with(&decoder, json, byte_count, msg);

    if (status == STATUS_OK)
        protocols->peer = decoder.protocols.peer;
    return status;
}

enum status msg_decode(const char *json, size_t byte_count, struct arena *arena, struct msg *msg,
                       struct err *err)
{
    struct msg_protocols same = {PROTOCOL_VERSION, PROTOCOL_VERSION};

    return msg_decode_between(json, byte_count, &same, arena, msg, err);
}

enum status msg_decode_stored(const char *json, size_t byte_count, struct arena *arena,
                              struct msg *msg, struct err *err)
{
    struct decoder decoder = {.arena = arena,
                              .where = {.message = "message"},
                              .err = err,
                              .is_lenient = true,
                              .protocols = {PROTOCOL_VERSION, PROTOCOL_VERSION}};

    return decode_with(&decoder, json, byte_count, msg);
}
