/* What both libraries need of the C library. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/edge/edge.h"

void *edge_real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void *edge_map(size_t byte_count)
{
    const char *path = getenv("EDGE_FILE");
    const long fd = path == NULL ? -1 : syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    struct edge_file *file;

    if (fd < 0)
        return NULL;
    file = mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    (void)syscall(SYS_close, fd);
    return file != MAP_FAILED && file->magic == EDGE_MAGIC ? file : NULL;
}
