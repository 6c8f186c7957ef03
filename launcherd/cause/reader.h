/* Finds what may be the cause of a failure in one stream of a rank's output, while it streams by: tracebacks of Python
 * (plain, prefixed, boxed by rich, of threads and destructors, chained, in groups), what faulthandler and a C++ abort
 * print. The last lines are kept beside them. Pure, no heap. */
#ifndef LAUNCHERD_CAUSE_READER_H
#define LAUNCHERD_CAUSE_READER_H

#include <stdint.h>

#include "common/limits.h"
#include "launcherd/cause/words.h"

#define CAUSE_LINES_KEPT 64u
#define CAUSE_KEPT_BYTES 256u /* of each of them */
#define CAUSE_MESSAGE_LINES 16u

struct cause {
    enum cause_kind kind;
    uint32_t loose_lines; /* lines right after it that may be its message, or something else */
    bool is_blank_after;  /* a blank line follows: what comes then may still be the message */
    bool is_single;       /* a line by itself, and no traceback or abort */
    bool is_child;        /* the exception of a child process of multiprocessing */
    uint32_t stream;
    uint64_t began_us; /* when its first line was read */
    uint64_t order;    /* among the lines of both streams */
    uint64_t lines;    /* lines of its stream until its end */
    /* "ValueError: no", printable. Of chained exceptions it has the first and the last one: "KeyError: 'a'; then
     * ValueError: no". */
    char line[REASON_BYTES_MAX];
    char text[TAIL_BYTES_MAX]; /* the end of the traceback, with the message: printable lines */
};

enum cause_state {
    CAUSE_OUTSIDE,
    CAUSE_FRAMES,  /* between the first line of a traceback and its exception */
    CAUSE_BOX,     /* in the box that rich draws around the frames */
    CAUSE_MESSAGE, /* the lines after an exception may belong to it */
    CAUSE_WHAT,    /* after "terminate called": "  what():" may follow */
    CAUSE_DUMP,    /* after "Fatal Python error": the stacks of the threads */
};

struct cause_kept_line {
    uint64_t order, at_us, lines;
    uint32_t count;
    char bytes[CAUSE_KEPT_BYTES];
};

struct cause_reader {
    uint32_t stream;
    enum cause_state state;
    enum cause_kind next; /* what was said about the next traceback... */
    uint64_t next_until;  /* ... if it begins by then: lines */
    bool next_is_child;
    bool is_linked; /* the next traceback is chained to the one before it */
    bool is_bare;   /* it began with a "File" line: a syntax error in the program itself */
    bool is_open;   /* `open` has an exception */
    bool is_group, group_is_named;
    bool frames_are_cut;
    struct cause open;
    char root[REASON_BYTES_MAX]; /* the first exception of the chain; "": `open` is the first */
    enum cause_kind root_kind;
    char prefix[96]; /* what stands before each line of the traceback */
    uint32_t prefix_count;
    char frames[1400], own_frame[320], message[1100];
    bool own_frame_goes_on, line_is_bare; /* line_is_bare: the exception's line has no message */
    uint64_t message_order;               /* of the newest line of the message */
    uint32_t strange_lines, message_lines, more_lines;
    uint64_t lines; /* lines that are part of nothing, and are no notes */
    struct cause_kept_line last[CAUSE_LINES_KEPT];
    uint64_t last_count, block_order; /* block_order: of the newest traceback or abort */
};

/* `reader`: zeroed, but for `stream`. Takes a line, without escape sequences. `order` ascends over both streams. Gives each
 * cause that has ended to `on_cause`. */
typedef void cause_on_cause(void *context, const struct cause *cause);
void cause_reader_line(struct cause_reader *reader, struct text line, uint64_t order,
                       uint64_t now_us, cause_on_cause *on_cause, void *context);
/* The cause that may still go on. False: there is none. */
bool cause_reader_open(const struct cause_reader *reader, struct cause *cause);
/* Sets `out` to the first line of `text`, without a colon that no message follows, as in "KeyboardInterrupt: ". */
void cause_first_line(struct text text, char out[REASON_BYTES_MAX]);

#endif
