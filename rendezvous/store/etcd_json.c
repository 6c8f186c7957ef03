#include "rendezvous/store/etcd_json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "common/json_strict.h"
#include "common/utf8.h"

static const struct json_limits reply_limits = {.depth_max = 16, .token_max = 4000000};

/* -- requests -- */

/* "name":"base64" */
static void add_bytes(struct buf *out, const char *name, struct etcd_bytes value)
{
    uint8_t piece[3 * 1024];
    char chars[BASE64_CHARS(sizeof piece)];
    size_t at = 0;

    buf_printf(out, "\"%s\":\"", name);
    while (at < value.byte_count) {
        size_t n = value.byte_count - at < sizeof piece ? value.byte_count - at : sizeof piece;

        memcpy(piece, value.bytes + at, n);
        base64_encode(piece, n, chars);
        buf_add(out, chars, BASE64_CHARS(n));
        at += n;
    }
    buf_add_text(out, "\"");
}

static void add_compare(struct buf *out, const struct etcd_compare *compare)
{
    buf_add_text(out, "{\"result\":\"EQUAL\",");
    add_bytes(out, "key", compare->key);
    switch (compare->target) {
    case ETCD_CREATED:
        buf_printf(out, ",\"target\":\"CREATE\",\"create_revision\":\"%" PRId64 "\"}",
                   compare->revision);
        break;
    case ETCD_MODIFIED:
        buf_printf(out, ",\"target\":\"MOD\",\"mod_revision\":\"%" PRId64 "\"}", compare->revision);
        break;
    case ETCD_VALUE:
        buf_add_text(out, ",\"target\":\"VALUE\",");
        add_bytes(out, "value", compare->value);
        buf_add_text(out, "}");
        break;
    }
}

/* Adds the members of an operation's JSON object. */
static void add_op(struct buf *out, const struct etcd_op *op)
{
    add_bytes(out, "key", op->key);
    if (op->kind == ETCD_PUT) {
        buf_add_text(out, ",");
        add_bytes(out, "value", op->value);
        if (op->lease != 0)
            buf_printf(out, ",\"lease\":\"%" PRId64 "\"", op->lease);
        return;
    }
    if (op->end.bytes != NULL) {
        buf_add_text(out, ",");
        add_bytes(out, "range_end", op->end);
    }
    if (op->kind == ETCD_RANGE && op->revision != 0)
        buf_printf(out, ",\"revision\":\"%" PRId64 "\"", op->revision);
    if (op->kind == ETCD_RANGE && op->limit != 0)
        buf_printf(out, ",\"limit\":\"%" PRIu32 "\"", op->limit);
}

static void add_ops(struct buf *out, const char *name, const struct etcd_op *ops, uint32_t count)
{
    static const char *const kinds[] = {[ETCD_PUT] = "request_put",
                                        [ETCD_DELETE] = "request_delete_range",
                                        [ETCD_RANGE] = "request_range"};

    buf_printf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) {
        buf_printf(out, "%s{\"%s\":{", i == 0 ? "" : ",", kinds[ops[i].kind]);
        add_op(out, &ops[i]);
        buf_add_text(out, "}}");
    }
    buf_add_text(out, "]");
}

void etcd_json_txn(const struct etcd_txn *txn, struct buf *out)
{
    buf_add_text(out, "{\"compare\":[");
    for (uint32_t i = 0; i < txn->compare_count; i++) {
        buf_add_text(out, i == 0 ? "" : ",");
        add_compare(out, &txn->compares[i]);
    }
    buf_add_text(out, "]");
    add_ops(out, "success", txn->then, txn->then_count);
    add_ops(out, "failure", txn->otherwise, txn->otherwise_count);
    buf_add_text(out, "}");
}

void etcd_json_range(const struct etcd_op *range, struct buf *out)
{
    buf_add_text(out, "{");
    add_op(out, range);
    buf_add_text(out, "}");
}

void etcd_json_watch(const struct etcd_op *range, struct buf *out)
{
    buf_add_text(out, "{\"create_request\":{");
    add_bytes(out, "key", range->key);
    buf_add_text(out, ",");
    add_bytes(out, "range_end", range->end);
    buf_printf(out, ",\"start_revision\":\"%" PRId64 "\"}}", range->revision);
}

/* -- answers -- */

struct reading {
    struct arena *arena;
    struct etcd_reply *reply;
    uint32_t row_capacity;
    struct err *err;
};

static enum status expected(const struct reading *reading, const char *name, const char *what)
{
    return err_set(reading->err, STATUS_BAD_INPUT, 0, "the answer of etcd: \"%s\" is not %s", name,
                   what);
}

