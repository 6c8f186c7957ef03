#include "launcherd/process/proc.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/boot_id.h"

#define COMMAND_BYTES_MAX (PATH_MAX + 512) /* of a command line, as far as its fourth word */

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

/* proc(5): the name is field 2, state 3, ppid 4, group 5, session 6, times 14 and 15, start time 22. The name may
 * contain spaces and parentheses, so fields are counted from the last parenthesis. */
bool proc_stat_read(const char *dir, struct proc_stat *stat)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "%.50s/stat", dir);
    if (read_file(path, text, sizeof text) <= 0)
        return false;
    const char *name = strchr(text, '(');
    char *at = strrchr(text, ')');
    if (name == NULL || at == NULL || at < name || at[1] != ' ')
        return false;
    *at = '\0';
    *stat = (struct proc_stat){.is.pid = (pid_t)strtol(text, NULL, 10)};
    (void)snprintf(stat->is.name, sizeof stat->is.name, "%s", name + 1);
    at += 2;
    stat->state = *at;
    stat->is.parent = (pid_t)strtol(at + 1, &at, 10);
    stat->is.group = (pid_t)strtol(at, &at, 10);
    stat->is.session = (pid_t)strtol(at, &at, 10);
    for (int field = 6; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL)
            return false;
        at++;
        if (field == 13 || field == 14) /* the loop is one field ahead */
            stat->cpu_ticks += strtoull(at, NULL, 10);
    }
    stat->is.start_ticks = strtoull(at, NULL, 10);
    return true;
}

bool proc_stat_of(pid_t pid, struct proc_stat *stat)
{
    char dir[32];
    (void)snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    return proc_stat_read(dir, stat);
}

static bool is_dead(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

/* Not the owner of /proc/PID: that is root where the program's file may not be read. */
bool proc_user(pid_t pid, uid_t *user)
{
    char path[64], text[4096];
    const char *line;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_file(path, text, sizeof text) <= 0)
        return false;
    line = strstr(text, "\nUid:");
    if (line == NULL)
        return false;
    *user = (uid_t)strtoul(line + strlen("\nUid:"), NULL, 10);
    return true;
}

/* A mask in hexadecimal digits behind the label. */
static uint64_t signal_mask(const char *text, const char *label)
{
    const char *line = strstr(text, label);

    return line == NULL ? UINT64_MAX : strtoull(line + strlen(label), NULL, 16);
}

bool proc_answers(pid_t pid, int signal)
{
    char path[64], text[32768]; /* a user may be in many groups */
    const char *masks;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_file(path, text, sizeof text) <= 0)
        return true;
    masks = strstr(text, "\nSigBlk:");
    masks = masks == NULL ? text : masks;
    return ((signal_mask(masks, "\nSigBlk:") | signal_mask(masks, "\nSigCgt:")) >> (signal - 1) &
            1) != 0;
}

bool proc_ignores(pid_t pid, int signal)
{
    char path[64], text[32768];
    const char *mask;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_file(path, text, sizeof text) <= 0)
        return false;
    mask = strstr(text, "\nSigIgn:");
    return mask != NULL && (signal_mask(mask, "\nSigIgn:") >> (signal - 1) & 1) != 0;
}

/* Empty: it cannot be read. */
static void read_link(pid_t pid, const char *name, char target[PATH_MAX])
{
    char path[64];
    ssize_t length;

    (void)snprintf(path, sizeof path, "/proc/%d/%.40s", (int)pid, name);
    length = readlink(path, target, PATH_MAX - 1);
    target[length > 0 ? length : 0] = '\0';
}

void proc_program(pid_t pid, char name[PROC_PROGRAM_BYTES])
{
    static const char gone[] = " (deleted)"; /* an update has replaced it */
    char target[PATH_MAX];
    char *end;

    read_link(pid, "exe", target);
    end = strstr(target, gone);
    if (end != NULL && end[sizeof gone - 1] == '\0')
        *end = '\0';
    end = strrchr(target, '/');
    (void)snprintf(name, PROC_PROGRAM_BYTES, "%.*s", (int)PROC_PROGRAM_BYTES - 1,
                   end == NULL ? "" : end + 1);
}

/* FNV-1a */
uint64_t proc_program_id(pid_t pid)
{
    char target[PATH_MAX];
    uint64_t id = 14695981039346656037u;

    read_link(pid, "exe", target);
    for (const char *at = target; *at != '\0'; at++)
        id = (id ^ (unsigned char)*at) * 1099511628211u;
    return target[0] == '\0' ? 0 : id;
}

uint64_t proc_pipe(pid_t pid, int fd)
{
    static const char prefix[] = "pipe:[";
    char name[24], target[PATH_MAX];

    (void)snprintf(name, sizeof name, "fd/%d", fd);
    read_link(pid, name, target);
    if (strncmp(target, prefix, sizeof prefix - 1) != 0)
        return 0;
    return strtoull(target + sizeof prefix - 1, NULL, 10);
}

