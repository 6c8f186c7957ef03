/* What a line of output says about a failure, by the words that Python, PyTorch, shells, the C library and others
 * print. Pure.
 *
 * The kinds are ordered: of two causes the one of the greater kind is nearer to what went wrong. */
#ifndef LAUNCHERD_CAUSE_WORDS_H
#define LAUNCHERD_CAUSE_WORDS_H

#include "common/text_view.h"

enum cause_kind {
    CAUSE_NONE,
    CAUSE_NOISE, /* an exception that was caught, or says only that something did not come: queue.Empty */
    CAUSE_LAST, /* the last line of stderr, which may say anything */
    CAUSE_ASIDE, /* an exception that ends no process: in a thread, a destructor, an exit handler, a log call */
    CAUSE_ERROR,   /* a line that says "error" */
    CAUSE_STOPPED, /* somebody asked the process to end: KeyboardInterrupt, SignalException */
    CAUSE_WRAPPER, /* the failure of another process, told again: ChildFailedError, CalledProcessError */
    CAUSE_PEER,    /* another rank is gone or does not come: Connection reset by peer, a watchdog */
    CAUSE_MISSING, /* a barrier says which rank did not come */
    CAUSE_FATAL,   /* an abort, a sanitizer, a program that cannot be run */
    CAUSE_RAISED,  /* an exception that nobody caught */
};
#define CAUSE_KINDS 11

/* The kind of an exception, by its line: "ValueError: no". CAUSE_NOISE, _STOPPED, _WRAPPER, _PEER, _MISSING or
 * _RAISED. */
enum cause_kind cause_of_exception(struct text line);
/* The kind of a line outside of a traceback: CAUSE_FATAL, _PEER, _ERROR; CAUSE_LAST: any other line that a person might
 * read as the reason; CAUSE_NONE: blank, a progress bar, a note, a frame of a stack. */
enum cause_kind cause_of_line(struct text line);
/* What a line says about the traceback that follows: CAUSE_ASIDE for "Exception in thread ...", CAUSE_RAISED for
 * "Original exception was:"; CAUSE_NONE: nothing. */
enum cause_kind cause_of_next(struct text line);
/* Whether it says that the traceback that follows is of a child process: "Process Process-1:", of multiprocessing. */
bool cause_is_child_next(struct text line);
/* True for "ValueError: no", "torch.OutOfMemoryError: ...", "KeyboardInterrupt". */
bool cause_is_exception(struct text line);
/* Whether the file of a frame belongs to a library and not to the user. */
bool cause_is_library(struct text frame);

#endif
