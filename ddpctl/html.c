#include "ddpctl/html.h"

#include <string.h>

#include "ddpctl/escape.h"

void html_text(const char *text, size_t byte_count, struct buf *out)
{
    static const char special[] = "&<>\"'";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    struct buf shown = {0};

    escape_text(text, byte_count, &shown);
    out->failed = out->failed || shown.failed;
    for (size_t i = 0; i < shown.byte_count; i++) {
        const char *found = shown.bytes[i] != '\0' ? strchr(special, shown.bytes[i]) : NULL;

        if (found != NULL)
            buf_add_text(out, entities[found - special]);
        else
            buf_add(out, &shown.bytes[i], 1);
    }
    buf_free(&shown);
}

void html_words(const char *text, struct buf *out)
{
    html_text(text, strlen(text), out);
}
