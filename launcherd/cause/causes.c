#include "launcherd/cause/causes.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

/* More lines than this after an exception: the program had caught it and went on. One that exits with code 1, as Python does
 * for an exception that nobody caught, may have printed more while it ended; so may an abort. */
#define LINES_AFTER_MAX 32u
#define LINES_AFTER_END_MAX 400u
#define LINES_AFTER_RUNNING_MAX 3u /* of a rank that has not ended */
/* Lines between an exception and an abort: with more, the exception did not lead to it. */
#define LINES_TO_ABORT_MAX 8u
#define LINES_AFTER_ERROR_MAX 2u /* after a single line that says "error" */
#define LINES_AFTER_FATAL_MAX 8u /* after one that says more */
#define PREFIX_BYTES_MAX 40u

void causes_open(struct causes *causes, bool is_terminal)
{
    causes->is_terminal = is_terminal;
    for (uint32_t i = 0; i < CAUSE_STREAMS; i++)
        causes->readers[i].stream = i;
}

/* -- while it streams by ------------------------------------------------------------------------ */

static void keep(void *context, const struct cause *cause)
{
    struct causes *causes = context;
    struct cause *kept = causes->kept[cause->kind];

    if (kept[0].kind == CAUSE_NONE)
        kept[0] = *cause;
    kept[1] = *cause;
}

static void add_last(struct causes *causes, struct text line)
{
    const uint32_t half = sizeof causes->last / 2;

    if (line.count >= sizeof causes->last - causes->last_bytes) {
        memmove(causes->last, causes->last + causes->last_bytes - half, half);
        causes->last_bytes = half;
    }
    memcpy(causes->last + causes->last_bytes, line.bytes, line.count);
    causes->last_bytes += (uint32_t)line.count;
    causes->last[causes->last_bytes++] = '\n';
}

/* A state of a progress bar, which the next one overwrites. */
static bool is_bar(struct text line)
{
    return text_has(line, "%") || text_has(line, "it/s") || text_has(line, "s/it") ||
           text_has(line, "it [") || text_trim(line).count == 0;
}

static void on_line(void *context, struct text line, bool is_overwritten)
{
    struct causes *causes = context;

    if (is_overwritten && is_bar(line))
        return;
    add_last(causes, line);
    cause_reader_line(&causes->readers[causes->stream], line, ++causes->order, causes->now_us, keep,
                      causes);
}

void causes_add(struct causes *causes, uint32_t stream, struct text bytes, uint64_t now_us)
{
    assert(stream < CAUSE_STREAMS);
    causes->stream = stream;
    causes->now_us = now_us;
    cause_lines_add(&causes->lines[stream], bytes, on_line, causes);
    if (bytes.count > 0)
        causes->is_in_line = bytes.bytes[bytes.count - 1] != '\n';
}

void causes_tail(const struct causes *causes, uint32_t lines_max, char out[TAIL_BYTES_MAX])
{
    char all[CAUSE_LAST_BYTES + CAUSE_STREAMS * (CAUSE_LINE_BYTES_MAX + 1)];
    size_t count = causes->last_bytes, at, lines = 0;

    memcpy(all, causes->last, count);
    for (uint32_t i = 0; i < CAUSE_STREAMS; i++) {
        const struct text rest = cause_lines_rest(&causes->lines[i]);

        if (rest.count == 0)
            continue;
        memcpy(all + count, rest.bytes, rest.count);
        count += rest.count;
        if (i + 1 < CAUSE_STREAMS && cause_lines_rest(&causes->lines[i + 1]).count > 0)
            all[count++] = '\n';
    }
    at = count - (count > 0 && all[count - 1] == '\n'); /* it belongs to the last line */
    while (at > 0 && count - at < TAIL_BYTES_MAX - 1 &&
           !(all[at - 1] == '\n' && ++lines == lines_max))
        at--;
    (void)utf8_printable_lines(all + at, count - at, out, TAIL_BYTES_MAX);
}

/* -- the best ----------------------------------------------------------------------------------- */

struct search {
    const struct causes *causes;
    struct cause_end end;
    uint64_t lines[CAUSE_STREAMS];     /* of each stream */
    struct cause of_kind[CAUSE_KINDS]; /* the best of each */
};

static uint64_t lines_after(const struct search *search, const struct cause *cause)
{
    return search->lines[cause->stream] - cause->lines;
}

/* A signal that a program raises by what it does. Others come from outside, and no output says why. */
static bool is_own_signal(uint32_t signal)
{
    return signal == SIGABRT || signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
           signal == SIGFPE;
}

