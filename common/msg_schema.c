#include "common/msg_schema.h"

#include <stdio.h>
#include <string.h>

#include "common/fnv.h"
#include "common/msg_table.h"
#include "common/msg_version.h"

static const char *const kinds[] = {
    [MSG_KIND_U32] = "U32",     [MSG_KIND_I32] = "I32",     [MSG_KIND_F64] = "F64",
    [MSG_KIND_U64] = "U64",     [MSG_KIND_I64] = "I64",     [MSG_KIND_BOOL] = "BOOL",
    [MSG_KIND_TEXT] = "TEXT",   [MSG_KIND_LINE] = "LINE",   [MSG_KIND_NAME] = "NAME",
    [MSG_KIND_TEXTS] = "TEXTS", [MSG_KIND_PAIRS] = "PAIRS", [MSG_KIND_BYTES] = "BYTES",
    [MSG_KIND_ENUM] = "ENUM",   [MSG_KIND_LIST] = "LIST",
};

/* Each start of each program writes the schema once, so it is not printed word by word with buf_printf. */
static void add_number(struct buf *text, bool is_negative, uint64_t value)
{
    char digits[24];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    if (is_negative)
        digits[--at] = '-';
    digits[--at] = ' ';
    buf_add(text, digits + at, sizeof digits - at);
}

static void add_range(struct buf *text, int64_t min, uint64_t max)
{
    add_number(text, min < 0, min < 0 ? 0 - (uint64_t)min : (uint64_t)min);
    add_number(text, false, max);
}

static void add_words(struct buf *text, const char *before, const char *word)
{
    buf_add_text(text, before);
    buf_add_text(text, word);
}

static void write_field(struct buf *text, const struct msg_shape *shape,
                        const struct msg_field *field, uint32_t version)
{
    buf_add_text(text, shape->name);
    add_words(text, ".", field->name);
    add_words(text, " ", kinds[field->kind]);
    if (field->kind == MSG_KIND_F64) {
        buf_printf(text, " %g %g", field->real_min, field->real_max);
    } else if (field->kind == MSG_KIND_LIST) {
        add_words(text, " ", field->part()->name);
        add_number(text, false, field->max);
    } else if (field->kind == MSG_KIND_PAIRS) {
        add_range(text, field->min, msg_pairs_max(field->max, version));
    } else if (field->kind != MSG_KIND_ENUM) {
        add_range(text, field->min, field->max);
    }
    for (uint32_t i = 0; field->kind == MSG_KIND_ENUM && i < field->names->count; i++)
        add_words(text, " ", field->names->items[i]);
    buf_add_text(text, "\n");
}

/* All fields are of this program's version or earlier. */
static bool is_since(const struct msg_shape *shape, const struct msg_field *field, uint32_t version)
{
    return version >= PROTOCOL_VERSION || msg_field_since(shape->name, field->name) <= version;
}

static void write_shape(struct buf *text, const struct msg_shape *shape, uint32_t version)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];

        if (!is_since(shape, field, version))
            continue;
        write_field(text, shape, field, version);
        if (field->kind != MSG_KIND_LIST)
            continue;
        for (uint32_t k = 0; k < field->part()->field_count; k++) { /* parts hold no lists */
            const struct msg_shape *part = field->part();

            if (is_since(part, &part->fields[k], version))
                write_field(text, part, &part->fields[k], version);
        }
    }
}

void msg_schema_write(struct buf *text, uint32_t version)
{
    for (uint32_t i = 0; i < MSG_TYPE_COUNT; i++) {
        const struct msg_shape *shape = msg_shape((enum msg_type)i);

        if (msg_type_since((enum msg_type)i) > version)
            continue;
        buf_add_text(text, shape->name);
        add_number(text, false, msg_frame_max(shape->frame_bytes_max, version));
        buf_add_text(text, "\n");
        write_shape(text, shape, version);
    }
}

const char *msg_schema(void)
{
    static char hash_text[SCHEMA_BYTES_MAX];
    struct buf text = {0};

    if (hash_text[0] != '\0')
        return hash_text;
    msg_schema_write(&text, PROTOCOL_VERSION);
    if (!text.failed)
        (void)snprintf(hash_text, sizeof hash_text, "%016llx",
                       (unsigned long long)fnv_add(FNV_START, text.bytes, text.byte_count));
    buf_free(&text);
    return hash_text;
}

bool msg_schema_differs(uint32_t own_protocol, uint32_t protocol, const char *schema)
{
    const char *own = msg_schema();

    return own_protocol == protocol && schema[0] != '\0' && own[0] != '\0' &&
           strcmp(own, schema) != 0;
}

const char *msg_hello_schema(const struct msg *msg)
{
    if (msg->type == MSG_TYPE_NODE_HELLO)
        return msg->node_hello.schema;
    if (msg->type == MSG_TYPE_CLIENT_HELLO)
        return msg->client_hello.schema;
    if (msg->type == MSG_TYPE_SHIM_HELLO)
        return msg->shim_hello.schema;
    return NULL;
}
