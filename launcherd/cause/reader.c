#include "launcherd/cause/reader.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#define STRANGE_LINES_MAX 64u /* of other threads and programs, in the middle of a traceback */
#define NEXT_LINES_MAX 4u     /* between "Exception in thread" and its traceback */
#define ROOT_BYTES_MAX 110    /* most bytes of the root cause in cause->line */
#define LAST_BYTES_MAX 136    /* most bytes of the last exception after the root cause */
#define LINE_OF_MESSAGE_BYTES 600u
#define CUT_MARK "...\n"

static const char traceback[] = "Traceback (most recent call last):";

/* -- lines -------------------------------------------------------------------------------------- */

/* Whether the line begins with the prefix of the traceback; digits of times and process ids may differ. */
static bool has_prefix(const struct cause_reader *reader, struct text line)
{
    if (reader->prefix_count == 0 || line.count < reader->prefix_count)
        return false;
    for (uint32_t i = 0; i < reader->prefix_count; i++)
        if (line.bytes[i] != reader->prefix[i] &&
            (!isdigit((unsigned char)line.bytes[i]) || !isdigit((unsigned char)reader->prefix[i])))
            return false;
    return true;
}

static struct text without_prefix(const struct cause_reader *reader, struct text line)
{
    if (has_prefix(reader, line))
        line = text_from(line, reader->prefix_count);
    line = text_without_ranks(line);
    if (reader->is_group && (text_starts(line, "  + ") || text_starts(line, "  | ")))
        line = text_from(line, 4);
    return line;
}

static void take_prefix(struct cause_reader *reader, struct text line)
{
    const size_t at = text_find(line, traceback);

    reader->prefix_count = 0;
    if (at > sizeof reader->prefix || text_trim((struct text){line.bytes, at}).count == 0)
        return;
    memcpy(reader->prefix, line.bytes, at);
    reader->prefix_count = (uint32_t)at;
}

/* -- the parts of a cause ----------------------------------------------------------------------- */

/* Appends a line; drops the oldest lines if there is no room. */
static void add_frame(struct cause_reader *reader, struct text line)
{
    char kept[512];
    size_t used = strlen(reader->frames), bytes;

    line.count = line.count < sizeof kept / 2 ? line.count : sizeof kept / 2;
    bytes = utf8_printable_lines(line.bytes, line.count, kept, sizeof kept - 1);
    kept[bytes++] = '\n';
    while (used + bytes >= sizeof reader->frames) {
        const char *feed = strchr(reader->frames, '\n');
        const size_t drop = feed != NULL ? (size_t)(feed + 1 - reader->frames) : used;

        used -= drop;
        memmove(reader->frames, reader->frames + drop, used);
        reader->frames_are_cut = true;
    }
    memcpy(reader->frames + used, kept, bytes);
    reader->frames[used + bytes] = '\0';
}

/* Keeps the last frame that is not a library's, with its line of the source. */
static void note_own_frame(struct cause_reader *reader, struct text line)
{
    const bool is_frame = text_starts(text_trim(line), "File \"");

    if (is_frame && cause_is_library(line)) {
        reader->own_frame_goes_on = false;
        return;
    }
    if (is_frame)
        reader->own_frame[0] = '\0';
    else if (!reader->own_frame_goes_on)
        return;
    text_append(reader->own_frame, sizeof reader->own_frame - 1, line);
    text_append(reader->own_frame, sizeof reader->own_frame, (struct text){"\n", 1});
    reader->own_frame_goes_on = is_frame;
}

static void add_message(struct cause_reader *reader, struct text line)
{
    const size_t used = strlen(reader->message);
    const bool is_long = line.count > LINE_OF_MESSAGE_BYTES;

    if (used + (is_long ? LINE_OF_MESSAGE_BYTES : line.count) + 8 > sizeof reader->message) {
        reader->more_lines++;
        return;
    }
    line.count = is_long ? LINE_OF_MESSAGE_BYTES : line.count;
    text_append(reader->message, sizeof reader->message, line);
    text_append(reader->message, sizeof reader->message, text_of(is_long ? "...\n" : "\n"));
}

