#include "launcherd/shim/tools_dir.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tools_dir_find(char dir[PATH_MAX])
{
    /* beside this program; bin beside sbin, or above libexec/ddp; of a build folder */
    static const char *const places[] = {"", "/../bin", "/../../bin", "/../worker"};
    char own[PATH_MAX - 64], path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);

    if (length <= 0)
        return false;
    own[length] = '\0';
    *strrchr(own, '/') = '\0'; /* the kernel's path is absolute */
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *whole;

        (void)snprintf(path, sizeof path, "%s%s/ddp-worker", own, places[i]);
        if (access(path, X_OK) != 0)
            continue;
        *strrchr(path, '/') = '\0';
        whole = realpath(path, NULL);
        if (whole == NULL)
            continue;
        (void)snprintf(dir, PATH_MAX, "%s", whole);
        free(whole);
        return true;
    }
    return false;
}
