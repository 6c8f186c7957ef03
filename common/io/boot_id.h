/* Which boot of the kernel this is. */
#ifndef COMMON_IO_BOOT_ID_H
#define COMMON_IO_BOOT_ID_H

#include <stdbool.h>

#include "common/limits.h"

#define BOOT_ID_BYTES 40u

/* Reads the id of this boot. Where there is none it is BOOT_ID_UNKNOWN. *is_kernels: it is the kernel's own; false: it is
 * unknown, or only a container's, which is another one each time that the container starts. */
void boot_id_read(char id[BOOT_ID_BYTES], bool *is_kernels);

#endif
