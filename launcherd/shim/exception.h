/* The exception of a rank that failed, from its error file, as PyTorch's @record and other programs
 * write it. It is untrusted input. Pure, except that the JSON decoder uses the heap.
 *
 *   {"message": {"message": "ValueError: no",
 *                "extraInfo": {"py_callstack": "...", "timestamp": "17.."}}}
 *   {"message": "ValueError: no", "timestamp": "17.."} */
#ifndef LAUNCHERD_SHIM_EXCEPTION_H
#define LAUNCHERD_SHIM_EXCEPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define EXCEPTION_FILE_BYTES_MAX (256u * 1024u)

struct exception {
    int64_t raised_s; /* Unix time from the error file; 0: not known */
    /* "ValueError: no", printable. Of chained exceptions it has the first and the last one:
     * "KeyError: 'a'; then ValueError: no". */
    char line[REASON_BYTES_MAX];
    char text[TAIL_BYTES_MAX]; /* the end of the traceback, with the message: printable lines */
};

/* Errors: STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_MEMORY. On an error `exception` is unchanged. */
enum status exception_from_json(const char *bytes, size_t byte_count, struct exception *exception,
                                struct err *err);
/* Takes a text without a traceback: `line` gets its first line, `text` its end. False: it is
 * blank. */
bool exception_from_text(const char *text, struct exception *exception);

#endif
