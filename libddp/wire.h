/* The messages between a worker and its shim as bytes: those of common/msg.h that a worker sends
 * and receives, without cJSON. Pure, apart from the heap of struct buf. */
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
    WIRE_OTHER, /* of a later version, or not for workers: skipped */
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

/* Decodes the payload of one frame. Unknown fields are skipped. Errors: STATUS_BAD_INPUT,
 * STATUS_TOO_BIG. */
enum status wire_decode(const char *json, size_t byte_count, struct wire_message *message,
                        struct err *err);

/* Converts a caller's seconds to microseconds; 0 for invalid values. */
uint64_t wire_us(double seconds);

/* Each appends a whole frame; buf->failed: no memory. */
void wire_add_join(struct buf *out, uint32_t rank, uint32_t generation, const void *blob,
                   size_t blob_bytes);
/* Totals of this generation: how many steps were timed, and their times. */
struct wire_times {
    uint64_t steps, step_us, data_us, compute_us, update_us, wait_us;
};
/* `times` NULL: the shim speaks version 1, which has no later fields. `c_locale`: a locale whose
 * decimal separator is a point. Values out of the protocol's range are clamped. */
void wire_add_progress(struct buf *out, const struct ddp_place *place,
                       const struct ddp_progress *progress, const struct wire_times *times,
                       uint64_t checkpoint_step, locale_t c_locale);
/* The text is cut after TAIL_BYTES_MAX - 1 bytes; invalid UTF-8 becomes '?'. */
void wire_add_error(struct buf *out, const char *text);

#endif
