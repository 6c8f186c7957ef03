#include "worker/data/picture/cmyk.h"

/* a * b / 255, rounded, as Pillow's MULDIV255. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = a * b + 128;

    return ((product >> 8) + product) >> 8;
}

void cmyk_to_rgb(const uint8_t *in, uint32_t n, uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t white = in[4 * i + 3]; /* 255 - K, as inverted */

        for (uint32_t c = 0; c < 3; c++)
            out[3 * i + c] = (uint8_t)(white - multiply(255u - in[4 * i + c], white));
    }
}
