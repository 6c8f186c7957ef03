#include "rendezvous/server/stacks_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_BYTES 80u
#define LAST_LINE_BYTES 80u /* reserved for the last line */

/* Sorts equal stacks together, and within them by rank. */
static int by_stack(const void *a, const void *b)
{
    const struct part_rank_look *left = a, *right = b;
    const int order = strcmp(left->stack, right->stack);

    if (order != 0)
        return order;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static uint32_t group_end(const struct part_rank_look *looks, uint32_t count, uint32_t first)
{
    uint32_t end = first + 1;

    while (end < count && strcmp(looks[end].stack, looks[first].stack) == 0)
        end++;
    return end;
}

/* "rank 3", "ranks 0,2-7" or "ranks 0,2,4,6 and 60 more" */
static void write_ranks(const struct part_rank_look *looks, uint32_t count, char text[RANKS_BYTES])
{
    size_t used = (size_t)snprintf(text, RANKS_BYTES, count == 1 ? "rank " : "ranks ");

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t first = i;

        if (used > RANKS_BYTES - 40) {
            (void)snprintf(text + used, RANKS_BYTES - used, " and %u more", count - i);
            return;
        }
        while (i + 1 < count && looks[i + 1].rank == looks[i].rank + 1)
            i++;
        used += (size_t)snprintf(text + used, RANKS_BYTES - used, "%s%u", first > 0 ? "," : "",
                                 looks[first].rank);
        if (i > first)
            used += (size_t)snprintf(text + used, RANKS_BYTES - used, "-%u", looks[i].rank);
    }
}

/* False: the group does not fit. */
static bool add_group(const struct part_rank_look *looks, uint32_t count, size_t *used,
                      char text[STACKS_BYTES_MAX])
{
    char ranks[RANKS_BYTES];
    const char *line = looks->stack;
    size_t at = *used;

    write_ranks(looks, count, ranks);
    if (at + strlen(ranks) + 2 * LAST_LINE_BYTES >= STACKS_BYTES_MAX)
        return false;
    at += (size_t)snprintf(text + at, STACKS_BYTES_MAX - at, "%s\n", ranks);
    while (*line != '\0') {
        const size_t length = strcspn(line, "\n");

        if (at + length + 4 + LAST_LINE_BYTES >= STACKS_BYTES_MAX)
            break;
        at += (size_t)snprintf(text + at, STACKS_BYTES_MAX - at, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    *used = at;
    return true;
}

void stacks_text(struct part_rank_look *looks, uint32_t count, uint32_t missing,
                 char text[STACKS_BYTES_MAX])
{
    size_t used = 0;
    uint32_t left = count, wanted = 1;

    text[0] = '\0';
    if (count > 0)
        qsort(looks, count, sizeof *looks, by_stack);
    while (left > 0) { /* smallest group first */
        uint32_t next = UINT32_MAX;
        bool fits = true;

        for (uint32_t i = 0, end; i < count && fits; i = end) {
            end = group_end(looks, count, i);
            if (end - i == wanted) {
                fits = add_group(&looks[i], end - i, &used, text);
                left -= fits ? end - i : 0;
            } else if (end - i > wanted && end - i < next) {
                next = end - i;
            }
        }
        if (!fits || next == UINT32_MAX)
            break;
        wanted = next;
    }
    if (left > 0)
        used += (size_t)snprintf(text + used, STACKS_BYTES_MAX - used,
                                 "of %u ranks the stacks are left out\n", left);
    if (missing > 0)
        (void)snprintf(text + used, STACKS_BYTES_MAX - used, "of %u ranks there was no answer\n",
                       missing);
}
