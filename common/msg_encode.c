/* Encodes messages by the tables of msg_table.h, straight into the buffer. */
#include "common/msg.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/msg_check.h"
#include "common/msg_table.h"
#include "common/msg_version.h"
#include "common/utf8.h"

struct encoder {
    struct buf *out;
    uint32_t version; /* of the reader, if that is earlier than ours */
    struct msg_where where;
    struct err *err;
};

typedef enum status encode_one(struct encoder *encoder, const struct msg_field *field,
                               const void *from);

/* -- numbers ----------------------------------------------------------------------------------- */

static enum status encode_integer(struct encoder *encoder, const struct msg_field *field,
                                  bool in_range, const char *text)
{
    bool in_string = field->kind == MSG_KIND_U64 || field->kind == MSG_KIND_I64;

    if (!in_range)
        return msg_refuse_integer(&encoder->where, field, text, encoder->err);
    if (in_string)
        buf_add(encoder->out, "\"", 1);
    buf_add_text(encoder->out, text);
    if (in_string)
        buf_add(encoder->out, "\"", 1);
    return STATUS_OK;
}

static enum status encode_unsigned(struct encoder *encoder, const struct msg_field *field,
                                   uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return encode_integer(encoder, field, msg_in_range_unsigned(field, value), text);
}

static enum status encode_signed(struct encoder *encoder, const struct msg_field *field,
                                 int64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return encode_integer(encoder, field, msg_in_range_signed(field, value), text);
}

/* The shortest of 15 to 17 digits that reads back as the same double. */
static enum status encode_real(struct encoder *encoder, const struct msg_field *field, double value)
{
    enum status status = msg_check_real(&encoder->where, field, value, encoder->err);
    char text[40];

    if (status != STATUS_OK)
        return status;
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buf_add_text(encoder->out, text);
    return STATUS_OK;
}

static enum status encode_enum(struct encoder *encoder, const struct msg_field *field,
                               uint32_t value)
{
    if (value >= field->names->count)
        return msg_refuse(&encoder->where, encoder->err, STATUS_BAD_INPUT,
                          "%" PRIu32 " is none of its %" PRIu32 " names", value,
                          field->names->count);
    buf_printf(encoder->out, "\"%s\"", field->names->items[value]);
    return STATUS_OK;
}

/* -- texts and bytes --------------------------------------------------------------------------- */

static void put_escape(struct buf *out, char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *at = strchr(plain, c);

    if (at != NULL)
        buf_printf(out, "\\%c", escaped[at - plain]);
    else
        buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
}

