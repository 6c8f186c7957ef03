/* Broken input, each with a name: what a server, a launcher or a client must refuse with an error
 * and without a change of state. Bytes as they go on the wire, from the first of a connection;
 * refused by the framing and the codec alone, before any message is acted on. */
#ifndef TESTS_FUZZ_MALFORMED_H
#define TESTS_FUZZ_MALFORMED_H

#include <stdbool.h>
#include <stddef.h>

struct malformed {
    const char *name; /* fit for a file: [a-z0-9_.-]+, unique */
    const char *bytes;
    size_t byte_count;
    bool is_cut; /* no error before the connection ends: its name begins with "cut-" */
};

typedef void malformed_visit(const struct malformed *malformed, void *context);

/* Calls `visit` with each; the bytes live for the call. Returns how many there were. */
size_t malformed_each(malformed_visit *visit, void *context);

#endif