void cause_first_line(struct text text, char out[REASON_BYTES_MAX])
{
    size_t next;

    text = text_trim(text_line(text_trim(text), 0, &next));
    if (text.count > 0 && text.bytes[text.count - 1] == ':')
        text.count--;
    utf8_printable(text.bytes, text.count, out, REASON_BYTES_MAX);
}

/* Appends the beginning of a text, at most `bytes_max` bytes of it. */
static void append(char line[REASON_BYTES_MAX], struct text more, size_t bytes_max)
{
    const size_t used = strlen(line), room = REASON_BYTES_MAX - used;

    if (room >= 8) /* the least that utf8_printable takes */
        utf8_printable(more.bytes, more.count, line + used,
                       room < bytes_max + 1 ? room : bytes_max + 1);
}

static void compose_text(const struct cause_reader *reader, struct cause *cause)
{
    const bool has_own =
        reader->own_frame[0] != '\0' && strstr(reader->frames, reader->own_frame) == NULL;
    char more[48];

    cause->text[0] = '\0';
    if (has_own)
        text_append(cause->text, sizeof cause->text, text_of(reader->own_frame));
    if (reader->frames_are_cut)
        text_append(cause->text, sizeof cause->text, text_of(CUT_MARK));
    text_append(cause->text, sizeof cause->text, text_of(reader->frames));
    (void)snprintf(more, sizeof more, "... and %u more line%s\n", reader->more_lines,
                   reader->more_lines == 1 ? "" : "s");
    const size_t room = sizeof cause->text - (reader->more_lines > 0 ? strlen(more) : 0);
    text_append(cause->text, room, text_of(reader->message));
    if (reader->more_lines > 0)
        text_append(cause->text, sizeof cause->text, text_of(more));
}

/* Puts the first exception of a chain, the root cause, before the last one. */
static void compose_line(const struct cause_reader *reader, struct cause *cause)
{
    char last[REASON_BYTES_MAX];

    if (reader->root[0] == '\0' || strcmp(reader->root, cause->line) == 0)
        return; /* there is one, or the same one was raised again */
    memcpy(last, cause->line, sizeof last);
    cause->line[0] = '\0';
    append(cause->line, text_of(reader->root), ROOT_BYTES_MAX);
    append(cause->line, text_of("; then "), 16);
    append(cause->line, text_of(last), LAST_BYTES_MAX);
    if (cause->kind != CAUSE_ASIDE && reader->root_kind != CAUSE_NOISE)
        cause->kind = reader->root_kind;
}

bool cause_reader_open(const struct cause_reader *reader, struct cause *cause)
{
    if (!reader->is_open)
        return false;
    *cause = reader->open;
    cause->lines = reader->lines;
    compose_line(reader, cause);
    compose_text(reader, cause);
    return true;
}

struct giving {
    cause_on_cause *on_cause;
    void *context;
};

/* The open cause has ended. */
static void end_cause(struct cause_reader *reader, const struct giving *giving)
{
    struct cause cause;

    if (cause_reader_open(reader, &cause))
        giving->on_cause(giving->context, &cause);
    reader->is_open = reader->is_group = reader->group_is_named = false;
    reader->root[0] = '\0';
    reader->prefix_count = 0;
    reader->state = CAUSE_OUTSIDE;
}

static void begin_parts(struct cause_reader *reader)
{
    reader->frames[0] = reader->own_frame[0] = reader->message[0] = '\0';
    reader->own_frame_goes_on = reader->frames_are_cut = reader->line_is_bare = false;
    reader->strange_lines = reader->message_lines = reader->more_lines = 0;
}

/* -- tracebacks --------------------------------------------------------------------------------- */

