/* Which part of a picture becomes the output: torchvision's RandomResizedCrop,
 * RandomHorizontalFlip, Resize and CenterCrop, as numbers. A core: no pixels here. */
#ifndef WORKER_DATA_PICTURE_VIEW_H
#define WORKER_DATA_PICTURE_VIEW_H

#include "worker/data/picture/picture.h"

/* The box is resized to `resized_width` by `resized_height`; the output is the square of `size` at
 * (left, top) of the result, mirrored if `is_flipped`. */
struct view {
    uint32_t x, y, width, height; /* the box, in the picture */
    uint64_t resized_width, resized_height;
    uint64_t left, top;
    bool is_flipped;
};

struct view view_of(const struct picture_rules *rules, uint32_t width, uint32_t height,
                    uint64_t seed, uint64_t epoch, uint64_t index);

#endif
