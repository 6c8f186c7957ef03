#include "launcherd/inspect/pyspy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/utf8.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/spawn.h"

#define MISSING "py-spy is not installed on this node: pip install py-spy"
#define NOT_FOUND_EXIT 127

enum outcome { PRINTED, FAILED, REFUSED, NOT_THERE };

/* Reads the output up to the first NUL. */
static void take_output(int fd, char *text)
{
    char *bytes = calloc(1, PYSPY_BYTES_MAX);

    text[0] = '\0';
    if (bytes != NULL && pread(fd, bytes, PYSPY_BYTES_MAX - 1, 0) > 0)
        (void)utf8_printable_lines(bytes, strlen(bytes), text, PYSPY_BYTES_MAX);
    free(bytes);
}

/* False: it took too long and was killed. */
static bool wait_for(pid_t pid, int *status)
{
    struct pollfd poll_fd = {.fd = proc_pidfd(pid), .events = POLLIN};
    const bool ended = poll_fd.fd >= 0 && poll(&poll_fd, 1, (int)PYSPY_MS) > 0;

    if (!ended && poll_fd.fd >= 0)
        syscall(SYS_pidfd_send_signal, poll_fd.fd, SIGKILL, NULL, 0);
    if (poll_fd.fd >= 0)
        close(poll_fd.fd);
    if (poll_fd.fd >= 0)
        (void)waitpid(pid, status, 0);
    return ended;
}

static void put_first_line(const char *text, char *problem, size_t problem_bytes)
{
    char line[160];

    text += strspn(text, " \n\t");
    utf8_printable(text, strcspn(text, "\n"), line, sizeof line);
    (void)snprintf(problem, problem_bytes, "py-spy: %s",
                   line[0] != '\0' ? line : "it failed and said nothing");
}

static enum outcome judge(pid_t pid, int output_fd, int error_fd, char *text, char *problem,
                          size_t problem_bytes)
{
    int status = 0;

    if (!wait_for(pid, &status)) {
        (void)snprintf(problem, problem_bytes, "py-spy took longer than %u s", PYSPY_MS / 1000);
        return FAILED;
    }
    take_output(output_fd, text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && text[0] != '\0')
        return PRINTED;
    take_output(error_fd, text);
    put_first_line(text, problem, problem_bytes);
    return strstr(text, "ermission") != NULL ? REFUSED : FAILED;
}

/* `program`: a path; NULL: looked up in `path`. */
static enum outcome run(const struct pyspy_order *order, const struct account *user,
                        const char *program, const char *path, char *text, char *problem,
                        size_t problem_bytes)
{
    char name[] = "py-spy", dump[] = "dump", nonblocking[] = "--nonblocking", of[] = "--pid";
    char number[16], path_entry[PATH_MAX + 8], lang[] = "LANG=C.UTF-8";
    char *argv[] = {name, dump, nonblocking, of, number, NULL};
    char *envp[] = {path_entry, lang, NULL};
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), exit_code = 0;
    int output_fd = spawn_open_output(PYSPY_BYTES_MAX),
        error_fd = spawn_open_output(PYSPY_BYTES_MAX);
    struct spawn_order spawn = {.path = program,
                                .argv = argv,
                                .envp = envp,
                                .search = path,
                                .cwd = "/",
                                .user = user,
                                .cgroup = program == NULL ? order->cgroup : NULL,
                                .stdin_fd = null_fd,
                                .stdout_fd = output_fd,
                                .stderr_fd = error_fd,
                                .extra_fd = -1,
                                .is_job = program == NULL,
                                .dies_with_parent = true};
    enum outcome outcome = FAILED;
    struct err err;
    pid_t pid;

    (void)snprintf(number, sizeof number, "%d", (int)order->pid);
    (void)snprintf(path_entry, sizeof path_entry, "PATH=%.*s", PATH_MAX - 1, path);
    if (null_fd < 0 || output_fd < 0 || error_fd < 0)
        (void)snprintf(problem, problem_bytes, "py-spy was not run: %s", strerror(errno));
    else if (spawn_process(&spawn, &pid, &exit_code, &err) == STATUS_OK)
        outcome = judge(pid, output_fd, error_fd, text, problem, problem_bytes);
    else if (exit_code == NOT_FOUND_EXIT)
        outcome = NOT_THERE;
    else
        (void)snprintf(problem, problem_bytes, "%.200s", err.text);
    for (uint32_t i = 0; i < 3; i++)
        if ((int[]){null_fd, output_fd, error_fd}[i] >= 0)
            close((int[]){null_fd, output_fd, error_fd}[i]);
    return outcome;
}

static bool is_roots_alone(const char *path, mode_t type)
{
    struct stat stat_of;

    return stat(path, &stat_of) == 0 && (stat_of.st_mode & S_IFMT) == type && stat_of.st_uid == 0 &&
           (stat_of.st_mode & 022) == 0;
}

/* Finds the first py-spy in a PATH, if only root can have put it there. */
static bool find_roots_own(const char *path, char out[PATH_MAX])
{
    while (*path != '\0') {
        const size_t bytes = strcspn(path, ":");
        char dir[PATH_MAX];

        (void)snprintf(dir, sizeof dir, "%.*s", (int)bytes, path);
        (void)snprintf(out, PATH_MAX, "%.4000s/py-spy", dir);
        if (dir[0] == '/' && access(out, X_OK) == 0)
            return is_roots_alone(dir, S_IFDIR) && is_roots_alone(out, S_IFREG);
        path += bytes + (path[bytes] == ':');
    }
    return false;
}

static void add_remedy(char *problem, size_t problem_bytes)
{
    const size_t used = strlen(problem);

    (void)snprintf(
        problem + used, problem_bytes - used,
        " (where kernel.yama.ptrace_scope is not 0, only a py-spy of root's, in the PATH of "
        "launcherd, may read it)");
}

bool pyspy_dump(const struct pyspy_order *order, char *text, char *problem, size_t problem_bytes)
{
    const char *const paths[] = {order->job_path, order->node_path};
    enum outcome outcome = NOT_THERE;
    char program[PATH_MAX];

    for (size_t i = 0; i < 2 && outcome == NOT_THERE; i++)
        if (paths[i] != NULL)
            outcome = run(order, order->user, NULL, paths[i], text, problem, problem_bytes);
    if (outcome == REFUSED && geteuid() == 0 && order->user != NULL &&
        find_roots_own(order->node_path, program))
        outcome = run(order, NULL, program, order->node_path, text, problem, problem_bytes);
    if (outcome == REFUSED)
        add_remedy(problem, problem_bytes);
    if (outcome == NOT_THERE)
        (void)snprintf(problem, problem_bytes, MISSING);
    return outcome == PRINTED;
}