static void begin_traceback(struct cause_reader *reader, struct text line, uint64_t order,
                            uint64_t now_us, const struct giving *giving)
{
    const bool is_linked = reader->is_linked && reader->is_open;
    const enum cause_kind next = is_linked && reader->open.kind == CAUSE_ASIDE ? CAUSE_ASIDE
                                 : reader->lines <= reader->next_until         ? reader->next
                                                                               : CAUSE_NONE;
    const uint64_t began_us = is_linked ? reader->open.began_us : now_us;
    char root[REASON_BYTES_MAX] = "";

    if (is_linked) {
        memcpy(root, reader->root[0] != '\0' ? reader->root : reader->open.line, sizeof root);
        if (reader->root[0] == '\0')
            reader->root_kind = reader->open.kind;
    }
    end_cause(reader, giving); /* the new traceback may never end */
    memcpy(reader->root, root, sizeof root);
    reader->open =
        (struct cause){.kind = next,
                       .is_child = reader->next_is_child && reader->lines <= reader->next_until,
                       .stream = reader->stream,
                       .began_us = began_us,
                       .order = order};
    reader->block_order = order;
    reader->next = CAUSE_NONE;
    reader->next_is_child = false;
    reader->is_linked = reader->is_bare = false;
    begin_parts(reader);
    reader->is_group =
        text_ends(text_trim(line), "Exception Group Traceback (most recent call last):");
    reader->state = CAUSE_FRAMES;
}

static bool is_syntax_error(struct text line)
{
    return text_starts(line, "SyntaxError:") || text_starts(line, "IndentationError:") ||
           text_starts(line, "TabError:");
}

static void take_exception(struct cause_reader *reader, struct text line, uint64_t order)
{
    reader->message_order = order;
    cause_first_line(line, reader->open.line);
    reader->line_is_bare = text_ends(text_trim(line), ":") && strlen(reader->open.line) < 100;
    if (reader->open.kind != CAUSE_ASIDE)
        reader->open.kind = cause_of_exception(line);
    add_message(reader, line);
    reader->is_open = true;
    reader->state = CAUSE_MESSAGE;
}

/* What Python prints between the tracebacks of chained exceptions. */
static bool is_link(struct text line)
{
    line = text_trim(line);
    return text_is(line, "During handling of the above exception, another exception occurred:") ||
           text_is(line, "The above exception was the direct cause of the following exception:");
}

/* False: the line is none of the traceback. */
static bool in_frames(struct cause_reader *reader, struct text line, uint64_t order,
                      const struct giving *giving)
{
    const bool is_flush = line.count > 0 && line.bytes[0] != ' ' && line.bytes[0] != '\t';

    if (is_flush && cause_is_exception(line) && (!reader->is_bare || is_syntax_error(line))) {
        take_exception(reader, line, order);
        return true;
    }
    if (is_flush && reader->is_bare) { /* frames of something else */
        end_cause(reader, giving);
        return false;
    }
    if (is_flush && !text_starts(line, "> File") && reader->strange_lines++ > STRANGE_LINES_MAX) {
        end_cause(reader, giving);
        return true;
    }
    if (line.count == 0)
        return true;
    note_own_frame(reader, line);
    add_frame(reader, line);
    return true;
}

/* Without the bars of the box, and the blanks before the right one. */
static void in_box(struct cause_reader *reader, struct text line)
{
    line = text_trim(line);
    if (text_starts(line, "\xe2\x95\xb0") || text_starts(line, "+-")) { /* its last line */
        reader->state = CAUSE_FRAMES;
        return;
    }
    line = text_starts(line, "\xe2\x94\x82") ? text_from(line, 3)
                                             : text_from(line, text_starts(line, "|"));
    if (text_ends(line, "\xe2\x94\x82"))
        line.count -= 3;
    else if (text_ends(line, "|"))
        line.count--;
    line = text_trim(line);
    if (line.count > 0)
        add_frame(reader, line);
}

