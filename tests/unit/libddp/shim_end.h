/* The shim's end of a worker's connection, for tests of libddp. */
#ifndef TESTS_UNIT_LIBDDP_SHIM_END_H
#define TESTS_UNIT_LIBDDP_SHIM_END_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/msg.h"
#include "libddp/ddp.h"

struct shim_end {
    int fd;
    struct buf in;
    struct arena arena;
};

/* A handle of rank 1 of 2, of job 9, generation 3, and the other end of its connection. */
struct ddp *shim_end_open(struct shim_end *end);
void shim_end_close(struct shim_end *end);
/* Sends bytes unchanged. */
void shim_end_send(struct shim_end *end, const void *bytes, size_t byte_count);
/* One frame around a payload. */
void shim_end_send_json(struct shim_end *end, const char *json);
void shim_end_send_msg(struct shim_end *end, const struct msg *msg);
void shim_end_send_world(struct shim_end *end, uint32_t generation, const char *blob);
/* The next message of the worker, decoded strictly; waits for it. It lives until the next call. */
const struct msg *shim_end_next(struct shim_end *end);
/* True: no unread data has arrived. */
bool shim_end_is_quiet(struct shim_end *end);

#endif
