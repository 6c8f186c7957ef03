/* Parses command lines by a table. Pure: arguments and environment in, a struct out. Each option
 * has a row. A value comes from the command line, otherwise from the option's environment variable;
 * otherwise the struct keeps what it held before (the default).
 *
 *     struct settings { const char *server; uint32_t slots; uint64_t grace_us; bool json; };
 *     static const struct option_row rows[] = {
 *         {.name = "server", .env = "DDP_SERVER", .kind = OPTION_TEXT, .value = "ADDRESS",
 *          OPTION_INTO(struct settings, server), .help = "where rendezvous listens"},
 *         {.name = "slots", .letter = 's', .kind = OPTION_U32, .min = 1, .max = SLOTS_PER_NODE_MAX,
 *          OPTION_INTO(struct settings, slots), .value = "N", .help = "workers that fit here"},
 *     };
 *
 * Accepted: --slots 4, --slots=4, -s 4, -s4, -s=4, combined letters of flags (-qv), --json,
 * --no-json, --json=false; `_` for `-` in names (torchrun's --nproc_per_node); `--` ends options.
 * Values of flags, in the environment too: 1/0, true/false, yes/no, on/off. -h/--help and --version
 * always exist. A program with verbs has one table for all of them, and passes the verb to each
 * parse. */
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
    OPTION_TEXTS,    /* struct option_texts: each use adds one; env: one */
    OPTION_WORD,     /* uint32_t: index in `words`, "auto|cpu|cuda" */
    OPTION_IGNORED,  /* accepts and ignores a value; only `sources` shows that it was given */
};

struct option_texts {
    const char *items[OPTION_TEXTS_MAX];
    uint32_t count;
};

/* For a program that runs as several ranks: how their values must agree. */
enum option_ranks {
    OPTION_RANKS_EQUAL, /* all have the same value */
    OPTION_RANKS_GIVEN, /* either all ranks have one or none does: a path on each node */
    OPTION_RANKS_FREE
};

struct option_row {
    const char *name;     /* "nproc-per-node" */
    const char *synonyms; /* "nproc ranks": other names; NULL: none */
    const char *env;      /* "DDP_SERVER"; NULL: env_prefix and the name, or none; "": none */
    const char *value;    /* "N": the name of the value in the help */
    const char *words;    /* of OPTION_WORD */
    const char *help;     /* one line; NULL: accepted but not listed */
    const char *heading;  /* of the group of options that begins here; NULL: same group */
    enum option_ranks ranks;
    char letter; /* 0: none */
    enum option_kind kind;
    uint32_t verbs;   /* bits of the verbs that take it; 0: all */
    const char *once; /* giving it twice is refused with these words; NULL: the last one counts */
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
    const char *env_prefix;   /* "DDP_": --a-b is DDP_A_B; NULL: only rows with `env` */
    uint32_t verb;            /* one bit of the rows' `verbs`; 0: only rows for all verbs */
    bool stops_at_positional; /* in `run CMD -x`, -x belongs to CMD */
    /* With stops_at_positional: true if this first positional does not end the options, as in
     * `submit JOB.json -x`. NULL: never. */
    bool (*passes)(const char *positional);
};

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_ENV, OPTION_FROM_ARGS };

struct option_result {
    bool wants_help, wants_version; /* if set, nothing else was checked */
    const char *positionals[OPTION_POSITIONALS_MAX];
    uint32_t positional_count;
    /* The arguments after `--`, or from the first positional on if the table stops there. Ends with
     * NULL, as argv does. */
    char *const *rest;
    uint32_t rest_count;
    bool has_separator;                          /* there was a `--` */
    enum option_source sources[OPTION_ROWS_MAX]; /* [row] */
};

typedef const char *option_getenv(const char *name);

/* Parses `argv`, without argv[0]. `into`: the struct that the rows refer to, with the defaults in
 * it. `env`: NULL: no environment. Errors: STATUS_BAD_INPUT; the text names the option, and for an
 * unknown one the nearest that exists. */
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
/* The heading to print before the table's row `next`, if `shown` is the row printed before it
 * (SIZE_MAX: none). NULL: no new heading. A group whose first rows are not printed keeps its
 * heading. */
const char *options_heading(const struct option_table *table, size_t shown, size_t next);
/* The name most similar to a mistyped or shortened one; NULL: none is similar. Also for verbs and
 * keys. */
const char *options_nearest(const char *typed, const char *const *names, size_t count);
/* "5m", "1h30m", "1.5s" to microseconds; false: no duration, or over UINT64_MAX. */
bool options_parse_duration(const char *text, uint64_t *duration_us);
/* Appends the option's present value as text; numbers with enough digits to tell them apart. False:
 * it has none. */
bool options_value_text(const struct option_row *row, const void *from, struct buf *out);
/* A whole decimal number in min..max. `shown` names it in the error: STATUS_BAD_INPUT. */
enum status options_parse_number(const char *shown, const char *text, uint64_t min, uint64_t max,
                                 uint64_t *value, struct err *err);

#endif
