/* Command lines, by table. Pure: arguments and environment in, a struct out. Each option has a row;
 * a value comes from the command line, else from its environment variable, else it is what the
 * struct held before (the default).
 *
 *     struct settings { const char *server; uint32_t slots; uint64_t grace_us; bool json; };
 *     static const struct option_row rows[] = {
 *         {.name = "server", .env = "DDP_SERVER", .kind = OPTION_TEXT, .value = "ADDRESS",
 *          OPTION_INTO(struct settings, server), .help = "where rendezvous listens"},
 *         {.name = "slots", .letter = 's', .kind = OPTION_U32, .min = 1, .max = SLOTS_PER_NODE_MAX,
 *          OPTION_INTO(struct settings, slots), .value = "N", .help = "workers that fit here"},
 *     };
 *
 * Accepted: --slots 4, --slots=4, -s 4, -s4, -s=4, letters of flags together (-qv), --json,
 * --no-json, --json=false; `_` for `-` in names (torchrun's --nproc_per_node); `--` ends options.
 * Values of flags, in the environment too: 1/0, true/false, yes/no, on/off. -h/--help and --version
 * are always there. A program with verbs has one table for all of them, and says with each parse
 * which verb it is. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

#define OPTION_ROWS_MAX 160u
#define OPTION_TEXTS_MAX 1024u
#define OPTION_POSITIONALS_MAX 1024u
#define OPTION_NAME_BYTES 65u /* of a variable's name, NUL included */

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_U32,      /* uint32_t in min..max */
    OPTION_U64,      /* uint64_t in min..max */
    OPTION_F64,      /* double in real_min..real_max (both 0: any finite) */
    OPTION_F32,      /* float, as OPTION_F64 */
    OPTION_DURATION, /* uint64_t microseconds in min..max: "250ms", "1.5s", "5m", "1h30m", "2d"; a
                        bare number is seconds */
    OPTION_SIZE,     /* uint64_t bytes in min..max: "512K", "100M", "1G", "2T" (powers of 1024); a
                        bare number is bytes */
    OPTION_TEXT,     /* const char *, borrowed from the arguments or the environment; of at least
                        min bytes, 0 or 1 */
    OPTION_TEXTS,    /* struct option_texts, one more each time; env: one */
    OPTION_WORD,     /* uint32_t: index in `words`, "auto|cpu|cuda" */
    OPTION_IGNORED,  /* accepts a value and ignores it: an option of another program; only `sources`
                      * shows that it was given */
};

struct option_texts {
    const char *items[OPTION_TEXTS_MAX];
    uint32_t count;
};

/* Of a program that runs as several ranks. */
enum option_ranks {
    OPTION_RANKS_EQUAL, /* all have the same value */
    OPTION_RANKS_GIVEN, /* all are given one, or none is: a path of the node */
    OPTION_RANKS_FREE
};

struct option_row {
    const char *name;     /* "nproc-per-node" */
    const char *synonyms; /* "nproc ranks": other names; NULL: none */
    const char *env;      /* "DDP_SERVER"; NULL: none, or the table's env_prefix and the name */
    const char *value;    /* "N": the name of the value in the help */
    const char *words;    /* of OPTION_WORD */
    const char *help;     /* one line; NULL: accepted, but not shown */
    const char *heading;  /* of the group of options that begins here; NULL: no new group */
    enum option_ranks ranks;
    char letter; /* 0: none */
    enum option_kind kind;
    uint32_t verbs; /* bits of the verbs that take it; 0: all */
    const char
        *once; /* twice on the command line is refused with these words; NULL: the last counts */
    size_t offset, byte_count;
    uint64_t min, max; /* max 0: all that the type holds */
    double real_min, real_max;
};
#define OPTION_INTO(type, member)                                                                  \
    .offset = offsetof(type, member), .byte_count = sizeof(((type *)0)->member)

struct option_table {
    const char *program;         /* "ddpctl submit" */
    const char *usage;           /* "[options] -- CMD..." */
    const char *summary;         /* one or two lines */
    const char *const *examples; /* lines, NULL at the end; NULL: none */
    const struct option_row *rows;
    size_t row_count;
    const char *env_prefix; /* "DDP_": --max-restarts is DDP_MAX_RESTARTS; NULL: named rows alone */
    uint32_t verb;          /* one bit of the rows' `verbs`; 0: the rows of all verbs alone */
    bool stops_at_positional; /* `run CMD -x`: -x belongs to CMD */
    /* With stops_at_positional: true for a first positional that does not stop it, as in `submit
     * JOB.json -x`. NULL: none. */
    bool (*passes)(const char *positional);
};

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_ENV, OPTION_FROM_ARGS };

struct option_result {
    bool wants_help, wants_version; /* if set, nothing else was checked */
    const char *positionals[OPTION_POSITIONALS_MAX];
    uint32_t positional_count;
    /* The arguments after `--`, or from the first positional on where the table stops there; ends
     * with NULL as argv does. */
    char *const *rest;
    uint32_t rest_count;
    bool has_separator;                          /* there was a `--` */
    enum option_source sources[OPTION_ROWS_MAX]; /* [row] */
};

typedef const char *option_getenv(const char *name);

/* `argv[0]` is skipped. `into`: the struct of the rows, holding the defaults. `env`: NULL for none.
 * Errors: STATUS_BAD_INPUT with a sentence that names the option and, for an unknown one, the
 * nearest that exists. */
enum status options_parse(const struct option_table *table, int argc, char *const *argv,
                          option_getenv *env, void *into, struct option_result *result,
                          struct err *err);
/* The program's own environment, for `env`. */
const char *options_getenv(const char *name);
/* The name of the row's variable; "" where it has none. */
void options_variable(const struct option_table *table, const struct option_row *row,
                      char name[OPTION_NAME_BYTES]);
/* What --help prints: examples, usage, options with their variables, in their groups. */
void options_help(const struct option_table *table, struct buf *out);
/* The heading under which the table's row `next` stands, where `shown` is the row that was shown before
 * it (SIZE_MAX: none); NULL: no new one. A group whose first rows are not shown keeps its heading. */
const char *options_heading(const struct option_table *table, size_t shown, size_t next);
/* The nearest of `count` names to a mistyped or shortened one; NULL when none is near. For verbs
 * and keys too. */
const char *options_nearest(const char *typed, const char *const *names, size_t count);
/* "5m", "1h30m", "1.5s" to microseconds; false: no duration, or over UINT64_MAX. */
bool options_parse_duration(const char *text, uint64_t *duration_us);
/* Appends the value that `from` holds, numbers with enough digits to tell them apart; false: it has none. */
bool options_value_text(const struct option_row *row, const void *from, struct buf *out);
/* A whole decimal number in min..max. `shown` names it in the error: STATUS_BAD_INPUT. */
enum status options_parse_number(const char *shown, const char *text, uint64_t min, uint64_t max,
                                 uint64_t *value, struct err *err);

#endif
