#include "launcherd/process/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/close_from.h"
#include "common/launch.h"
#include "launcherd/process/clone_child.h"
#include "launcherd/process/run_error.h"

#define SOURCE_FD_MIN                                                                              \
    16 /* above every target: so no dup2 overwrites a source that is still needed */

#define OPEN_FILES_MIN 65536u
#define JOB_UMASK 022

#define HEAD_BYTES 128 /* as many as the kernel reads of the first line */

enum stage {
    STAGE_NONE,
    STAGE_CGROUP,
    STAGE_DESCRIPTORS,
    STAGE_LIMITS,
    STAGE_USER,
    STAGE_PARENT,
    STAGE_CWD,
    STAGE_EXEC
};

/* Shared with the child, which writes only `stage`, `code`, `is_there` and `head`. */
struct child {
    const struct spawn_order *order;
    char **paths;  /* where to look for the program, in order; ends with NULL */
    int fds[4];    /* sources of 0, 1, 2 and SPAWN_EXTRA_FD; -1: none */
    int cgroup_fd; /* cgroup.procs of the one to move to; -1: stays in the one of its birth */
    pid_t parent;
    enum stage stage;
    int code;
    bool is_there;         /* ENOENT, but the program is there: its interpreter is not */
    char head[HEAD_BYTES]; /* how that program begins; ends with 0 */
};

IN_CHILD static int child_fail(struct child *child, enum stage stage)
{
    child->stage = stage;
    child->code = errno;
    return 127;
}

IN_CHILD static void reset_signals(void)
{
    struct sigaction action;
    sigset_t none;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    for (int number = 1; number < _NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Descriptors 0 to 3 as ordered; all others close when the program is run. */
IN_CHILD static bool arrange_fds(const struct child *child)
{
    for (int target = 0; target < 4; target++)
        if (child->fds[target] >= 0 && dup2(child->fds[target], target) < 0)
            return false;
    unsigned first = child->fds[SPAWN_EXTRA_FD] >= 0 ? SPAWN_EXTRA_FD + 1 : SPAWN_EXTRA_FD;
    return close_from(first, true);
}

/* Without a word of the submitter: the limit of open files as far as the hard limit allows, since data
 * sets and connections need more than the usual 1024, and no core files, which would contain the job's data
 * and keys and fill the disk. The umask is that of a login on most systems: with 077 nobody else could
 * read a checkpoint in a shared folder. Our own files do not depend on the umask. */
static const struct spawn_limits usual_limits = {
    .limits = {.is_set = {[JOB_LIMIT_CORE] = true, [JOB_LIMIT_NOFILE] = true},
               .soft = {[JOB_LIMIT_CORE] = 0, [JOB_LIMIT_NOFILE] = OPEN_FILES_MIN}},
    .mask = JOB_UMASK};

static uint64_t limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? JOB_LIMIT_NONE : limit;
}

void spawn_limits_read(const struct msg_pair_list *launch, struct spawn_limits *limits, char *cut,
                       size_t cut_bytes)
{
    const char *wanted = launch_value(launch, LAUNCH_LIMITS);
    const char *mask = launch_value(launch, LAUNCH_UMASK);
    uint64_t hard[JOB_LIMIT_COUNT], soft[JOB_LIMIT_COUNT];
    struct job_limits of_job = {.is_set = {false}};
    struct rlimit limit;

    *limits = usual_limits;
    if (mask == NULL || !launch_mask(mask, &limits->mask))
        limits->mask = JOB_UMASK;
    if (wanted != NULL)
        (void)job_limits_parse(wanted, &of_job);
    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        if (getrlimit(job_limit_resource((enum job_limit)i), &limit) != 0)
            limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
        hard[i] = limit_of(limit.rlim_max);
        soft[i] = limit_of(limit.rlim_cur);
    }
    job_limits_fit(&of_job, hard, soft, cut, cut_bytes);
    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        if (!of_job.is_set[i])
            continue;
        limits->limits.is_set[i] = true;
        limits->limits.soft[i] = of_job.soft[i];
    }
    if (!of_job.is_set[JOB_LIMIT_NOFILE] && soft[JOB_LIMIT_NOFILE] > OPEN_FILES_MIN)
        limits->limits.soft[JOB_LIMIT_NOFILE] = soft[JOB_LIMIT_NOFILE];
}

