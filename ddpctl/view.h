/* What a person sees of one rank's log: whole lines with a prefix, control characters escaped (log
 * text is hostile), progress bars drawn with \r collapsed to their last state, at most one a
 * second. Pure.
 *
 * Forms. EXACT: bytes as they are. PLAIN: no prefix, text at once, escaped. PREFIXED: whole lines,
 * each behind the prefix, so that ranks do not mix within a line. JSON: an object for each whole
 * line. */
#ifndef DDPCTL_VIEW_H
#define DDPCTL_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

enum view_form { VIEW_EXACT, VIEW_PLAIN, VIEW_PREFIXED, VIEW_JSON };

/* Whose log it is, for VIEW_JSON. */
struct view_source {
    uint64_t job_id;
    uint32_t generation, rank;
    const char *node; /* borrowed */
};

#define VIEW_PREFIX_BYTES 128
#define VIEW_LINE_BYTES_MAX (256u * 1024u) /* a longer line is shown in pieces of this */

struct view {
    enum view_form form;
    char prefix[VIEW_PREFIX_BYTES]; /* with colour and " | " */
    struct view_source source;
    struct buf line;    /* of the line that is not yet whole, unescaped */
    bool line_is_bar;   /* a \r came: what is here replaces what stood there */
    bool bar_shown;     /* this state of the bar was shown */
    bool line_begun;    /* PLAIN: a part of the line is out already */
    bool after_return;  /* the last byte was \r */
    uint64_t bar_at_us; /* when a state of a bar was shown last */
};

void view_init(struct view *view, enum view_form form, const char *prefix);
/* Bytes of the log, in order, to `out`. */
void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out);
/* From time to time: shows the state of a bar that changed, at most once a second. */
void view_tick(struct view *view, uint64_t now_us, struct buf *out);
/* The log has ended: what is left of a line, with an end of line behind it. The view can begin
 * again. */
void view_end(struct view *view, struct buf *out);
void view_close(struct view *view);

/* `text` for a terminal: control characters, invalid UTF-8 and marks that turn the direction of
 * writing as \xNN, tabs and valid text as they are. */
void view_escape(const char *text, size_t byte_count, struct buf *out);

/* " 3 node1 | ", in the rank's colour where `color`. rank_width, node_width: columns. */
void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES]);

#endif
