/* Finds the folders of ddp-worker and libddp.py, so that a job can start ddp-worker by its name and
 * `import libddp`. */
#ifndef LAUNCHERD_SHIM_TOOLS_DIR_H
#define LAUNCHERD_SHIM_TOOLS_DIR_H

#include <limits.h>
#include <stddef.h>

struct tools {
    char programs[PATH_MAX]; /* the folder of ddp-worker; "": not found */
    char python[PATH_MAX];   /* the folder of libddp.py; "": not found */
};

/* Finds what was installed or built together with this program. */
void tools_find(struct tools *tools);

/* NULL if the folder was not found. */
static inline const char *tools_folder(const char *folder)
{
    return folder[0] != '\0' ? folder : NULL;
}

#endif
