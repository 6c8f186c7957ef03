/* For LD_PRELOAD: the edge between a program and the system, which a test controls by the file $EDGE_FILE (edge.h; the
 * test's side is tests/lib/edge.py). Without that file the library does nothing. */
#include "tests/lib/edge/edge.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Set once, before main, in each process. */
static struct edge_file *shared;
static char program[128];            /* name of its file */
static char program_with_first[512]; /* the same with its first argument */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static void name_program(int argc, char **argv)
{
    char path[4096];
    const ssize_t count = readlink("/proc/self/exe", path, sizeof path - 1);

    path[count > 0 ? count : 0] = '\0';
    (void)snprintf(program, sizeof program, "%.127s", last_part(path));
    (void)snprintf(program_with_first, sizeof program_with_first, "%.127s %.380s", program,
                   argc > 1 ? argv[1] : "");
}

__attribute__((constructor)) static void load(int argc, char **argv)
{
    struct edge_file *file = edge_map(sizeof *file);

    if (file == NULL)
        return;
    name_program(argc, argv);
    shared = file;
}

bool edge_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL; /* the last star, and what it does not cover yet */

    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool is_met(const struct edge_rule *rule, enum edge_kind kind, const char *path)
{
    return __atomic_load_n(&rule->is_on, __ATOMIC_ACQUIRE) != 0 && rule->kind == kind &&
           (edge_matches(rule->program, program) ||
            edge_matches(rule->program, program_with_first)) &&
           edge_matches(rule->path, path);
}

/* Raw system calls: no cancellation, and nothing of ours is called. */
static void futex(uint32_t *word, int operation, uint32_t value)
{
    (void)syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void tell_reached(struct edge_rule *rule, const char *path)
{
    (void)snprintf(rule->seen, sizeof rule->seen, "%.511s", path);
    rule->pid = (int32_t)getpid();
    rule->tid = (int32_t)syscall(SYS_gettid);
    (void)__atomic_add_fetch(&rule->reached, 1, __ATOMIC_RELEASE);
    futex(&rule->reached, FUTEX_WAKE, INT32_MAX);
}

/* Writes the call into the next free note; too many are counted only. */
static void note(enum edge_kind kind, const char *path)
{
    const uint32_t at = __atomic_fetch_add(&shared->note_count, 1, __ATOMIC_ACQ_REL);
    struct edge_note *place = at < EDGE_NOTES ? &shared->notes[at] : NULL;

    if (place == NULL)
        return;
    place->pid = (int32_t)getpid();
    (void)snprintf(place->program, sizeof place->program, "%.79s", program_with_first);
    (void)snprintf(place->path, sizeof place->path, "%.423s", path);
    __atomic_store_n(&place->kind, (uint32_t)kind + 1, __ATOMIC_RELEASE);
}

static void wait_released(struct edge_rule *rule)
{
    while (__atomic_load_n(&rule->released, __ATOMIC_ACQUIRE) == 0)
        futex(&rule->released, FUTEX_WAIT, 0); /* a signal ends it, too */
}

/* Every rule counts the call. It waits at all stop points, and the first of the other rules decides. */
static struct edge_verdict judge(enum edge_kind kind, const char *path)
{
    struct edge_verdict verdict = {0};
    bool is_decided = false;

    for (int i = 0; i < EDGE_RULES; i++) {
        struct edge_rule *rule = &shared->rules[i];
        uint32_t call;

        if (!is_met(rule, kind, path))
            continue;
        call = __atomic_add_fetch(&rule->calls, 1, __ATOMIC_ACQ_REL);
        if (call < rule->first || call > rule->last)
            continue;
        tell_reached(rule, path);
        if (rule->action == EDGE_NOTE)
            note(kind, path);
        else if (rule->action == EDGE_STOP)
            wait_released(rule);
        else if (!is_decided) {
            is_decided = true;
            verdict.code = rule->action == EDGE_FAIL ? rule->code : 0;
            verdict.is_short = rule->action == EDGE_SHORT;
        }
    }
    return verdict;
}

static bool has_rule(enum edge_kind kind)
{
    for (int i = 0; shared != NULL && i < EDGE_RULES; i++)
        if (__atomic_load_n(&shared->rules[i].is_on, __ATOMIC_ACQUIRE) != 0 &&
            shared->rules[i].kind == kind)
            return true;
    return false;
}

/* The path of a descriptor, or of AT_FDCWD. Returns its length. */
static size_t path_of_fd(int fd, char *path, size_t path_bytes)
{
    char link[64];
    ssize_t count;

    if (fd == AT_FDCWD)
        (void)snprintf(link, sizeof link, "/proc/self/cwd");
    else
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    count = readlink(link, path, path_bytes - 1);
    path[count > 0 ? count : 0] = '\0';
    return count > 0 ? (size_t)count : 0;
}

struct edge_verdict edge_look_at(enum edge_kind kind, int parent_fd, const char *path)
{
    const int before = errno;
    struct edge_verdict verdict = {0};
    char full[2 * 4096 + 2] = "";
    size_t used = 0;

    if (!has_rule(kind))
        return verdict;
    if (path != NULL && path[0] != '/' && path[0] != '\0')
        used = path_of_fd(parent_fd, full, 4096);
    (void)snprintf(full + used, sizeof full - used, "%s%.4096s", used > 0 ? "/" : "",
                   path != NULL ? path : "");
    verdict = judge(kind, full);
    errno = before;
    return verdict;
}

struct edge_verdict edge_look_fd(enum edge_kind kind, int fd)
{
    const int before = errno;
    struct edge_verdict verdict = {0};
    char path[4096];

    if (!has_rule(kind))
        return verdict;
    (void)path_of_fd(fd, path, sizeof path);
    verdict = judge(kind, path);
    errno = before;
    return verdict;
}

static bool fails(struct edge_verdict verdict)
{
    if (verdict.code != 0)
        errno = verdict.code;
    return verdict.code != 0;
}

bool edge_fails_at(enum edge_kind kind, int parent_fd, const char *path)
{
    return fails(edge_look_at(kind, parent_fd, path));
}

bool edge_fails_fd(enum edge_kind kind, int fd)
{
    return fails(edge_look_fd(kind, fd));
}
