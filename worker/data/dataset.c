/* Sets of images in memory. See dataset.h. */
#include "worker/data/dataset.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/draw.h"
#include "worker/data/hash.h"
#include "worker/data/source.h"

/* State of an image of a drawn set. Several threads may draw the same image at the same time, each
 * into memory of its own; the first one stores its copy for later reads. */
enum drawn { NOT_DRAWN, BEING_KEPT, DRAWN };

struct dataset {
    struct source source;
    size_t image_bytes;
    uint8_t *pixels;
    uint16_t *labels;
    dataset_draw draw; /* NULL: all images were given */
    uint64_t seed;
    atomic_uchar *drawn; /* [count] of enum drawn */
};

static void dataset_close(struct source *source)
{
    struct dataset *set = (struct dataset *)source;

    free(set->pixels);
    free(set->labels);
    free(set->drawn);
    free(set);
}

static void draw_one(struct dataset *set, size_t index, uint8_t *image, uint16_t *label)
{
    unsigned char expected = NOT_DRAWN;

    set->draw(set->seed, index, &set->source.shape, image, label);
    assert(*label < set->source.shape.classes);
    if (!atomic_compare_exchange_strong(&set->drawn[index], &expected, BEING_KEPT))
        return;
    memcpy(set->pixels + index * set->image_bytes, image, set->image_bytes);
    set->labels[index] = *label;
    atomic_store_explicit(&set->drawn[index], DRAWN, memory_order_release);
}

static enum status dataset_read(struct source *source, void *reader, uint64_t epoch, int64_t index,
                                uint8_t *image, int64_t *label, struct err *err)
{
    struct dataset *set = (struct dataset *)source;
    const size_t i = (size_t)index;
    uint16_t drawn_label;

    (void)reader;
    (void)epoch;
    (void)err;
    assert(index >= 0 && i < source->count);
    if (set->draw != NULL && atomic_load_explicit(&set->drawn[i], memory_order_acquire) != DRAWN) {
        draw_one(set, i, image, &drawn_label);
        *label = drawn_label;
        return STATUS_OK;
    }
    memcpy(image, set->pixels + i * set->image_bytes, set->image_bytes);
    *label = set->labels[i];
    return STATUS_OK;
}

static const struct source_ops dataset_ops = {.read = dataset_read, .close = dataset_close};

static enum status new_empty(struct dataset **out, const struct dataset_shape *shape,
                             size_t image_count, struct err *err)
{
    struct dataset *set = calloc(1, sizeof *set);

    assert(shape->classes > 0 && shape->classes <= UINT16_MAX + 1U);
    assert(shape->channels > 0 && shape->height > 0 && shape->width > 0);
    if (set == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a data set");
    set->source = (struct source){.ops = &dataset_ops, .shape = *shape, .count = image_count};
    set->image_bytes = source_image_bytes(&set->source);
    *out = set;
    return STATUS_OK;
}

enum status dataset_new(struct source **out, const struct dataset_shape *shape, size_t image_count,
                        uint8_t *pixels, uint16_t *labels, struct err *err)
{
    struct dataset *set = NULL;
    enum status status = new_empty(&set, shape, image_count, err);

    if (status != STATUS_OK) {
        free(pixels);
        free(labels);
        return status;
    }
    set->pixels = pixels;
    set->labels = labels;
    set->source.hash = hash_bytes(hash_bytes(HASH_BEGIN, labels, image_count * sizeof *labels),
                                  pixels, image_count * set->image_bytes);
    *out = &set->source;
    return STATUS_OK;
}

enum status dataset_new_drawn(struct source **out, const struct dataset_shape *shape,
                              size_t image_count, dataset_draw draw, uint64_t seed, struct err *err)
{
    struct dataset *set = NULL;
    enum status status = new_empty(&set, shape, image_count, err);

    if (status != STATUS_OK)
        return status;
    set->draw = draw;
    set->seed = seed;
    set->source.hash = hash_u64(hash_u64(HASH_BEGIN, seed), image_count);
    set->pixels = calloc(
        image_count,
        set->image_bytes); /* zeroed by the kernel: a page takes memory once an image is drawn */
    set->labels = calloc(image_count, sizeof *set->labels);
    set->drawn = calloc(image_count, sizeof *set->drawn);
    if (set->pixels == NULL || set->labels == NULL || set->drawn == NULL) {
        dataset_close(&set->source);
        return err_set(err, STATUS_MEMORY, 0, "no memory for %zu drawn images", image_count);
    }
    *out = &set->source;
    return STATUS_OK;
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
