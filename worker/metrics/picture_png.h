/* A picture as PNG, by libpng. */
#ifndef WORKER_METRICS_PICTURE_PNG_H
#define WORKER_METRICS_PICTURE_PNG_H

#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

/* Adds the PNG to `png`. `pixels`: [height][width][channels]; channels: 1 (grey) or 3 (RGB). Errors:
 * STATUS_LIBRARY, STATUS_MEMORY. */
enum status metrics_png(struct buf *png, const uint8_t *pixels, uint32_t height, uint32_t width,
                        uint32_t channels, struct err *err);

#endif
