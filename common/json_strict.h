/* The strict decoder in front of cJSON, for all JSON that others wrote. cJSON alone accepts garbage
 * after the value, repeated keys, "\u0000", broken UTF-8, raw newlines and 1e999. Here everything
 * that RFC 8259 does not allow is refused, and depth and size are checked before anything is
 * allocated. Keys are case-sensitive: look them up with json_member, never with
 * cJSON_GetObjectItem. */
#ifndef COMMON_JSON_STRICT_H
#define COMMON_JSON_STRICT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct cJSON; /* cjson/cJSON.h */

#define JSON_DEPTH_CAP 64u /* the deepest that json_limits may allow */

struct json_limits {
    uint32_t depth_max; /* the deepest nesting of objects and arrays, 1..JSON_DEPTH_CAP */
    uint32_t token_max; /* values and keys */
};

/* Whether `text` is one JSON value within `limits` (NULL: JSON_DEPTH_MAX, JSON_TOKENS_MAX). One
 * pass, no heap. Does not detect repeated keys. Errors: STATUS_BAD_INPUT with the position,
 * STATUS_TOO_BIG. */
enum status json_validate(const char *text, size_t byte_count, const struct json_limits *limits,
                          struct err *err);
/* The same; `*at` gets the position of the error. */
enum status json_validate_at(const char *text, size_t byte_count, const struct json_limits *limits,
                             size_t *at, struct err *err);
/* Validates, parses, and refuses repeated keys. The caller frees `*out` with cJSON_Delete. On
 * failure `*out` is NULL. Errors: as above and STATUS_MEMORY. Numbers are doubles. */
enum status json_strict_parse(const char *text, size_t byte_count, const struct json_limits *limits,
                              struct cJSON **out, struct err *err);
/* The member called exactly `name`; NULL when there is none or `object` is not an object. */
const struct cJSON *json_member(const struct cJSON *object, const char *name);

#endif
