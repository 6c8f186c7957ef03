#include "ddpctl/metric_lines.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_strict.h"

/* Names that mean the same. */
static const char *const synonyms[][2] = {{"images_per_s", "samples_per_s"}};

static bool is_flat(const cJSON *object)
{
    const cJSON *item;
    uint32_t count = 0;

    if (!cJSON_IsObject(object))
        return false;
    cJSON_ArrayForEach(item, object)
    {
        if (cJSON_IsArray(item) || cJSON_IsObject(item) || ++count > METRIC_FIELDS_MAX)
            return false;
    }
    return true;
}

static bool is_blank(const struct buf *line)
{
    for (size_t i = 0; i < line->byte_count; i++)
        if (strchr(" \t\r", line->bytes[i]) == NULL || line->bytes[i] == '\0')
            return false;
    return true;
}

static void end_line(struct metric_lines *lines, uint32_t generation, uint32_t rank)
{
    const struct json_limits limits = {.depth_max = 2, .token_max = 2 * METRIC_FIELDS_MAX + 1};
    struct metric_line line = {.generation = generation, .rank = rank};
    cJSON *object = NULL;

    if (!lines->is_too_long && !lines->line.failed && is_blank(&lines->line)) {
        buf_drop(&lines->line, lines->line.byte_count);
        return;
    }
    if (!lines->is_too_long && !lines->line.failed)
        (void)json_strict_parse(lines->line.bytes, lines->line.byte_count, &limits, &object, NULL);
    if (object != NULL && is_flat(object)) {
        line.object = object;
        lines->good++;
        lines->take(lines->owner, &line);
    } else {
        lines->bad++;
    }
    cJSON_Delete(object);
    lines->is_too_long = false;
    lines->line.failed = false;
    buf_drop(&lines->line, lines->line.byte_count);
}

void metric_lines_take(struct metric_lines *lines, uint32_t generation, uint32_t rank,
                       const void *bytes, size_t byte_count, bool is_final)
{
    const char *at = bytes;

    while (byte_count > 0) {
        const char *end = memchr(at, '\n', byte_count);
        size_t count = end != NULL ? (size_t)(end - at) : byte_count;

        if (lines->line.byte_count + count > METRIC_LINE_BYTES_MAX)
            lines->is_too_long = true;
        if (!lines->is_too_long)
            buf_add(&lines->line, at, count);
        if (end != NULL) {
            end_line(lines, generation, rank);
            count++;
        }
        at += count;
        byte_count -= count;
    }
    if (is_final && (lines->line.byte_count > 0 || lines->is_too_long))
        end_line(lines, generation, rank);
}

void metric_lines_close(struct metric_lines *lines)
{
    buf_free(&lines->line);
}

static const cJSON *find(const cJSON *object, const char *name)
{
    const cJSON *item = json_member(object, name);

    for (size_t i = 0; item == NULL && i < sizeof synonyms / sizeof synonyms[0]; i++) {
        if (strcmp(name, synonyms[i][0]) == 0)
            item = json_member(object, synonyms[i][1]);
        else if (strcmp(name, synonyms[i][1]) == 0)
            item = json_member(object, synonyms[i][0]);
    }
    return item;
}

double metric_number(const cJSON *object, const char *name)
{
    const cJSON *item = find(object, name);

    return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : (double)NAN;
}

const char *metric_text(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(find(object, name));
}

/* Writes the number with the fewest digits, at least 6, from which strtod gives it back. */
static void number_text(double value, char *text, size_t text_bytes)
{
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, text_bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

bool metric_shown(const cJSON *object, const char *name, struct buf *out)
{
    const cJSON *item = find(object, name);
    char text[40];

    if (cJSON_IsNumber(item)) {
        if (item->valuedouble == floor(item->valuedouble) && fabs(item->valuedouble) < 1e15)
            (void)snprintf(text, sizeof text, "%.0f", item->valuedouble);
        else
            number_text(item->valuedouble, text, sizeof text);
        buf_add_text(out, text);
    } else if (cJSON_IsString(item)) {
        buf_add_text(out, item->valuestring);
    } else if (cJSON_IsBool(item)) {
        buf_add_text(out, cJSON_IsTrue(item) ? "true" : "false");
    } else {
        return false;
    }
    return true;
}
