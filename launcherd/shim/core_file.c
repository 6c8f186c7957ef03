#include "launcherd/shim/core_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/utf8.h"

#define PATTERN_BYTES_MAX 256u

/* Writes the value of "%" and `letter` in the pattern. */
static void put_fact(char *out, size_t out_bytes, char letter, const struct core_file_facts *facts)
{
    switch (letter) {
    case '%':
        (void)snprintf(out, out_bytes, "%%");
        break;
    case 'p':
    case 'P':
        (void)snprintf(out, out_bytes, "%d", (int)facts->pid);
        break;
    case 'u':
        (void)snprintf(out, out_bytes, "%u", (unsigned)facts->uid);
        break;
    case 's':
        (void)snprintf(out, out_bytes, "%u", facts->signal);
        break;
    default:
        (void)snprintf(out, out_bytes, "*");
        break;
    }
}

static void put_handler(const char *pattern, pid_t pid, char out[REASON_BYTES_MAX])
{
    char program[PATTERN_BYTES_MAX];

    pattern += 1 + strspn(pattern + 1, " ");
    utf8_printable(pattern, strcspn(pattern, " "), program, sizeof program);
    if (strstr(program, "systemd-coredump") != NULL)
        (void)snprintf(out, REASON_BYTES_MAX, "systemd-coredump has it: coredumpctl dump %d",
                       (int)pid);
    else
        (void)snprintf(out, REASON_BYTES_MAX, "given to %.200s", program);
}

void core_file_place(const char *pattern, const struct core_file_facts *facts,
                     char out[REASON_BYTES_MAX])
{
    char path[4 * PATTERN_BYTES_MAX] = "";
    bool has_pid = false;

    if (pattern[0] == '|') {
        put_handler(pattern, facts->pid, out);
        return;
    }
    if (pattern[0] != '/')
        (void)snprintf(path, sizeof path, "%.600s/", facts->cwd);
    for (const char *at = pattern; *at != '\0' && *at != '\n'; at++) {
        const size_t used = strlen(path);

        if (*at == '%' && at[1] == '\0')
            break; /* the kernel drops it too */
        if (*at == '%') {
            put_fact(path + used, sizeof path - used, *++at, facts);
            has_pid = has_pid || *at == 'p';
        } else {
            (void)snprintf(path + used, sizeof path - used, "%c", *at);
        }
    }
    if (facts->has_pid && !has_pid) {
        const size_t used = strlen(path);

        (void)snprintf(path + used, sizeof path - used, ".%d", (int)facts->pid);
    }
    utf8_printable(path, strlen(path), out, REASON_BYTES_MAX);
}

/* Reads a file of /proc/sys. `out` is "" if it cannot be read. */
static void read_setting(const char *path, char *out, size_t out_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out, out_bytes - 1) : -1;

    out[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

void core_file_describe(struct core_file_facts *facts, char out[REASON_BYTES_MAX])
{
    char pattern[PATTERN_BYTES_MAX], has_pid[8];

    read_setting("/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    read_setting("/proc/sys/kernel/core_uses_pid", has_pid, sizeof has_pid);
    facts->has_pid = has_pid[0] == '1';
    core_file_place(pattern, facts, out);
}