/* The first exception of a group stands deeper in the tree that Python draws. */
static void name_first_of_group(struct cause_reader *reader, struct text line)
{
    char first[REASON_BYTES_MAX];

    while (line.count > 0 && strchr(" |+-", line.bytes[0]) != NULL && line.bytes[0] != '\0')
        line = text_from(line, 1);
    if (reader->group_is_named || !cause_is_exception(line) || !text_has(line, ": "))
        return;
    reader->group_is_named = true;
    cause_first_line(line, first);
    append(reader->open.line, text_of(": "), 16);
    append(reader->open.line, text_of(first), LAST_BYTES_MAX);
    if (reader->open.kind != CAUSE_ASIDE)
        reader->open.kind = cause_of_exception(text_of(first));
}

/* What a later line of the message says better than the first: "RuntimeError:" without more; how a child of torchrun ended; what
 * led to an exception of Java. */
static void complete_line(struct cause_reader *reader, struct text line)
{
    const size_t signal = text_find(line, "traceback : Signal ");

    if (signal < line.count) {
        cause_first_line(text_from(line, signal + 12), reader->open.line);
        reader->open.kind = CAUSE_FATAL;
    } else if (text_starts(line, "Caused by: ")) {
        cause_first_line(text_from(line, 11), reader->open.line);
    } else if (reader->line_is_bare && isalnum((unsigned char)line.bytes[0])) {
        append(reader->open.line, text_of(": "), 16);
        append(reader->open.line, line, LAST_BYTES_MAX);
        reader->line_is_bare = false;
    }
}

static void keep_line(struct cause_reader *reader, struct text line, uint64_t order,
                      uint64_t now_us)
{
    struct cause_kept_line *kept = &reader->last[reader->last_count++ % CAUSE_LINES_KEPT];

    kept->order = order;
    kept->at_us = now_us;
    kept->lines = reader->lines;
    kept->count = (uint32_t)(line.count < sizeof kept->bytes ? line.count : sizeof kept->bytes);
    memcpy(kept->bytes, line.bytes, kept->count);
}

/* "2026-11-28 ...", "ERROR:root:...": the program prints something else. */
static bool is_log_line(struct text line)
{
    return text_starts(line, "ERROR") || text_starts(line, "CRITICAL") ||
           text_starts(line, "INFO") || text_starts(line, "WARNING") ||
           text_starts(line, "DEBUG") || text_is(line, "Call stack:") ||
           (text_starts(line, "20") && line.count > 10 && line.bytes[4] == '-' &&
            line.bytes[7] == '-');
}

/* Whether the line still belongs to the message. */
static bool in_message(struct cause_reader *reader, struct text line, uint64_t order,
                       uint64_t now_us)
{
    const bool is_indented = line.count > 0 && (line.bytes[0] == ' ' || line.bytes[0] == '\t');

    if (reader->is_group) {
        name_first_of_group(reader, line);
        return text_trim(line).count > 0 && reader->message_lines++ < 200;
    }
    if (text_trim(line).count == 0 ||
        (!is_indented && (reader->message_lines >= CAUSE_MESSAGE_LINES || is_log_line(line) ||
                          reader->open.kind == CAUSE_ASIDE)))
        return false;
    if (!is_indented) {
        /* Another stream has a line in between: the program went on. */
        if (order != reader->message_order + 1 && !reader->line_is_bare)
            return false;
        reader->open.loose_lines++;
        keep_line(reader, line, order, now_us);
    }
    reader->message_order = order;
    if (reader->message_lines++ < CAUSE_MESSAGE_LINES)
        add_message(reader, line);
    else
        reader->more_lines++;
    complete_line(reader, text_trim(line));
    return true;
}

/* -- aborts ------------------------------------------------------------------------------------- */

static void begin_abort(struct cause_reader *reader, struct text line, enum cause_state state,
                        uint64_t order, uint64_t now_us, const struct giving *giving)
{
    end_cause(reader, giving);
    reader->is_linked = false;
    reader->open = (struct cause){
        .kind = CAUSE_FATAL, .stream = reader->stream, .began_us = now_us, .order = order};
    reader->block_order = reader->message_order = order;
    begin_parts(reader);
    cause_first_line(line, reader->open.line);
    add_message(reader, line);
    reader->is_open = true;
    reader->state = state;
}

