#include "launcherd/process/doing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "launcherd/process/proc.h"

#define START "shim:rank "

static const char *const names[] = {"launcherd", "shim:read", "shim:write",
                                    "shim:store"}; /* at most 15 bytes */

void doing_set(enum doing doing, uint32_t rank)
{
    char name[16];

    if (doing == DOING_START)
        (void)snprintf(name, sizeof name, START "%u", rank % 100000);
    else
        (void)snprintf(name, sizeof name, "%s", names[doing]);
    (void)prctl(PR_SET_NAME, name);
}

static const char *describe(const char *name)
{
    if (strcmp(name, names[DOING_READ]) == 0)
        return " while it read start.msg in its run directory";
    if (strcmp(name, names[DOING_WRITE]) == 0)
        return " while it made shim.sock and shim.json in its run directory";
    if (strcmp(name, names[DOING_STORE]) == 0)
        return " while the process of its store did not come to run launcherd's program";
    return "";
}

void doing_read(pid_t pid, char text[DOING_READ_BYTES])
{
    struct proc_stat stat = {0};
    const size_t length = sizeof START - 1;

    text[0] = '\0';
    if (pid <= 0 || !proc_stat_of(pid, &stat))
        return;
    if (strncmp(stat.is.name, START, length) == 0)
        (void)snprintf(text, DOING_READ_BYTES,
                       " while the process of rank %lu did not come to run its program",
                       strtoul(stat.is.name + length, NULL, 10));
    else
        (void)snprintf(text, DOING_READ_BYTES, "%s", describe(stat.is.name));
}
