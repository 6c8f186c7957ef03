/* Cuts a stream of bytes into frames: u32 big-endian byte count, payload. Pure. */
#ifndef COMMON_FRAME_H
#define COMMON_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define FRAME_HEAD_BYTES 4u

/* Finds the first frame in `bytes`.
 *   STATUS_OK         `*payload` (within `bytes`) and `*payload_bytes` are set; the frame takes
 *                     FRAME_HEAD_BYTES + *payload_bytes
 *   STATUS_BUSY       more bytes are needed
 *   STATUS_TOO_BIG    over `payload_max`
 *   STATUS_BAD_INPUT  an empty frame, or another protocol (HTTP, TLS, SSH), which `err` names */
enum status frame_next(const char *bytes, size_t byte_count, size_t payload_max,
                       const char **payload, size_t *payload_bytes, struct err *err);
/* Writes the head of a frame of `payload_bytes`. */
void frame_head(size_t payload_bytes, char head[FRAME_HEAD_BYTES]);

#endif
