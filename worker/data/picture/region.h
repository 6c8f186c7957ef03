/* Decodes a part of a baseline JPEG: the same bits as libjpeg with the accurate integer IDCT and
 * fancy upsampling, in less time, because blocks outside of the part are only skipped, and codes
 * are looked up together with their values. It takes only the usual kind of file, and no damaged
 * data: for all others jpeg.c falls back to libjpeg, which also tells what is wrong with them. */
#ifndef WORKER_DATA_PICTURE_REGION_H
#define WORKER_DATA_PICTURE_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/data/picture/decoder.h"
#include "worker/data/picture/huffman.h"

enum {
    REGION_COMPONENTS_MAX = 3,
    REGION_PIXELS_MAX = 1 << 24, /* of a part; it needs 3 bytes of memory for each */
};

/* A file with one scan of all components: grey, or YCbCr with its colours at full resolution, at
 * half of the width, or at half of both. */
struct region_source {
    uint32_t width, height; /* of the picture */
    uint32_t component_count;
    uint32_t h, v; /* samples of Y per colour sample: 1 or 2; v is 2 only if h is */
    uint32_t restart_interval;
    const uint8_t *data, *end; /* coded */
    struct {
        const struct huffman *dc, *ac;
        const uint16_t *quant; /* [HUFFMAN_PLACES] in zigzag order */
    } components[REGION_COMPONENTS_MAX];
};

/* A component's samples, for the whole blocks around the box. */
struct region_plane {
    uint8_t *samples;
    size_t samples_allocated, stride;
    uint32_t x, y;          /* of the first sample, in the component */
    uint32_t width, height; /* of the component */
};

struct region {
    struct picture_box box;
    uint32_t component_count, h, v;
    struct region_plane planes[REGION_COMPONENTS_MAX];
    uint8_t *line;  /* a row of each colour at full resolution, and a row of RGB */
    uint8_t *coded; /* the coded data between two markers */
    size_t line_allocated, coded_allocated;
};

/* Whether the part is small enough, and the picture wide enough for fancy upsampling. */
bool region_is_possible(const struct region_source *source, const struct picture_box *box);
/* Decodes what the rows of `box` need. False if the data is damaged or there is no memory. */
bool region_decode(struct region *region, const struct region_source *source,
                   const struct picture_box *box);
/* Gives the rows of the box. */
void region_rows(struct region *region, picture_take_row *take, void *context);
void region_close(struct region *region);

#endif