/* How many lines the other stream has that came after the cause; at most CAUSE_LINES_KEPT. */
static uint64_t lines_of_other(const struct search *search, const struct cause *cause)
{
    const struct cause_reader *other = &search->causes->readers[1 - cause->stream];
    uint64_t count = 0;

    while (count < CAUSE_LINES_KEPT && count < other->last_count &&
           other->last[(other->last_count - 1 - count) % CAUSE_LINES_KEPT].order > cause->order)
        count++;
    return count;
}

/* Whether the end shows that the program had caught its exception: Python's exit code for one that nobody caught is 1, so a
 * program that crashed, or ended with another code, went on after it. */
static bool was_caught(const struct search *search, uint64_t lines_after)
{
    const bool is_crash = search->end.signal != 0 && search->end.signal != SIGABRT;

    return lines_after > 0 && !search->end.is_running &&
           (is_crash || (search->end.signal == 0 && search->end.exit_code != 1));
}

static bool is_fresh(const struct search *search, const struct cause *cause)
{
    const uint64_t after = lines_after(search, cause);

    if (search->end.is_running) /* with more lines it had caught the exception */
        return after + lines_of_other(search, cause) <= LINES_AFTER_RUNNING_MAX;
    if (cause->is_single)
        return after <=
               (cause->kind <= CAUSE_ERROR ? LINES_AFTER_ERROR_MAX : LINES_AFTER_FATAL_MAX);
    if (cause->kind == CAUSE_FATAL || (cause->kind == CAUSE_RAISED && search->end.exit_code == 1))
        return after <= LINES_AFTER_END_MAX;
    return after <= LINES_AFTER_MAX;
}

/* What ends a program is printed on stderr. A traceback on stdout, after which the program prints more, may be anything. */
static enum cause_kind kind_here(const struct search *search, const struct cause *cause)
{
    const bool is_stdout = cause->stream == 0 && !search->causes->is_terminal;
    const bool is_exception =
        cause->kind == CAUSE_RAISED || cause->kind == CAUSE_PEER || cause->kind == CAUSE_WRAPPER;
    const uint64_t after = lines_after(search, cause);

    if (is_exception && !cause->is_single &&
        ((is_stdout && after > 0) || was_caught(search, after + cause->loose_lines)))
        return CAUSE_NOISE;
    return cause->kind;
}

/* An exception that ends a program is its last one; but that of a child process comes before what its parent says then. Of
 * aborts, errors and lost peers the first leads to the others. */
static bool is_better(const struct search *search, const struct cause *cause,
                      const struct cause *best, enum cause_kind kind)
{
    if (best->is_single != cause->is_single)
        return best->is_single;
    if (cause->is_single && best->stream != cause->stream && !search->causes->is_terminal)
        return cause->stream == 1; /* stderr */
    if (best->is_child != cause->is_child)
        return cause->is_child;
    if (kind == CAUSE_RAISED || kind == CAUSE_LAST || cause->is_single)
        return cause->order > best->order;
    return cause->order < best->order;
}

static void consider(struct search *search, const struct cause *cause)
{
    const enum cause_kind kind = kind_here(search, cause);
    struct cause *best = &search->of_kind[kind];

    if (kind == CAUSE_NONE || !is_fresh(search, cause))
        return;
    if (best->kind == CAUSE_NONE || is_better(search, cause, best, kind))
        *best = *cause;
    best->kind = kind;
}

static void on_found(void *context, const struct cause *cause)
{
    consider(context, cause);
}

/* Whether both lines are of one program: "tar: ..." */
static bool have_one_prefix(const char *a, const char *b)
{
    const size_t bytes = strcspn(a, ":");

    return a[bytes] == ':' && bytes < PREFIX_BYTES_MAX && strncmp(a, b, bytes + 1) == 0;
}

/* What the last lines say, if nothing larger is there. Of the errors of several programs, as in a script, the last one counts; of
 * those of one program in a row the first. */
