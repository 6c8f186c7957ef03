/* Control sequences of terminals in the output of a job (ECMA-48, sections 5 and 8.3): which of them may reach our
 * terminal. Colours and other styles may, and where one rank has the screen for itself, moves within a few lines, with
 * which progress bars are drawn. All others are left out: a log may be hostile, and titles, questions to the terminal
 * or a cleared screen are never wanted from it. Pure. */
#ifndef DDPCTL_SEQUENCE_H
#define DDPCTL_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

enum sequence {
    SEQUENCE_NONE,  /* the text does not begin with one */
    SEQUENCE_PART,  /* it begins with a part of one */
    SEQUENCE_STYLE, /* SGR */
    SEQUENCE_LINE,  /* to a column, or erases in the line */
    SEQUENCE_UP,    /* to a line above */
    SEQUENCE_DOWN,
    SEQUENCE_OTHER
};

/* `*length`: of the sequence, unless NONE or PART. A longer one than SEQUENCE_BYTES_MAX is NONE. */
#define SEQUENCE_BYTES_MAX 512u
enum sequence sequence_next(const char *text, size_t byte_count, size_t *length);
/* The number in a SEQUENCE_UP or DOWN: how many lines. */
uint32_t sequence_lines(const char *text, size_t length);

/* How text is shown at a place of the output. Zeroed: as usual. */
struct style {
    uint16_t marks;          /* bit N: SGR N, as 1 bold */
    char fore[24], back[24]; /* colours, as "31" and "48;5;17"; empty: the usual one */
};
bool style_is_usual(const struct style *style);
/* Takes a SEQUENCE_STYLE. */
void style_take(struct style *style, const char *text, size_t length);
/* Takes all of those in `text`. */
void style_take_all(struct style *style, const char *text, size_t byte_count);
/* Writes the sequence for this style, from the usual one; nothing if it is that. */
void style_begin(const struct style *style, struct buf *out);
/* Back to the usual style; nothing if it is that. */
void style_end(const struct style *style, struct buf *out);

/* What of a job's output reaches the reader. */
struct sequence_rules {
    bool has_styles;
    bool has_moves;  /* in a line, backspaces too */
    bool has_climbs; /* to other lines */
};
/* Writes text of a job: as escape_text (escape.h), but with the sequences that the rules allow, and without the others. The
 * text begins and ends in the usual style; `style` is the one that the job has there, before and after. */
void sequence_write(const struct sequence_rules *rules, struct style *style, const char *text,
                    size_t byte_count, struct buf *out);

#endif
