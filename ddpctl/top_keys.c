#include "ddpctl/top_keys.h"

#include <string.h>

/* Keys as xterm, the Linux console and most terminals send them; cursor keys in both modes. */
static const struct {
    const char *bytes;
    enum top_key key;
} sequences[] = {
    {"\x1b[A", TOP_KEY_UP},
    {"\x1bOA", TOP_KEY_UP},
    {"\x1b[B", TOP_KEY_DOWN},
    {"\x1bOB", TOP_KEY_DOWN},
    {"\x1b[5~", TOP_KEY_PAGE_UP},
    {"\x1b[6~", TOP_KEY_PAGE_DOWN},
    {"\x1b[H", TOP_KEY_FIRST},
    {"\x1bOH", TOP_KEY_FIRST},
    {"\x1b[1~", TOP_KEY_FIRST},
    {"\x1b[F", TOP_KEY_LAST},
    {"\x1bOF", TOP_KEY_LAST},
    {"\x1b[4~", TOP_KEY_LAST},
    {"\x1b[C", TOP_KEY_OPEN},
    {"\x1bOC", TOP_KEY_OPEN},
    {"\x1b[D", TOP_KEY_BACK},
    {"\x1bOD", TOP_KEY_BACK},
    {"k", TOP_KEY_UP},
    {"j", TOP_KEY_DOWN},
    {"b", TOP_KEY_PAGE_UP},
    {" ", TOP_KEY_PAGE_DOWN},
    {"g", TOP_KEY_FIRST},
    {"G", TOP_KEY_LAST},
    {"\r", TOP_KEY_OPEN},
    {"\n", TOP_KEY_OPEN},
    {"l", TOP_KEY_OPEN},
    {"h", TOP_KEY_BACK},
    {"\x7f", TOP_KEY_BACK},
    {"\t", TOP_KEY_PANE},
    {"s", TOP_KEY_SORT},
    {"?", TOP_KEY_HELP},
    {"q", TOP_KEY_QUIT},
    {"\x04", TOP_KEY_QUIT},
};

/* The length of an escape sequence: ESC [ parameters final, or ESC O final (ECMA-48, 5.4). */
static size_t sequence_length(const char *bytes, size_t byte_count)
{
    size_t at = 2;

    if (byte_count < 2 || (bytes[1] != '[' && bytes[1] != 'O'))
        return 1;
    if (bytes[1] == '[')
        while (at < byte_count && bytes[at] >= 0x20 && bytes[at] <= 0x3f)
            at++;
    return at < byte_count ? at + 1 : at;
}

enum top_key top_key_read(const char *bytes, size_t byte_count, size_t *used)
{
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        size_t length = strlen(sequences[i].bytes);

        if (length > byte_count || memcmp(bytes, sequences[i].bytes, length) != 0)
            continue;
        *used = length;
        return sequences[i].key;
    }
    *used = bytes[0] == '\x1b' ? sequence_length(bytes, byte_count) : 1;
    return bytes[0] == '\x1b' && *used == 1 ? TOP_KEY_BACK
                                            : TOP_KEY_NONE; /* BACK: the Escape key itself */
}
