/* The table is /proc/net/unix: "Num: RefCount Protocol Flags Type St Inode Path", unix(7). */
#include "common/io/bound_socket.h"

#include <stdio.h>
#include <string.h>

#define LINE_BYTES 512

/* Flags 0: it does not listen; type 1: a stream; state 1: not connected, as an accepted one would be, which has the path of its
 * listener. NULL: another socket. */
static const char *path_of(char *line)
{
    unsigned flags, type, state;
    int at = 0;
    char *path;

    if (sscanf(line, "%*s %*s %*s %x %x %x %*s %n", &flags, &type, &state, &at) != 3 || at == 0 ||
        flags != 0 || type != 1 || state != 1)
        return NULL;
    path = line + at;
    path[strcspn(path, "\n")] = '\0';
    return path;
}

bool bound_socket_is(const char *path)
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
