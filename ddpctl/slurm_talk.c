#include "ddpctl/slurm_talk.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "ddp-slurm: "

static const char *const words[] = {
    [SLURM_HERE] = "here",       [SLURM_SERVER] = "server", [SLURM_KEY] = "key",
    [SLURM_REACHED] = "reached", [SLURM_TERM] = "term",     [SLURM_NOTE] = "note",
    [SLURM_FAILED] = "failed",   [SLURM_USE] = "use",       [SLURM_ALIVE] = "alive",
    [SLURM_STOP] = "stop",
};
#define WORD_COUNT (sizeof words / sizeof words[0])

void slurm_line_add(struct buf *out, enum slurm_word word, uint32_t node, const char *text)
{
    char line[SLURM_LINE_BYTES_MAX];

    (void)snprintf(line, sizeof line - 1, PREFIX "%s %u %s", words[word], node, text);
    for (char *at = line; *at != '\0'; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' ';
    buf_printf(out, "%s\n", line);
}

static bool take_word(const char **at, struct slurm_line *line)
{
    const size_t bytes = strcspn(*at, " ");

    for (size_t i = 0; i < WORD_COUNT; i++) {
        if (strlen(words[i]) != bytes || memcmp(words[i], *at, bytes) != 0)
            continue;
        line->word = (enum slurm_word)i;
        *at += bytes;
        return *(*at)++ == ' ';
    }
    return false;
}

static bool take_node(const char **at, struct slurm_line *line)
{
    size_t digits = strspn(*at, "0123456789");

    line->node = 0;
    if (digits == 0 || digits > 8 || (*at)[digits] != ' ')
        return false;
    for (; digits > 0; digits--, (*at)++)
        line->node = line->node * 10 + (uint32_t)(**at - '0');
    (*at)++;
    return true;
}

const char *slurm_line_find(const char *bytes)
{
    return strstr(bytes, PREFIX);
}

bool slurm_line_parse(const char *bytes, struct slurm_line *line)
{
    const char *at = bytes + sizeof PREFIX - 1;

    if (strncmp(bytes, PREFIX, sizeof PREFIX - 1) != 0 || !take_word(&at, line) ||
        !take_node(&at, line))
        return false;
    line->text = at;
    return true;
}

void slurm_lines_add(struct slurm_lines *lines, const char *bytes, size_t byte_count,
                     void (*take)(void *owner, const char *line), void *owner)
{
    for (size_t i = 0; i < byte_count; i++) {
        const bool is_end = bytes[i] == '\n';

        if (!is_end)
            lines->bytes[lines->byte_count++] = bytes[i] != '\0' ? bytes[i] : ' ';
        if (!is_end && lines->byte_count < sizeof lines->bytes - 1)
            continue;
        lines->bytes[lines->byte_count] = '\0';
        lines->byte_count = 0;
        take(owner, lines->bytes);
    }
}

bool slurm_address(const char *list, uint32_t index, char *address, size_t address_bytes)
{
    size_t bytes;

    for (; index > 0; index--) {
        list += strcspn(list, ",");
        if (*list++ == '\0')
            return false;
    }
    bytes = strcspn(list, ",");
    if (bytes == 0 || bytes >= address_bytes)
        return false;
    memcpy(address, list, bytes);
    address[bytes] = '\0';
    return true;
}
