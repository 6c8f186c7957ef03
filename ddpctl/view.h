/* Formats one stream, stdout or stderr, of the log of one rank for people. Pure.
 *
 *   EXACT      bytes as they are, at once
 *   WHOLE      bytes as they are, whole lines at a time, so that ranks do not mix within a line
 *   PLAIN      text at once, escaped, without a prefix; \r as it is, so a progress bar stays in its place
 *   PREFIXED   whole lines, escaped, each after the prefix. A progress bar drawn with \r is reduced to its
 *              last state, shown at most once a second; so are bars in several lines, which are drawn with moves up
 *              and down. At a terminal a line that rests without its end, as a prompt, is shown so far
 *   JSON       one object for each whole line
 *
 * Log text may be hostile: for a terminal, control characters are escaped, and sequence.h says which sequences pass. */
#ifndef DDPCTL_VIEW_H
#define DDPCTL_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/status.h"
#include "ddpctl/sequence.h"

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

/* A line that is not shown for good yet. */
struct view_row {
    struct buf text; /* unescaped */
    bool is_bar;     /* a \r came: the text replaces what was there before it */
    bool bar_shown;  /* this state of the bar was shown */
    int64_t at_ms;   /* when it was written; 0: not known */
};
#define VIEW_ROWS_MAX 8u

struct view {
    enum view_form form;
    char prefix[VIEW_PREFIX_BYTES]; /* with colour and " | " */
    struct view_source source;
    struct sequence_rules rules;
    struct style style; /* where the next byte to be shown is */
    bool has_times;     /* PREFIXED: the time comes before the line */
    bool shows_parts;   /* PREFIXED: a line that rests is shown without its end */
    bool is_typed;      /* our keyboard writes to this rank: each part is shown at once */
    int64_t at_ms;      /* when the next bytes were written, set by the owner; 0: not known */
    struct buf line;    /* PLAIN, WHOLE: not shown yet */
    bool line_begun;    /* PLAIN: a part of the line was shown */
    bool after_return;  /* PREFIXED, JSON: the last byte was \r */
    bool rests;         /* nothing has come since the last tick */
    bool is_open;       /* the cursor is behind a part of this line */
    size_t open_bytes;  /* of the line so many were shown as a part */
    uint64_t bar_at_us; /* when a state of a bar was last shown */
    uint32_t row_count; /* at least 1 in use */
    uint32_t row;       /* the one with the cursor. Only bars have others around them */
    struct view_row rows[VIEW_ROWS_MAX];
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
/* To be called from time to time: shows a changed state of a bar, at most once a second, and a line that rests. */
void view_tick(struct view *view, uint64_t now_us, struct buf *out);
/* The log has ended: shows the rest of its last line, with a line feed. The view can be used
 * again. */
void view_end(struct view *view, struct buf *out);
/* The rank has written to its other stream: bars above the cursor are done, and shown first. */
void view_settle(struct view *view, struct buf *out);
/* Something else was written behind a part of a line (is_open): the rest of it gets a line of its own. */
void view_cut(struct view *view);
void view_close(struct view *view);

/* How many bytes of the text may be shown now: all but an incomplete sequence, or character too, at its end. */
size_t view_whole_sequences(const struct buf *text);
size_t view_whole(const struct buf *text);
/* view_rows.c, for view.c: PREFIXED and JSON. */
void view_rows_bytes(struct view *view, const char *at, size_t byte_count, struct buf *out);
void view_rows_tick(struct view *view, uint64_t now_us, struct buf *out);
void view_rows_end(struct view *view, struct buf *out);

/* " 3 node1 | ", in the rank's colour where `color`. rank_width, node_width: columns. node "": it is
 * not known. */
void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES]);

#endif
