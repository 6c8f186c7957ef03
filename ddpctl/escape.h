/* Escapes text from a job's command or a worker for a terminal; the text may be hostile. Pure. */
#ifndef DDPCTL_ESCAPE_H
#define DDPCTL_ESCAPE_H

#include <stddef.h>

#include "common/buf.h"

/* Tabs and valid UTF-8 are kept. Control characters, invalid bytes, and characters that change the
 * writing direction become \xNN. */
void escape_text(const char *text, size_t byte_count, struct buf *out);

/* Appends the last lines, at most `lines_max`, of the first `length` bytes, each escaped and
 * indented by four spaces. Empty lines at the end are left out. */
void escape_last_lines(const char *text, size_t length, int lines_max, struct buf *out);

#endif
