#include "launcherd/inspect/stack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/utf8.h"
#include "launcherd/process/proc.h"

#define DIR_BYTES 64u
#define COMMAND_BYTES 256u

/* -1: errno. */
static ssize_t read_file(const char *dir, const char *name, char *bytes, size_t capacity)
{
    char path[DIR_BYTES + 32];
    ssize_t got = -1;
    int fd, code;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        got = read(fd, bytes, capacity - 1);
    code = errno;
    if (fd >= 0)
        close(fd);
    bytes[got > 0 ? got : 0] = '\0';
    errno = code;
    return got;
}

static void add_text(cJSON *out, const char *name, const char *text)
{
    char shown[COMMAND_BYTES];

    utf8_printable(text, strlen(text), shown, sizeof shown);
    (void)cJSON_AddStringToObject(out, name, shown);
}

/* "[<0>] futex_wait_queue+0x60/0x90" is the frame futex_wait_queue. */
static void add_frames(cJSON *list, char *text)
{
    char *rest = text, *line;

    for (uint32_t i = 0; i < STACK_FRAMES_MAX && (line = strsep(&rest, "\n")) != NULL; i++) {
        const char *name = strchr(line, ']');

        name = name != NULL ? name + 1 + strspn(name + 1, " ") : line;
        line[strcspn(line, "+")] = '\0';
        if (name[0] != '\0')
            (void)cJSON_AddItemToArray(list, cJSON_CreateString(name));
    }
}

static void add_kernel_stack(const char *dir, cJSON *out)
{
    char text[4096];
    cJSON *list;

    if (read_file(dir, "stack", text, sizeof text) < 0) {
        (void)cJSON_AddStringToObject(
            out, "kernel_stack_problem",
            errno == EACCES || errno == EPERM
                ? "only root may read it, and launcherd runs as another user"
            : errno == ENOENT ? "this kernel shows no stacks (CONFIG_STACKTRACE)"
                              : strerror(errno));
        return;
    }
    list = cJSON_AddArrayToObject(out, "kernel_stack");
    if (list != NULL)
        add_frames(list, text);
}

/* Adds what threads and processes have in common. False: it is gone. */
static bool add_task(const char *dir, cJSON *out, struct proc_stat *stat)
{
    char wchan[128];

    if (!proc_stat_read(dir, stat))
        return false;
    (void)read_file(dir, "wchan", wchan, sizeof wchan);
    add_text(out, "state", (char[]){stat->state, '\0'});
    add_text(out, "wchan", strcmp(wchan, "0") == 0 ? "" : wchan);
    add_kernel_stack(dir, out);
    return true;
}

static void add_threads(const char *dir, cJSON *out)
{
    char path[DIR_BYTES], task[DIR_BYTES];
    cJSON *list = cJSON_AddArrayToObject(out, "threads");
    uint32_t count = 0;
    DIR *tasks;
    pid_t tid;

    (void)snprintf(path, sizeof path, "%.40s/task", dir);
    tasks = opendir(path);
    while (tasks != NULL && (tid = proc_next_pid(tasks)) != 0) {
        cJSON *thread = count < STACK_THREADS_MAX ? cJSON_CreateObject() : NULL;
        struct proc_stat stat;

        count++;
        (void)snprintf(task, sizeof task, "%.40s/%d", path, (int)tid);
        if (thread == NULL)
            continue;
        (void)cJSON_AddNumberToObject(thread, "tid", tid);
        if (add_task(task, thread, &stat)) {
            add_text(thread, "name", stat.is.name);
            (void)cJSON_AddItemToArray(list, thread);
        } else {
            cJSON_Delete(thread);
        }
    }
    if (tasks != NULL)
        closedir(tasks);
    (void)cJSON_AddNumberToObject(out, "thread_count", count);
}

/* The command line, or the name where there is none. */
static void add_command(const char *dir, const struct proc_stat *stat, cJSON *out)
{
    char text[COMMAND_BYTES];
    const ssize_t got = read_file(dir, "cmdline", text, sizeof text);

    for (ssize_t i = 0; i + 1 < got; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    add_text(out, "command", got > 0 ? text : stat->is.name);
}

static void add_children(pid_t pid, cJSON *out)
{
    cJSON *list = cJSON_AddArrayToObject(out, "children");
    DIR *proc = opendir("/proc");
    char dir[DIR_BYTES];
    uint32_t count = 0;
    pid_t next;

    while (proc != NULL && count < STACK_CHILDREN_MAX && (next = proc_next_pid(proc)) != 0) {
        struct proc_stat stat;
        cJSON *child;

        (void)snprintf(dir, sizeof dir, "/proc/%d", (int)next);
        if (!proc_stat_read(dir, &stat) || stat.is.parent != pid)
            continue;
        count++;
        child = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(child, "pid", next);
        add_command(dir, &stat, child);
        add_text(child, "state", (char[]){stat.state, '\0'});
        (void)cJSON_AddItemToArray(list, child);
    }
    if (proc != NULL)
        closedir(proc);
}

bool stack_describe(pid_t pid, pid_t parent, cJSON *out)
{
    struct proc_stat before, after;
    char dir[DIR_BYTES];

    (void)snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    if (!proc_stat_read(dir, &before) || before.is.parent != parent)
        return false;
    (void)cJSON_AddNumberToObject(out, "pid", pid);
    if (!add_task(dir, out, &before))
        return false;
    add_text(out, "name", before.is.name);
    add_command(dir, &before, out);
    (void)cJSON_AddNumberToObject(out, "cpu_s",
                                  (double)before.cpu_ticks / (double)sysconf(_SC_CLK_TCK));
    add_threads(dir, out);
    add_children(pid, out);
    return proc_stat_read(dir, &after) && after.is.start_ticks == before.is.start_ticks &&
           after.is.parent == parent;
}

static bool is_python(pid_t pid)
{
    char link[32], path[PATH_MAX];
    const char *name;
    ssize_t got;

    (void)snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    got = readlink(link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = '\0';
    name = strrchr(path, '/');
    return name != NULL && (strncmp(name, "/python", 7) == 0 || strncmp(name, "/pypy", 5) == 0);
}

/* The children of `parents` become the next `parents`. */
static pid_t find_among_children(pid_t *parents, uint32_t *count)
{
    pid_t found[STACK_CHILDREN_MAX], next;
    DIR *proc = opendir("/proc");
    uint32_t found_count = 0;
    pid_t python = 0;

    while (proc != NULL && python == 0 && (next = proc_next_pid(proc)) != 0) {
        struct proc_stat stat;
        char dir[DIR_BYTES];

        (void)snprintf(dir, sizeof dir, "/proc/%d", (int)next);
        if (!proc_stat_read(dir, &stat))
            continue;
        for (uint32_t i = 0; i < *count; i++) {
            if (stat.is.parent != parents[i] || found_count == STACK_CHILDREN_MAX)
                continue;
            found[found_count++] = next;
            python = is_python(next) ? next : python;
        }
    }
    if (proc != NULL)
        closedir(proc);
    memcpy(parents, found, found_count * sizeof found[0]);
    *count = found_count;
    return python;
}

pid_t stack_find_python(pid_t pid)
{
    pid_t parents[STACK_CHILDREN_MAX] = {pid}, python = is_python(pid) ? pid : 0;
    uint32_t count = 1;

    for (uint32_t depth = 0; depth < 8 && python == 0 && count > 0; depth++)
        python = find_among_children(parents, &count);
    return python;
}
