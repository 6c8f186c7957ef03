#include "libddp/fence.h"

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

enum { TEXT_BYTES = 512, ID_CHARS = 16, OPENS_MAX = 100 };

static const char name_begin[] = "generation "; /* how the text of every lock file of ours begins */

/* The lines of `.lock`. Older versions write and compare only the first. */
struct owner {
    char name[FENCE_TEXT_BYTES];    /* "generation 2 of job 7 (0123456789abcdef)" */
    char job[FENCE_TEXT_BYTES];     /* "job 7 of CLUSTER"; "": no launcher, or not known */
    char process[FENCE_TEXT_BYTES]; /* "process 123 on gpu01" */
};

enum status fence_lock(const struct fence *fence, struct err *err)
{
    assert(fence->lock_fd >= 0);
    while (flock(fence->lock_fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return err_set(err, STATUS_IO, errno, "%s/" FENCE_LOCK_NAME ": cannot lock: %s",
                           fence->folder, strerror(errno));
    return STATUS_OK;
}

void fence_unlock(const struct fence *fence)
{
    (void)flock(fence->lock_fd, LOCK_UN);
}

/* The next line of `text`, without its end; what does not fit is cut. */
static const char *take_line(const char *text, char line[FENCE_TEXT_BYTES])
{
    const size_t length = strcspn(text, "\n");

    (void)snprintf(line, FENCE_TEXT_BYTES, "%.*s", (int)length, text);
    return text[length] == '\n' ? text + length + 1 : text + length;
}

/* False: the text in the file is none of ours. A crash may leave an empty file, or one of zeros. */
static bool read_owner(const struct fence *fence, struct owner *owner)
{
    char text[TEXT_BYTES];
    ssize_t n = pread(fence->lock_fd, text, sizeof text - 1, 0);
    const char *at = text;

    text[n > 0 ? n : 0] = '\0';
    at = take_line(at, owner->name);
    at = take_line(at, owner->job);
    (void)take_line(at, owner->process);
    return n >= 0 && (text[0] == '\0' || strncmp(text, name_begin, sizeof name_begin - 1) == 0);
}

/* A copy of the folder with hard links ("cp -al") shares the file. */
static bool is_shared(int fd)
{
    struct stat held;

    return fstat(fd, &held) == 0 && held.st_nlink > 1;
}

/* Whether `path` still names the file that is open as `fd`. */
static bool is_at(int fd, const char *path)
{
    struct stat held, found;

    return fstat(fd, &held) == 0 && lstat(path, &found) == 0 && held.st_ino == found.st_ino &&
           held.st_dev == found.st_dev;
}

/* Whether the lock file that we hold is still the one that others find. */
static bool is_same_file(const struct fence *fence)
{
    char path[FENCE_PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/" FENCE_LOCK_NAME, fence->folder);
    return is_at(fence->lock_fd, path);
}

enum status fence_check(const struct fence *fence, struct err *err)
{
    struct owner owner;

    if (!is_same_file(fence))
        return err_set(err, STATUS_CONFLICT, 0,
                       "%s: its " FENCE_LOCK_NAME " was removed or replaced, so another job may "
                       "write there now: this is %s, which may not any more",
                       fence->folder, fence->owner);
    (void)read_owner(fence, &owner);
    if (strcmp(owner.name, fence->owner) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0,
                   "%s: taken over by %s; this is %s, which may not write there any more",
                   fence->folder, owner.name[0] != '\0' ? owner.name : "an unknown process",
                   fence->owner);
}

const char *fence_id(const struct fence *fence)
{
    const char *id = strrchr(fence->owner, '(');

    return id != NULL ? id + 1 : "";
}

/* The path of the file that the owner of that name keeps locked; "": the name has no number. */
static void life_path(const struct fence *fence, const char *name, char path[FENCE_PATH_BYTES])
{
    const char *id = strrchr(name, '(');

    path[0] = '\0';
    if (id != NULL && strspn(id + 1, "0123456789abcdef") == ID_CHARS)
        (void)snprintf(path, FENCE_PATH_BYTES, "%s/" FENCE_LOCK_NAME "-%.*s", fence->folder,
                       ID_CHARS, id + 1);
}

/* Whether some process holds the file locked. Removes the file of a process that is gone: an empty
 * one. A file that cannot be opened is no proof that its process is gone. */
static bool is_alive(const char *path)
{
    struct stat found;
    bool is_held;
    int fd;

    if (path[0] == '\0')
        return false;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno != ENOENT;
    is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_held && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0)
        (void)unlink(path);
    (void)close(fd);
    return is_held;
}

/* Generations of one job only grow, whatever the order in which they come here. */
static bool is_later_generation(const struct owner *owner, const struct fence_claim *claim)
{
    return claim->cluster[0] != '\0' &&
           strncmp(owner->name, name_begin, sizeof name_begin - 1) == 0 &&
           strtoul(owner->name + sizeof name_begin - 1, NULL, 10) > claim->generation;
}

static enum status check_owner(const struct fence *fence, const struct owner *owner,
                               const char *job, const struct fence_claim *claim, struct err *err)
{
    char path[FENCE_PATH_BYTES];
    bool lives;

    life_path(fence, owner->name, path);
    lives = is_alive(path); /* also removes the file of a dead one */
    if (job[0] != '\0' && strcmp(job, owner->job) == 0) {
        if (!is_later_generation(owner, claim))
            return STATUS_OK;
        return err_set(err, STATUS_CONFLICT, 0,
                       "%s %.100s: taken over by %.60s; this is generation %u, which may not write "
                       "there any more",
                       claim->what, fence->folder, owner->name, claim->generation);
    }
    if (!lives || claim->takes_over)
        return STATUS_OK;
    if (is_shared(fence->lock_fd))
        return err_set(err, STATUS_BUSY, 0,
                       "%s %.60s: %.60s, %.60s, still writes there, or in the folder of which this "
                       "is a copy with hard links (then remove the copy's .lock*): end it, %s",
                       claim->what, fence->folder, owner->name, owner->process, claim->remedy);
    return err_set(err, STATUS_BUSY, 0, "%s %.60s: %.60s, %.60s, still writes there: end it, %s",
                   claim->what, fence->folder, owner->name, owner->process, claim->remedy);
}

static enum status begin_life(struct fence *fence, const struct fence_claim *claim, struct err *err)
{
    life_path(fence, fence->owner, fence->life_path);
    fence->life_fd =
        open(fence->life_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fence->life_fd < 0)
        return err_set(err, STATUS_IO, errno, "%s %.100s: cannot write there: %s", claim->what,
                       fence->folder, strerror(errno));
    (void)flock(fence->life_fd, LOCK_EX | LOCK_NB); /* without locks nobody can see that we live */
    return STATUS_OK;
}

static enum status write_owner(struct fence *fence, const char *job, struct err *err)
{
    struct utsname host;
    char text[TEXT_BYTES];
    int n;

    n = snprintf(text, sizeof text, "%s\n%s\nprocess %d on %.60s\n", fence->owner, job,
                 (int)getpid(), uname(&host) == 0 ? host.nodename : "?");
    assert(n > 0 && n < (int)sizeof text);
    if (ftruncate(fence->lock_fd, 0) != 0 || pwrite(fence->lock_fd, text, (size_t)n, 0) != n ||
        fsync(fence->lock_fd) != 0)
        return err_set(err, STATUS_IO, errno, "%s/" FENCE_LOCK_NAME ": cannot write: %s",
                       fence->folder, strerror(errno));
    return STATUS_OK;
}

/* Gives the folder a lock file of its own, which we hold. Who holds the last one sees it at its next commit (fence_check). */
static enum status replace_lock(struct fence *fence, const char *job, struct err *err)
{
    const int shared_fd = fence->lock_fd;
    char path[FENCE_PATH_BYTES], new[FENCE_PATH_BYTES];
    enum status status = STATUS_OK;

    (void)snprintf(path, sizeof path, "%s/" FENCE_LOCK_NAME, fence->folder);
    (void)snprintf(new, sizeof new, "%s/" FENCE_LOCK_NAME ".new", fence->folder);
    (void)unlink(new); /* of one that died here: we hold the lock */
    fence->lock_fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fence->lock_fd >= 0)
        status = fence_lock(fence, err);
    if (fence->lock_fd >= 0 && status == STATUS_OK)
        status = write_owner(fence, job, err);
    if (status == STATUS_OK && (fence->lock_fd < 0 || rename(new, path) != 0))
        status = err_set(err, STATUS_IO, errno, "%s: cannot write: %s", new, strerror(errno));
    if (status == STATUS_OK) {
        (void)close(shared_fd);
        return status;
    }
    if (fence->lock_fd >= 0)
        (void)close(fence->lock_fd);
    (void)unlink(new);
    fence->lock_fd = shared_fd;
    return status;
}

enum status fence_take(struct fence *fence, const struct fence_claim *claim, struct err *err)
{
    char job[FENCE_TEXT_BYTES] = "";
    struct owner owner;
    uint64_t random_id;
    enum status status;