static void consider_lines(struct search *search, const struct cause_reader *reader)
{
    uint64_t at = reader->last_count > CAUSE_LINES_KEPT ? reader->last_count - CAUSE_LINES_KEPT : 0;
    const bool is_stderr = reader->stream == 1 || search->causes->is_terminal;
    struct cause run = {.kind = CAUSE_NONE};

    for (; at < reader->last_count; at++) {
        const struct cause_kept_line *kept = &reader->last[at % CAUSE_LINES_KEPT];
        const struct text line = {kept->bytes, kept->count};
        struct cause cause = {.kind = cause_of_line(line),
                              .is_single = true,
                              .stream = reader->stream,
                              .began_us = kept->at_us,
                              .order = kept->order,
                              .lines = kept->lines};

        utf8_printable(line.bytes, line.count, cause.line, sizeof cause.line);
        if (cause.kind == CAUSE_LAST &&
            (!is_stderr || at + 1 < reader->last_count || kept->order < reader->block_order))
            cause.kind = CAUSE_NONE;
        if (run.kind != CAUSE_NONE && cause.kind != CAUSE_NONE &&
            have_one_prefix(run.line, cause.line)) {
            run.order = cause.order;
            run.lines = cause.lines;
        } else {
            run = cause;
        }
        if (run.kind > CAUSE_ERROR)
            (void)snprintf(run.text, sizeof run.text, "%s", run.line);
        consider(search, &run);
    }
}

static void on_nothing(void *context, const struct cause *cause)
{
    (void)context;
    (void)cause;
}

/* The reader of a stream after a last line that has no line feed. */
static struct cause_reader reader_at_end(struct search *search, uint32_t stream,
                                         cause_on_cause *on_cause)
{
    const struct causes *causes = search->causes;
    const struct text rest = cause_lines_rest(&causes->lines[stream]);
    struct cause_reader reader = causes->readers[stream];

    if (rest.count > 0)
        cause_reader_line(&reader, rest, causes->order + 1, causes->now_us, on_cause, search);
    return reader;
}

static void search_stream(struct search *search, uint32_t stream)
{
    const struct cause_reader reader = reader_at_end(search, stream, on_found);
    struct cause open;

    if (cause_reader_open(&reader, &open))
        consider(search, &open);
    consider_lines(search, &reader);
}

static void search_all(struct search *search)
{
    for (uint32_t stream = 0; stream < CAUSE_STREAMS; stream++)
        search->lines[stream] = reader_at_end(search, stream, on_nothing).lines;
    for (int kind = 0; kind < CAUSE_KINDS; kind++)
        for (int i = 0; i < 2; i++)
            consider(search, &search->causes->kept[kind][i]);
    for (uint32_t stream = 0; stream < CAUSE_STREAMS; stream++)
        search_stream(search, stream);
}

/* A line on stderr that says "error" after an exception, and after other lines: the program had caught that, and went on to something worse. */
static enum cause_kind later_line(const struct search *search, enum cause_kind kind)
{
    const struct cause *cause = &search->of_kind[kind], *line = &search->of_kind[CAUSE_ERROR];
    const bool is_stderr = line->stream == 1 || search->causes->is_terminal;

    return (kind == CAUSE_RAISED || kind == CAUSE_PEER || kind == CAUSE_FATAL) &&
                   line->kind != CAUSE_NONE && is_stderr && !cause->is_blank_after &&
                   cause->stream == line->stream && line->order > cause->order &&
                   line->lines > cause->lines + 1
               ? CAUSE_ERROR
               : kind;
}

/* Whether what it printed may be why it ended so: a line by itself does not make a program crash. */
static bool may_explain(const struct cause_end *end, const struct cause *cause)
{
    if (end->signal == SIGINT)
        return cause->kind == CAUSE_STOPPED;
    if (end->signal != 0 && end->signal != SIGABRT)
        return cause->kind >= CAUSE_FATAL && !cause->is_single;
    return true;
}

bool causes_best(const struct causes *causes, const struct cause_end *end, struct cause *best)
{
    struct search search = {.causes = causes, .end = *end};
    const struct cause *raised = &search.of_kind[CAUSE_RAISED],
                       *abort = &search.of_kind[CAUSE_FATAL];
    const bool is_crash = end->signal != 0 && end->signal != SIGABRT;
    int kind = CAUSE_RAISED;

    if (end->oom || (end->signal != 0 && end->signal != SIGINT && !is_own_signal(end->signal)))
        return false;
    search_all(&search);
    if (raised->kind != CAUSE_NONE && abort->kind != CAUSE_NONE && abort->order > raised->order &&
        (is_crash ||
         lines_after(&search, raised) > lines_after(&search, abort) + LINES_TO_ABORT_MAX))
        kind = CAUSE_FATAL;
    while (kind > CAUSE_NONE && search.of_kind[kind].kind == CAUSE_NONE)
        kind--;
    if (kind == CAUSE_NONE || !may_explain(end, &search.of_kind[kind]))
        return false;
    *best = search.of_kind[later_line(&search, (enum cause_kind)kind)];
    return true;
}