IN_CHILD static bool set_limits(const struct spawn_limits *wanted)
{
    const struct job_limits *limits = wanted != NULL ? &wanted->limits : &usual_limits.limits;
    struct rlimit limit;

    (void)umask(wanted != NULL ? wanted->mask : JOB_UMASK);
    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        const int resource = job_limit_resource((enum job_limit)i);

        if (!limits->is_set[i])
            continue;
        if (getrlimit(resource, &limit) != 0)
            return false;
        if (wanted == NULL && i == JOB_LIMIT_NOFILE && limit.rlim_cur >= limits->soft[i])
            continue;
        limit.rlim_cur = limits->soft[i] == JOB_LIMIT_NONE ? RLIM_INFINITY : limits->soft[i];
        if (limit.rlim_cur > limit.rlim_max)
            limit.rlim_cur = limit.rlim_max;
        if (setrlimit(resource, &limit) != 0)
            return false;
    }
    return true;
}

/* exec says ENOENT of a program whose interpreter is missing, too. What is looked at here exec has read just now. */
IN_CHILD static void note_interpreter(struct child *child, const char *path)
{
    struct stat file;
    int fd;

    if (child->is_there || stat(path, &file) != 0 || !S_ISREG(file.st_mode))
        return;
    child->is_there = true;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (read(fd, child->head, sizeof child->head - 1) < 0)
        child->head[0] = '\0';
    (void)close(fd);
}

/* Like execvp(3): tries each path, skips those that do not exist, and remembers one that may not be
 * run. Unlike execvp it passes no file to /bin/sh. A file that is neither a program nor begins with
 * #! may be in any language, and a shell would execute whatever it has in backticks. Also unlike
 * execvp it stops at a folder that does not answer: the program that is meant may be there, and a
 * later one of its name is another program. */
IN_CHILD static void run_program(struct child *child)
{
    int code = ENOENT;
    for (char **path = child->paths; *path != NULL; path++) {
        execve(*path, child->order->argv, child->order->envp);
        if (errno == ENOEXEC || !run_error_is_final(errno))
            return; /* this one is meant, or may be */
        if (errno == ENOENT) {
            note_interpreter(child, *path);
            errno = ENOENT;
        }
        if (errno != ENOENT && errno != ENOTDIR && (code == ENOENT || errno != EACCES))
            code = errno;
    }
    errno = code;
}

/* The order matters:
 *   1. the cgroup, unless it was born there, so that nothing that the child does is outside of it
 *   2. a session of its own; no handler and no mask of ours
 *   3. descriptors, while we still may use ours
 *   4. limits and umask, while root may still raise them
 *   5. the user; root cannot be had back (account_become)
 *   6. no new privileges: a set-uid program gives none
 *   7. the death signal of the parent, after 5, which would clear it; the parent may have ended
 *      before it was set
 *   8. the working directory and the program, both looked up with the rights of the user
 * The environment was made from nothing by the caller, and nothing of it is used before 8. */
