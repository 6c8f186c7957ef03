#include "ddpctl/view.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/escape.h"
#include "ddpctl/output.h"
#include "ddpctl/units.h"

#define BAR_INTERVAL_US 1000000u

enum status view_options_parse(const char *prefix, const char *stream, struct view_options *options,
                               struct err *err)
{
    if (prefix == NULL || strcmp(prefix, "auto") == 0)
        options->prefix = VIEW_PREFIX_AUTO;
    else if (strcmp(prefix, "always") == 0)
        options->prefix = VIEW_PREFIX_ALWAYS;
    else if (strcmp(prefix, "never") == 0)
        options->prefix = VIEW_PREFIX_NEVER;
    else
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--prefix: '%.40s' should be auto, always or never", prefix);
    if (stream != NULL && strcmp(stream, "all") != 0 && strcmp(stream, "out") != 0 &&
        strcmp(stream, "err") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--stream: '%.40s' should be out, err or all",
                       stream);
    options->hides_out = stream != NULL && strcmp(stream, "err") == 0;
    options->hides_error = stream != NULL && strcmp(stream, "out") == 0;
    return STATUS_OK;
}

bool view_hides(const struct view_options *options, uint32_t rank, bool is_error)
{
    const struct view_hidden *hidden = &options->hidden;

    if (is_error ? options->hides_error : options->hides_out)
        return true;
    return hidden->local_count > 0 &&
           (hidden->streams[rank % hidden->local_count] & (is_error ? VIEW_ERROR : VIEW_OUT)) != 0;
}

bool view_has_prefix(const struct view_options *options, const struct view_target *target)
{
    if (options->prefix == VIEW_PREFIX_AUTO)
        return target->has_ranks && (target->is_terminal || !options->splits);
    return options->prefix == VIEW_PREFIX_ALWAYS;
}

enum view_form view_choose(const struct view_options *options, const struct view_target *target)
{
    if (options->is_raw)
        return VIEW_EXACT;
    if (view_has_prefix(options, target) || options->has_times)
        return VIEW_PREFIXED;
    if (target->is_terminal)
        return target->has_ranks ? VIEW_PREFIXED : VIEW_PLAIN;
    return target->has_ranks ? VIEW_WHOLE : VIEW_EXACT;
}

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

/* Writes the current line and a line feed. `goes_on`: the line goes on in the next piece. */
static void show_line(const struct view *view, bool goes_on, struct buf *out)
{
    const struct view_source *source = &view->source;
    const struct output_log log = {.job_id = source->job_id,
                                   .generation = source->generation,
                                   .rank = source->rank,
                                   .node = source->node,
                                   .is_error = source->is_error,
                                   .at_ms = view->line_at_ms,
                                   .continues = goes_on,
                                   .text = view->line.bytes,
                                   .byte_count = view->line.byte_count};
    char time[TEXT_BYTES];

    if (view->form == VIEW_JSON) {
        output_log_json(&log, out);
        return;
    }
    if (view->has_times) {
        time_text(view->line_at_ms, time);
        buf_printf(out, "%s ", view->line_at_ms > 0 ? time : "-");
    }
    buf_add_text(out, view->prefix);
    escape_text(view->line.bytes, view->line.byte_count, out);
    buf_add_text(out, goes_on ? " [... this line is longer than 256 KiB and goes on ...]\n" : "\n");
}

static void forget_line(struct view *view)
{
    buf_drop(&view->line, view->line.byte_count);
    view->line_is_bar = view->bar_shown = view->line_begun = view->after_return = false;
}

static void end_line(struct view *view, bool goes_on, struct buf *out)
{
    assert(view->form == VIEW_PREFIXED || view->form == VIEW_JSON);
    if (!(view->line_is_bar &&
          view->bar_shown)) /* if false, this state of the bar was shown already */
        show_line(view, goes_on, out);
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
    if (view->line.byte_count == 0)
        view->line_at_ms = view->at_ms;
    buf_add(&view->line, text, byte_count);
}

/* How many bytes of the line may be shown now: all but an incomplete character at the end. */
static size_t whole_characters(const struct buf *line)
{
    size_t back;

    for (back = 1; back <= 3 && back <= line->byte_count; back++) {
        unsigned char byte = (unsigned char)line->bytes[line->byte_count - back];

        if (!utf8_is_start((char)byte))
            continue;
        if ((byte >= 0xc2 && back < 2) || (byte >= 0xe0 && back < 3) || (byte >= 0xf0 && back < 4))
            return line->byte_count - back;
        break;
    }
    return line->byte_count;
}

