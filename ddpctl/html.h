/* Escapes text from jobs for an HTML page. Pure. */
#ifndef DDPCTL_HTML_H
#define DDPCTL_HTML_H

#include <stddef.h>

#include "common/buf.h"

/* Like escape_text, and writes &, <, >, " and ' as entities: for content and for quoted
 * attributes. */
void html_text(const char *text, size_t byte_count, struct buf *out);
void html_words(const char *text, struct buf *out);

#endif
