/* Sets of images in memory. See dataset.h. */
#include "worker/data/dataset.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/draw.h"

struct dataset {
    struct dataset_shape shape;
    size_t image_count;
    size_t image_bytes;
    uint8_t *pixels;
    uint16_t *labels;
    float scaled[256]; /* byte / 255 */
    dataset_draw draw; /* NULL: all images were given */
    uint64_t seed;
    bool *drawn; /* [image_count]: which were drawn already */
};

static enum status new_empty(struct dataset **out, const struct dataset_shape *shape,
                             size_t image_count, struct err *err)
{
    struct dataset *set = calloc(1, sizeof *set);

    assert(shape->classes > 0 && shape->classes <= UINT16_MAX + 1U);
    assert(shape->channels > 0 && shape->height > 0 && shape->width > 0);
    if (set == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a data set");
    set->shape = *shape;
    set->image_count = image_count;
    set->image_bytes = (size_t)shape->channels * shape->height * shape->width;
    for (int i = 0; i < 256; i++)
        set->scaled[i] = (float)i / 255.0F;
    *out = set;
    return STATUS_OK;
}

enum status dataset_new(struct dataset **out, const struct dataset_shape *shape, size_t image_count,
                        uint8_t *pixels, uint16_t *labels, struct err *err)
{
    enum status status = new_empty(out, shape, image_count, err);

    if (status != STATUS_OK) {
        free(pixels);
        free(labels);
        return status;
    }
    (*out)->pixels = pixels;
    (*out)->labels = labels;
    return STATUS_OK;
}

enum status dataset_new_drawn(struct dataset **out, const struct dataset_shape *shape,
                              size_t image_count, dataset_draw draw, uint64_t seed, struct err *err)
{
    enum status status = new_empty(out, shape, image_count, err);
    struct dataset *set = *out;

    if (status != STATUS_OK)
        return status;
    set->draw = draw;
    set->seed = seed;
    set->pixels = calloc(
        image_count,
        set->image_bytes); /* zeroed by the kernel: a page takes memory once an image is drawn */
    set->labels = calloc(image_count, sizeof *set->labels);
    set->drawn = calloc(image_count, sizeof *set->drawn);
    if (set->pixels == NULL || set->labels == NULL || set->drawn == NULL) {
        dataset_free(out);
        return err_set(err, STATUS_MEMORY, 0, "no memory for %zu drawn images", image_count);
    }
    return STATUS_OK;
}

void dataset_free(struct dataset **set)
{
    if (*set == NULL)
        return;
    free((*set)->pixels);
    free((*set)->labels);
    free((*set)->drawn);
    free(*set);
    *set = NULL;
}

size_t dataset_count(const struct dataset *set)
{
    return set->image_count;
}

struct dataset_shape dataset_shape(const struct dataset *set)
{
    return set->shape;
}

static void draw_missing(struct dataset *set, size_t index)
{
    if (set->draw == NULL || set->drawn[index])
        return;
    set->draw(set->seed, index, &set->shape, set->pixels + index * set->image_bytes,
              set->labels + index);
    assert(set->labels[index] < set->shape.classes);
    set->drawn[index] = true;
}

/* Pixels of image `index`, and its label. */
static const uint8_t *find(struct dataset *set, int64_t index, int64_t *label)
{
    assert(index >= 0 && (size_t)index < set->image_count);
    draw_missing(set, (size_t)index);
    *label = set->labels[index];
    return set->pixels + (size_t)index * set->image_bytes;
}

void dataset_fetch(struct dataset *set, const int64_t *indices, uint32_t n, float *images,
                   int64_t *labels)
{
    for (uint32_t i = 0; i < n; i++, images += set->image_bytes) {
        const uint8_t *pixels = find(set, indices[i], &labels[i]);

        for (size_t k = 0; k < set->image_bytes; k++)
            images[k] = set->scaled[pixels[k]];
    }
}

void dataset_fetch_bytes(struct dataset *set, const int64_t *indices, uint32_t n, uint8_t *images,
                         int64_t *labels)
{
    for (uint32_t i = 0; i < n; i++, images += set->image_bytes)
        memcpy(images, find(set, indices[i], &labels[i]), set->image_bytes);
}

void dataset_draw_noise(uint64_t seed, uint64_t index, const struct dataset_shape *shape,
                        uint8_t *pixels, uint16_t *label)
{
    struct draw draw = draw_begin(seed, index);
    size_t image_bytes = (size_t)shape->channels * shape->height * shape->width;

    *label = (uint16_t)draw_below(&draw, shape->classes);
    for (size_t i = 0; i < image_bytes; i += sizeof(uint64_t)) {
        const uint64_t bytes = draw_u64(&draw);
        const size_t left = image_bytes - i;

        memcpy(pixels + i, &bytes, left < sizeof bytes ? left : sizeof bytes);
    }
}