/* etcd sends 64-bit integers as strings; small ones may be numbers. A missing member is 0, by
 * protobuf's JSON rules. */
static enum status read_integer(const struct reading *reading, const cJSON *object,
                                const char *name, int64_t *out)
{
    const cJSON *item = json_member(object, name);
    const char *text = cJSON_GetStringValue(item);
    char *end = NULL;

    *out = 0;
    if (item == NULL)
        return STATUS_OK;
    if (text == NULL) {
        if (!cJSON_IsNumber(item) || item->valuedouble < -9e15 || item->valuedouble > 9e15)
            return expected(reading, name, "an integer");
        *out = (int64_t)item->valuedouble;
        return STATUS_OK;
    }
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || strchr("-0123456789", text[0]) == NULL)
        return expected(reading, name, "an integer");
    return STATUS_OK;
}

static enum status read_bytes(const struct reading *reading, const cJSON *object, const char *name,
                              struct etcd_bytes *out)
{
    const cJSON *item = json_member(object, name);
    const char *chars = cJSON_GetStringValue(item);
    size_t char_count = chars != NULL ? strlen(chars) : 0;
    uint8_t *bytes;

    *out = (struct etcd_bytes){.bytes = ""};
    if (item == NULL)
        return STATUS_OK;
    bytes = arena_alloc(reading->arena, base64_bytes_max(char_count) + 1);
    if (bytes == NULL)
        return err_set(reading->err, STATUS_MEMORY, 0, "no memory for an answer of etcd");
    if (chars == NULL || !base64_decode(chars, char_count, bytes, &out->byte_count))
        return expected(reading, name, "base64");
    bytes[out->byte_count] = '\0';
    out->bytes = (const char *)bytes;
    return STATUS_OK;
}

static enum status read_row(const struct reading *reading, const cJSON *object,
                            struct etcd_row *row)
{
    enum status status;

    if (!cJSON_IsObject(object))
        return expected(reading, "kvs", "a list of objects");
    status = read_bytes(reading, object, "key", &row->key);
    if (status == STATUS_OK)
        status = read_bytes(reading, object, "value", &row->value);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "create_revision", &row->created);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "mod_revision", &row->modified);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "lease", &row->lease);
    return status;
}

static enum status read_range(struct reading *reading, const cJSON *object)
{
    struct etcd_answer *answer = &reading->reply->answer;
    const cJSON *rows = json_member(object, "kvs"), *row;
    enum status status = read_integer(reading, object, "count", &answer->key_count);

    if (status != STATUS_OK)
        return status;
    answer->has_more = answer->has_more || cJSON_IsTrue(json_member(object, "more"));
    if (rows != NULL && !cJSON_IsArray(rows))
        return expected(reading, "kvs", "a list");
    cJSON_ArrayForEach(row, rows)
    {
        if (answer->row_count == reading->row_capacity)
            return expected(reading, "kvs", "what was counted");
        status = read_row(reading, row, &answer->rows[answer->row_count++]);
        if (status != STATUS_OK)
            return status;
    }
    return status;
}

/* Of a watch: {"type":"DELETE","kv":{...}}; PUT is the default and left out. */
static enum status read_events(struct reading *reading, const cJSON *object)
{
    struct etcd_answer *answer = &reading->reply->answer;
    const cJSON *events = json_member(object, "events"), *event;
    enum status status = STATUS_OK;

    if (events != NULL && !cJSON_IsArray(events))
        return expected(reading, "events", "a list");
    cJSON_ArrayForEach(event, events)
    {
        struct etcd_row *row = &answer->rows[answer->row_count];
        const char *type = cJSON_GetStringValue(json_member(event, "type"));

        if (answer->row_count == reading->row_capacity)
            return expected(reading, "events", "what was counted");
        status = read_row(reading, json_member(event, "kv"), row);
        if (status != STATUS_OK)
            return status;
        row->is_removed = type != NULL && strcmp(type, "DELETE") == 0;
        answer->row_count++;
    }
    return status;
}

static uint32_t count_rows(const cJSON *object)
{
    const cJSON *response;
    uint32_t count = (uint32_t)cJSON_GetArraySize(json_member(object, "kvs"));

    count += (uint32_t)cJSON_GetArraySize(json_member(object, "events"));
    cJSON_ArrayForEach(response, json_member(object, "responses"))
    {
        const cJSON *range = json_member(response, "response_range");

        count += (uint32_t)cJSON_GetArraySize(json_member(range, "kvs"));
    }
    return count;
}

static enum status read_rows(struct reading *reading, const cJSON *object)
{
    struct etcd_answer *answer = &reading->reply->answer;
    const cJSON *responses = json_member(object, "responses"), *response;
    enum status status;

