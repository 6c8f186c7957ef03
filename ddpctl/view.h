/* Formats one stream, stdout or stderr, of the log of one rank for people. Pure.
 *
 *   EXACT      bytes as they are, at once
 *   WHOLE      bytes as they are, whole lines at a time, so that ranks do not mix within a line
 *   PLAIN      text at once, escaped, without a prefix; \r as it is, so a progress bar stays in its place
 *   PREFIXED   whole lines, escaped, each after the prefix. A progress bar drawn with \r is reduced to its
 *              last state, shown at most once a second
 *   JSON       one object for each whole line
 *
 * Control characters are escaped for a terminal, since log text may be hostile. */
#ifndef DDPCTL_VIEW_H
#define DDPCTL_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/status.h"

enum view_form { VIEW_EXACT, VIEW_WHOLE, VIEW_PLAIN, VIEW_PREFIXED, VIEW_JSON };

enum view_prefixing { VIEW_PREFIX_AUTO, VIEW_PREFIX_ALWAYS, VIEW_PREFIX_NEVER };

#define VIEW_OUT 1u
#define VIEW_ERROR 2u
/* Streams that are not shown, by local rank. */
struct view_hidden {
    uint32_t local_count; /* ranks of a node; 0: nothing is hidden */
    uint8_t streams[SLOTS_PER_NODE_MAX];
    uint8_t teed[SLOTS_PER_NODE_MAX]; /* streams that torchrun prefixes, into a pipe, too */
};

/* What a person wants to see of logs. */
struct view_options {
    struct view_hidden hidden;
    enum view_prefixing prefix;
    bool hides_out, hides_error;
    bool has_times, is_raw;
    const char *line_prefix, *role; /* --log-line-prefix-template, --role; NULL: not given */
    bool splits; /* like a local program: stderr goes to stderr, and a pipe gets no prefixes */
};

/* Where a stream is shown. */
struct view_target {
    bool is_terminal;
    bool has_ranks; /* several ranks: without prefixes their lines would mix */
};

/* The log that a view shows, for VIEW_JSON. */
struct view_source {
    uint64_t job_id;
    uint32_t generation, rank;
    const char *node; /* borrowed */
    bool is_error;    /* stderr */
};

#define VIEW_PREFIX_BYTES 128
/* A longer line comes in pieces of this size. WHOLE: the same bytes. PREFIXED: each piece says that the
 * line goes on. JSON: "continues". */
#define VIEW_LINE_BYTES_MAX (256u * 1024u)

struct view {
    enum view_form form;
    char prefix[VIEW_PREFIX_BYTES]; /* with colour and " | " */
    struct view_source source;
    struct buf line;    /* the current, incomplete line, unescaped */
    bool line_is_bar;   /* a \r came: this text replaces what was shown before it */
    bool bar_shown;     /* this state of the bar was shown */
    bool line_begun;    /* PLAIN: a part of the line was shown */
    bool after_return;  /* the last byte was \r */
    bool has_times;     /* PREFIXED: the time comes before the line */
    int64_t at_ms;      /* when the next bytes were written, set by the owner; 0: not known */
    int64_t line_at_ms; /* the same of the line */
    uint64_t bar_at_us; /* when a state of a bar was last shown */
};

/* --prefix and --stream; NULL: not given. STATUS_BAD_INPUT. */
enum status view_options_parse(const char *prefix, const char *stream, struct view_options *options,
                               struct err *err);
bool view_hides(const struct view_options *options, uint32_t rank, bool is_error);
bool view_has_prefix(const struct view_options *options, const struct view_target *target);
/* Chooses how a stream is shown, unless as JSON. */
enum view_form view_choose(const struct view_options *options, const struct view_target *target);

void view_init(struct view *view, enum view_form form, const char *prefix);
/* Takes bytes of the log, in order, and writes what they show to `out`. */
void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out);
/* To be called from time to time: shows a changed state of a bar, at most once a second. */
void view_tick(struct view *view, uint64_t now_us, struct buf *out);
/* The log has ended: shows the rest of its last line, with a line feed. The view can be used
 * again. */
void view_end(struct view *view, struct buf *out);
void view_close(struct view *view);

/* " 3 node1 | ", in the rank's colour where `color`. rank_width, node_width: columns. node "": it is
 * not known. */
void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES]);

#endif
