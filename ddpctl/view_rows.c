/* The forms of view.h that show whole lines: PREFIXED and JSON. The last lines are kept as long as bars are drawn in them:
 *
 *   \r          the next text replaces the line, which is a bar then
 *   ESC [ A     the cursor goes up to a bar above (B: down): tqdm draws the bars of nested loops so
 *   \n          ends a line for good, and with it the bars above it; but that of a bar may be come back to */
#include <assert.h>
#include <string.h>

#include "ddpctl/output.h"
#include "ddpctl/units.h"
#include "ddpctl/view.h"

#define BAR_INTERVAL_US 1000000u
#define ERASE_LINE "\x1b[2K"

static struct view_row *current(struct view *view)
{
    return &view->rows[view->row];
}

static bool is_blank(const struct view_row *row)
{
    for (size_t i = 0; i < row->text.byte_count; i++)
        if (row->text.bytes[i] != ' ')
            return false;
    return true;
}

static void show_json(const struct view *view, const struct view_row *row, bool goes_on,
                      struct buf *out)
{
    const struct view_source *source = &view->source;
    const struct output_log log = {.job_id = source->job_id,
                                   .generation = source->generation,
                                   .rank = source->rank,
                                   .node = source->node,
                                   .is_error = source->is_error,
                                   .at_ms = row->at_ms,
                                   .continues = goes_on,
                                   .text = row->text.bytes,
                                   .byte_count = row->text.byte_count};

    output_log_json(&log, out);
}

static void show_head(const struct view *view, const struct view_row *row, struct buf *out)
{
    char time[TEXT_BYTES];

    if (view->has_times) {
        time_text(row->at_ms, time);
        buf_printf(out, "%s ", row->at_ms > 0 ? time : "-");
    }
    buf_add_text(out, view->prefix);
}

/* Writes what is not shown yet of the line, up to byte `end`. */
static void show_to(struct view *view, const struct view_row *row, size_t end, struct buf *out)
{
    if (!view->is_open)
        show_head(view, row, out);
    if (end > view->open_bytes)
        sequence_write(&view->rules, &view->style, row->text.bytes + view->open_bytes,
                       end - view->open_bytes, out);
}

/* Writes the line and a line feed. `goes_on`: the line goes on in the next piece. */
static void show_line(struct view *view, const struct view_row *row, bool goes_on, struct buf *out)
{
    if (view->form == VIEW_JSON) {
        show_json(view, row, goes_on, out);
        return;
    }
    /* All of it was shown, and the line was ended by other output. */
    if (view->open_bytes > 0 && view->open_bytes == row->text.byte_count && !view->is_open)
        return;
    show_to(view, row, row->text.byte_count, out);
    buf_add_text(out, goes_on ? " [... this line is longer than 256 KiB and goes on ...]\n" : "\n");
}

static void forget_text(struct view *view, struct view_row *row)
{
    if (row->text.byte_count > view->open_bytes)
        style_take_all(&view->style, row->text.bytes + view->open_bytes,
                       row->text.byte_count - view->open_bytes);
    buf_drop(&row->text, row->text.byte_count);
    view->open_bytes = 0;
    view->is_open = false;
}

static void show_row(struct view *view, struct view_row *row, bool goes_on, struct buf *out)
{
    const bool is_shown = row->is_bar && (row->bar_shown || is_blank(row));

    if (!is_shown)
        show_line(view, row, goes_on, out);
    else
        forget_text(view, row);
    buf_drop(&row->text, row->text.byte_count);
    view->open_bytes = 0;
    view->is_open = row->is_bar = row->bar_shown = false;
}

/* Shows all lines for good. */
static void show_rows(struct view *view, bool goes_on, struct buf *out)
{
    const uint32_t last = view->row_count > 0 ? view->row_count - 1 : 0;

    for (uint32_t i = 0; i < last; i++)
        if (!is_blank(&view->rows[i]))
            show_row(view, &view->rows[i], false, out);
    if (last == 0 || !is_blank(&view->rows[last]))
        show_row(view, &view->rows[last], goes_on, out);
    view->row = 0;
    view->row_count = 1;
    view->after_return = false;
}

