/* Takes a stream of bytes apart into lines, as a terminal would show them: without escape sequences, and with
 * what a carriage return overwrites marked as such. Pure. */
#ifndef LAUNCHERD_CAUSE_LINES_H
#define LAUNCHERD_CAUSE_LINES_H

#include <stdint.h>

#include "common/text_view.h"

#define CAUSE_LINE_BYTES_MAX 2048u /* the rest of a longer line is dropped */

struct cause_lines {
    char bytes[CAUSE_LINE_BYTES_MAX];
    uint32_t count;
    bool is_returned; /* the last byte was a carriage return */
    enum { ESCAPE_NONE, ESCAPE_BEGUN, ESCAPE_CSI, ESCAPE_OSC, ESCAPE_OSC_END } escape;
};

/* `is_overwritten`: a carriage return follows the line, and then another state of it. */
typedef void cause_on_line(void *context, struct text line, bool is_overwritten);

/* Gives each line that is complete to `on_line`. `lines` is zeroed before the first call. */
void cause_lines_add(struct cause_lines *lines, struct text bytes, cause_on_line *on_line,
                     void *context);
/* The line that is not complete yet. */
struct text cause_lines_rest(const struct cause_lines *lines);

#endif
