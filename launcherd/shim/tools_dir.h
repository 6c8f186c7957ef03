/* Where our own programs for jobs are, so that a job finds ddp-worker by its name. */
#ifndef LAUNCHERD_SHIM_TOOLS_DIR_H
#define LAUNCHERD_SHIM_TOOLS_DIR_H

#include <limits.h>
#include <stdbool.h>

/* The folder of the ddp-worker that was installed, or built, with this program. False: there is
 * none. */
bool tools_dir_find(char dir[PATH_MAX]);

#endif