    if (getrandom(&random_id, sizeof random_id, 0) != sizeof random_id)
        return err_set(err, STATUS_SYSTEM, errno, "no random number: %s", strerror(errno));
    if (claim->job_id[0] != '\0')
        (void)snprintf(job, sizeof job, "job %.50s of %.50s", claim->job_id, claim->cluster);
    if (!read_owner(fence, &owner))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s %.100s: its " FENCE_LOCK_NAME " is not one of ours, and is left as it "
                       "is: move it away if nothing needs it, or give another folder",
                       claim->what, fence->folder);
    status = check_owner(fence, &owner, job, claim, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(fence->owner, sizeof fence->owner, "generation %u of job %.60s (%016llx)",
                   claim->generation, claim->job_id[0] != '\0' ? claim->job_id : "none",
                   (unsigned long long)random_id);
    status = begin_life(fence, claim, err);
    if (status != STATUS_OK)
        return status;
    return is_shared(fence->lock_fd) ? replace_lock(fence, job, err) : write_owner(fence, job, err);
}

static enum status open_locked(struct fence *fence, const char *what, struct err *err)
{
    char path[FENCE_PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/" FENCE_LOCK_NAME, fence->folder);
    fence->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fence->lock_fd < 0)
        return err_set(err, STATUS_IO, errno, "%s %s: cannot write there: %s", what, fence->folder,
                       strerror(errno));
    return fence_lock(fence, err);
}

enum status fence_open(struct fence *fence, const char *folder, const char *what, struct err *err)
{
    enum status status = STATUS_OK;

    *fence = (struct fence){.folder = folder, .lock_fd = -1, .life_fd = -1};
    assert(strlen(folder) <= FENCE_PATH_BYTES - 64);
    for (int i = 0; i < OPENS_MAX; i++) { /* it may be replaced while we wait for it */
        status = open_locked(fence, what, err);
        if (status == STATUS_OK && is_same_file(fence))
            return status;
        fence_close(fence);
        if (status != STATUS_OK)
            return status;
    }
    return err_set(err, STATUS_IO, 0, "%s %s: its " FENCE_LOCK_NAME " is replaced again and again",
                   what, folder);
}

void fence_close(struct fence *fence)
{
    if (fence->life_fd >= 0) {
        if (is_at(fence->life_fd, fence->life_path))
            (void)unlink(fence->life_path);
        (void)close(fence->life_fd);
    }
    if (fence->lock_fd >= 0)
        (void)close(fence->lock_fd);
    fence->life_fd = fence->lock_fd = -1;
}
