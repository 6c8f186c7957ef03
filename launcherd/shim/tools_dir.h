/* Where what we bring for jobs is: so a job finds ddp-worker by its name, and `import libddp` works in it. */
#ifndef LAUNCHERD_SHIM_TOOLS_DIR_H
#define LAUNCHERD_SHIM_TOOLS_DIR_H

#include <limits.h>
#include <stddef.h>

struct tools {
    char programs[PATH_MAX]; /* the folder of ddp-worker; "": there is none */
    char python[PATH_MAX];   /* of libddp.py */
};

/* What was installed, or built, with this program. */
void tools_find(struct tools *tools);

/* NULL where there is none. */
static inline const char *tools_folder(const char *folder)
{
    return folder[0] != '\0' ? folder : NULL;
}

#endif
