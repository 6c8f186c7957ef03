#include "rendezvous/core/names.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MORE_BYTES 24u /* " and 4096 more" */

/* Where the number at the end of a name begins. A number has 1 to 9 digits and no leading zero; the
 * end of the name if there is none. */
static size_t number_at(const char *name, uint32_t *number)
{
    size_t length = strlen(name), at = length;

    while (at > 0 && isdigit((unsigned char)name[at - 1]))
        at--;
    if (at == length || length - at > 9 || (name[at] == '0' && length - at > 1))
        return length;
    *number = 0;
    for (size_t i = at; i < length; i++)
        *number = *number * 10 + (uint32_t)(name[i] - '0');
    return at;
}

static bool follows(const char *before, const char *after)
{
    uint32_t first = 0, second = 0;
    size_t at = number_at(before, &first);

    return at < strlen(before) && number_at(after, &second) == at && at < strlen(after) &&
           strncmp(before, after, at) == 0 && second == first + 1;
}

/* Writes "gpu7" or "gpu[1-3]" for names[first] to names[last]. */
static int print_run(const char *const *names, uint32_t first, uint32_t last, char *out,
                     size_t byte_count)
{
    uint32_t low = 0, high = 0;
    size_t at = number_at(names[first], &low);

    if (first == last)
        return snprintf(out, byte_count, "%s", names[first]);
    (void)number_at(names[last], &high);
    return snprintf(out, byte_count, "%.*s[%u-%u]", (int)at, names[first], low, high);
}

void names_list(const char *const *names, uint32_t count, char *out, uint32_t byte_count)
{
    size_t used = 0;
    char run[160];

    assert(byte_count > MORE_BYTES);
    out[0] = '\0';
    for (uint32_t first = 0, last; first < count; first = last + 1) {
        int length;

        for (last = first; last + 1 < count && follows(names[last], names[last + 1]);)
            last++;
        length = print_run(names, first, last, run, sizeof run);
        if (used + (size_t)length + 2 + MORE_BYTES > byte_count) {
            (void)snprintf(out + used, byte_count - used, "%s%u%s", used > 0 ? " and " : "",
                           count - first, used > 0 ? " more" : " nodes");
            return;
        }
        used += (size_t)snprintf(out + used, byte_count - used, "%s%s", used > 0 ? "," : "", run);
    }
}
