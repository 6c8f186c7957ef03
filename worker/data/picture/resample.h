/* Pillow's antialiased bilinear resampling, to the bit: a triangle filter whose width grows with
 * the reduction, weights in fixed point, first along x and then along y, each rounded to 8 bits.
 * Tall pictures are resampled along y first, as in Pillow 13 (goes_down_first() has the rule);
 * older versions never do this, which makes a difference of 1 in 255 in some pixels.
 * Rows are given one by one, and only those that the outputs need are kept.
 * Source: Pillow 13, src/libImaging/Resample.c. */
#ifndef WORKER_DATA_PICTURE_RESAMPLE_H
#define WORKER_DATA_PICTURE_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum {
    RESAMPLE_ROW_PAD = 64, /* readable bytes after every row */
    RESAMPLE_BITS = 22,    /* fraction bits of a weight */
    RESAMPLE_LOW_BITS = 8, /* bits of a split weight's low part, so that both parts have 16 bits */
    RESAMPLE_GROUP = 4,    /* taps whose parts are stored together */
};

/* What to compute along one axis. */
struct resample_want {
    uint32_t in_count;  /* pixels of the input along the axis */
    double begin, end;  /* the part of the input that is resized */
    uint64_t out_count; /* the pixels that this part is resized to */
    uint64_t first;     /* of these, first to first + count - 1 are the output */
    uint32_t count;
    bool is_flipped; /* in reverse order */
};

/* The weights of one axis. Output i is the sum of in[begin[i] + t] * weights[i * taps_max + t] over t
 * below taps[i]. */
struct resample_axis {
    uint32_t count, taps_max;
    uint32_t in_begin, in_end; /* range of inputs that are used */
    uint32_t *begin, *taps;    /* [count] */
    int32_t *weights;          /* [count][taps_max] */
    int16_t *parts;            /* the same, split, 0 after the last tap:
                                  [count][groups][high, low][RESAMPLE_GROUP] */
    uint32_t parts_stride;     /* of one output */
    size_t slots_allocated, weights_allocated, parts_allocated;
};

struct resample {
    struct resample_axis x, y;
    bool is_y_first;
    uint8_t *ring; /* [ring_rows][ring_bytes]: rows, already resampled along x where x is first */
    uint8_t *line, *wide; /* a row resampled along y, and then along x, where y is first */
    const uint8_t **taps; /* [y.taps_max] rows of one output */
    size_t ring_allocated, line_allocated, wide_allocated, taps_allocated;
    uint32_t ring_rows, next_in, next_out;
    size_t ring_bytes; /* of a row without its pad */
    uint8_t *out;      /* [y.count][x.count][3] */
};

/* Prepares for the rows y.in_begin to y.in_end - 1 of the input, each from column x.in_begin on.
 * Errors: STATUS_MEMORY. */
enum status resample_begin(struct resample *resample, const struct resample_want *x,
                           const struct resample_want *y, uint8_t *out, struct err *err);
/* Takes the next row: [x.in_end - x.in_begin][3], followed by RESAMPLE_ROW_PAD readable bytes. */
void resample_row(struct resample *resample, const uint8_t *row);
/* Whether all rows were given and all outputs are written. */
bool resample_is_done(const struct resample *resample);
void resample_close(struct resample *resample);

#endif
