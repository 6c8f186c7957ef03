/* The one strict decoder in front of cJSON, for all JSON that others wrote. cJSON alone accepts
 * garbage after the value, repeated keys, "\u0000", broken UTF-8, raw newlines and 1e999; here all
 * of that is refused, RFC 8259 holds to the letter, and depth and size are known before a byte is
 * allocated. Every key is taken in its own case: look up with json_member, never with
 * cJSON_GetObjectItem. */
#ifndef COMMON_JSON_STRICT_H
#define COMMON_JSON_STRICT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct cJSON; /* cjson/cJSON.h */

#define JSON_DEPTH_CAP 64u /* the deepest that json_limits may allow */

struct json_limits {
    uint32_t depth_max; /* objects and arrays within one another, 1..JSON_DEPTH_CAP */
    uint32_t token_max; /* values and keys */
};

/* Whether `text` is one JSON value within `limits` (NULL: JSON_DEPTH_MAX, JSON_TOKENS_MAX). One
 * pass, no heap. Keys may still repeat. Errors: STATUS_BAD_INPUT with the byte's place,
 * STATUS_TOO_BIG. */
enum status json_validate(const char *text, size_t byte_count, const struct json_limits *limits,
                          struct err *err);
/* The same, and where it went wrong: `*at` gets the byte. */
enum status json_validate_at(const char *text, size_t byte_count, const struct json_limits *limits,
                             size_t *at, struct err *err);
/* Validate, parse, refuse repeated keys. `*out` is the caller's: cJSON_Delete. On failure `*out` is
 * NULL. Errors: as above and STATUS_MEMORY. Numbers are doubles. */
enum status json_strict_parse(const char *text, size_t byte_count, const struct json_limits *limits,
                              struct cJSON **out, struct err *err);
/* The member called exactly `name`; NULL when there is none or `object` is not an object. */
const struct cJSON *json_member(const struct cJSON *object, const char *name);

#endif