/* RFC 8259, section 7: quotes, backslashes and controls are escaped, all else goes as it is. */
static void put_string(struct buf *out, const char *text, size_t byte_count)
{
    size_t first = 0; /* of what is not written yet */

    buf_add(out, "\"", 1);
    for (size_t i = 0; i < byte_count; i++) {
        if ((unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
            continue;
        buf_add(out, text + first, i - first);
        put_escape(out, text[i]);
        first = i + 1;
    }
    buf_add(out, text + first, byte_count - first);
    buf_add(out, "\"", 1);
}

static enum status encode_text(struct encoder *encoder, const struct msg_field *field,
                               const char *text)
{
    size_t byte_count = text != NULL ? strlen(text) : 0;
    enum status status =
        msg_check_text(&encoder->where, field, text != NULL ? text : "", byte_count, encoder->err);

    if (status == STATUS_OK)
        put_string(encoder->out, text != NULL ? text : "", byte_count);
    return status;
}

/* One string of a list: any UTF-8. */
static enum status encode_item(struct encoder *encoder, const char *text)
{
    if (text == NULL)
        text = "";
    if (!utf8_is_valid(text, strlen(text)))
        return msg_refuse(&encoder->where, encoder->err, STATUS_BAD_INPUT, "not UTF-8");
    put_string(encoder->out, text, strlen(text));
    return STATUS_OK;
}

static enum status encode_texts(struct encoder *encoder, const struct msg_field *field,
                                const struct msg_text_list *list)
{
    enum status status =
        msg_check_count(&encoder->where, field, list->count, "strings", encoder->err);

    buf_add(encoder->out, "[", 1);
    for (uint32_t i = 0; i < list->count && status == STATUS_OK; i++) {
        if (i > 0)
            buf_add(encoder->out, ",", 1);
        status = encode_item(encoder, list->items[i]);
    }
    buf_add(encoder->out, "]", 1);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status check_pair_names(struct encoder *encoder, const struct msg_pair_list *list)
{
    const char **names = calloc(list->count + (size_t)1, sizeof *names);
    enum status status = STATUS_OK;
    char shown[64];

    if (names == NULL)
        return err_set(encoder->err, STATUS_MEMORY, 0, "no memory for %u names", list->count);
    for (uint32_t i = 0; i < list->count && status == STATUS_OK; i++) {
        names[i] = list->items[i].name;
        if (names[i] == NULL || names[i][0] == '\0')
            status = msg_refuse(&encoder->where, encoder->err, STATUS_BAD_INPUT, "an empty name");
    }
    if (status == STATUS_OK)
        qsort(names, list->count, sizeof *names, compare_names);
    for (uint32_t i = 1; i < list->count && status == STATUS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) != 0)
            continue;
        utf8_printable(names[i], strlen(names[i]), shown, sizeof shown);
        status = msg_refuse(&encoder->where, encoder->err, STATUS_BAD_INPUT,
                            "\"%s\" is there twice", shown);
    }
    free(names);
    return status;
}

static enum status encode_pairs(struct encoder *encoder, const struct msg_field *field,
                                const struct msg_pair_list *list)
{
    enum status status =
        msg_check_count(&encoder->where, field, list->count, "pairs", encoder->err);
    bool has_before = false;

    if (status == STATUS_OK && list->count > msg_pairs_max(field->max, encoder->version))
        status =
            msg_refuse(&encoder->where, encoder->err, STATUS_TOO_BIG,
                       "%u pairs, and the release of the receiver takes %" PRIu64 ": upgrade it",
                       list->count, msg_pairs_max(field->max, encoder->version));
    if (status == STATUS_OK)
        status = check_pair_names(encoder, list);
    buf_add(encoder->out, "{", 1);
    for (uint32_t i = 0; i < list->count && status == STATUS_OK; i++) {
        if (encoder->version < PROTOCOL_VERSION &&
            msg_pair_since(field->name, list->items[i].name) > encoder->version)
            continue;
        if (has_before)
            buf_add(encoder->out, ",", 1);
        has_before = true;
        status = encode_item(encoder, list->items[i].name);
        buf_add(encoder->out, ":", 1);
        if (status == STATUS_OK)
            status = encode_item(encoder, list->items[i].value);
    }
    buf_add(encoder->out, "}", 1);
    return status;
}

static enum status encode_bytes(struct encoder *encoder, const struct msg_field *field,
                                const struct msg_bytes *bytes)
{
    enum status status =
        msg_check_count(&encoder->where, field, bytes->count, "bytes", encoder->err);
    char chars[BASE64_CHARS(768)];

    if (status != STATUS_OK)
        return status;
    buf_add(encoder->out, "\"", 1);
    for (uint32_t i = 0; i < bytes->count; i += 768) {
        uint32_t count = bytes->count - i < 768 ? bytes->count - i : 768;

        base64_encode(bytes->items + i, count, chars);
        buf_add(encoder->out, chars, BASE64_CHARS(count));
    }
    buf_add(encoder->out, "\"", 1);
    return STATUS_OK;
}

/* -- objects ----------------------------------------------------------------------------------- */

static enum status encode_field(struct encoder *encoder, const struct msg_field *field,
                                const void *from)
{
    switch (field->kind) {
    case MSG_KIND_U32:
        return encode_unsigned(encoder, field, *(const uint32_t *)from);
    case MSG_KIND_I32:
        return encode_signed(encoder, field, *(const int32_t *)from);
    case MSG_KIND_F64:
        return encode_real(encoder, field, *(const double *)from);
    case MSG_KIND_U64:
        return encode_unsigned(encoder, field, *(const uint64_t *)from);
    case MSG_KIND_I64:
        return encode_signed(encoder, field, *(const int64_t *)from);
    case MSG_KIND_BOOL:
        buf_add_text(encoder->out, *(const bool *)from ? "true" : "false");
        return STATUS_OK;
    case MSG_KIND_ENUM: {
        uint32_t word;

        memcpy(&word, from, sizeof word);
        return encode_enum(encoder, field, word);
    }
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        return encode_text(encoder, field, *(const char *const *)from);
    case MSG_KIND_TEXTS:
        return encode_texts(encoder, field, from);
    case MSG_KIND_PAIRS:
        return encode_pairs(encoder, field, from);
    case MSG_KIND_BYTES:
        return encode_bytes(encoder, field, from);
    case MSG_KIND_LIST:
        break;
    }
    assert(field->kind != MSG_KIND_LIST); /* parts hold no lists */
    return STATUS_BAD_INPUT;
}

/* Writes "name":value for every field that the reader knows, separated by commas; `has_before`: a
 * comma also before the first. */
static enum status encode_members(struct encoder *encoder, const struct msg_shape *shape,
                                  bool has_before, encode_one *encode, const char *record)
{
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];
        enum status status;

        if (encoder->version < PROTOCOL_VERSION &&
            msg_field_since(shape->name, field->name) > encoder->version)
            continue;
        buf_printf(encoder->out, "%s\"%s\":", has_before ? "," : "", field->name);
        has_before = true;
        encoder->where.field = field->name;
        status = encode(encoder, field, record + field->offset);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status encode_list(struct encoder *encoder, const struct msg_field *field,
                               const void *from)
{
    const struct msg_shape *shape = field->part();
    struct msg_list list;
    enum status status;

    memcpy(&list, from, sizeof list);
    assert(list.count == 0 || list.items != NULL);
    status = msg_check_count(&encoder->where, field, list.count, "entries", encoder->err);
    encoder->where.list = field->name;
    buf_add(encoder->out, "[", 1);
    for (uint32_t i = 0; i < list.count && status == STATUS_OK; i++) {
        encoder->where.index = i;
        buf_add_text(encoder->out, i > 0 ? ",{" : "{");
        status = encode_members(encoder, shape, false, encode_field,
                                (const char *)list.items + i * shape->byte_count);
        buf_add(encoder->out, "}", 1);
    }
    buf_add(encoder->out, "]", 1);
    encoder->where.list = NULL;
    return status;
}

static enum status encode_field_or_list(struct encoder *encoder, const struct msg_field *field,
                                        const void *from)
{
    return field->kind == MSG_KIND_LIST ? encode_list(encoder, field, from)
                                        : encode_field(encoder, field, from);
}

/* -- the message ------------------------------------------------------------------------------- */

static enum status encode_frame(struct encoder *encoder, const struct msg *msg)
{
    const struct msg_shape *shape = msg_shape(msg->type);
    size_t before = encoder->out->byte_count, payload_bytes;
    char head[FRAME_HEAD_BYTES] = {0};
    enum status status;

    buf_add(encoder->out, head, sizeof head);
    buf_printf(encoder->out, "{\"type\":\"%s\"", shape->name);
    status = encode_members(encoder, shape, true, encode_field_or_list,
                            (const char *)msg + MSG_BODY_OFFSET);
    buf_add(encoder->out, "}", 1);
    if (status != STATUS_OK)
        return status;
    if (encoder->out->failed)
        return err_set(encoder->err, encoder->out->limit != 0 ? STATUS_TOO_BIG : STATUS_MEMORY, 0,
                       "%s: no room to encode it", shape->name);
    payload_bytes = encoder->out->byte_count - before - sizeof head;
    if (payload_bytes > shape->frame_bytes_max)
        return err_set(encoder->err, STATUS_TOO_BIG, 0, "%s: %zu bytes, at most %zu allowed",
                       shape->name, payload_bytes, shape->frame_bytes_max);
    if (payload_bytes > msg_frame_max(shape->frame_bytes_max, encoder->version))
        return err_set(encoder->err, STATUS_TOO_BIG, 0,
                       "%s: %zu bytes, and the release of the receiver takes %zu: upgrade it",
                       shape->name, payload_bytes,
                       msg_frame_max(shape->frame_bytes_max, encoder->version));
    frame_head(payload_bytes, head);
    memcpy(encoder->out->bytes + before, head, sizeof head);
    return STATUS_OK;
}

enum status msg_encode_between(const struct msg *msg, const struct msg_protocols *protocols,
                               struct buf *out, struct err *err)
{
    const uint32_t own = protocols->own, peer = protocols->peer;
    struct encoder encoder = {.out = out,
                              .version = own < peer ? own : peer,
                              .where = {.message = msg_type_name(msg->type)},
                              .err = err};
    size_t before = out->byte_count;
    enum status status;

    assert((uint32_t)msg->type < MSG_TYPE_COUNT);
    if (out->failed)
        return err_set(err, STATUS_MEMORY, 0, "%s: the buffer has failed before",
                       encoder.where.message);
    status = encode_frame(&encoder, msg);
    if (status != STATUS_OK) {
        out->byte_count = before;
        out->failed = false;
    }
    return status;
}

enum status msg_encode(const struct msg *msg, struct buf *out, struct err *err)
{
    const struct msg_protocols same = {PROTOCOL_VERSION, PROTOCOL_VERSION};

    return msg_encode_between(msg, &same, out, err);
}
