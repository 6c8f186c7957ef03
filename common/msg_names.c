/* The names of msg.h's enumerations. In a file of their own, so that a core can link them without a
 * heap. */
#include "common/msg.h"

#include <string.h>

#include "common/msg_table.h"

#define NAME(suffix, name) name,
#define NAMES(tag, TABLE)                                                                          \
    static const char *const tag##_items[] = {TABLE(NAME)};                                        \
    const struct msg_names tag##_names = {.items = tag##_items,                                    \
                                          .count = sizeof tag##_items / sizeof tag##_items[0]};    \
    const char *tag##_name(enum tag value)                                                         \
    {                                                                                              \
        return (uint32_t)value < tag##_names.count ? tag##_items[value] : "unknown";               \
    }                                                                                              \
    bool tag##_parse(const char *text, enum tag *value)                                            \
    {                                                                                              \
        for (uint32_t i = 0; i < tag##_names.count; i++) {                                         \
            if (strcmp(text, tag##_items[i]) != 0)                                                 \
                continue;                                                                          \
            *value = (enum tag)i;                                                                  \
            return true;                                                                           \
        }                                                                                          \
        return false;                                                                              \
    }
MSG_ENUM_TABLE(NAMES)

const char *msg_type_name(enum msg_type type)
{
#define TYPE_NAME(NAME, message, bytes) #message,
    static const char *const names[] = {MSG_TABLE(TYPE_NAME)};
#undef TYPE_NAME

    return (uint32_t)type < MSG_TYPE_COUNT ? names[type] : "unknown";
}
