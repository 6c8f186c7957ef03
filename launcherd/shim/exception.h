/* The exception of a rank that failed: from its error file, as PyTorch's @record and others write it, or
 * from the end of its output. Both are hostile. Pure but for the heap of the JSON decoder.
 *
 *   {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "17.."}}}
 *   {"message": "ValueError: no", "timestamp": "17.."}
 */
#ifndef LAUNCHERD_SHIM_EXCEPTION_H
#define LAUNCHERD_SHIM_EXCEPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define EXCEPTION_FILE_BYTES_MAX (256u * 1024u)

struct exception {
    int64_t raised_s; /* Unix time, as the program says; 0: it does not */
    /* "ValueError: no", printable; of a chain the first and the last: "KeyError: 'a'; then ValueError: no" */
    char line[REASON_BYTES_MAX];
    char text
        [TAIL_BYTES_MAX]; /* the end of the traceback, with the message; lines, else printable */
};

/* Errors: STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_MEMORY; then `exception` is as it was. */
enum status exception_from_json(const char *bytes, size_t byte_count, struct exception *exception,
                                struct err *err);
/* The last traceback of Python in these last bytes of an output. A few other lines may follow, as threads and
 * libraries print them at the end; after many the program had caught the exception and gone on. Lines may begin
 * with "[rank0]: ", as torch.distributed makes them. False: there is none. */
bool exception_from_output(const char *bytes, size_t byte_count, struct exception *exception);
/* A text without a traceback: its first line, and its end. False: it is blank. */
bool exception_from_text(const char *text, struct exception *exception);

#endif
