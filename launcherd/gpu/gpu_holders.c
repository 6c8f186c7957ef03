#include "launcherd/gpu/gpu_holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOB_NAME "DDP_JOB_ID="
#define ENVIRONMENT_BYTES_MAX (64u * 1024u) /* our variables are the first ones */

void gpu_printable(const char *text, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (; text[used] != '\0' && used + 1 < out_bytes; used++)
        out[used] = text[used] >= ' ' && text[used] <= '~' ? text[used] : '?';
    if (used == 0)
        out[used++] = '?';
    out[used] = '\0';
}

static size_t read_proc(uint32_t pid, const char *name, char *bytes, size_t capacity)
{
    char path[64];
    size_t used = 0;
    (void)snprintf(path, sizeof path, "/proc/%u/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && used + 1 < capacity) {
        ssize_t got = read(fd, bytes + used, capacity - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    bytes[used] = '\0';
    return used;
}

static void describe_user(uid_t uid, char *out, size_t out_bytes)
{
    struct passwd entry, *found = NULL;
    char buffer[4096], number[24];
    if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != NULL) {
        gpu_printable(entry.pw_name, out, out_bytes);
        return;
    }
    (void)snprintf(number, sizeof number, "uid %u", (unsigned)uid);
    gpu_printable(number, out, out_bytes);
}

/* The job in the environment of a worker and its descendants; 0: there is none. */
static uint64_t job_of(uint32_t pid)
{
    char *bytes = malloc(ENVIRONMENT_BYTES_MAX);
    uint64_t job_id = 0;
    size_t count = bytes != NULL ? read_proc(pid, "environ", bytes, ENVIRONMENT_BYTES_MAX) : 0;
    for (size_t at = 0; at < count && job_id == 0; at += strlen(bytes + at) + 1)
        if (strncmp(bytes + at, JOB_NAME, strlen(JOB_NAME)) == 0)
            job_id = strtoull(bytes + at + strlen(JOB_NAME), NULL, 10);
    free(bytes);
    return job_id;
}

static bool is_zombie(uint32_t pid)
{
    char stat[512];
    (void)read_proc(pid, "stat", stat, sizeof stat);
    const char *at = strrchr(stat, ')'); /* proc(5): the name before it may contain anything */
    return at == NULL || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X';
}

void gpu_process_describe(struct gpu_process *process)
{
    char path[64], name[64];
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%u", process->pid);
    process->is_gone = stat(path, &info) != 0 || is_zombie(process->pid);
    process->job_id = process->is_gone ? 0 : job_of(process->pid);
    (void)read_proc(process->pid, "comm", name, sizeof name);
    name[strcspn(name, "\n")] = '\0';
    gpu_printable(name, process->program, sizeof process->program);
    if (process->is_gone)
        gpu_printable("", process->user, sizeof process->user);
    else
        describe_user(info.st_uid, process->user, sizeof process->user);
}

static bool has_open(uint32_t pid, const char *wanted)
{
    char folder[64], path[128], target[256];
    bool found = false;
    struct dirent *entry;
    (void)snprintf(folder, sizeof folder, "/proc/%u/fd", pid);
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return false; /* gone, or of another user */
    while (!found && (entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%.16s", folder, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    closedir(dir);
    return found;
}

uint32_t gpu_openers_find(const char *path, struct gpu_process *out, uint32_t max)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    uint32_t count = 0;
    while (dir != NULL && count < max && (entry = readdir(dir)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        uint32_t pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if ((pid_t)pid == getpid() || !has_open(pid, path))
            continue;
        out[count] = (struct gpu_process){.pid = pid, .bytes = GPU_BYTES_UNKNOWN};
        gpu_process_describe(&out[count++]);
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}
