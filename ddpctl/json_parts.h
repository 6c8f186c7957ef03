/* Writes values as ddpctl's JSON does: unknown values are null. */
#ifndef DDPCTL_JSON_PARTS_H
#define DDPCTL_JSON_PARTS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "ddpctl/units.h"

struct part_job; /* common/msg.h */
struct part_node;

/* An object is built and printed at once. If memory is short, the buf is marked as failed. */
static inline cJSON *object_new(void)
{
    cJSON *object = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(object, "schema", "ddp.v1");
    return object;
}

static inline void object_print(cJSON *object, struct buf *out)
{
    char *text = cJSON_PrintUnformatted(object);

    if (text) {
        buf_add_text(out, text);
        buf_add_text(out, "\n");
    } else {
        out->failed = true;
    }
    cJSON_free(text);
    cJSON_Delete(object);
}

static inline void add_number(cJSON *object, const char *name, double value)
{
    (void)cJSON_AddNumberToObject(object, name, value);
}

/* A number, or null where `is_known` is false. */
static inline void add_known(cJSON *object, const char *name, double value, bool is_known)
{
    if (is_known)
        (void)cJSON_AddNumberToObject(object, name, value);
    else
        (void)cJSON_AddNullToObject(object, name);
}

/* A string, or null where it is empty. */
static inline void add_text(cJSON *object, const char *name, const char *text)
{
    if (text[0])
        (void)cJSON_AddStringToObject(object, name, text);
    else
        (void)cJSON_AddNullToObject(object, name);
}

static inline void add_time(cJSON *object, const char *name, int64_t wall_ms)
{
    char text[TEXT_BYTES];

    time_text(wall_ms, text);
    add_text(object, name, wall_ms > 0 ? text : "");
}

static inline void add_signal(cJSON *object, uint32_t signal)
{
    char text[TEXT_BYTES];

    signal_text(signal, text);
    add_known(object, "signal", signal, signal > 0);
    add_text(object, "signal_name", signal > 0 ? text : "");
}

/* A string of text that may be anything: invalid UTF-8 and NUL become U+FFFD. In output_json.c, as
 * the two below. */
void output_add_valid(cJSON *object, const char *name, const char *text, size_t byte_count);
/* The fields of a job that all verbs show. */
void output_add_job(cJSON *object, const struct part_job *job);
/* The fields of a node that all verbs show, without its slots. */
void output_add_node(cJSON *item, const struct part_node *node);

#endif
