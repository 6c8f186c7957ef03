#include "ddpctl/view.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

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
    for (uint32_t i = 0; i < VIEW_ROWS_MAX; i++)
        buf_free(&view->rows[i].text);
}

void view_cut(struct view *view)
{
    view->is_open = false;
}

size_t view_whole_sequences(const struct buf *text)
{
    size_t length;

    for (size_t back = 1; back < SEQUENCE_BYTES_MAX && back <= text->byte_count; back++)
        if (text->bytes[text->byte_count - back] == '\x1b')
            return sequence_next(text->bytes + text->byte_count - back, back, &length) ==
                           SEQUENCE_PART
                       ? text->byte_count - back
                       : text->byte_count;
    return text->byte_count;
}

size_t view_whole(const struct buf *text)
{
    const size_t whole = view_whole_sequences(text);
    size_t back;

    for (back = 1; back <= 3 && back <= whole; back++) {
        unsigned char byte = (unsigned char)text->bytes[whole - back];

        if (!utf8_is_start((char)byte))
            continue;
        if ((byte >= 0xc2 && back < 2) || (byte >= 0xe0 && back < 3) || (byte >= 0xf0 && back < 4))
            return whole - back;
        break;
    }
    return whole;
}

static void show_plain(struct view *view, const char *bytes, size_t byte_count, struct buf *out)
{
    const char *at, *end;
    size_t whole;

    buf_add(&view->line, bytes, byte_count); /* `line` may have an incomplete character */
    whole = view_whole(&view->line);
    at = view->line.bytes;
    end = at + whole;
    while (at < end) {
        const char *stop = at;

        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        sequence_write(&view->rules, &view->style, at, (size_t)(stop - at), out);
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
        view_rows_bytes(view, bytes, byte_count, out);
        break;
    }
}

void view_tick(struct view *view, uint64_t now_us, struct buf *out)
{
    if (view->form == VIEW_PREFIXED || view->form == VIEW_JSON)
        view_rows_tick(view, now_us, out);
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
        sequence_write(&view->rules, &view->style, view->line.bytes, view->line.byte_count, out);
        if (view->line.byte_count > 0 || view->line_begun)
            buf_add_text(out, "\n");
        break;
    case VIEW_PREFIXED:
    case VIEW_JSON:
        view_rows_end(view, out);
        break;
    }
    buf_drop(&view->line, view->line.byte_count);
    view->line_begun = false;
    view->style = (struct style){0};
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
