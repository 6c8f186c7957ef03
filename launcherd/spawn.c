#include "launcherd/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (64u * 1024u)
#define SOURCE_FD_MIN                                                                              \
    16 /* above every target, so that one dup2 cannot overwrite the next source                    \
        */

/* Runs in the child and never returns: what a sanitizer notes about the stack would stay behind. */
#define IN_CHILD __attribute__((no_sanitize("address")))

enum stage { STAGE_NONE, STAGE_DESCRIPTORS, STAGE_USER, STAGE_PARENT, STAGE_CWD, STAGE_EXEC };

/* Shared with the child, which writes only `stage` and `code`. */
struct child {
    const struct spawn_order *order;
    char **paths;      /* where the program may be, in order; ends with NULL */
    char **shell_argv; /* "/bin/sh", path, arguments: for a script without #!, as execvp does */
    int fds[4];        /* sources of 0, 1, 2 and SPAWN_EXTRA_FD; -1: none */
    pid_t parent;
    enum stage stage;
    int code;
};

IN_CHILD static int child_fail(struct child *child, enum stage stage)
{
    child->stage = stage;
    child->code = errno;
    return 127;
}

/* glibc's own calls would try to change every thread of a process that we only borrow. */
IN_CHILD static bool become_user(const struct spawn_user *user)
{
    return syscall(SYS_setgroups, (size_t)user->group_count, user->groups) == 0 &&
           syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
           syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0;
}

IN_CHILD static void reset_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    for (int number = 1; number < _NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &action, NULL);
}

/* Source: execvp(3): try each place, go on where there is none, remember one that is forbidden. */
IN_CHILD static void run_program(struct child *child)
{
    int code = ENOENT;
    for (char **path = child->paths; *path != NULL; path++) {
        execve(*path, child->order->argv, child->order->envp);
        if (errno == ENOEXEC) {
            child->shell_argv[1] = *path;
            execve("/bin/sh", child->shell_argv, child->order->envp);
        }
        if (errno != ENOENT && errno != ENOTDIR && (code == ENOENT || errno != EACCES))
            code = errno;
    }
    errno = code;
}

