#include "ddpctl/view.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/output.h"

#define BAR_INTERVAL_US 1000000u

void view_init(struct view *view, enum view_form form, const char *prefix)
{
    *view = (struct view){.form = form};
    (void)snprintf(view->prefix, sizeof view->prefix, "%s", prefix);
}

void view_close(struct view *view)
{
    buf_free(&view->line);
}

/* Bytes of the UTF-8 character that `text` begins with; 0: none that may be shown. RFC 3629, table
 * 3-7 of Unicode. */
static size_t shown_character(const unsigned char *text, size_t byte_count)
{
    unsigned code;
    size_t length, i;

    if (text[0] < 0x80)
        return text[0] == '\t' || (text[0] >= 0x20 && text[0] != 0x7f) ? 1 : 0;
    length = text[0] >= 0xc2 && text[0] <= 0xdf   ? 2
             : (text[0] & 0xf0) == 0xe0           ? 3
             : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                  : 0;
    if (length == 0 || length > byte_count)
        return 0;
    code = text[0] & (0xffu >> (length + 1));
    for (i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code <= 0xdfff))
        return 0; /* overlong, a surrogate, or beyond Unicode */
    if (code < 0xa0 || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
        (code >= 0x2066 && code <= 0x2069))
        return 0; /* C1 controls; separators and marks that turn the direction of writing */
    return length;
}

void view_escape(const char *text, size_t byte_count, struct buf *out)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0;

    while (at < byte_count) {
        size_t begin = at, length;

        while (at < byte_count && (length = shown_character(bytes + at, byte_count - at)) > 0)
            at += length;
        buf_add(out, text + begin, at - begin);
        if (at < byte_count)
            buf_printf(out, "\\x%02x", bytes[at++]);
    }
}

/* The line as it stands, and an end of line. */
static void show_line(const struct view *view, struct buf *out)
{
    const struct view_source *source = &view->source;

    if (view->form == VIEW_JSON) {
        output_log_json(source->job_id, source->generation, source->rank, source->node,
                        view->line.bytes, view->line.byte_count, out);
        return;
    }
    if (view->form == VIEW_PREFIXED)
        buf_add_text(out, view->prefix);
    view_escape(view->line.bytes, view->line.byte_count, out);
    buf_add_text(out, "\n");
}

static void forget_line(struct view *view)
{
    buf_drop(&view->line, view->line.byte_count);
    view->line_is_bar = view->bar_shown = view->line_begun = view->after_return = false;
}

static void end_line(struct view *view, struct buf *out)
{
    if (!(view->line_is_bar &&
          view->bar_shown)) /* else that very state is out, as a line of its own */
        show_line(view, out);
    forget_line(view);
}

/* Bytes of a line, without \n and \r. */
static void add_text(struct view *view, const char *text, size_t byte_count)
{
    if (byte_count == 0)
        return;
    if (view->after_return) { /* the bar is drawn anew */
        buf_drop(&view->line, view->line.byte_count);
        view->line_is_bar = true;
        view->after_return = false;
    }
    view->bar_shown = false;
    buf_add(&view->line, text, byte_count);
}

/* How much of the line may be shown now: all, but for the begin of a character whose rest has not
 * come yet. */
static size_t whole_characters(const struct buf *line)
{
    size_t back;

    for (back = 1; back <= 3 && back <= line->byte_count; back++) {
        unsigned char byte = (unsigned char)line->bytes[line->byte_count - back];

        if ((byte & 0xc0) == 0x80)
            continue;
        if ((byte >= 0xc2 && back < 2) || (byte >= 0xe0 && back < 3) || (byte >= 0xf0 && back < 4))
            return line->byte_count - back;
        break;
    }
    return line->byte_count;
}

/* PLAIN: text need not wait for the end of its line, as nothing else could come between. */
static void show_begun(struct view *view, struct buf *out)
{
    size_t byte_count = whole_characters(&view->line);

    if (view->form != VIEW_PLAIN || view->line_is_bar || view->after_return || byte_count == 0)
        return;
    view_escape(view->line.bytes, byte_count, out);
    buf_drop(&view->line, byte_count);
    view->line_begun = true;
}

void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out)
{
    const char *at = bytes, *end = at + byte_count;

    if (view->form == VIEW_EXACT) {
        buf_add(out, bytes, byte_count);
        return;
    }
    while (at < end) {
        const char *stop = at;

        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        add_text(view, at, (size_t)(stop - at));
        if (stop < end && *stop == '\r')
            view->after_return = true;
        else if (stop < end || view->line.byte_count > VIEW_LINE_BYTES_MAX)
            end_line(view, out);
        at = stop + (stop < end);
    }
    show_begun(view, out);
}

void view_tick(struct view *view, uint64_t now_us, struct buf *out)
{
    bool is_bar = view->line_is_bar || view->after_return;

    if (!is_bar || view->bar_shown || view->line.byte_count == 0 ||
        now_us - view->bar_at_us < BAR_INTERVAL_US)
        return;
    view->bar_at_us = now_us;
    show_line(view, out);
    view->bar_shown = true;
    view->line_is_bar = true;
}

void view_end(struct view *view, struct buf *out)
{
    if (view->line.byte_count > 0 || view->line_begun)
        end_line(view, out);
    forget_line(view);
}

void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES])
{
    static const unsigned colors[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
    unsigned number = colors[rank % (sizeof colors / sizeof colors[0])];

    if (color)
        (void)snprintf(prefix, VIEW_PREFIX_BYTES, "\x1b[%um%*u %-*s |\x1b[0m ", number, rank_width,
                       rank, node_width, node);
    else
        (void)snprintf(prefix, VIEW_PREFIX_BYTES, "%*u %-*s | ", rank_width, rank, node_width,
                       node);
}