static void show_plain(struct view *view, const char *bytes, size_t byte_count, struct buf *out)
{
    const char *at, *end;
    size_t whole;

    buf_add(&view->line, bytes, byte_count); /* `line` may have an incomplete character */
    whole = whole_characters(&view->line);
    at = view->line.bytes;
    end = at + whole;
    while (at < end) {
        const char *stop = at;

        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        escape_text(at, (size_t)(stop - at), out);
        view->line_begun = stop == end || *stop == '\r';
        if (stop < end)
            buf_add(out, stop, 1);
        at = stop + (stop < end);
    }
    buf_drop(&view->line, whole);
}

/* Shows everything up to the last line end, or all if the line is too long to wait for its end. */
static void show_whole(struct view *view, const char *bytes, size_t byte_count, struct buf *out)
{
    size_t count = byte_count;

    while (count > 0 && bytes[count - 1] != '\n' && bytes[count - 1] != '\r')
        count--;
    if (view->line.byte_count + byte_count - count > VIEW_LINE_BYTES_MAX)
        count = byte_count;
    if (count > 0) {
        buf_add(out, view->line.bytes, view->line.byte_count);
        buf_drop(&view->line, view->line.byte_count);
        buf_add(out, bytes, count);
    }
    buf_add(&view->line, bytes + count, byte_count - count);
}

static void show_lines(struct view *view, const char *at, size_t byte_count, struct buf *out)
{
    const char *end = at + byte_count;

    while (at < end) {
        const char *stop = at;

        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        add_text(view, at, (size_t)(stop - at));
        if (stop < end && *stop == '\r')
            view->after_return = true;
        else if (stop < end || view->line.byte_count > VIEW_LINE_BYTES_MAX)
            end_line(view, stop == end, out);
        at = stop + (stop < end);
    }
}

void view_bytes(struct view *view, const void *bytes, size_t byte_count, struct buf *out)
{
    assert(byte_count == 0 || bytes != NULL);
    if (byte_count == 0)
        return;
    switch (view->form) {
    case VIEW_EXACT:
        buf_add(out, bytes, byte_count);
        break;
    case VIEW_WHOLE:
        show_whole(view, bytes, byte_count, out);
        break;
    case VIEW_PLAIN:
        show_plain(view, bytes, byte_count, out);
        break;
    case VIEW_PREFIXED:
    case VIEW_JSON:
        show_lines(view, bytes, byte_count, out);
        break;
    }
}

void view_tick(struct view *view, uint64_t now_us, struct buf *out)
{
    bool is_bar = view->line_is_bar || view->after_return;

    assert(now_us >= view->bar_at_us); /* the time of ticks never goes back */
    if (!is_bar || view->bar_shown || view->line.byte_count == 0 ||
        now_us - view->bar_at_us < BAR_INTERVAL_US)
        return;
    view->bar_at_us = now_us;
    show_line(view, false, out);
    view->bar_shown = true;
    view->line_is_bar = true;
}

void view_end(struct view *view, struct buf *out)
{
    assert(view->form != VIEW_EXACT || view->line.byte_count == 0);
    switch (view->form) {
    case VIEW_EXACT:
        break;
    case VIEW_WHOLE:
        buf_add(out, view->line.bytes, view->line.byte_count);
        break;
    case VIEW_PLAIN:
        escape_text(view->line.bytes, view->line.byte_count, out);
        if (view->line.byte_count > 0 || view->line_begun)
            buf_add_text(out, "\n");
        break;
    case VIEW_PREFIXED:
    case VIEW_JSON:
        if (view->line.byte_count > 0)
            end_line(view, false, out);
        break;
    }
    forget_line(view);
}

void view_prefix(uint32_t rank, const char *node, int rank_width, int node_width, bool color,
                 char prefix[VIEW_PREFIX_BYTES])
{
    static const unsigned colors[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
    unsigned number = colors[rank % (sizeof colors / sizeof colors[0])];
    char begin[16] = "";

    if (color)
        (void)snprintf(begin, sizeof begin, "\x1b[%um", number);
    assert(node_width < VIEW_PREFIX_BYTES / 2 && rank_width < VIEW_PREFIX_BYTES / 4);
    (void)snprintf(prefix, VIEW_PREFIX_BYTES, "%s%*u%s%-*s |%s ", begin, rank_width, rank,
                   node_width > 0 ? " " : "", node_width, node, color ? "\x1b[0m" : "");
}
