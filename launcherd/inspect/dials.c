#include "launcherd/inspect/dials.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launcherd/process/proc.h"

#define PROCESSES_MAX 256u
#define SOCKETS_MAX 256u
#define LIBRARY "libtorch"

/* include/net/tcp_states.h */
enum { SYN_SENT = 0x02, LISTEN = 0x0a };

struct sockets {
    uint64_t inodes[SOCKETS_MAX]; /* of TCP */
    bool is_known[SOCKETS_MAX];   /* the kernel lists it: it is connected, connects or listens */
    uint32_t count;
    bool is_connected;
    char to[DIALS_ADDRESS_BYTES];
};

static bool has_torch(pid_t pid)
{
    char path[32], *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *maps;

    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    maps = fopen(path, "re");
    while (maps != NULL && !found && getline(&line, &capacity, maps) > 0)
        found = strstr(line, "/" LIBRARY) != NULL;
    if (maps != NULL)
        (void)fclose(maps);
    free(line);
    return found;
}

/* Reads which of its descriptors are TCP sockets. */
static void find_sockets(pid_t pid, struct sockets *sockets)
{
    char path[32], name[PATH_MAX], link[64], protocol[16];
    const struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL && sockets->count < SOCKETS_MAX) {
        ssize_t length;

        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        length = readlink(name, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        if (strncmp(link, "socket:[", 8) != 0)
            continue;
        sockets->inodes[sockets->count] = strtoull(link + 8, NULL, 10);
        length = getxattr(name, "system.sockprotoname", protocol, sizeof protocol - 1);
        protocol[length > 0 ? length : 0] = '\0';
        sockets->count += strncmp(protocol, "TCP", 3) == 0;
    }
    if (dir != NULL)
        (void)closedir(dir);
}

/* "0100007F:B26F": 32 bits at a time, each in the order of this machine. */
static void address_text(const char *hex, char text[DIALS_ADDRESS_BYTES])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint32_t words[4] = {0};
    uint32_t count = 0;
    unsigned port;
    char host[INET6_ADDRSTRLEN] = "";
    uint8_t bytes[16];

    for (; count < 4 && strspn(hex, "0123456789ABCDEF") >= 8; hex += 8) {
        char word[9];

        (void)snprintf(word, sizeof word, "%.8s", hex);
        words[count++] = (uint32_t)strtoul(word, NULL, 16);
    }
    if (*hex != ':')
        return;
    port = (unsigned)strtoul(hex + 1, NULL, 16);
    memcpy(bytes, words, sizeof bytes);
    if (count == 4 && memcmp(bytes, mapped, sizeof mapped) == 0) {
        memmove(bytes, bytes + 12, 4);
        count = 1;
    }
    (void)inet_ntop(count == 4 ? AF_INET6 : AF_INET, bytes, host, sizeof host);
    (void)snprintf(text, DIALS_ADDRESS_BYTES, count == 4 ? "[%s]:%u" : "%s:%u", host, port);
}

/* A line of the table: "sl local remote state queues timer retries uid timeout inode ...". */
static void take_row(char *line, struct sockets *sockets)
{
    char *fields[10] = {NULL}, *rest = line, *field;
    uint32_t count = 0;
    uint64_t inode;
    unsigned long state;

    while (count < 10 && (field = strsep(&rest, " \n")) != NULL)
        if (*field != '\0')
            fields[count++] = field;
    if (count < 10)
        return;
    state = strtoul(fields[3], NULL, 16);
    inode = strtoull(fields[9], NULL, 10);
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (sockets->inodes[i] != inode)
            continue;
        sockets->is_known[i] = true;
        if (state == SYN_SENT)
            address_text(fields[2], sockets->to);
        else if (state != LISTEN)
            sockets->is_connected = true;
    }
}

/* Looks up its sockets in a table of its network. */
static void look_up(pid_t pid, const char *table, struct sockets *sockets)
{
    char path[48], *line = NULL;
    size_t capacity = 0;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, table);
    file = fopen(path, "re");
    while (file != NULL && getline(&line, &capacity, file) > 0)
        take_row(line, sockets);
    if (file != NULL)
        (void)fclose(file);
    free(line);
}

static bool is_dialing(pid_t pid, struct dial *dial)
{
    struct sockets sockets = {.count = 0};
    bool is_refused = false;

    if (!has_torch(pid))
        return false;
    find_sockets(pid, &sockets);
    if (sockets.count == 0)
        return false;
    look_up(pid, "tcp", &sockets);
    look_up(pid, "tcp6", &sockets);
    for (uint32_t i = 0; i < sockets.count; i++)
        is_refused = is_refused || !sockets.is_known[i];
    if (sockets.is_connected || (!is_refused && sockets.to[0] == '\0'))
        return false;
    dial->pid = pid;
    (void)snprintf(dial->to, sizeof dial->to, "%s", sockets.to);
    return true;
}

static bool has(const pid_t *pids, uint32_t count, pid_t pid)
{
    for (uint32_t i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* Adds processes whose parent is listed. Returns how many are listed now. */
static uint32_t add_children(pid_t pids[PROCESSES_MAX], uint32_t count)
{
    DIR *proc = opendir("/proc");
    pid_t next;

    while (proc != NULL && count < PROCESSES_MAX && (next = proc_next_pid(proc)) != 0) {
        struct proc_stat stat;
        char dir[32];

        (void)snprintf(dir, sizeof dir, "/proc/%d", (int)next);
        if (!has(pids, count, next) && proc_stat_read(dir, &stat) &&
            has(pids, count, stat.is.parent))
            pids[count++] = next;
    }
    if (proc != NULL)
        (void)closedir(proc);
    return count;
}

bool dials_find(pid_t pid, struct dial *dial)
{
    pid_t pids[PROCESSES_MAX] = {pid};
    uint32_t count = 1, before = 0;

    while (count > before) { /* a child may have a lower number than its parent */
        before = count;
        count = add_children(pids, count);
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_dialing(pids[i], dial))
            return true;
    return false;
}
