/* CMYK as Pillow reads it from a JPEG: inverted, as Adobe's programs write it. */
#ifndef WORKER_DATA_PICTURE_CMYK_H
#define WORKER_DATA_PICTURE_CMYK_H

#include <stdint.h>

/* in: [n][4]; out: [n][3] */
void cmyk_to_rgb(const uint8_t *in, uint32_t n, uint8_t *out);

#endif
