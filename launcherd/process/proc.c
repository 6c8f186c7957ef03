#include "launcherd/process/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct proc_stat {
    pid_t pid, ppid;
    char state;
    uint64_t start_ticks;
};

static ssize_t read_file(const char *path, char *bytes, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = read(fd, bytes, capacity - 1);
    close(fd);
    if (got >= 0)
        bytes[got] = '\0';
    return got;
}

/* /proc/PID/stat, proc(5): state is field 3, ppid 4, start time 22. The name in field 2 may contain
 * spaces and parentheses, so fields are counted from the last parenthesis. */
static bool read_stat(pid_t pid, struct proc_stat *stat)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_file(path, text, sizeof text) <= 0)
        return false;
    const char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ')
        return false;
    at += 2;
    stat->pid = pid;
    stat->state = *at;
    stat->ppid = (pid_t)strtol(at + 1, NULL, 10);
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL)
            return false;
        at++;
    }
    stat->start_ticks = strtoull(at, NULL, 10);
    return true;
}

static bool is_dead(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

uint64_t proc_start_ticks(pid_t pid)
{
    struct proc_stat stat;
    return read_stat(pid, &stat) && !is_dead(&stat) ? stat.start_ticks : 0;
}

void proc_boot_id(char *text, uint32_t text_bytes)
{
    char line[64];
    if (read_file("/proc/sys/kernel/random/boot_id", line, sizeof line) <= 0)
        (void)snprintf(line, sizeof line, "unknown");
    line[strcspn(line, "\n")] = '\0';
    (void)snprintf(text, text_bytes, "%s", line);
}

/* The last field of /proc/PID/stat is the exit code as wait(2) gives it. */
static uint32_t dump_signal(pid_t pid)
{
    char path[64], text[1024];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_file(path, text, sizeof text) <= 0)
        return 0;
    const char *last = strrchr(text, ' ');
    return last == NULL ? 0 : (uint32_t)strtoul(last + 1, NULL, 10) & 0x7f;
}

bool proc_dumps_core(pid_t pid, uint32_t *signal)
{
    char path[64], text[4096];

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_file(path, text, sizeof text) <= 0 || strstr(text, "\nCoreDumping:\t1\n") == NULL)
        return false;
    *signal = dump_signal(pid);
    return true;
}

bool proc_reap(siginfo_t *info)
{
    int rc;

    do {
        *info = (siginfo_t){0};
        rc = waitid(P_ALL, 0, info, WEXITED | WNOHANG);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 && info->si_pid != 0;
}

int proc_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The next number in /proc; 0 at the end. */
static pid_t next_pid(DIR *dir)
{
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            return (pid_t)strtol(entry->d_name, NULL, 10);
    return 0;
}

/* Searches the environment for NUL `entry` NUL. It is read in pieces that overlap by the length of
 * `entry`. */
static bool environment_has(pid_t pid, const char *entry)
{
    char path[64], bytes[16384];
    size_t entry_bytes = strlen(entry), kept = 1;
    bool found = false;

    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bytes[0] = '\0'; /* as if the first entry came after another one */
    for (;;) {
        ssize_t got = read(fd, bytes + kept, sizeof bytes - kept);
        if (got <= 0)
            break;
        size_t have = kept + (size_t)got;
        const char *at = memmem(bytes, have, entry, entry_bytes);
        if (at != NULL && at > bytes && at[-1] == '\0') {
            found = true;
            break;
        }
        kept = have < entry_bytes ? have : entry_bytes;
        memmove(bytes, bytes + have - kept, kept);
    }
    close(fd);
    return found;
}

/* "program\0WORD\0PATH\0...": its second word, and its third names the same directory. */
static bool is_command(pid_t pid, const char *word, const struct stat *wanted)
{
    char path[64], bytes[PATH_MAX + 512];
    struct stat found;
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    bytes[got] = '\0';
    const char *end = bytes + got, *second = bytes + strlen(bytes) + 1;
    if (second >= end || strcmp(second, word) != 0)
        return false;
    const char *third = second + strlen(second) + 1;
    return third < end && stat(third, &found) == 0 && found.st_dev == wanted->st_dev &&
           found.st_ino == wanted->st_ino;
}

pid_t proc_find_command(const char *word, const char *path)
{
    struct stat wanted;
    pid_t pid = 0;
    DIR *dir = stat(path, &wanted) == 0 ? opendir("/proc") : NULL;

    if (dir == NULL)
        return 0;
    for (pid = next_pid(dir); pid != 0 && !is_command(pid, word, &wanted); pid = next_pid(dir))
        continue;
    closedir(dir);
    return pid;
}

/* The pidfd is opened before the environment is read: the kill then cannot hit another process that
 * got the same pid. */
static bool kill_if_token(pid_t pid, const char *entry)
{
    int pidfd = proc_pidfd(pid);
    if (pidfd < 0)
        return false;
    bool found = environment_has(pid, entry);
    if (found)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    close(pidfd);
    return found;
}

uint32_t proc_kill_token(const char *token)
{
    char entry[sizeof PROC_TOKEN_NAME + PROC_TOKEN_CHARS + 2];
    uint32_t count = 0;
    DIR *dir = opendir("/proc");

    if (dir == NULL)
        return 0;
    (void)snprintf(entry, sizeof entry, "%s=%.32s", PROC_TOKEN_NAME, token);
    for (pid_t pid = next_pid(dir); pid != 0; pid = next_pid(dir))
        if (pid != getpid())
            count += kill_if_token(pid, entry);
    closedir(dir);
    return count;
}

struct proc_table {
    struct proc_stat *items; /* owned */
    uint32_t count, capacity;
};

static bool table_read(struct proc_table *table)
{
    struct proc_stat stat;
    DIR *dir = opendir("/proc");
    if (dir == NULL)
        return false;
    for (pid_t pid = next_pid(dir); pid != 0; pid = next_pid(dir)) {
        if (!read_stat(pid, &stat))
            continue;
        if (table->count == table->capacity) {
            uint32_t capacity = table->capacity == 0 ? 512 : table->capacity * 2;
            struct proc_stat *items = realloc(table->items, capacity * sizeof *items);
            if (items == NULL)
                break;
            table->items = items;
            table->capacity = capacity;
        }
        table->items[table->count++] = stat;
    }
    closedir(dir);
    return true;
}

/* Kills only the process whose start time was read together with its parent: a later process with
 * the same pid has another one. */
static void kill_exactly(const struct proc_stat *stat)
{
    int pidfd = proc_pidfd(stat->pid);
    if (pidfd < 0)
        return;
    if (proc_start_ticks(stat->pid) == stat->start_ticks)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    close(pidfd);
}

static uint32_t kill_below(const struct proc_table *table, pid_t parent, uint32_t depth,
                           bool (*is_spared)(void *arg, pid_t pid), void *arg)
{
    uint32_t count = 0;
    if (depth > 1000)
        return 0; /* a pid that was used again while reading could close a cycle */
    for (uint32_t i = 0; i < table->count; i++) {
        const struct proc_stat *stat = &table->items[i];
        if (stat->ppid != parent || stat->pid == getpid())
            continue;
        if (is_spared != NULL && is_spared(arg, stat->pid))
            continue;
        if (!is_dead(stat)) {
            kill_exactly(stat);
            count++;
        }
        count += kill_below(table, stat->pid, depth + 1, NULL, NULL);
    }
    return count;
}

uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg)
{
    struct proc_table table = {0};
    uint32_t count = 0;
    if (table_read(&table))
        count = kill_below(&table, parent, 0, is_spared, arg);
    free(table.items);
    return count;
}
