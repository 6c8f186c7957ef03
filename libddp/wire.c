#include "libddp/wire.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base64.h"
#include "common/frame.h"
#include "common/json_strict.h"
#include "common/msg.h"
#include "common/utf8.h"

/* -- reading: JSON that json_validate has passed ----------------------------------------------- */

struct text {
    const char *bytes;
    size_t byte_count;
};

static size_t skip_space(const char *json, size_t at, size_t end)
{
    while (at < end && strchr(" \t\n\r", json[at]) != NULL)
        at++;
    return at;
}

/* The index after the string that begins at `at`. */
static size_t skip_string(const char *json, size_t at)
{
    for (at++; json[at] != '"'; at++)
        at += json[at] == '\\';
    return at + 1;
}

/* The index after the value that begins at `at`. */
static size_t skip_value(const char *json, size_t at, size_t end)
{
    uint32_t depth = 0;

    do {
        if (json[at] == '"') {
            at = skip_string(json, at);
            continue;
        }
        depth += json[at] == '{' || json[at] == '[';
        depth -= json[at] == '}' || json[at] == ']';
        at++;
        while (depth == 0 && at < end && strchr(",]} \t\n\r", json[at]) == NULL)
            at++; /* a number or a word */
    } while (depth > 0);
    return at;
}

static bool is_string(const struct text *text)
{
    return text->byte_count >= 2 && text->bytes[0] == '"';
}

static bool is_name(const struct text *text, const char *name)
{
    return text->byte_count == strlen(name) + 2 &&
           memcmp(text->bytes + 1, name, text->byte_count - 2) == 0;
}

/* Finds the value of the member `name`. Errors: STATUS_BAD_INPUT (there is none, or several, or a
 * key is written with escapes, which could hide one). */
static enum status find(const struct text *object, const char *name, struct text *value,
                        struct err *err)
{
    const char *json = object->bytes;
    const size_t end = object->byte_count;
    uint32_t count = 0;

    for (size_t at = skip_space(json, 1, end); json[at] != '}';) {
        struct text key = {json + at, skip_string(json, at) - at};

        if (memchr(key.bytes, '\\', key.byte_count) != NULL)
            return err_set(err, STATUS_BAD_INPUT, 0, "a key of a message has an escape");
        at = skip_space(json, at + key.byte_count, end) + 1; /* the colon */
        at = skip_space(json, at, end);
        const size_t behind = skip_value(json, at, end);
        if (is_name(&key, name)) {
            *value = (struct text){json + at, behind - at};
            count++;
        }
        at = skip_space(json, behind, end);
        at = json[at] == ',' ? skip_space(json, at + 1, end) : at;
    }
    if (count == 1)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0, "a message has %s \"%s\"",
                   count == 0 ? "no" : "more than one", name);
}

