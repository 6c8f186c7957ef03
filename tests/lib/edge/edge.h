/* The control file of the edge (edge.c): shared by a test, which writes rules into it (tests/lib/edge.py), and by the
 * processes under test, which have it mapped. Its layout is known in both places. */
#ifndef TESTS_LIB_EDGE_EDGE_H
#define TESTS_LIB_EDGE_EDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EDGE_MAGIC 0x45444745u
#define EDGE_RULES 64
#define EDGE_NOTES 16384
#define EDGE_PATH_BYTES 512

/* Each is a family: calls that differ in their arguments alone are one kind. */
enum edge_kind {
    EDGE_OPEN,
    EDGE_RENAME, /* its path is the new name, as that of a link */
    EDGE_LINK,
    EDGE_UNLINK,
    EDGE_MKDIR,
    EDGE_FSYNC,
    EDGE_FDATASYNC,
    EDGE_READ,
    EDGE_WRITE,
    EDGE_CONNECT,
    EDGE_EXEC,
    EDGE_FORK,
};

enum edge_action { EDGE_STOP, EDGE_FAIL, EDGE_SHORT, EDGE_NOTE };

/* The processes write from `calls` on to `seen`, the test all else. `is_on` is written last. */
struct edge_rule {
    uint32_t is_on;
    uint32_t kind;
    uint32_t action;
    int32_t code;         /* errno of EDGE_FAIL */
    uint32_t first, last; /* which of the calls that match, from 1 */
    uint32_t calls;       /* that matched so far, of all processes together */
    uint32_t reached;     /* futex: how many of them were in the range */
    uint32_t released;    /* futex: those that wait go on */
    int32_t pid, tid;     /* of the last that was in the range */
    uint32_t unused;
    char program[80];
    char path[384];
    char seen[EDGE_PATH_BYTES]; /* path of that call */
    char fill[32];
};

_Static_assert(sizeof(struct edge_rule) == 1056, "tests/lib/edge.py knows it");

/* A call that a rule has noted. `kind` is one more, and written last. */
struct edge_note {
    uint32_t kind;
    int32_t pid;
    char program[80]; /* with its first argument */
    char path[424];
};

_Static_assert(sizeof(struct edge_note) == 512, "tests/lib/edge.py knows it");

struct edge_file {
    uint32_t magic;
    uint32_t note_count; /* also those for which there was no place */
    uint32_t unused[14];
    struct edge_rule rules[EDGE_RULES];
    struct edge_note notes[EDGE_NOTES];
};

/* What a rule makes of a call. */
struct edge_verdict {
    int code; /* fails with it; 0: does not */
    bool is_short;
};

/* What follows belongs to one library: another that is preloaded must not find it. */
#pragma GCC visibility push(hidden)

/* Counts the call, waits at stop points, and tells whether it fails. `path` may be NULL; with `parent_fd` -1 it is taken as it is. Keeps errno. Uses no heap: it
 * also runs in children that share their parent's memory. */
struct edge_verdict edge_look_at(enum edge_kind kind, int parent_fd, const char *path);

/* The same of a call with a descriptor. */
struct edge_verdict edge_look_fd(enum edge_kind kind, int fd);

/* edge_look_at, for calls that return -1. True: the call fails, with errno. */
bool edge_fails_at(enum edge_kind kind, int parent_fd, const char *path);
bool edge_fails_fd(enum edge_kind kind, int fd);

/* Whether the text has the form of the pattern, where * is any text, also with slashes, and ? any character. */
bool edge_matches(const char *pattern, const char *text);

/* The function of that name in the libraries after this one. */
void *edge_real(const char *name);

/* Looks it up if the table does not have it yet. */
#define EDGE_FIND(table, name)                                                                     \
    do {                                                                                           \
        if ((table).name == NULL)                                                                  \
            *(void **)&(table).name = edge_real(#name);                                            \
    } while (0)

/* Maps that much of the control file $EDGE_FILE, and leaves no descriptor open. NULL: there is none. */
void *edge_map(size_t byte_count);

#pragma GCC visibility pop

#endif
