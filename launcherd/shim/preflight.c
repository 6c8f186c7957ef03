#include "launcherd/shim/preflight.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/close_from.h"
#include "common/io/write_all.h"
#include "common/launch.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/run_error.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"

#define CHILD_FD 3
#define CHILD_STAGE_FD 4

__attribute__((format(printf, 3, 4))) static void fail(struct preflight_result *result,
                                                       int32_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun one line above */
    (void)vsnprintf(result->text, sizeof result->text, format, args);
    va_end(args);
    result->code = code;
}

static void fail_cwd(struct preflight_result *result, const char *node, const char *user,
                     const char *cwd)
{
    const char *remedy = "make it there, share the disk, or submit with --stage DIR";
    if (errno == ENOENT)
        fail(result, 126, "node %s: working directory %.90s does not exist (job of %.40s): %s",
             node, cwd, user, remedy);
    else if (errno == ENOTDIR)
        fail(result, 126, "node %s: working directory %.90s is not a directory (job of %.40s): %s",
             node, cwd, user, remedy);
    else
        fail(result, run_error_is_final(errno) ? RUN_EXIT_NOT_RUNNABLE : RUN_EXIT_MACHINE,
             "node %s: working directory %.90s cannot be entered by %.40s: %s", node, cwd, user,
             strerror(errno));
}

static void fail_program(struct preflight_result *result, const char *node, const char *user,
                         const char *program, int code)
{
    bool is_path = strchr(program, '/') != NULL, is_missing = code == ENOENT || code == ENOTDIR;
    if (is_missing && is_path)
        fail(result, 127,
             "node %s: program %.90s does not exist (job of %.40s): put it there, or "
             "share the disk",
             node, program, user);
    else if (is_missing)
        fail(
            result, 127,
            "node %s: program %.90s is not in the PATH of the job (of %.40s): install it there, or "
            "give its path",
            node, program, user);
    else
        fail(result, run_error_exit(code), "node %s: program %.90s cannot be run by %.40s: %s",
             node, program, user, strerror(code));
}

static void begin_step(const struct preflight_more *more, enum preflight_step step)
{
    if (more->step != NULL)
        atomic_store(more->step, (int)step);
}

static bool enter(const struct preflight_more *more, const char *cwd)
{
    begin_step(more, PREFLIGHT_CWD);
    if (chdir(cwd) != 0)
        return false;
    begin_step(more, PREFLIGHT_PROGRAM);
    return true;
}

static void check_as_user(const char *node, const struct worker_env_facts *given,
                          const struct preflight_more *more, struct preflight_result *result)
{
    struct worker_env_facts env = *given;
    const struct account *account = &result->account;
    const struct msg_start *start = env.start;
    struct arena arena = {0};
    int code = 0;

    env.master_addr = "";
    env.user = account->name;
    env.home = account->home;
    env.shell = account->shell;
    char **envp = worker_env_build(&env, 0, &arena);
    struct err why;
    if (envp == NULL)
        fail(result, 125, "node %s: no memory for the environment of the job", node);
    else if (launch_check_all(&start->launch, &why) != STATUS_OK)
        fail(result, 126, "node %s: %.150s", node, why.text);
    else if (!enter(more, start->cwd))
        fail_cwd(result, node, account->name, start->cwd);
    else if (!spawn_find_program(start->argv.items[0], worker_env_path(envp), &code))
        fail_program(result, node, account->name, start->argv.items[0], code);
    arena_reset(&arena);
}

/* A change of user takes away the signal at the parent's death: it is set again. */
static enum status become(const struct account *account, struct err *err)
{
    const pid_t parent = getppid();

    if (!account_become(account))
        return err_set(err, STATUS_REFUSED, errno, "cannot become user %.60s: %s", account->name,
                       strerror(errno));
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        return err_set(err, STATUS_CLOSED, 0, "the shim has ended");
    return STATUS_OK;
}

/* What is made as this process's own user. */
static enum status make_folders(const struct preflight_more *more,
                                const struct preflight_result *result, struct err *err)
{
    const struct account *account = &result->account;
    const bool as_self = result->as_self;
    enum status status = STATUS_OK;

    begin_step(more, PREFLIGHT_LOGS);
    if (more->error_dir != NULL)
        status = rundir_make_for(more->error_dir, as_self ? NULL : &account->uid,
                                 as_self ? NULL : &account->gid, err);
    if (status == STATUS_OK && more->stage != NULL)
        status = stage_make_dir(more->stage->dir, as_self ? NULL : account, err);
    return status;
}