/* Makes room for one more line by showing the first one for good. */
static void drop_first(struct view *view, struct buf *out)
{
    struct view_row first = view->rows[0];

    if (!is_blank(&first))
        show_row(view, &first, false, out);
    first.is_bar = first.bar_shown = false;
    buf_drop(&first.text, first.text.byte_count);
    memmove(view->rows, view->rows + 1, (VIEW_ROWS_MAX - 1) * sizeof view->rows[0]);
    view->rows[VIEW_ROWS_MAX - 1] = first;
    view->row_count--;
    view->row--;
}

/* To the next line, which is a new one below the others, or one that was there. */
static void go_down(struct view *view, struct buf *out)
{
    if (view->row + 1 == VIEW_ROWS_MAX)
        drop_first(view, out);
    view->row++;
    if (view->row == view->row_count)
        view->row_count++;
    view->after_return = current(view)->text.byte_count > 0;
}

/* At a line feed. */
static void end_line(struct view *view, struct buf *out)
{
    const struct view_row *row = current(view);
    const bool is_last = view->row + 1 >= view->row_count;
    /* An empty line below bars: the cursor may be on its way to a bar further down. */
    const bool is_between = view->row > 0 && is_blank(row);

    if (is_last && !row->is_bar && !is_between)
        show_rows(view, false, out);
    else
        go_down(view, out);
}

/* Adds bytes of a line, which have no \n and no \r. */
static void add_text(struct view *view, const char *text, size_t byte_count, struct buf *out)
{
    struct view_row *row = current(view);

    if (byte_count == 0)
        return;
    if (view->row_count == 0)
        view->row_count = 1;
    if (view->after_return) { /* the bar is drawn again from its start */
        if (view->is_open)
            buf_add_text(out, "\n");
        forget_text(view, row);
        row->is_bar = true;
        view->after_return = false;
    }
    row->bar_shown = false;
    if (row->text.byte_count == 0)
        row->at_ms = view->at_ms;
    buf_add(&row->text, text, byte_count);
}

/* \b: takes back the last character. */
static void take_back(struct view *view, struct buf *out)
{
    struct buf *text = &current(view)->text;
    size_t count = text->byte_count;

    if (count == 0 || view->form == VIEW_JSON)
        return;
    do
        count--;
    while (count > 0 && ((unsigned char)text->bytes[count] & 0xc0) == 0x80);
    if (view->is_open && count < view->open_bytes)
        buf_add_text(out, "\b \b");
    if (count < view->open_bytes)
        view->open_bytes = count;
    buf_cut(text, count);
}

/* Takes a sequence that moves the cursor. */
static void move(struct view *view, enum sequence kind, const char *text, size_t length,
                 struct buf *out)
{
    uint32_t lines = sequence_lines(text, length);

    if (kind == SEQUENCE_UP) {
        view->row -= lines < view->row ? lines : view->row;
        view->after_return = true; /* who goes up draws the line anew */
    } else if (kind == SEQUENCE_DOWN) {
        while (lines-- > 0 && view->row + 1 < view->row_count)
            go_down(view, out);
    } else if (length == sizeof ERASE_LINE - 1 && memcmp(text, ERASE_LINE, length) == 0) {
        if (view->is_open)
            buf_add_text(out, "\n");
        forget_text(view, current(view));
        current(view)->is_bar = true;
    }
}

/* Takes the control character at `at`, or the sequence that it begins. Returns its length; 0: it is text. */
static size_t take_control(struct view *view, const char *at, size_t byte_count, struct buf *out)
{
    size_t length = 1;
    enum sequence kind = SEQUENCE_NONE;

    switch (*at) {
    case '\n':
        end_line(view, out);
        return 1;
    case '\r':
        view->after_return = true;
        return 1;
    case '\b':
        take_back(view, out);
        return 1;
    default:
        kind = sequence_next(at, byte_count, &length);
        if (kind != SEQUENCE_UP && kind != SEQUENCE_DOWN && kind != SEQUENCE_LINE)
            return 0;
        move(view, kind, at, length, out);
        return length;
    }
}

