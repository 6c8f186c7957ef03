/* The words of msg.h's enumerations. Apart from the codec, so that a core links them without a
 * heap. */
#include "common/msg.h"

#include "common/msg_table.h"

#define WORD(name, word) word,
#define WORDS(tag, TABLE)                                                                          \
    static const char *const tag##_items[] = {TABLE(WORD)};                                        \
    const struct msg_words tag##_words = {.items = tag##_items,                                    \
                                          .count = sizeof tag##_items / sizeof tag##_items[0]};    \
    const char *tag##_word(enum tag value)                                                         \
    {                                                                                              \
        return (uint32_t)value < tag##_words.count ? tag##_items[value] : "unknown";               \
    }
MSG_ENUM_TABLE(WORDS)

const char *msg_type_word(enum msg_type type)
{
#define TYPE_WORD(NAME, word, bytes) #word,
    static const char *const words[] = {MSG_TABLE(TYPE_WORD)};
#undef TYPE_WORD

    return (uint32_t)type < MSG_TYPE_COUNT ? words[type] : "unknown";
}