void preflight_check(const struct account_policy *policy, const struct account *own,
                     const struct worker_env_facts *env, const struct preflight_more *given,
                     struct preflight_result *result)
{
    const struct preflight_more more = given != NULL ? *given : (struct preflight_more){0};
    struct err err;

    memset(result, 0, sizeof *result);
    enum status status =
        account_choose(policy, own, env->start->user, &result->account, &result->as_self, &err);
    if (status != STATUS_OK) {
        fail(result, status == STATUS_REFUSED || status == STATUS_NOT_FOUND ? 126 : 125, "%s",
             err.text);
        return;
    }
    status = make_folders(&more, result, &err);
    if (status == STATUS_OK && !result->as_self)
        status = become(&result->account, &err);
    begin_step(&more, PREFLIGHT_STAGE);
    if (status == STATUS_OK && more.stage != NULL)
        status = stage_unpack(more.stage, &err);
    if (status == STATUS_OK)
        check_as_user(policy->node, env, &more, result);
    else /* a bad archive is as bad on every node */
        fail(result, status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG ? 126 : 125,
             "node %s: %.200s", policy->node, err.text);
}

/* Runs in the child, and never returns. Closes all of our descriptors that it does not use, because
 * it may hang and outlive us. */
static void run_child(int write_fd, pid_t parent, const struct account_policy *policy,
                      const struct worker_env_facts *env, const struct preflight_more *given)
{
    const struct stage_source *stage = given->stage;
    struct stage_source staged = {.tar_fd = CHILD_STAGE_FD, .dir = stage != NULL ? stage->dir : ""};
    struct preflight_more more = *given;
    static struct preflight_result result;
    struct account own;
    struct err err;

    write_fd = fcntl(write_fd, F_DUPFD, CHILD_STAGE_FD + 1); /* dup2 overwrites CHILD_STAGE_FD */
    if ((stage != NULL && dup2(stage->tar_fd, CHILD_STAGE_FD) < 0) ||
        dup2(write_fd, CHILD_FD) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        getppid() != parent)
        _exit(1);
    (void)close_from((stage != NULL ? CHILD_STAGE_FD : CHILD_FD) + 1, false);
    more.stage = stage != NULL ? &staged : NULL;
    if (account_own(&own, &err) != STATUS_OK)
        fail(&result, 125, "node %s: %.200s", policy->node, err.text);
    else
        preflight_check(policy, &own, env, &more, &result);
    gid_t *groups = result.account.groups;
    result.account.groups = NULL;
    /* If this fails, the parent has closed its end and needs no answer. */
    (void)write_all(CHILD_FD, &result, sizeof result);
    if (result.code == 0)
        (void)write_all(CHILD_FD, groups, result.account.group_count * sizeof *groups);
    _exit(0);
}

static void finish(struct preflight *preflight, struct preflight_result *result)
{
    preflight_close(preflight);
    preflight->on_done(preflight->owner, result);
    account_free(&result->account);
}

/* Call when the child has closed its end of the pipe. */
static void take_answer(struct preflight *preflight)
{
    static struct preflight_result result;
    const struct buf *answer = &preflight->answer;
    const bool is_whole = !answer->failed && answer->byte_count >= sizeof result;
    size_t group_bytes = 0;

    memset(&result, 0, sizeof result);
    if (is_whole) {
        memcpy(&result, answer->bytes, sizeof result);
        group_bytes = result.account.group_count * sizeof *result.account.groups;
    }
    result.account.groups = NULL;
    if (!is_whole) {
        fail(&result, 125, "node %s: the check of the job ended without an answer",
             preflight->node);
    } else if (result.code == 0) {
        result.account.groups = malloc(group_bytes + 1);
        if (result.account.groups == NULL || answer->byte_count != sizeof result + group_bytes)
            fail(&result, 125, "node %s: the check of the job ended early", preflight->node);
        else if (group_bytes > 0)
            memcpy(result.account.groups, answer->bytes + sizeof result, group_bytes);
    }
    finish(preflight, &result);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct preflight *preflight = poll->data;
    char bytes[16384];
    ssize_t got;
    (void)status;
    (void)events;
    while ((got = read(preflight->fd, bytes, sizeof bytes)) > 0)
        buf_add(&preflight->answer, bytes, (size_t)got);
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        take_answer(preflight);
}

