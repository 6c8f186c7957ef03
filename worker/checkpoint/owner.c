/* Who owns a folder of checkpoints. `.lock` names the owner, `.lock-<number of the owner>` is locked as
 * long as the owner lives. See checkpoint.h. */
#include "worker/checkpoint/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { TEXT_BYTES = 512, ID_CHARS = 16 };

/* The lines of `.lock`. A version that knows the first alone writes and compares no other. */
struct owner {
    char name[CHECKPOINT_OWNER_BYTES];    /* "generation 2 of job 7 (0123456789abcdef)" */
    char job[CHECKPOINT_OWNER_BYTES];     /* "job 7 of CLUSTER"; "": no launcher, or not known */
    char process[CHECKPOINT_OWNER_BYTES]; /* "process 123 on gpu01" */
};

enum status checkpoint_lock(struct checkpoint_dir *dir, struct err *err)
{
    assert(dir->lock_fd >= 0);
    while (flock(dir->lock_fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return err_set(err, STATUS_IO, errno, "%s/" CHECKPOINT_LOCK_NAME ": cannot lock: %s",
                           dir->path, strerror(errno));
    return STATUS_OK;
}

void checkpoint_unlock(struct checkpoint_dir *dir)
{
    (void)flock(dir->lock_fd, LOCK_UN);
}

/* The next line of `text`, without its end; what does not fit is cut. */
static const char *take_line(const char *text, char line[CHECKPOINT_OWNER_BYTES])
{
    const size_t length = strcspn(text, "\n");

    (void)snprintf(line, CHECKPOINT_OWNER_BYTES, "%.*s", (int)length, text);
    return text[length] == '\n' ? text + length + 1 : text + length;
}

static void read_owner(const struct checkpoint_dir *dir, struct owner *owner)
{
    char text[TEXT_BYTES];
    ssize_t n = pread(dir->lock_fd, text, sizeof text - 1, 0);
    const char *at = text;

    text[n > 0 ? n : 0] = '\0';
    at = take_line(at, owner->name);
    at = take_line(at, owner->job);
    (void)take_line(at, owner->process);
}

/* The lock that we hold is the one that others find. */
static bool is_same_file(const struct checkpoint_dir *dir)
{
    char path[CHECKPOINT_PATH_BYTES];
    struct stat held, found;

    (void)snprintf(path, sizeof path, "%s/" CHECKPOINT_LOCK_NAME, dir->path);
    return fstat(dir->lock_fd, &held) == 0 && stat(path, &found) == 0 &&
           held.st_ino == found.st_ino && held.st_dev == found.st_dev;
}

enum status checkpoint_check_fence(const struct checkpoint_dir *dir, struct err *err)
{
    struct owner owner;

    if (!is_same_file(dir))
        return err_set(err, STATUS_CONFLICT, 0,
                       "%s: its " CHECKPOINT_LOCK_NAME
                       " was removed or replaced, so another job may "
                       "write there now: this is %s, which may not any more",
                       dir->path, dir->owner);
    read_owner(dir, &owner);
    if (strcmp(owner.name, dir->owner) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0,
                   "%s: taken over by %s; this is %s, which may not write there any more",
                   dir->path, owner.name[0] != '\0' ? owner.name : "an unknown process",
                   dir->owner);
}

/* The file that the owner of that name holds locked; "": the name has no number. */
static void life_path(const struct checkpoint_dir *dir, const char *name,
                      char path[CHECKPOINT_PATH_BYTES])
{
    const char *id = strrchr(name, '(');

    path[0] = '\0';
    if (id != NULL && strspn(id + 1, "0123456789abcdef") == ID_CHARS)
        (void)snprintf(path, CHECKPOINT_PATH_BYTES, "%s/" CHECKPOINT_LOCK_NAME "-%.*s", dir->path,
                       ID_CHARS, id + 1);
}

/* Whether some process holds the file locked. The file of one that is gone is removed. */
static bool is_alive(const char *path)
{
    const int fd = path[0] == '\0' ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_held;

    if (fd < 0)
        return false;
    is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_held)
        (void)unlink(path);
    (void)close(fd);
    return is_held;
}

static enum status check_owner(const struct checkpoint_dir *dir, const struct owner *owner,
                               const char *job, bool takes_over, struct err *err)
{
    char path[CHECKPOINT_PATH_BYTES];

    life_path(dir, owner->name, path);
    if (!is_alive(path) || takes_over || (job[0] != '\0' && strcmp(job, owner->job) == 0))
        return STATUS_OK;
    return err_set(err, STATUS_BUSY, 0,
                   "--checkpoint-dir %.60s: %.60s, %.60s, still writes there: end it, give another "
                   "folder, or end it by taking the folder over (--take-over)",
                   dir->path, owner->name, owner->process);
}

static enum status begin_life(struct checkpoint_dir *dir, struct err *err)
{
    life_path(dir, dir->owner, dir->life_path);
    dir->life_fd = open(dir->life_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (dir->life_fd < 0)
        return err_set(err, STATUS_IO, errno, "--checkpoint-dir %.100s: cannot write there: %s",
                       dir->path, strerror(errno));
    (void)flock(dir->life_fd,
                LOCK_EX | LOCK_NB); /* without locks there, nobody sees that we live */
    return STATUS_OK;
}

static enum status write_owner(struct checkpoint_dir *dir, const char *job, struct err *err)
{
    struct utsname host;
    char text[TEXT_BYTES];
    int n;

    n = snprintf(text, sizeof text, "%s\n%s\nprocess %d on %.60s\n", dir->owner, job, (int)getpid(),
                 uname(&host) == 0 ? host.nodename : "?");
    assert(n > 0 && n < (int)sizeof text);
    if (ftruncate(dir->lock_fd, 0) != 0 || pwrite(dir->lock_fd, text, (size_t)n, 0) != n ||
        fsync(dir->lock_fd) != 0)
        return err_set(err, STATUS_IO, errno, "%s/" CHECKPOINT_LOCK_NAME ": cannot write: %s",
                       dir->path, strerror(errno));
    return STATUS_OK;
}

enum status checkpoint_take(struct checkpoint_dir *dir, const struct checkpoint_options *options,
                            struct err *err)
{
    const char *cluster = options->cluster != NULL ? options->cluster : "";
    char job[CHECKPOINT_OWNER_BYTES] = "";
    struct owner owner;
    uint64_t random_id;
    enum status status;

    if (getrandom(&random_id, sizeof random_id, 0) != sizeof random_id)
        return err_set(err, STATUS_SYSTEM, errno, "no random number: %s", strerror(errno));
    if (options->job_id[0] != '\0')
        (void)snprintf(job, sizeof job, "job %.50s of %.50s", options->job_id, cluster);
    read_owner(dir, &owner);
    status = check_owner(dir, &owner, job, options->takes_over, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(dir->owner, sizeof dir->owner, "generation %u of job %.60s (%016llx)",
                   options->generation, options->job_id[0] != '\0' ? options->job_id : "none",
                   (unsigned long long)random_id);
    status = begin_life(dir, err);
    return status == STATUS_OK ? write_owner(dir, job, err) : status;
}

void checkpoint_leave(struct checkpoint_dir *dir)
{
    if (dir->life_fd < 0)
        return;
    (void)unlink(dir->life_path);
    (void)close(dir->life_fd);
    dir->life_fd = -1;
}
