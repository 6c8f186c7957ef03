/* The messages between a worker and its shim, as bytes: those of common/msg.h that a worker sends and
 * gets, without cJSON. Pure but for the heap of struct buf. */
#ifndef LIBDDP_WIRE_H
#define LIBDDP_WIRE_H

#include <locale.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/status.h"
#include "libddp/ddp.h"

enum wire_kind {
    WIRE_OTHER, /* of a later version, or none of a worker's: passed over */
    WIRE_WORLD,
    WIRE_STOP,
};

struct wire_message {
    enum wire_kind kind;
    uint64_t job_id;     /* WORLD */
    uint32_t generation; /* WORLD */
    uint32_t blob_bytes; /* WORLD */
    uint8_t blob[BLOB_BYTES_MAX];
    uint64_t kill_at_us; /* STOP: on CLOCK_BOOTTIME */
};

/* Decodes the payload of one frame. Fields that are not known are passed over. Errors: STATUS_BAD_INPUT,
 * STATUS_TOO_BIG. */
enum status wire_decode(const char *json, size_t byte_count, struct wire_message *message,
                        struct err *err);

/* Microseconds of what a caller says; 0 for what is no time. */
uint64_t wire_us(double seconds);

/* Each adds a whole frame; buf->failed tells a want of memory. */
void wire_add_join(struct buf *out, uint32_t rank, uint32_t generation, const void *blob,
                   size_t blob_bytes);
/* Of this generation: how many steps were timed, and what they took. */
struct wire_times {
    uint64_t steps, step_us, data_us, compute_us, update_us, wait_us;
};
/* `times` NULL: for a shim of version 1, which does not know what came later. `c_locale`: where a number has a point. Values that the protocol has no room for are made to fit. */
void wire_add_progress(struct buf *out, const struct ddp_place *place,
                       const struct ddp_progress *progress, const struct wire_times *times,
                       uint64_t checkpoint_step, locale_t c_locale);
/* The text is cut after TAIL_BYTES_MAX - 1 bytes; what is no UTF-8 becomes '?'. */
void wire_add_error(struct buf *out, const char *text);

#endif
