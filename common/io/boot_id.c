#include "common/io/boot_id.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/io/read_all.h"

#define ID_CHARS 36

/* systemd-nspawn and LXC mount a file with a random id of the container's own over it. */
static bool is_of_proc(int fd)
{
    struct statfs info;

    return fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

void boot_id_read(char id[BOOT_ID_BYTES], bool *is_kernels)
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const bool is_read = fd >= 0 && read_all(fd, id, ID_CHARS) == ID_CHARS;

    *is_kernels = is_read && is_of_proc(fd);
    if (fd >= 0)
        (void)close(fd);
    id[ID_CHARS] = '\0';
    if (!is_read)
        (void)snprintf(id, BOOT_ID_BYTES, BOOT_ID_UNKNOWN);
}