/* "  what():  bad thing": the cause is "std::runtime_error: bad thing". */
static void in_what(struct cause_reader *reader, struct text line)
{
    const struct text thrown = text_of(reader->open.line);
    const size_t quote = text_find(thrown, "'");
    struct text type = text_from(thrown, quote + 1), what = text_trim(line);
    char named[REASON_BYTES_MAX];

    reader->state = CAUSE_MESSAGE;
    reader->message_order++;
    add_message(reader, line);
    if (!text_starts(what, "what():"))
        return;
    what = text_trim(text_from(what, 7));
    type.count = text_find(type, "'");
    named[0] = '\0';
    append(named, type, 80);
    append(named, text_of(": "), 16);
    append(named, what, 160);
    cause_first_line(text_of(named), reader->open.line);
    if (cause_of_exception(text_of(named)) != CAUSE_RAISED)
        reader->open.kind = cause_of_exception(text_of(named));
}

/* The first frame of the user is added to the line: "Fatal Python error: Segmentation fault (train.py, line 3 in f)". */
static bool in_dump(struct cause_reader *reader, struct text line)
{
    const struct text frame = text_trim(line);

    if (reader->message_lines++ > 100 ||
        (frame.count > 0 && !text_starts(frame, "File \"") && !text_starts(frame, "Thread 0x") &&
         !text_starts(frame, "Current thread 0x") && !text_starts(frame, "Python runtime state") &&
         !text_starts(frame, "<no Python frame>") && !text_starts(frame, "...")))
        return false;
    add_message(reader, line);
    if (!text_starts(frame, "File \"") || cause_is_library(line) || reader->own_frame[0] != '\0')
        return true;
    note_own_frame(reader, line);
    append(reader->open.line, text_of(" ("), 16);
    append(reader->open.line, text_from(frame, 5), 150);
    append(reader->open.line, text_of(")"), 16);
    return true;
}

/* -- all ---------------------------------------------------------------------------------------- */

/* A stack of c10 or glibc, a log line of c10 that warns: parts of nothing, but no sign that the program went on. */
static bool is_note(struct text line)
{
    return line.count == 0 || text_starts(line, "frame #") || text_starts(line, "[W") ||
           text_starts(line, "[I") || text_starts(line, "at ") || text_starts(line, "File \"");
}

static void in_nothing(struct cause_reader *reader, struct text line, uint64_t order,
                       uint64_t now_us)
{
    if (is_note(text_trim(line)) || line.bytes[0] == ' ' || line.bytes[0] == '\t')
        return; /* a line that is indented goes on with one before it */
    reader->lines++;
    keep_line(reader, line, order, now_us);
}

