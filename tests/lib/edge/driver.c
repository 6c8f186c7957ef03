/* edge-driver CONTROL_FILE ROOT_PID: moves the gated clock (clock.h). The group is what descends from ROOT_PID, a test, with the
 * processes that have the library. While all its threads sleep, time goes straight to the next deadline that one of
 * them waits for. Ends with its parent. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/edge/clock.h"

#define LOOK_NS 300000 /* between two looks */
#define PIDS_MAX 4096

/* One look at the group. Two that are equal, with nobody running, prove that all slept between them: a thread that ran has
 * changed its number of switches. */
struct look {
    uint64_t sum, changes;
    uint32_t threads;
    bool is_busy;
    int32_t pids[PIDS_MAX];
    int count;
};

static struct edge_clock *group;
static int32_t root;

/* The text of a file in /proc; empty: it is gone. */
static void read_text(const char *path, char *text, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t count = fd >= 0 ? read(fd, text, bytes - 1) : -1;

    text[count > 0 ? count : 0] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

static void add_pid(struct look *look, int32_t pid)
{
    for (int i = 0; i < look->count; i++)
        if (look->pids[i] == pid)
            return;
    if (pid > 0 && pid != (int32_t)getpid() && look->count < PIDS_MAX)
        look->pids[look->count++] = pid;
}

static uint64_t number_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    return at != NULL ? strtoull(at + strlen(word), NULL, 10) : 0;
}

static char state_of(const char *status)
{
    const char *at = strstr(status, "\nState:\t");

    return at != NULL ? at[8] : 'X';
}

/* A parent that waits until its new process begins a program is in state D; what that process does counts. */
static bool is_in_vfork(const char *folder, const char *tid)
{
    char path[128], text[128];

    (void)snprintf(path, sizeof path, "%.60s/%.16s/wchan", folder, tid);
    read_text(path, text, sizeof text);
    return strstr(text, "fork") != NULL || strcmp(text, "kernel_clone") == 0;
}

static void look_at_thread(struct look *look, const char *folder, const char *tid)
{
    char path[128], text[4096], *at;
    char state;

    (void)snprintf(path, sizeof path, "%.60s/%.16s/children", folder, tid);
    read_text(path, text, sizeof text);
    for (at = text; *at >= '0' && *at <= '9'; at += strspn(at, " "))
        add_pid(look, (int32_t)strtol(at, &at, 10));
    (void)snprintf(path, sizeof path, "%.60s/%.16s/status", folder, tid);
    read_text(path, text, sizeof text);
    state = state_of(text);
    if (state == 'R' || (state == 'D' && !is_in_vfork(folder, tid)))
        look->is_busy = true;
    if (state == 'Z' || state == 'X')
        return;
    look->threads++;
    look->sum = look->sum * 31 + (uint64_t)strtol(tid, NULL, 10) + (uint64_t)state +
                number_after(text, "\nvoluntary_ctxt_switches:\t") * 7 +
                number_after(text, "\nnonvoluntary_ctxt_switches:\t") * 13;
}

static void look_at_process(struct look *look, int32_t pid)
{
    char folder[64];
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    dir = opendir(folder);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            look_at_thread(look, folder, entry->d_name);
    if (dir != NULL)
        (void)closedir(dir);
}

static void look_at_group(struct look *look)
{
    look->changes = __atomic_load_n(&group->changes, __ATOMIC_ACQUIRE);
    look->sum = 0;
    look->threads = 0;
    look->count = 0;
    look->is_busy = false;
    add_pid(look, root);
    for (int i = 0; i < EDGE_PIDS; i++)
        add_pid(look, __atomic_load_n(&group->pids[i], __ATOMIC_ACQUIRE));
    for (int i = 0; i < look->count; i++) /* children are added on the way */
        look_at_process(look, look->pids[i]);
}

/* The state of a waiting thread; 'X': it is gone. */
static char waiter_state(uint64_t owner)
{
    char path[64], text[2048];

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)edge_owner_pid(owner),
                   (int)edge_owner_tid(owner));
    read_text(path, text, sizeof text);
    return state_of(text);
}

/* Wakes those whose time has come, and frees the places of those that are gone. Returns the next deadline of one that is not
 * stopped: also of one that was woken meanwhile by something from outside, such as the test, or time would leap over it. A thread
 * that is woken late is woken again with the next look. */
static int64_t wake_and_find_next(void)
{
    const int64_t now = group->now_ns;
    int64_t next = EDGE_NEVER;

    for (int i = 0; i < EDGE_WAITERS; i++) {
        struct edge_waiter *waiter = &group->waiters[i];
        uint64_t owner = __atomic_load_n(&waiter->owner, __ATOMIC_ACQUIRE);
        const int64_t deadline_ns = __atomic_load_n(&waiter->deadline_ns, __ATOMIC_ACQUIRE);
        const char state = owner != 0 ? waiter_state(owner) : 'X';

        if (owner == 0)
            continue;
        if (state == 'X' || state == 'Z') {
            /* Its time stays: whoever takes the place sets another, and may be woken too early by this one. */
            (void)__atomic_compare_exchange_n(&waiter->owner, &owner, 0, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE);
        } else if (state == 'S' && deadline_ns <= now) {
            (void)syscall(SYS_tgkill, edge_owner_pid(owner), edge_owner_tid(owner), EDGE_SIGNAL);
        } else if (state != 'T' && state != 't' && deadline_ns > now && deadline_ns < next) {
            next = deadline_ns;
        }
    }
    return next;
}

static void forget_gone(void)
{
    for (int i = 0; i < EDGE_PIDS; i++)
        if (group->pids[i] != 0 && kill(group->pids[i], 0) != 0)
            __atomic_store_n(&group->pids[i], 0, __ATOMIC_RELEASE);
}

static void drive(void)
{
    static struct look now, before;
    const struct timespec pause = {.tv_nsec = LOOK_NS};

    look_at_group(&before);
    for (;;) {
        (void)nanosleep(&pause, NULL);
        look_at_group(&now);
        if (!now.is_busy && !before.is_busy && now.sum == before.sum &&
            now.threads == before.threads) {
            const int64_t next = wake_and_find_next();
            if (next != EDGE_NEVER &&
                __atomic_load_n(&group->changes, __ATOMIC_ACQUIRE) == now.changes) {
                __atomic_store_n(&group->now_ns, next, __ATOMIC_RELEASE);
                group->moves++;
                (void)wake_and_find_next();
            }
            forget_gone();
        }
        before = now;
    }
}

int main(int argc, char **argv)
{
    const int fd = argc == 3 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    struct edge_clock_file *file = MAP_FAILED;

    if (fd >= 0)
        file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        (void)fprintf(stderr, "edge-driver: cannot use the control file\n");
        return 1;
    }
    group = &file->clock;
    root = (int32_t)strtol(argv[2], NULL, 10);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((int32_t)getppid() != root)
        return 1;
    drive();
}
