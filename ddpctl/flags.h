/* Options of a command line from a table: long names, a synonym, a letter, DDP_* variables, near
 * guesses. Pure but for getenv in flags_env. */
#ifndef DDPCTL_FLAGS_H
#define DDPCTL_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum flag_kind {
    FLAG_SWITCH,   /* bool */
    FLAG_TEXT,     /* const char * */
    FLAG_NUMBER,   /* uint32_t, min..max */
    FLAG_DURATION, /* uint64_t, microseconds */
    FLAG_LIST,     /* struct flag_list: may be repeated */
    FLAG_IGNORED,  /* takes a value, has no effect here; flags_parse tells through `on_ignored` */
};

#define FLAG_LIST_MAX 256
struct flag_list {
    const char *items[FLAG_LIST_MAX]; /* borrowed from argv or the environment */
    uint32_t count;
};

/* "not given": what FLAG_NUMBER and FLAG_DURATION are preset to where that matters */
#define FLAG_NO_NUMBER UINT32_MAX
#define FLAG_NO_DURATION UINT64_MAX

struct flag {
    const char *name;    /* words with '-' between; on the command line '_' will do as well */
    const char *synonym; /* torchrun's name; or NULL */
    char letter;         /* or 0 */
    enum flag_kind kind;
    size_t offset; /* of its field in the struct that is filled */
    uint32_t min, max;
    uint32_t verbs;    /* bits of the verbs that take it; UINT32_MAX: all */
    const char *value; /* what help calls the value; NULL for a switch */
    const char *help;
};

struct flag_table {
    const struct flag *flags; /* [count] */
    size_t count;
    void (*on_ignored)(void *target, const char *name); /* may be NULL */
};

/* Options from argv[*index] on into `target`; stops at the first word that is none and leaves
 * *index there; "--" ends them and is stepped over (*dashes is then true). `verb`: one bit; its
 * name is for messages. STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_NOT_FOUND (no such option, with a
 * guess). */
enum status flags_parse(const struct flag_table *table, uint32_t verb, const char *verb_name,
                        int argc, char *const *argv, int *index, bool *dashes, void *target,
                        struct err *err);
/* The same from the environment, to be called before: --max-restarts is DDP_MAX_RESTARTS. Empty is
 * as unset. */
enum status flags_env(const struct flag_table *table, uint32_t verb, void *target, struct err *err);
/* DDP_MAX_RESTARTS for `flag`. */
void flag_variable(const struct flag *flag, char name[64]);

#endif
