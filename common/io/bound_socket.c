/* The table is /proc/net/unix: "Num: RefCount Protocol Flags Type St Inode Path", unix(7). */
#include "common/io/bound_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512
#define FIELDS 7 /* before the path */

/* Flags 0: it does not listen; type 1: a stream; state 1: not connected, as an accepted one would be, which has the path of its
 * listener. NULL: another socket. */
static const char *path_of(char *line)
{
    const char *fields[FIELDS];
    char *rest = line;

    for (size_t i = 0; i < FIELDS; i++) {
        while (*rest == ' ')
            rest++;
        fields[i] = rest;
        rest += strcspn(rest, " \n");
        if (*rest == '\0')
            return NULL;
        *rest++ = '\0';
    }
    rest[strcspn(rest, "\n")] = '\0';
    return strtoul(fields[3], NULL, 16) == 0 && strtoul(fields[4], NULL, 16) == 1 &&
                   strtoul(fields[5], NULL, 16) == 1
               ? rest
               : NULL;
}

static bool is_in_table(const char *path)
{
    FILE *table = fopen("/proc/net/unix", "re");
    char line[LINE_BYTES];
    bool is_found = false;

    while (table != NULL && !is_found && fgets(line, sizeof line, table) != NULL) {
        const char *bound = path_of(line);

        is_found = bound != NULL && strcmp(bound, path) == 0;
    }
    if (table != NULL)
        (void)fclose(table);
    return is_found;
}

/* The kernel gives the table out in pieces, by position: a socket that is closed between two of them moves a line out of
 * sight. So a line that is not seen is looked for again. */
bool bound_socket_is(const char *path)
{
    enum { READINGS = 3 };
    bool is_found = false;

    for (int i = 0; i < READINGS && !is_found; i++)
        is_found = is_in_table(path);
    return is_found;
}