IN_CHILD static int child_main(void *arg)
{
    struct child *child = arg;
    const struct spawn_order *order = child->order;

    if (child->cgroup_fd >= 0 && write(child->cgroup_fd, "0", 1) != 1)
        return child_fail(child, STAGE_CGROUP);
    setsid();
    reset_signals();
    if (!arrange_fds(child) || (order->has_terminal && ioctl(STDOUT_FILENO, TIOCSCTTY, 0) != 0))
        return child_fail(child, STAGE_DESCRIPTORS);
    if (order->is_job && !set_limits(order->limits))
        return child_fail(child, STAGE_LIMITS);
    if (order->user != NULL && !account_become(order->user))
        return child_fail(child, STAGE_USER);
    if (order->is_job && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return child_fail(child, STAGE_USER);
    if (order->dies_with_parent &&
        (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != child->parent))
        return child_fail(child, STAGE_PARENT);
    if (order->cwd != NULL && chdir(order->cwd) != 0)
        return child_fail(child, STAGE_CWD);
    run_program(child);
    return child_fail(child, STAGE_EXEC);
}

static void free_texts(char **texts)
{
    for (char **text = texts; text != NULL && *text != NULL; text++)
        free(*text);
    free(texts);
}

/* Every folder of `search` with `/name` appended. An empty one is the current directory.
 * The result ends with NULL; free it with free_texts. */
static char **program_paths(const char *name, const char *search)
{
    if (search == NULL || strchr(name, '/') != NULL || name[0] == '\0') {
        char **one = calloc(2, sizeof *one);
        if (one != NULL)
            one[0] = strdup(name);
        return one;
    }
    size_t count = 1;
    for (const char *at = search; *at != '\0'; at++)
        count += *at == ':';
    char **paths = calloc(count + 1, sizeof *paths);
    for (size_t i = 0; paths != NULL && i < count; i++) {
        size_t bytes = strcspn(search, ":");
        if (asprintf(&paths[i], "%.*s%s%s", (int)bytes, search, bytes > 0 ? "/" : "./", name) < 0) {
            paths[i] = NULL;
            break;
        }
        search += bytes + (search[bytes] == ':');
    }
    return paths;
}

int spawn_open_output(size_t byte_count)
{
    int fd = memfd_create("output", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 &&
        (ftruncate(fd, (off_t)byte_count) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) != 0)) {
        int code = errno;

        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

int spawn_open_null(int flags)
{
    return open("/dev/null", flags | O_CLOEXEC);
}

bool spawn_find_program(const char *name, const char *search, int *code)
{
    char **paths = program_paths(name, search);
    struct stat stat_of;
    bool found = false, is_searched = search != NULL && strchr(name, '/') == NULL;
    *code = paths == NULL ? ENOMEM : ENOENT;
    for (char **path = paths; path != NULL && *path != NULL && !found; path++) {
        if (!run_error_is_final(*code))
            break; /* as in run_program */
        bool is_there = stat(*path, &stat_of) == 0;
        if (!is_there && is_searched && errno == EACCES)
            continue; /* this user may not enter that folder of the PATH */
        found = is_there && faccessat(AT_FDCWD, *path, X_OK, AT_EACCESS) == 0;
        if (found && S_ISDIR(stat_of.st_mode)) {
            found = false;
            errno = EACCES;
        }
        if (!found && errno != ENOENT && errno != ENOTDIR && (*code == ENOENT || errno != EACCES))
            *code = errno;
    }
    free_texts(paths);
    return found;
}

static bool lift_fds(const struct spawn_order *order, int fds[4])
{
    const int from[4] = {order->stdin_fd, order->stdout_fd, order->stderr_fd, order->extra_fd};
    bool all = true;
    for (int i = 0; i < 4; i++) {
        fds[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, SOURCE_FD_MIN);
        all = all && (from[i] < 0 || fds[i] >= 0);
    }
    return all;
}

static void close_fds(const int fds[4])
{
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Opened in the parent: the kernel checks the rights of the process that opened it, and the child
 * gives its rights up. */
static bool open_cgroup(const char *dir, int *fd)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/cgroup.procs", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    *fd = open(path, O_WRONLY | O_CLOEXEC);
    return *fd >= 0;
}

pid_t spawn_watch_pid(const struct spawn_watch *watch)
{
    return __atomic_load_n(&watch->pid, __ATOMIC_ACQUIRE); /* the kernel writes it */
}

bool spawn_refuse(struct spawn_watch *watch)
{
    unsigned state = SPAWN_WAITS;

    return atomic_compare_exchange_strong(&watch->state, &state, SPAWN_REFUSED) ||
           state == SPAWN_REFUSED;
}

/* False: it was refused. */
static bool may_begin(struct spawn_watch *watch)
{
    unsigned state = SPAWN_WAITS;

    errno = ECANCELED;
    return watch == NULL || atomic_compare_exchange_strong(&watch->state, &state, SPAWN_BEGINS);
}

/* The child is born in its cgroup, or else moves there. */
static pid_t start(struct child *child, const char *cgroup)
{
    pid_t pid = -1, *told = child->order->watch != NULL ? &child->order->watch->pid : NULL;
    int dir_fd;

    if (cgroup == NULL)
        return clone_child(-1, child_main, child, told);
    dir_fd = open(cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0) {
        pid = clone_child(dir_fd, child_main, child, told);
        close(dir_fd);
    }
    if (pid >= 0)
        return pid;
    if (!open_cgroup(cgroup, &child->cgroup_fd)) {
        child_fail(child, STAGE_CGROUP);
        return -1;
    }
    return clone_child(-1, child_main, child, told);
}

static enum status explain_interpreter(const struct child *child, struct err *err)
{
    const char *program = child->order->argv[0];
    char name[HEAD_BYTES];
    size_t length;

    if (child->head[0] != '#' || child->head[1] != '!')
        return err_set(err, STATUS_NOT_FOUND, child->code,
                       "cannot run '%s': it is there, but the interpreter (of a program, the "
                       "loader) that it names is not on this machine",
                       program);
    (void)snprintf(name, sizeof name, "%s", child->head + 2 + strspn(child->head + 2, " \t"));
    name[strcspn(name, " \t\n")] = '\0';
    length = strlen(name);
    if (length > 0 && name[length - 1] == '\r') {
        name[length - 1] = '\0';
        return err_set(err, STATUS_NOT_FOUND, child->code,
                       "cannot run '%s': its first line ends with a carriage return, as in files "
                       "of Windows, so its interpreter '%s\\r' is not found",
                       program, name);
    }
    return err_set(err, STATUS_NOT_FOUND, child->code,
                   "cannot run '%s': its interpreter '%s' (the first line) is not on this machine",
                   program, name);
}

static enum status explain(const struct child *child, int *exit_code, struct err *err)
{
    const struct spawn_order *order = child->order;
    const char *why = strerror(child->code);
    *exit_code = RUN_EXIT_MACHINE;
    switch (child->stage) {
    case STAGE_NONE:
    case STAGE_DESCRIPTORS:
        break;
    case STAGE_CGROUP:
        return err_set(err, STATUS_SYSTEM, child->code,
                       "cannot start '%s' in the cgroup %.120s: %s", order->argv[0], order->cgroup,
                       why);
    case STAGE_LIMITS:
        return err_set(err, STATUS_SYSTEM, child->code, "cannot set the limits of '%s': %s",
                       order->argv[0], why);
    case STAGE_USER:
        return err_set(err, STATUS_REFUSED, child->code, "cannot become user %s (uid %u): %s",
                       order->user->name, (unsigned)order->user->uid, why);
    case STAGE_PARENT:
        return err_set(err, STATUS_SYSTEM, child->code, "the shim ended while it started '%s'",
                       order->argv[0]);
    case STAGE_CWD:
        *exit_code = run_error_is_final(child->code) ? RUN_EXIT_NOT_RUNNABLE : RUN_EXIT_MACHINE;
        return err_set(err, STATUS_NOT_FOUND, child->code,
                       "cannot run '%s': its working directory %.100s: %s", order->argv[0],
                       order->cwd, why);
    case STAGE_EXEC:
        *exit_code = run_error_exit(child->code);
        if (child->code == ENOEXEC)
            return err_set(err, STATUS_NOT_FOUND, child->code,
                           "cannot run '%s': it is no program for this machine, and its first line "
                           "does not begin with #!: add that, or say what runs it (-- sh FILE)",
                           order->argv[0]);
        if (child->code == ETXTBSY)
            return err_set(err, STATUS_NOT_FOUND, child->code,
                           "cannot run '%s': it is being written now: does a copy or a build still "
                           "run? (%s)",
                           order->argv[0], why);
        if (child->code == ENOENT && child->is_there)
            return explain_interpreter(child, err);
        if (child->code == E2BIG)
            return err_set(err, STATUS_TOO_BIG, child->code,
                           "cannot run '%.80s': its arguments and environment are larger than a "
                           "quarter of the stack's limit, which is all that Linux takes: submit "
                           "with a larger one (ulimit -s unlimited), or with --env-clear",
                           order->argv[0]);
        return err_set(err, STATUS_NOT_FOUND, child->code, "cannot run '%s': %s", order->argv[0],
                       why);
    }
    return err_set(err, STATUS_SYSTEM, child->code, "cannot start '%s': %s", order->argv[0], why);
}

enum status spawn_process(const struct spawn_order *order, pid_t *pid, int *exit_code,
                          struct err *err)
{
    struct child child = {
        .order = order, .fds = {-1, -1, -1, -1}, .cgroup_fd = -1, .parent = getpid()};
    enum status status = STATUS_OK;

    assert(order->argv[0] != NULL);
    child.paths = program_paths(order->path != NULL ? order->path : order->argv[0],
                                order->path != NULL ? NULL : order->search);
    if (child.paths == NULL || child.paths[0] == NULL) {
        errno = ENOMEM;
        child_fail(&child, STAGE_DESCRIPTORS);
    } else if (!lift_fds(order, child.fds) || !may_begin(order->watch)) {
        child_fail(&child, STAGE_DESCRIPTORS);
    } else {
        *pid = start(&child, order->cgroup);
        if (*pid < 0 && child.stage == STAGE_NONE)
            child_fail(&child, STAGE_DESCRIPTORS);
        else if (*pid >= 0 && child.stage != STAGE_NONE && order->watch == NULL)
            waitpid(*pid, NULL, 0); /* reap it: it never became a worker */
    }
    if (child.stage != STAGE_NONE)
        status = explain(&child, exit_code, err);
    close_fds(child.fds);
    if (child.cgroup_fd >= 0)
        close(child.cgroup_fd);
    free_texts(child.paths);
    if (order->watch != NULL && atomic_load(&order->watch->state) != SPAWN_REFUSED)
        atomic_store(&order->watch->state, SPAWN_OVER);
    return status;
}