uint64_t proc_start_ticks(pid_t pid)
{
    struct proc_stat stat;
    return proc_stat_of(pid, &stat) && !is_dead(&stat) ? stat.is.start_ticks : 0;
}

void proc_boot_id(char *text, uint32_t text_bytes)
{
    char id[BOOT_ID_BYTES];
    bool is_kernels;

    boot_id_read(id, &is_kernels);
    (void)snprintf(text, text_bytes, "%s", is_kernels ? id : BOOT_ID_UNKNOWN);
}

void proc_pid_ns(char text[32])
{
    const ssize_t got = readlink("/proc/self/ns/pid", text, 31);

    text[got > 0 ? got : 0] = '\0';
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

/* Whether the file has these bytes at its beginning or after the character `before`. It is read in
 * pieces that overlap, since the groups of a user alone can have many thousand bytes in
 * /proc/PID/status. */
static bool file_has(const char *path, char before, const char *entry, size_t entry_bytes)
{
    char bytes[16384];
    size_t kept = 1;
    bool found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    assert(entry_bytes < sizeof bytes / 2);
    if (fd < 0)
        return false;
    bytes[0] = before;
    while (!found && (got = read(fd, bytes + kept, sizeof bytes - kept)) > 0) {
        const size_t have = kept + (size_t)got;
        const char *at = bytes;

        while (!found &&
               (at = memmem(at, have - (size_t)(at - bytes), entry, entry_bytes)) != NULL) {
            found = at > bytes && at[-1] == before;
            at++;
        }
        kept = have < entry_bytes ? have : entry_bytes;
        memmove(bytes, bytes + have - kept, kept);
    }
    close(fd);
    return found;
}

bool proc_dumps_core(pid_t pid, uint32_t *signal)
{
    static const char entry[] = "CoreDumping:\t1\n";
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (!file_has(path, '\n', entry, sizeof entry - 1))
        return false;
    *signal = dump_signal(pid);
    return true;
}

bool proc_is_stopped(pid_t pid)
{
    struct proc_stat stat;

    return proc_stat_of(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

void proc_token_make(char token[PROC_TOKEN_CHARS + 1])
{
    uint8_t bytes[PROC_TOKEN_CHARS / 2];
    ssize_t got = getrandom(bytes, sizeof bytes, 0);

    assert(got == (ssize_t)sizeof bytes); /* never interrupted below 256 bytes, random(7) */
    for (uint32_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(token + 2 * (size_t)i, 3, "%02x", bytes[i]);
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

pid_t proc_next_pid(DIR *dir)
{
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            return (pid_t)strtol(entry->d_name, NULL, 10);
    return 0;
}

bool proc_environment_has(pid_t pid, const char *entry, size_t entry_bytes)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    return file_has(path, '\0', entry, entry_bytes);
}

/* Reads "program\0WORD\0PATH\0..." and a NUL after it. Returns the end; NULL: it cannot be read, or is another. */
static const char *read_command(pid_t pid, const char *word, char bytes[COMMAND_BYTES_MAX])
{
    char path[64];
    const char *second;
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    got = fd < 0 ? -1 : read(fd, bytes, COMMAND_BYTES_MAX - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return NULL;
    bytes[got] = '\0';
    second = bytes + strlen(bytes) + 1;
    return second < bytes + got && strcmp(second, word) == 0 ? bytes + got : NULL;
}

bool proc_has_word(pid_t pid, const char *word)
{
    char bytes[COMMAND_BYTES_MAX];

    return read_command(pid, word, bytes) != NULL;
}

bool proc_is_folder_of(pid_t pid, const char *name, const struct stat *wanted)
{
    char path[PATH_MAX];
    struct stat found;
    const int length = snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, name);

    if (name[0] != '/' || length >= (int)sizeof path)
        return false;
    if (stat(path, &found) != 0 && (errno != EACCES || stat(name, &found) != 0))
        return false;
    return found.st_dev == wanted->st_dev && found.st_ino == wanted->st_ino;
}

/* Whether it is one with that word and the wanted directory. */
static bool is_command(pid_t pid, const char *word, const struct stat *wanted)
{
    char bytes[COMMAND_BYTES_MAX];
    const char *end = read_command(pid, word, bytes);
    const char *third = bytes;

    if (end == NULL)
        return false;
    third += strlen(third) + 1;
    third += strlen(third) + 1;
    return third < end && proc_is_folder_of(pid, third, wanted);
}

pid_t proc_find_command(const char *word, const char *path)
{
    struct stat wanted;
    pid_t pid = 0;
    DIR *dir = stat(path, &wanted) == 0 ? opendir("/proc") : NULL;

    if (dir == NULL)
        return 0;
    for (pid = proc_next_pid(dir); pid != 0 && !is_command(pid, word, &wanted);
         pid = proc_next_pid(dir))
        continue;
    closedir(dir);
    return pid;
}

/* Whether the words, up to `end`, are its parent's, too: then it is a child that has not become its own program yet. */
static bool is_before_exec(const struct proc_stat *stat, const char *word, const char *bytes,
                           const char *end)
{
    char parent[COMMAND_BYTES_MAX];
    const char *parent_end = read_command(stat->is.parent, word, parent);

    return parent_end != NULL && parent_end - parent == end - bytes &&
           memcmp(parent, bytes, (size_t)(end - bytes)) == 0;
}

bool proc_each_command(const char *word,
                       void (*take)(void *owner, const struct proc_found *found, const char *third,
                                    const char *fourth),
                       void *owner)
{
    char bytes[COMMAND_BYTES_MAX];
    struct proc_stat stat;
    DIR *dir = opendir("/proc");

    if (dir == NULL)
        return false;
    for (pid_t pid = proc_next_pid(dir); pid != 0; pid = proc_next_pid(dir)) {
        const char *end = read_command(pid, word, bytes), *third, *fourth;

        if (end == NULL || !proc_stat_of(pid, &stat) || is_dead(&stat))
            continue; /* most are not the wanted ones, and their times cost more than their words */
        end = read_command(pid, word, bytes);
        if (end == NULL || is_before_exec(&stat, word, bytes, end))
            continue;
        third = bytes + strlen(bytes) + 1 + strlen(word) + 1;
        third = third < end ? third : end; /* a NUL is there */
        fourth = third + strlen(third) + 1;
        take(owner, &stat.is, third, fourth < end ? fourth : end);
    }
    closedir(dir);
    return true;
}

/* Opens the pidfd before it reads the environment, so that the kill cannot hit another process that
 * got the same pid. */
static bool kill_if_token(pid_t pid, const char *entry)
{
    int pidfd = proc_pidfd(pid);
    if (pidfd < 0)
        return false;
    bool found = proc_environment_has(pid, entry, strlen(entry));
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
    for (pid_t pid = proc_next_pid(dir); pid != 0; pid = proc_next_pid(dir))
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
    for (pid_t pid = proc_next_pid(dir); pid != 0; pid = proc_next_pid(dir)) {
        if (!proc_stat_of(pid, &stat))
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

void proc_signal_exactly(const struct proc_found *found, int signal)
{
    int pidfd = proc_pidfd(found->pid);
    if (pidfd < 0)
        return;
    if (proc_start_ticks(found->pid) == found->start_ticks)
        syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
    close(pidfd);
}

struct visit {
    bool (*is_spared)(void *arg, pid_t pid);
    void *arg;
    void (*take)(const struct proc_found *found, void *taker);
    void *taker;
};

static uint32_t visit_below(const struct proc_table *table, pid_t parent, uint32_t depth,
                            const struct visit *visit)
{
    uint32_t count = 0;
    if (depth > 1000)
        return 0; /* a pid that was reused during the scan could close a cycle */
    for (uint32_t i = 0; i < table->count; i++) {
        const struct proc_stat *stat = &table->items[i];
        if (stat->is.parent != parent || stat->is.pid == getpid())
            continue;
        if (depth == 0 && visit->is_spared != NULL && visit->is_spared(visit->arg, stat->is.pid))
            continue;
        if (!is_dead(stat)) {
            visit->take(&stat->is, visit->taker);
            count++;
        }
        count += visit_below(table, stat->is.pid, depth + 1, visit);
    }
    return count;
}

static uint32_t visit_descendants(pid_t parent, const struct visit *visit)
{
    struct proc_table table = {0};
    uint32_t count = 0;
    if (table_read(&table))
        count = visit_below(&table, parent, 0, visit);
    free(table.items);
    return count;
}

static void take_kill(const struct proc_found *found, void *taker)
{
    (void)taker;
    proc_signal_exactly(found, SIGKILL);
}

uint32_t proc_kill_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg)
{
    return visit_descendants(
        parent, &(struct visit){.is_spared = is_spared, .arg = arg, .take = take_kill});
}

struct found_list {
    struct proc_found *items;
    uint32_t count, most;
};

static void take_found(const struct proc_found *found, void *taker)
{
    struct found_list *list = taker;
    if (list->count < list->most)
        list->items[list->count++] = *found;
}

uint32_t proc_find_descendants(pid_t parent, bool (*is_spared)(void *arg, pid_t pid), void *arg,
                               struct proc_found *found, uint32_t most)
{
    struct found_list list = {.items = found, .most = most};
    return visit_descendants(
        parent,
        &(struct visit){.is_spared = is_spared, .arg = arg, .take = take_found, .taker = &list});
}
