#include "ddpctl/keep_fresh.h"

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/thread_start.h"

#define EACH_S 3600
#define LATER_S 5

struct keep_fresh {
    int dir_fd;
    bool is_locked;
    char dir[];
};

/* The lock is held for as long as the descriptor is open: until the process ends. */
static void lock(struct keep_fresh *keep)
{
    keep->dir_fd = open(keep->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    keep->is_locked = keep->dir_fd >= 0 && flock(keep->dir_fd, LOCK_EX | LOCK_NB) == 0;
}

void keep_fresh_touch(const char *dir, int64_t age_s)
{
    char *const paths[] = {(char *)(uintptr_t)dir, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    const int64_t before_s = (int64_t)time(NULL) - age_s;
    const FTSENT *entry;

    if (!tree)
        return;
    while ((entry = fts_read(tree)) != NULL)
        if (entry->fts_info != FTS_D && entry->fts_statp && entry->fts_statp->st_uid == geteuid() &&
            entry->fts_statp->st_mtime <= before_s)
            (void)utimensat(AT_FDCWD, entry->fts_accpath, NULL, AT_SYMLINK_NOFOLLOW);
    (void)fts_close(tree);
}

static void *run(void *argument)
{
    struct keep_fresh *keep = argument;
    struct timespec pause = {.tv_sec = keep->is_locked ? EACH_S : LATER_S};

    for (;;) {
        (void)nanosleep(&pause, NULL);
        if (!keep->is_locked)
            lock(keep);
        keep_fresh_touch(keep->dir, EACH_S);
        pause.tv_sec = EACH_S;
    }
    return NULL;
}

void keep_fresh_begin(const char *dir, bool now)
{
    struct keep_fresh *keep = calloc(1, sizeof *keep + strlen(dir) + 1);

    if (!keep)
        return;
    memcpy(keep->dir, dir, strlen(dir) + 1);
    keep->dir_fd = -1;
    if (now)
        lock(keep);
    if (thread_start(NULL, 0, run, keep) != 0)
        free(keep);
}
