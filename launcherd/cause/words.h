/* What a line of output says about a failure, by the words that Python, PyTorch, shells, the C library and others
 * print. Pure.
 *
 * The kinds are ordered: of two causes the one of the greater kind is nearer to what went wrong. */
#ifndef LAUNCHERD_CAUSE_WORDS_H
#define LAUNCHERD_CAUSE_WORDS_H

#include "launcherd/cause/text.h"

enum cause_kind {
    CAUSE_NONE,
    CAUSE_ASIDE, /* an exception that ends no process: in a thread, a destructor, an exit handler, a log call */
    CAUSE_STOPPED, /* somebody asked the process to end: KeyboardInterrupt, SignalException */
    CAUSE_LAST,    /* the last line of stderr, which may say anything */
    CAUSE_ERROR,   /* a line that says "error" */
    CAUSE_WRAPPER, /* the failure of another process, told again: ChildFailedError, CalledProcessError */
    CAUSE_PEER,   /* another rank is gone or does not come: Connection reset by peer, a watchdog */
    CAUSE_FATAL,  /* an abort, a sanitizer, a program that cannot be run */
    CAUSE_RAISED, /* an exception that nobody caught */
};
#define CAUSE_KINDS 9

/* The kind of an exception, by its line: "ValueError: no". CAUSE_STOPPED, _WRAPPER, _PEER or _RAISED. */
enum cause_kind cause_of_exception(struct text line);
/* The kind of a line outside of a traceback: CAUSE_FATAL, _PEER, _ERROR; CAUSE_LAST: any other line that a person might
 * read as the reason; CAUSE_NONE: blank, a progress bar, a note, a frame of a stack. */
enum cause_kind cause_of_line(struct text line);
/* What a line says about the traceback that follows: CAUSE_ASIDE for "Exception in thread ...", CAUSE_RAISED for
 * "Original exception was:"; CAUSE_NONE: nothing. */
enum cause_kind cause_of_next(struct text line);
/* True for "ValueError: no", "torch.OutOfMemoryError: ...", "KeyboardInterrupt". */
bool cause_is_exception(struct text line);
/* Whether an exception says nothing about why another one followed it: queue.Empty, StopIteration. */
bool cause_is_noise(struct text line);
/* Whether the file of a frame belongs to a library and not to the user. */
bool cause_is_library(struct text frame);

#endif