IN_CHILD static int child_main(void *arg)
{
    struct child *child = arg;
    const struct spawn_order *order = child->order;
    sigset_t none;

    reset_signals();
    setsid();
    for (int target = 0; target < 4; target++)
        if (child->fds[target] >= 0 && dup2(child->fds[target], target) < 0)
            return child_fail(child, STAGE_DESCRIPTORS);
    unsigned first = child->fds[SPAWN_EXTRA_FD] >= 0 ? SPAWN_EXTRA_FD + 1 : SPAWN_EXTRA_FD;
    if (syscall(SYS_close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
        return child_fail(child, STAGE_DESCRIPTORS);
    if (order->user != NULL && !become_user(order->user))
        return child_fail(child, STAGE_USER);
    /* after the change of user, which clears it; the parent may have gone before it was set */
    if (order->dies_with_parent &&
        (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != child->parent))
        return child_fail(child, STAGE_PARENT);
    if (order->cwd != NULL && chdir(order->cwd) != 0)
        return child_fail(child, STAGE_CWD);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    run_program(child);
    return child_fail(child, STAGE_EXEC);
}

static void free_texts(char **texts)
{
    for (char **text = texts; text != NULL && *text != NULL; text++)
        free(*text);
    free(texts);
}

/* Every place of `search` with `/name` behind; an empty place is the current directory. */
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

static char **shell_arguments(char *const *argv)
{
    size_t count = 0;
    while (argv[count] != NULL)
        count++;
    char **out = calloc(count + 2, sizeof *out);
    static char shell[] = "/bin/sh";
    if (out == NULL)
        return NULL;
    out[0] = shell;
    for (size_t i = 1; i < count; i++)
        out[i + 1] = argv[i];
    return out;
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

/* Signals are held back so that no handler of ours runs in the child, on shared memory. */
static pid_t start(struct child *child)
{
    sigset_t all, before;
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return -1;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t pid = clone(child_main, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    int code = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    munmap(stack, STACK_BYTES);
    errno = code;
    return pid;
}

static enum status explain(const struct child *child, int *exit_code, struct err *err)
{
    const struct spawn_order *order = child->order;
    const char *why = strerror(child->code);
    *exit_code = 125;
    switch (child->stage) {
    case STAGE_NONE:
    case STAGE_DESCRIPTORS:
        break;
    case STAGE_USER:
        return err_set(err, STATUS_REFUSED, child->code, "cannot become user %s (uid %u): %s",
                       order->user->name, (unsigned)order->user->uid, why);
    case STAGE_PARENT:
        return err_set(err, STATUS_SYSTEM, child->code, "the shim ended while it started '%s'",
                       order->argv[0]);
    case STAGE_CWD:
        *exit_code = 126;
        return err_set(err, STATUS_NOT_FOUND, child->code,
                       "cannot run '%s': its working directory %.100s: %s", order->argv[0],
                       order->cwd, why);
    case STAGE_EXEC:
        *exit_code = child->code == ENOENT || child->code == ENOTDIR ? 127 : 126;
        return err_set(err, STATUS_NOT_FOUND, child->code, "cannot run '%s': %s", order->argv[0],
                       why);
    }
    return err_set(err, STATUS_SYSTEM, child->code, "cannot start '%s': %s", order->argv[0], why);
}

enum status spawn_process(const struct spawn_order *order, pid_t *pid, int *exit_code,
                          struct err *err)
{
    struct child child = {.order = order, .fds = {-1, -1, -1, -1}, .parent = getpid()};
    enum status status = STATUS_OK;

    child.paths = program_paths(order->path != NULL ? order->path : order->argv[0],
                                order->path != NULL ? NULL : order->search);
    child.shell_argv = shell_arguments(order->argv);
    if (child.paths == NULL || child.paths[0] == NULL || child.shell_argv == NULL) {
        errno = ENOMEM;
        child_fail(&child, STAGE_DESCRIPTORS);
    } else if (!lift_fds(order, child.fds)) {
        child_fail(&child, STAGE_DESCRIPTORS);
    } else {
        *pid = start(&child);
        if (*pid < 0)
            child_fail(&child, STAGE_DESCRIPTORS);
        else if (child.stage != STAGE_NONE)
            waitpid(*pid, NULL, 0); /* it never was a worker */
    }
    if (child.stage != STAGE_NONE)
        status = explain(&child, exit_code, err);
    close_fds(child.fds);
    free_texts(child.paths);
    free(child.shell_argv);
    return status;
}

enum status spawn_user_find(struct spawn_user *user, uid_t uid, struct err *err)
{
    errno = 0;
    const struct passwd *entry = getpwuid(uid);
    memset(user, 0, sizeof *user);
    if (entry == NULL)
        return err_set(err, STATUS_NOT_FOUND, errno,
                       "this node has no user with uid %u: add it, or submit as one it has",
                       (unsigned)uid);
    int count = 64;
    user->groups = calloc((size_t)count, sizeof *user->groups);
    if (user->groups == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory for the groups of uid %u",
                       (unsigned)uid);
    if (getgrouplist(entry->pw_name, entry->pw_gid, user->groups, &count) < 0) {
        free(user->groups);
        user->groups = calloc((size_t)count, sizeof *user->groups);
        if (user->groups == NULL ||
            getgrouplist(entry->pw_name, entry->pw_gid, user->groups, &count) < 0)
            return err_set(err, STATUS_SYSTEM, errno, "the groups of uid %u cannot be read",
                           (unsigned)uid);
    }
    user->group_count = (uint32_t)count;
    user->uid = uid;
    user->gid = entry->pw_gid;
    (void)snprintf(user->home, sizeof user->home, "%s", entry->pw_dir);
    (void)snprintf(user->name, sizeof user->name, "%s", entry->pw_name);
    return STATUS_OK;
}

void spawn_user_free(struct spawn_user *user)
{
    free(user->groups);
    user->groups = NULL;
}
