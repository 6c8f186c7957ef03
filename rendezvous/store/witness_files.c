#include "rendezvous/store/witness_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/io/boot_id.h"
#include "common/io/conn.h"
#include "common/io/own_path.h"

#define NAME_START "state-"
#define DIR_BYTES 512u
#define OF_SYSTEM "/run/ddp"
#define LEFT_AFTER_US 60000000u

/* Another boot may find the file where the folder is on a disk. A container's own id will do: then another start of the
 * container counts as another boot. */
static bool read_boot(char boot[WITNESS_BOOT_BYTES])
{
    bool is_kernels;

    _Static_assert(WITNESS_BOOT_BYTES == BOOT_ID_BYTES, "of one length");
    boot_id_read(boot, &is_kernels);
    return strcmp(boot, BOOT_ID_UNKNOWN) != 0;
}

/* A page of a file on a disk that hangs could not be written. */
static bool is_memory(const char *dir)
{
    struct statfs info;

    return statfs(dir, &info) == 0 && info.f_type == TMPFS_MAGIC && access(dir, W_OK) == 0;
}

static void find_dir(char dir[DIR_BYTES])
{
    const char *of_service = getenv("RUNTIME_DIRECTORY"), *of_user = getenv("XDG_RUNTIME_DIR");
    const unsigned user = (unsigned)geteuid();

    if (user == 0)
        (void)mkdir(OF_SYSTEM, 0755);
    if (of_service != NULL && of_service[0] == '/' && is_memory(of_service))
        (void)snprintf(dir, DIR_BYTES, "%.400s/boot-%u", of_service, user);
    else if (is_memory(OF_SYSTEM))
        (void)snprintf(dir, DIR_BYTES, OF_SYSTEM "/boot-%u", user);
    else if (of_user != NULL && of_user[0] == '/' && is_memory(of_user))
        (void)snprintf(dir, DIR_BYTES, "%.400s/ddp/boot-%u", of_user, user);
    else
        (void)snprintf(dir, DIR_BYTES, "/dev/shm/ddp-boot-%u", user);
}

/* A file of ours whose state.db is not there any more, and whose server has not run for a minute: one that runs may see other
 * paths than we do, as in a container. */
static bool is_left(int dir_fd, const char *name)
{
    static struct witness_page page;
    struct stat info;
    const int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is_whole = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                    info.st_uid == geteuid() && info.st_size == (off_t)sizeof page &&
                    read(fd, &page, sizeof page) == (ssize_t)sizeof page &&
                    page.magic == WITNESS_MAGIC;

    if (fd >= 0)
        (void)close(fd);
    if (!is_whole)
        return false;
    page.state_path[sizeof page.state_path - 1] = '\0';
    if (clock_boot_us() < page.facts.alive_us + LEFT_AFTER_US)
        return false;
    return page.state_path[0] == '/' && stat(page.state_path, &info) != 0 && errno == ENOENT;
}

static void remove_left(int dir_fd)
{
    DIR *list = own_folder_list(dir_fd);
    const struct dirent *entry;

    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL)
        if (strncmp(entry->d_name, NAME_START, strlen(NAME_START)) == 0 &&
            is_left(dir_fd, entry->d_name))
            (void)unlinkat(dir_fd, entry->d_name, 0);
    (void)closedir(list);
}

/* All of it is written first: a mapped page without memory would end the process. */
static enum status map(int fd, const char *path, struct witness_page **page, struct err *err)
{
    struct stat info = {0};
    void *memory = MAP_FAILED;
    int code;

    if (fstat(fd, &info) != 0 || (info.st_size != (off_t)sizeof **page &&
                                  (ftruncate(fd, 0) != 0 || ftruncate(fd, sizeof **page) != 0)))
        return err_set(err, STATUS_IO, errno, "%.180s cannot be used: %s", path, strerror(errno));
    code = posix_fallocate(fd, 0, sizeof **page);
    if (code != 0)
        return err_set(err, STATUS_IO, code, "%.180s gets no memory: %s", path, strerror(code));
    memory = mmap(NULL, sizeof **page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return err_set(err, STATUS_IO, errno, "%.180s cannot be mapped: %s", path, strerror(errno));
    *page = memory;
    return STATUS_OK;
}

/* Two servers with copies of one state would both take theirs for the newest. */
static enum status lock(int fd, const char *cluster, struct err *err)
{
    static struct witness_page page;

    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return STATUS_OK;
    if (pread(fd, &page, sizeof page, 0) != (ssize_t)sizeof page)
        page.state_path[0] = '\0';
    page.state_path[sizeof page.state_path - 1] = '\0';
    return err_set(
        err, STATUS_BUSY, 0,
        "another server runs on this machine with a state of cluster %.32s, %.300s: only "
        "one copy of a state may be used at a time, so stop that server first",
        cluster, page.state_path[0] != '\0' ? page.state_path : "at an unknown path");
}

enum status witness_open(struct witness **out, const char *cluster, const char *state_path,
                         struct err *err)
{
    char dir[DIR_BYTES], path[DIR_BYTES + 64], boot[WITNESS_BOOT_BYTES];
    struct witness *witness = calloc(1, sizeof *witness);
    enum status status;
    int dir_fd, fd;

    if (witness == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory");
    witness->fd = -1;
    find_dir(dir);
    status = own_folder_make(dir, 1, 0700, &dir_fd, err);
    if (status == STATUS_OK) {
        remove_left(dir_fd);
        (void)close(dir_fd);
        (void)snprintf(path, sizeof path, "%s/" NAME_START "%.32s", dir, cluster);
        status = own_file_open(path, 1, O_RDWR | O_CREAT, 0600, &fd, err);
    }
    if (status == STATUS_OK) {
        witness->fd = fd;
        status = lock(fd, cluster, err);
    }
    if (status == STATUS_OK)
        status = map(fd, path, &witness->page, err);
    if (status != STATUS_OK || !read_boot(boot)) {
        witness_close(&witness);
        return status != STATUS_OK ? status
                                   : err_set(err, STATUS_IO, 0, "this boot has no id (/proc)");
    }
    if (witness->page->magic != WITNESS_MAGIC || strcmp(witness->page->boot, boot) != 0) {
        memset(witness->page, 0, sizeof *witness->page);
        (void)snprintf(witness->page->boot, sizeof witness->page->boot, "%s", boot);
    }
    if (realpath(state_path, witness->page->state_path) == NULL)
        witness->page->state_path[0] = '\0';
    *out = witness;
    return STATUS_OK;
}

void witness_close(struct witness **out)
{
    struct witness *witness = *out;

    *out = NULL;
    if (witness == NULL)
        return;
    if (witness->fd >= 0)
        (void)close(witness->fd);
    if (witness->page != NULL)
        (void)munmap(witness->page, sizeof *witness->page);
    free(witness);
}
