#include "common/io/standard_open.h"

const char *standard_missing(void)
{
    if (access("/proc/self/stat", R_OK) != 0)
        return "/proc is not mounted: mount -t proc proc /proc";
    if (access("/dev/null", R_OK | W_OK) != 0)
        return "/dev/null is missing: mknod -m 666 /dev/null c 1 3";
    return NULL;
}
