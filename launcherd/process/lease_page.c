#include "launcherd/process/lease_page.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ddp-lease"
#define LINK "/memfd:" NAME " (deleted)"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct lease_page *map(int fd)
{
    void *page = mmap(NULL, sizeof(struct lease_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return page != MAP_FAILED ? page : NULL;
}

struct lease_page *lease_page_make(void)
{
    const int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct lease_page *page = NULL;

    if (fd >= 0 && ftruncate(fd, sizeof(struct lease_page)) == 0 &&
        fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        page = map(fd);
    if (page == NULL && fd >= 0)
        (void)close(fd);
    return page;
}

/* With the seals it keeps its size, so that no access to the page can fail later. */
struct lease_page *lease_page_map(int fd)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) ||
        stat.st_size != sizeof(struct lease_page) || stat.st_uid != geteuid() ||
        fcntl(fd, F_GET_SEALS) != SEALS)
        return NULL;
    return map(fd);
}

static struct lease_page *open_page(const char *path, int *out)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct lease_page *page = fd >= 0 ? lease_page_map(fd) : NULL;

    if (page != NULL && out != NULL)
        *out = fd;
    else if (fd >= 0)
        (void)close(fd);
    return page;
}

struct lease_page *lease_page_find(pid_t pid, int *fd)
{
    char folder[48], path[sizeof folder + 24], target[sizeof LINK + 1];
    struct lease_page *page = NULL;
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    dir = opendir(folder);
    while (page == NULL && dir != NULL && (entry = readdir(dir)) != NULL) {
        ssize_t length;

        (void)snprintf(path, sizeof path, "%s/%.16s", folder, entry->d_name);
        length = readlink(path, target, sizeof target);
        if (length == (ssize_t)strlen(LINK) && memcmp(target, LINK, strlen(LINK)) == 0)
            page = open_page(path, fd);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return page;
}

/* A record lock goes with its process. A lock of flock() would stay for as long as anybody has mapped the file by the same
 * open(): launcherd, which has given the guard its descriptor, and whoever reads the memory of a dying guard. */
static struct flock whole_page(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

bool lease_page_begin_guard(int fd)
{
    struct flock lock = whole_page();

    return fcntl(fd, F_SETLK, &lock) == 0;
}

bool lease_page_is_guarded(int fd)
{
    struct flock lock = whole_page();

    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void lease_page_unmap(struct lease_page *page)
{
    if (page != NULL)
        (void)munmap(page, sizeof *page);
}

uint64_t lease_page_until_us(const struct lease_page *page)
{
    return page != NULL ? atomic_load(&page->until_us) : 0;
}

void lease_page_extend(struct lease_page *page, uint64_t until_us)
{
    uint64_t known_us = lease_page_until_us(page);

    while (page != NULL && until_us > known_us)
        if (atomic_compare_exchange_weak(&page->until_us, &known_us, until_us))
            return;
}