/* Shows the lines above the cursor for good. */
static void show_above(struct view *view, struct buf *out)
{
    const uint32_t row = view->row;
    struct view_row first;

    for (uint32_t i = 0; i < row; i++)
        if (!is_blank(&view->rows[i]))
            show_row(view, &view->rows[i], false, out);
    first = view->rows[0];
    view->rows[0] = view->rows[row];
    view->rows[row] = first;
    for (uint32_t i = 1; i < view->row_count; i++) {
        buf_drop(&view->rows[i].text, view->rows[i].text.byte_count);
        view->rows[i].is_bar = view->rows[i].bar_shown = false;
    }
    view->row = 0;
    view->row_count = 1;
}

void view_settle(struct view *view, struct buf *out)
{
    if (view->row > 0 && view->row + 1 == view->row_count && is_blank(current(view)))
        show_above(view, out);
}

/* Shows the line so far, and leaves the cursor behind it. */
static void show_part(struct view *view, struct buf *out)
{
    struct view_row *row = current(view);
    const size_t end = view_whole(&row->text);

    if (!view->shows_parts || view->after_return || row->is_bar || end <= view->open_bytes ||
        view->row + 1 < view->row_count)
        return;
    if (view->row > 0)
        show_above(view, out);
    show_to(view, &view->rows[0], end, out);
    view->open_bytes = end;
    view->is_open = true;
}

/* A line that is too long to wait for its end. */
static void end_piece(struct view *view, struct buf *out)
{
    if (view->row + 1 >= view->row_count)
        show_rows(view, true, out);
    else
        forget_text(view, current(view));
}

static void take_bytes(struct view *view, const char *at, size_t byte_count, struct buf *out)
{
    const char *end = at + byte_count;

    while (at < end) {
        const char *stop = at + 1;
        size_t length = take_control(view, at, (size_t)(end - at), out);

        if (length == 0) {
            while (stop < end && *stop != '\n' && *stop != '\r' && *stop != '\b' && *stop != '\x1b')
                stop++;
            length = (size_t)(stop - at);
            add_text(view, at, length, out);
        }
        if (current(view)->text.byte_count > VIEW_LINE_BYTES_MAX)
            end_piece(view, out);
        at += length;
    }
}

void view_rows_bytes(struct view *view, const char *at, size_t byte_count, struct buf *out)
{
    struct buf *waiting = &view->line; /* the part of a sequence */
    size_t whole;

    view->rests = false;
    buf_add(waiting, at, byte_count);
    whole = view_whole_sequences(waiting);
    take_bytes(view, waiting->bytes, whole, out);
    buf_drop(waiting, whole);
    if (view->is_typed)
        show_part(view, out);
}

/* Of the bars whose state has changed. */
static void show_bars(struct view *view, struct buf *out)
{
    for (uint32_t i = 0; i < view->row_count; i++) {
        struct view_row *row = &view->rows[i];
        const struct style style = view->style;

        if (!row->is_bar || row->bar_shown || is_blank(row))
            continue;
        show_line(view, row, false, out);
        view->style = style; /* it is drawn again from its start */
        row->bar_shown = true;
    }
}

void view_rows_tick(struct view *view, uint64_t now_us, struct buf *out)
{
    assert(now_us >= view->bar_at_us); /* the time of ticks never goes back */
    if (view->after_return && view->row == 0 && view->rows[0].text.byte_count > 0 && !view->is_open)
        view->rows[0].is_bar = true; /* the \r of "text\r": the next text replaces it */
    if (now_us - view->bar_at_us >= BAR_INTERVAL_US) {
        const size_t before = out->byte_count;

        show_bars(view, out);
        if (out->byte_count > before)
            view->bar_at_us = now_us;
    }
    if (view->rests) {
        view_settle(view, out);
        show_part(view, out);
    }
    view->rests = true;
}

void view_rows_end(struct view *view, struct buf *out)
{
    if (view->line.byte_count > 0)
        add_text(view, view->line.bytes, view->line.byte_count, out);
    if (view->row_count > 1 || current(view)->text.byte_count > 0)
        show_rows(view, false, out);
}
