/* A shared library that a program loads when it first needs it, so that the program's other starts do not wait for that library
 * and for all those that it brings. Only the library's header is needed to build.
 *
 * A library has a header of its own (curl_library.h) with an X-macro of its functions, a struct with a pointer for each, and
 * a call that opens it. */
#ifndef COMMON_DL_LIBRARY_H
#define COMMON_DL_LIBRARY_H

#include <stddef.h>

#include "common/status.h"

struct dl_function {
    const char *name;
    size_t offset; /* of its pointer in `table` */
};

/* A member of the struct with the pointers, and a row of dl_function for it. */
#define DL_MEMBER(member, function) __typeof__(&(function)) member;

/* Loads `file` ("libcurl.so.4") and fills in `functions`, [count], of `table`. `needed_by` begins the message of a library that is
 * not installed ("downloads need"), `install` ends it.
 * Errors: STATUS_LIBRARY: not installed, or it lacks a function. Then `*handle` is NULL and nothing is loaded. */
enum status dl_library_open(void **handle, const char *file, const struct dl_function *functions,
                            size_t count, void *table, const char *needed_by, const char *install,
                            struct err *err);
/* NULL is allowed, and becomes of `*handle`. */
void dl_library_close(void **handle);

#endif
