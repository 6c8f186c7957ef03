#include "launcherd/shim/tools_dir.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACES_MAX 4u

/* Sets `dir` to the first of `places` that has `file`; unchanged if none has. The places are
 * relative to `own`, the folder of this program. */
static void find(const char *own, const char *const places[PLACES_MAX], const char *file, int mode,
                 char dir[PATH_MAX])
{
    char path[PATH_MAX];

    for (size_t i = 0; i < PLACES_MAX && places[i] != NULL; i++) {
        char *whole;

        (void)snprintf(path, sizeof path, "%s%s/%s", own, places[i], file);
        if (access(path, mode) != 0)
            continue;
        *strrchr(path, '/') = '\0';
        whole = realpath(path, NULL);
        if (whole == NULL)
            continue;
        (void)snprintf(dir, PATH_MAX, "%s", whole);
        free(whole);
        return;
    }
}

void tools_find(struct tools *tools)
{
    /* in this program's folder; in bin beside sbin; in bin above libexec/ddp; in a build folder */
    static const char *const programs[PLACES_MAX] = {"", "/../bin", "/../../bin", "/../worker"};
    static const char *const python[PLACES_MAX] = {
        "/../share/ddp-launcher/python", "/../../share/ddp-launcher/python", "/../libddp/python"};
    char own[PATH_MAX - 64];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);

    *tools = (struct tools){.programs = ""};
    if (length <= 0)
        return;
    own[length] = '\0';
    *strrchr(own, '/') = '\0'; /* the kernel's path is absolute */
    find(own, programs, "ddp-worker", X_OK, tools->programs);
    find(own, python, "libddp.py", R_OK, tools->python);
}
