/* Formats the log of one rank for people. Control characters are escaped, since log text may be
 * hostile. A progress bar drawn with \r is reduced to its last state, shown at most once a second.
 * Pure.
 *
 *   EXACT      bytes as they are
 *   PLAIN      text at once, escaped, without a prefix
 *   PREFIXED   whole lines, each after the prefix, so that ranks do not mix within a line
 *   JSON       one object for each whole line */
#ifndef DDPCTL_VIEW_H
#define DDPCTL_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

enum view_form { VIEW_EXACT, VIEW_PLAIN, VIEW_PREFIXED, VIEW_JSON };

/* The log that it shows, for VIEW_JSON. */
struct view_source {
    uint64_t job_id;
    uint32_t generation, rank;
    const char *node; /* borrowed */
};

#define VIEW_PREFIX_BYTES 128
#define VIEW_LINE_BYTES_MAX (256u * 1024u) /* a longer line is shown in pieces of this size */

struct view {
    enum view_form form;
    char prefix[VIEW_PREFIX_BYTES]; /* with colour and " | " */
    struct view_source source;
    struct buf line;    /* the current, incomplete line, unescaped */
    bool line_is_bar;   /* a \r came: this text replaces what was shown before it */
    bool bar_shown;     /* this state of the bar was shown */
    bool line_begun;    /* PLAIN: a part of the line was shown */
    bool after_return;  /* the last byte was \r */
    uint64_t bar_at_us; /* when a state of a bar was last shown */
};

void view_init(struct view *view, enum view_form form, const char *prefix);
/* Takes bytes of the log, in order, and writes what they show to `out`. */
void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out);
/* To be called from time to time: shows a changed state of a bar, at most once a second. */
void view_tick(struct view *view, uint64_t now_us, struct buf *out);
/* The log has ended: shows the rest of its last line, with a line feed. The view can be used
 * again. */
void view_end(struct view *view, struct buf *out);
void view_close(struct view *view);

/* " 3 node1 | ", in the rank's colour where `color`. rank_width, node_width: columns. */
void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES]);

#endif