/* True: the line begins something, and was taken. */
static bool take_begin(struct cause_reader *reader, struct text whole, struct text line,
                       uint64_t order, uint64_t now_us, const struct giving *giving)
{
    const struct text trimmed = text_trim(line);
    const enum cause_kind next = cause_of_next(trimmed);

    if (next != CAUSE_NONE || cause_is_child_next(trimmed)) {
        end_cause(reader, giving);
        reader->next = next;
        reader->next_is_child = next == CAUSE_NONE;
        reader->next_until = reader->lines + NEXT_LINES_MAX;
        reader->is_linked = false;
    } else if (text_ends(trimmed, traceback)) {
        if (reader->is_group && reader->is_open && text_starts(whole, "    "))
            return false; /* of one of a group */
        begin_traceback(reader, line, order, now_us, giving);
        take_prefix(reader, text_without_ranks(whole));
        add_frame(reader, text_of(traceback));
    } else if (text_has(trimmed, "Traceback (most recent call last) \xe2\x94\x80") ||
               text_has(trimmed, "Traceback (most recent call last) --")) {
        begin_traceback(reader, line, order, now_us, giving);
        reader->state = CAUSE_BOX;
    } else if (text_starts(line, "  File \"") && reader->state != CAUSE_FRAMES &&
               reader->state != CAUSE_DUMP && reader->state != CAUSE_MESSAGE) {
        begin_traceback(reader, line, order, now_us, giving);
        reader->is_bare = true;
        add_frame(reader, line);
    } else if (text_starts(trimmed, "terminate called ")) {
        begin_abort(reader, trimmed, CAUSE_WHAT, order, now_us, giving);
    } else if (text_starts(trimmed, "Exception in thread \"") ||
               (text_starts(trimmed, "==") && text_has(trimmed, "==ERROR: "))) {
        const size_t thread = text_find(trimmed, "\" "), tool = text_find(trimmed, "==ERROR: ");

        begin_abort(reader, text_from(trimmed, tool < trimmed.count ? tool + 2 : thread + 2),
                    CAUSE_MESSAGE, order, now_us, giving);
    } else if (text_starts(trimmed, "fatal error: ") || text_starts(trimmed, "panic: ") ||
               (text_starts(trimmed, "thread '") && text_has(trimmed, " panicked at "))) {
        begin_abort(reader, trimmed, CAUSE_MESSAGE, order, now_us, giving); /* of Go, of Rust */
        reader->line_is_bare = text_ends(trimmed, ":"); /* the message follows */
    } else if (text_starts(trimmed, "Fatal Python error:") ||
               (text_starts(trimmed, "Timeout (") && text_ends(trimmed, ")!"))) {
        begin_abort(reader, trimmed, CAUSE_DUMP, order, now_us, giving);
    } else {
        return false;
    }
    return true;
}

/* Whether a line outside of everything may begin something: nearly all lines of a program that works do not, and there may be
 * millions of them. */
static bool may_begin(const struct cause_reader *reader, struct text line)
{
    static const char firsts[] = "-=DEFOPTUfpt"; /* of what take_begin and is_link look for */
    const struct text trimmed = text_trim(line);

    return reader->state != CAUSE_OUTSIDE || reader->is_open || reader->is_linked ||
           trimmed.count == 0 || trimmed.bytes[0] == '[' || line.bytes[0] == ' ' ||
           memchr(firsts, trimmed.bytes[0], sizeof firsts - 1) != NULL ||
           text_has(trimmed, "Traceback (most recent call last)");
}

void cause_reader_line(struct cause_reader *reader, struct text whole, uint64_t order,
                       uint64_t now_us, cause_on_cause *on_cause, void *context)
{
    const struct giving giving = {on_cause, context};
    struct text line;

    if (!may_begin(reader, whole)) {
        in_nothing(reader, whole, order, now_us);
        return;
    }
    line = without_prefix(reader, whole);
    if (take_begin(reader, whole, line, order, now_us, &giving))
        return;
    if (is_link(line)) {
        reader->is_linked = reader->is_open;
        reader->state = CAUSE_OUTSIDE;
        return;
    }
    if (reader->state == CAUSE_FRAMES) {
        if (!in_frames(reader, line, order, &giving))
            in_nothing(reader, line, order, now_us);
    } else if (reader->state == CAUSE_BOX) {
        in_box(reader, line);
    } else if (reader->state == CAUSE_WHAT) {
        in_what(reader, line);
    } else if (!(reader->state == CAUSE_MESSAGE && in_message(reader, line, order, now_us)) &&
               !(reader->state == CAUSE_DUMP && in_dump(reader, line))) {
        /* It stays open: a link may follow. */
        reader->open.is_blank_after =
            reader->open.is_blank_after ||
            (reader->state == CAUSE_MESSAGE && text_trim(line).count == 0);
        reader->state = CAUSE_OUTSIDE;
        if (text_trim(line).count > 0 && !reader->is_linked)
            end_cause(reader, &giving);
        in_nothing(reader, line, order, now_us);
    }
}