static void fail_late(const struct preflight *preflight, struct preflight_result *result)
{
    const struct msg_start *start = preflight->start;
    const char *node = preflight->node;
    const unsigned limit_s =
        (preflight->unpacks ? PREFLIGHT_STAGE_MAX_MS : PREFLIGHT_MAX_MS) / 1000;

    if (proc_is_stopped(preflight->pid)) { /* else whatever it did last would be blamed */
        fail(result, 125,
             "node %s: the process %d that checks the job was stopped (SIGSTOP, or a debugger): it "
             "has not answered within %u s",
             node, (int)preflight->pid, limit_s);
        return;
    }
    switch (preflight->step != NULL ? atomic_load(preflight->step) : -1) {
    case PREFLIGHT_ACCOUNT:
        fail(result, 125,
             "node %s: its user database does not answer: looking up %.60s took longer than %u s",
             node, start->user, limit_s);
        break;
    case PREFLIGHT_LOGS:
        fail(result, 125,
             "node %s: the disk of %.100s (logs) does not answer: mkdir took longer than %u s",
             node, preflight->error_dir != NULL ? preflight->error_dir : "the job", limit_s);
        break;
    case PREFLIGHT_STAGE:
        fail(result, 125, "node %s: the staged directory was not unpacked within %u s", node,
             limit_s);
        break;
    case PREFLIGHT_CWD:
        fail(result, 125,
             "node %s: the disk of working directory %.100s does not answer: chdir took longer "
             "than %u s",
             node, start->cwd, limit_s);
        break;
    case PREFLIGHT_PROGRAM:
        fail(result, 125,
             "node %s: the disk of program %.60s, or of a folder in the PATH of the job, does not "
             "answer: the search took longer than %u s",
             node, start->argv.items[0], limit_s);
        break;
    default:
        fail(result, 125,
             "node %s: its disks or its user database do not answer (%u s): working directory and "
             "program of the job could not be checked",
             node, limit_s);
    }
}

static void on_timer(uv_timer_t *timer)
{
    static struct preflight_result result;
    struct preflight *preflight = timer->data;
    memset(&result, 0, sizeof result);
    fail_late(preflight, &result);
    finish(preflight, &result);
}

static void open_handles(struct preflight *preflight, uv_loop_t *loop)
{
    int rc = uv_poll_init(loop, &preflight->poll, preflight->fd); /* makes it non-blocking */
    rc = rc != 0 ? rc : uv_timer_init(loop, &preflight->timer);
    assert(rc == 0); /* fails only without memory or descriptors, at the start of a process */
    preflight->handles_open = true;
    preflight->poll.data = preflight->timer.data = preflight;
    uv_poll_start(&preflight->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    uv_update_time(loop);
    uv_timer_start(&preflight->timer, on_timer,
                   preflight->unpacks ? PREFLIGHT_STAGE_MAX_MS : PREFLIGHT_MAX_MS, 0);
}

/* Memory that the child shares. NULL: none. */
static atomic_int *map_step(void)
{
    void *page =
        mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? NULL : page;
}

static void unmap_step(struct preflight *preflight)
{
    if (preflight->step != NULL)
        (void)munmap(preflight->step, sizeof *preflight->step);
    preflight->step = NULL;
}

void preflight_begin(struct preflight *preflight, uv_loop_t *loop,
                     const struct account_policy *policy, const struct worker_env_facts *env,
                     const struct preflight_more *given)
{
    struct preflight_more more = given != NULL ? *given : (struct preflight_more){0};
    struct preflight_result result = {0};
    pid_t parent = getpid(), pid = -1;
    int fds[2] = {-1, -1};

    preflight->node = policy->node;
    preflight->start = env->start;
    preflight->error_dir = more.error_dir;
    preflight->unpacks = more.stage != NULL;
    more.step = preflight->step = map_step();
    preflight->fd = preflight->pidfd = -1;
    if (pipe2(fds, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0)
        run_child(fds[1], parent, policy, env, &more);
    int code = errno;
    if (fds[1] >= 0)
        close(fds[1]);
    preflight->fd = fds[0];
    if (pid < 0) {
        if (preflight->fd >= 0)
            close(preflight->fd);
        fail(&result, 125, "node %s: the job cannot be checked: %s", policy->node, strerror(code));
        finish(preflight, &result);
        return;
    }
    preflight->pid = pid;
    preflight->pidfd = proc_pidfd(pid);
    open_handles(preflight, loop);
}

void preflight_close(struct preflight *preflight)
{
    unmap_step(preflight);
    if (preflight->handles_open) {
        preflight->handles_open = false;
        uv_close((uv_handle_t *)&preflight->poll, NULL);
        uv_close((uv_handle_t *)&preflight->timer, NULL);
        if (preflight->pidfd >= 0) {
            syscall(SYS_pidfd_send_signal, preflight->pidfd, SIGKILL, NULL, 0);
            close(preflight->pidfd);
        }
        close(preflight->fd);
        buf_free(&preflight->answer);
    }
}