/* Decimal digits of `text`, as a whole. */
static bool parse_digits(const char *text, size_t byte_count, uint64_t max, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < byte_count; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');

        if (text[i] < '0' || text[i] > '9' || *number > (max - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return byte_count > 0 && (byte_count == 1 || text[0] != '0');
}

/* Numbers over 32 bits are in strings. */
static enum status read_number(const struct text *object, const char *name, bool in_string,
                               uint64_t max, uint64_t *number, struct err *err)
{
    struct text value;
    enum status status = find(object, name, &value, err);

    if (status != STATUS_OK)
        return status;
    if (in_string && is_string(&value))
        value = (struct text){value.bytes + 1, value.byte_count - 2};
    else if (in_string)
        value.byte_count = 0;
    if (!parse_digits(value.bytes, value.byte_count, max, number))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: expected a number from 0 to %" PRIu64, name,
                       max);
    return STATUS_OK;
}

static enum status read_blob(const struct text *object, struct wire_message *message,
                             struct err *err)
{
    uint8_t bytes[BLOB_BYTES_MAX + 3];
    struct text value;
    size_t count = 0;
    enum status status = find(object, "blob", &value, err);

    if (status != STATUS_OK)
        return status;
    if (!is_string(&value) || base64_bytes_max(value.byte_count - 2) > sizeof bytes ||
        !base64_decode(value.bytes + 1, value.byte_count - 2, bytes, &count) ||
        count > BLOB_BYTES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "blob: expected base64 of at most %u bytes",
                       BLOB_BYTES_MAX);
    memcpy(message->blob, bytes, count);
    message->blob_bytes = (uint32_t)count;
    return STATUS_OK;
}

static enum status read_world(const struct text *object, struct wire_message *message,
                              struct err *err)
{
    uint64_t generation = 0;
    enum status status = read_number(object, "job_id", true, JOB_ID_MAX, &message->job_id, err);

    if (status == STATUS_OK)
        status = read_number(object, "generation", false, GENERATION_MAX, &generation, err);
    message->generation = (uint32_t)generation;
    return status == STATUS_OK ? read_blob(object, message, err) : status;
}

enum status wire_decode(const char *json, size_t byte_count, struct wire_message *message,
                        struct err *err)
{
    enum status status = json_validate(json, byte_count, NULL, err);
    struct text object = {json, byte_count}, type;

    message->kind = WIRE_OTHER;
    if (status != STATUS_OK)
        return status;
    if (json[0] != '{')
        return err_set(err, STATUS_BAD_INPUT, 0, "a message is no JSON object");
    status = find(&object, "type", &type, err);
    if (status != STATUS_OK)
        return status;
    if (is_string(&type) && is_name(&type, "world")) {
        message->kind = WIRE_WORLD;
        return read_world(&object, message, err);
    }
    if (is_string(&type) && is_name(&type, "worker_stop")) {
        message->kind = WIRE_STOP;
        return read_number(&object, "kill_at_us", true, INT64_MAX, &message->kill_at_us, err);
    }
    return STATUS_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* A frame's head is written when its payload is complete. */
static size_t begin(struct buf *out)
{
    static const char head[FRAME_HEAD_BYTES];
    const size_t at = out->byte_count;

    buf_add(out, head, sizeof head);
    return at;
}

static void end(struct buf *out, size_t at)
{
    if (!out->failed)
        frame_head(out->byte_count - at - FRAME_HEAD_BYTES, out->bytes + at);
}

void wire_add_join(struct buf *out, uint32_t rank, uint32_t generation, const void *blob,
                   size_t blob_bytes)
{
    const size_t at = begin(out);
    char chars[BASE64_CHARS(BLOB_BYTES_MAX)];

    base64_encode(blob, blob_bytes, chars);
    buf_printf(out,
               "{\"type\":\"worker_join\",\"rank\":%" PRIu32 ",\"generation\":%" PRIu32
               ",\"blob\":\"%.*s\"}",
               rank, generation, (int)BASE64_CHARS(blob_bytes), chars);
    end(out, at);
}

/* JSON has neither NaN nor infinity. */
static double fit(double value, double least, double other)
{
    return isfinite(value) && value >= least && value <= 1e300 ? value : other;
}

static uint64_t fit_step(uint64_t step)
{
    return step <= JOB_ID_MAX ? step : JOB_ID_MAX;
}

static const char *phase_name(int phase)
{
    static const char *const names[] = {[DDP_STEPS] = "steps",
                                        [DDP_PREPARING] = "preparing",
                                        [DDP_VALIDATING] = "validating",
                                        [DDP_SAVING] = "saving",
                                        [DDP_ENDING] = "ending"};

    return phase >= 0 && (size_t)phase < sizeof names / sizeof names[0] ? names[phase] : names[0];
}

static uint64_t fit_us(uint64_t us, uint64_t most)
{
    return us <= most ? us : most;
}

/* The fields of version 2. */
static void add_later(struct buf *out, const struct ddp_progress *progress,
                      const struct wire_times *times)
{
    const char *doing = progress->doing != NULL ? progress->doing : "";
    char line[DOING_BYTES_MAX];

    utf8_printable(doing, strlen(doing), line, sizeof line);
    buf_printf(out, ",\"phase\":\"%s\",\"doing\":\"", phase_name(progress->phase));
    for (size_t i = 0; line[i] != '\0'; i++)
        buf_printf(out, line[i] == '"' || line[i] == '\\' ? "\\%c" : "%c", line[i]);
    buf_printf(out,
               "\",\"collectives\":\"%" PRIu64 "\",\"in_collective\":%s,\"again_us\":\"%" PRIu64
               "\",\"timed_steps\":\"%" PRIu64 "\",\"step_us\":\"%" PRIu64
               "\",\"data_us\":\"%" PRIu64 "\",\"compute_us\":\"%" PRIu64
               "\",\"update_us\":\"%" PRIu64 "\",\"wait_us\":\"%" PRIu64 "\"",
               fit_step(progress->collectives), progress->in_collective ? "true" : "false",
               fit_us(wire_us(progress->again_s), DURATION_US_MAX), fit_step(times->steps),
               fit_us(times->step_us, TIME_US_MAX), fit_us(times->data_us, TIME_US_MAX),
               fit_us(times->compute_us, TIME_US_MAX), fit_us(times->update_us, TIME_US_MAX),
               fit_us(times->wait_us, TIME_US_MAX));
}

uint64_t wire_us(double seconds)
{
    if (!(seconds > 0)) /* also NaN */
        return 0;
    return seconds < 1e9 ? (uint64_t)(seconds * 1e6) : UINT64_C(1000000000000000);
}

void wire_add_progress(struct buf *out, const struct ddp_place *place,
                       const struct ddp_progress *progress, const struct wire_times *times,
                       uint64_t checkpoint_step, locale_t c_locale)
{
    const locale_t before = uselocale(c_locale);
    const size_t at = begin(out);

    buf_printf(out,
               "{\"type\":\"progress\",\"job_id\":\"%" PRIu64 "\",\"generation\":%" PRIu32
               ",\"rank\":%" PRIu32 ",\"epoch\":%" PRIu32 ",\"epochs\":%" PRIu32
               ",\"step\":\"%" PRIu64 "\",\"steps\":\"%" PRIu64
               "\",\"loss\":%.17g,\"samples_per_s\":%.17g,\"checkpoint_step\":\"%" PRIu64 "\"",
               place->job_id, place->generation, place->rank, progress->epoch, progress->epochs,
               fit_step(progress->step), fit_step(progress->steps),
               fit(progress->loss, -1e300, 1e300), fit(progress->samples_per_s, 0, 0),
               fit_step(checkpoint_step));
    if (times != NULL)
        add_later(out, progress, times);
    buf_add_text(out, "}");
    (void)uselocale(before);
    end(out, at);
}

/* Adds one character of at most four bytes, with JSON's escapes for quotes, backslashes and control
 * characters. */
static void add_character(struct buf *out, const char *text, size_t byte_count)
{
    const unsigned char c = (unsigned char)text[0];

    if (c == '"' || c == '\\')
        buf_printf(out, "\\%c", c);
    else if (c < 0x20)
        buf_printf(out, "\\u%04x", c);
    else
        buf_add(out, text, byte_count);
}

void wire_add_error(struct buf *out, const char *text)
{
    const size_t at = begin(out), length = strlen(text);
    const size_t byte_count = length < TAIL_BYTES_MAX ? length : TAIL_BYTES_MAX - 1;

    buf_add_text(out, "{\"type\":\"worker_error\",\"text\":\"");
    for (size_t i = 0; i < byte_count;) {
        const size_t step = utf8_next(text + i, byte_count - i);

        if (step > 0)
            add_character(out, text + i, step);
        else if (utf8_next(text + i, length - i) > 0)
            break; /* the next whole character does not fit */
        else
            buf_add(out, "?", 1);
        i += step > 0 ? step : 1;
    }
    buf_add_text(out, "\"}");
    end(out, at);
}