    reading->row_capacity = count_rows(object);
    answer->rows =
        arena_alloc(reading->arena, ((size_t)reading->row_capacity + 1) * sizeof *answer->rows);
    if (answer->rows == NULL)
        return err_set(reading->err, STATUS_MEMORY, 0, "no memory for an answer of etcd");
    answer->is_met = cJSON_IsTrue(json_member(object, "succeeded"));
    status = read_range(reading, object);
    if (status == STATUS_OK)
        status = read_events(reading, object);
    if (responses != NULL && !cJSON_IsArray(responses))
        return expected(reading, "responses", "a list");
    cJSON_ArrayForEach(response, responses)
    {
        const cJSON *range = json_member(response, "response_range");

        if (status == STATUS_OK && range != NULL)
            status = read_range(reading, range);
    }
    return status;
}

static const char *copy_text(struct reading *reading, const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(json_member(object, name));

    return text != NULL ? arena_text(reading->arena, text, strlen(text)) : "";
}

static enum status read_rest(struct reading *reading, const cJSON *object)
{
    struct etcd_reply *reply = reading->reply;
    const cJSON *alarm;
    int64_t bytes = 0, used = 0;
    enum status status = read_integer(reading, object, "ID", &reply->lease);

    if (status == STATUS_OK)
        status = read_integer(reading, object, "TTL", &reply->ttl_s);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "dbSize", &bytes);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "dbSizeInUse", &used);
    if (status == STATUS_OK)
        status = read_integer(reading, object, "compact_revision", &reply->compacted);
    reply->is_cancelled = cJSON_IsTrue(json_member(object, "canceled"));
    reply->database_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    reply->used_bytes = used > 0 ? (uint64_t)used : 0;
    cJSON_ArrayForEach(alarm, json_member(object, "alarms"))
    {
        const char *kind = cJSON_GetStringValue(json_member(alarm, "alarm"));

        reply->is_full = reply->is_full || (kind != NULL && strcmp(kind, "NOSPACE") == 0);
    }
    reply->token = copy_text(reading, object, "token");
    reply->cancel_reason = copy_text(reading, object, "cancel_reason");
    if (status == STATUS_OK && (reply->token == NULL || reply->cancel_reason == NULL))
        status = err_set(reading->err, STATUS_MEMORY, 0, "no memory for an answer of etcd");
    return status;
}

/* Reads only the first JSON value: a stream has one answer for each request, and we send one. */
enum status etcd_json_reply(const char *text, size_t byte_count, struct arena *arena,
                            struct etcd_reply *reply, struct err *err)
{
    struct reading reading = {.arena = arena, .reply = reply, .err = err};
    const cJSON *object, *result;
    cJSON *whole = NULL;
    enum status status = json_strict_parse(text, byte_count, &reply_limits, &whole, err);

    memset(reply, 0, sizeof *reply);
    reply->token = reply->cancel_reason = "";
    if (status != STATUS_OK)
        return status;
    result = json_member(whole, "result");
    object = result != NULL ? result : whole;
    if (!cJSON_IsObject(object))
        status = err_set(err, STATUS_BAD_INPUT, 0, "the answer of etcd is not an object");
    if (status == STATUS_OK)
        status = read_integer(&reading, json_member(object, "header"), "revision",
                              &reply->answer.revision);
    if (status == STATUS_OK)
        status = read_rows(&reading, object);
    if (status == STATUS_OK)
        status = read_rest(&reading, object);
    cJSON_Delete(whole);
    return status;
}

int etcd_json_error(const char *text, size_t byte_count, char *message, size_t message_bytes)
{
    struct err err;
    cJSON *whole = NULL;
    const cJSON *code, *error;
    const char *words;
    int number = -1;

    (void)snprintf(message, message_bytes, "no reason given");
    if (json_strict_parse(text, byte_count, &reply_limits, &whole, &err) != STATUS_OK)
        return -1;
    error = json_member(whole, "error");
    error = cJSON_IsObject(error) ? error : whole; /* in a stream: nested */
    code = json_member(error, "code");
    code = code != NULL ? code : json_member(error, "grpc_code");
    if (cJSON_IsNumber(code) && code->valuedouble >= 0 && code->valuedouble <= 1000)
        number = (int)code->valuedouble;
    words = cJSON_GetStringValue(json_member(error, "message"));
    if (words == NULL)
        words = cJSON_GetStringValue(json_member(error, "error"));
    if (words != NULL)
        utf8_printable(words, strlen(words), message, message_bytes);
    cJSON_Delete(whole);
    return number;
}
