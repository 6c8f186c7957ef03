#include "ddpctl/view.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/escape.h"
#include "ddpctl/output.h"

#define BAR_INTERVAL_US 1000000u

void view_init(struct view *view, enum view_form form, const char *prefix)
{
    assert(strlen(prefix) < sizeof view->prefix);
    *view = (struct view){.form = form};
    (void)snprintf(view->prefix, sizeof view->prefix, "%s", prefix);
}

void view_close(struct view *view)
{
    buf_free(&view->line);
}

/* Writes the current line and a line feed. */
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
    escape_text(view->line.bytes, view->line.byte_count, out);
    buf_add_text(out, "\n");
}

static void forget_line(struct view *view)
{
    buf_drop(&view->line, view->line.byte_count);
    view->line_is_bar = view->bar_shown = view->line_begun = view->after_return = false;
}

static void end_line(struct view *view, struct buf *out)
{
    assert(view->form != VIEW_EXACT);
    if (!(view->line_is_bar &&
          view->bar_shown)) /* if false, this state of the bar was shown already */
        show_line(view, out);
    forget_line(view);
}

/* Adds bytes of a line, which have no \n and no \r. */
static void add_text(struct view *view, const char *text, size_t byte_count)
{
    if (byte_count == 0)
        return;
    if (view->after_return) { /* the bar is drawn again from its start */
        buf_drop(&view->line, view->line.byte_count);
        view->line_is_bar = true;
        view->after_return = false;
    }
    view->bar_shown = false;
    buf_add(&view->line, text, byte_count);
}

/* How many bytes of the line may be shown now: all but an incomplete character at the end. */
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

/* PLAIN shows text before the end of its line, since there is no other rank to mix with it. */
static void show_begun(struct view *view, struct buf *out)
{
    size_t byte_count = whole_characters(&view->line);

    if (view->form != VIEW_PLAIN || view->line_is_bar || view->after_return || byte_count == 0)
        return;
    escape_text(view->line.bytes, byte_count, out);
    buf_drop(&view->line, byte_count);
    view->line_begun = true;
}

void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out)
{
    const char *at = bytes, *end = at + byte_count;

    assert(byte_count == 0 || bytes != NULL);
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

    assert(now_us >= view->bar_at_us); /* the time of ticks never goes back */
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
    assert(view->form != VIEW_EXACT || view->line.byte_count == 0);
    if (view->line.byte_count > 0 || view->line_begun)
        end_line(view, out);
    forget_line(view);
}

void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES])
{
    static const unsigned colors[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
    unsigned number = colors[rank % (sizeof colors / sizeof colors[0])];

    assert(node_width < VIEW_PREFIX_BYTES / 2 && rank_width < VIEW_PREFIX_BYTES / 4);
    if (color)
        (void)snprintf(prefix, VIEW_PREFIX_BYTES, "\x1b[%um%*u %-*s |\x1b[0m ", number, rank_width,
                       rank, node_width, node);
    else
        (void)snprintf(prefix, VIEW_PREFIX_BYTES, "%*u %-*s | ", rank_width, rank, node_width,
                       node);
}
