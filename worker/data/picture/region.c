#include "worker/data/picture/region.h"

#include <stdlib.h>
#include <string.h>

#include "worker/data/picture/grow.h"
#include "worker/data/picture/kernels_jpeg.h"
#include "worker/data/picture/resample.h"

enum { BLOCK = 8, BLOCKS_MAX = 6 }; /* of an MCU */

/* The MCUs (8 h by 8 v pixels) that are decoded. */
struct part {
    uint32_t mcus_x, mcus_y; /* of the picture */
    uint32_t x_begin, x_end, y_begin, y_end;
};

static uint32_t round_up(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

bool region_is_possible(const struct region_source *source, const struct picture_box *box)
{
    /* libjpeg does not smooth colour planes that are 2 samples wide. */
    return (source->h == 1 || round_up(source->width, source->h) > 2) &&
           (uint64_t)box->width * box->height <= REGION_PIXELS_MAX;
}

/* A colour sample contributes to the pixels beside it, so one more on each side is needed. */
static struct part part_of(const struct region_source *source, const struct picture_box *box)
{
    uint32_t mcu_width = BLOCK * source->h;
    uint32_t mcu_height = BLOCK * source->v;
    uint32_t right = box->x + box->width + source->h;
    uint32_t bottom = box->y + box->height + source->v;
    struct part part = {.mcus_x = round_up(source->width, mcu_width),
                        .mcus_y = round_up(source->height, mcu_height)};

    part.x_begin = (box->x < source->h ? 0 : box->x - source->h) / mcu_width;
    part.y_begin = (box->y < source->v ? 0 : box->y - source->v) / mcu_height;
    part.x_end = round_up(right, mcu_width);
    part.y_end = round_up(bottom, mcu_height);
    if (part.x_end > part.mcus_x)
        part.x_end = part.mcus_x;
    if (part.y_end > part.mcus_y)
        part.y_end = part.mcus_y;
    return part;
}

/* Bytes of a row, with room for whole vectors. */
static size_t piece_bytes(const struct picture_box *box)
{
    return ((size_t)box->width + 4 + RESAMPLE_ROW_PAD) / 16 * 16 + 16;
}

static bool set_planes(struct region *region, const struct region_source *source,
                       const struct part *part)
{
    for (uint32_t i = 0; i < source->component_count; i++) {
        struct region_plane *plane = &region->planes[i];
        uint32_t h = i == 0 ? source->h : 1;
        uint32_t v = i == 0 ? source->v : 1;

        plane->x = part->x_begin * BLOCK * h;
        plane->y = part->y_begin * BLOCK * v;
        plane->width = round_up(source->width * h, source->h);
        plane->height = round_up(source->height * v, source->v);
        plane->stride = (size_t)(part->x_end - part->x_begin) * BLOCK * h;
        if (grow(&plane->samples, &plane->samples_allocated,
                 plane->stride * (part->y_end - part->y_begin) * BLOCK * v + RESAMPLE_ROW_PAD) !=
            STATUS_OK)
            return false;
    }
    return true;
}

/* Where block (bx, by) of a component begins. */
static uint8_t *samples_of(const struct region_plane *plane, uint32_t bx, uint32_t by)
{
    return plane->samples + (size_t)(by * BLOCK - plane->y) * plane->stride +
           (bx * BLOCK - plane->x);
}

static bool skip_mcu(const struct region_source *source, struct huffman_bits *bits, int32_t *dc)
{
    int32_t last;

    for (uint32_t i = 0; i < source->component_count; i++)
        for (uint32_t n = i == 0 ? source->h * source->v : 1; n > 0; n--)
            if (!huffman_block(bits, source->components[i].dc, source->components[i].ac, &dc[i],
                               source->components[i].quant, NULL, &last))
                return false;
    return true;
}

/* All blocks are read before the first is transformed: loading coefficients as vectors right after
 * storing them one by one is slow. */
static bool read_mcu(struct region *region, const struct region_source *source, uint32_t x,
                     uint32_t y, struct huffman_bits *bits, int32_t *dc)
{
    _Alignas(64) int16_t blocks[BLOCKS_MAX][HUFFMAN_BLOCK];
    int32_t last[BLOCKS_MAX];
    uint32_t luma = source->h * source->v;
    uint32_t count = luma + source->component_count - 1;

    memset(blocks, 0, count * sizeof blocks[0]);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = n < luma ? 0 : n - luma + 1;

        if (!huffman_block(bits, source->components[i].dc, source->components[i].ac, &dc[i],
                           source->components[i].quant, blocks[n], &last[n]))
            return false;
    }
    for (uint32_t n = 0; n < count; n++) {
        const struct region_plane *plane = &region->planes[n < luma ? 0 : n - luma + 1];
        uint32_t bx = n < luma ? x * source->h + n % source->h : x;
        uint32_t by = n < luma ? y * source->v + n / source->h : y;

        if (!jpeg_kernels()->idct(blocks[n], last[n], samples_of(plane, bx, by), plane->stride))
            return false;
    }
    return true;
}

bool region_decode(struct region *region, const struct region_source *source,
                   const struct picture_box *box)
{
    struct part part = part_of(source, box);
    int32_t dc[REGION_COMPONENTS_MAX] = {0};
    struct huffman_bits bits;
    const uint8_t *next;
    uint32_t count = 0;
    bool is_kept;

    region->box = *box;
    region->component_count = source->component_count;
    region->h = source->h;
    region->v = source->v;
    if (!set_planes(region, source, &part) ||
        grow(&region->line, &region->line_allocated, 7 * piece_bytes(box)) != STATUS_OK ||
        grow(&region->coded, &region->coded_allocated,
             (size_t)(source->end - source->data) + HUFFMAN_PAD) != STATUS_OK)
        return false;
    next = huffman_begin(&bits, source->data, source->end, region->coded);
    for (uint32_t y = 0; y < part.y_end; y++) {
        for (uint32_t x = 0; x < part.mcus_x; x++, count++) {
            if (source->restart_interval > 0 && count > 0 &&
                count % source->restart_interval == 0) {
                if (!huffman_is_at_end(&bits) || source->end - next < 2 || next[0] != 0xff ||
                    next[1] != 0xd0 + (count / source->restart_interval - 1) % 8)
                    return false;
                next = huffman_begin(&bits, next + 2, source->end, region->coded);
                memset(dc, 0, sizeof dc);
            }
            is_kept = y >= part.y_begin && x >= part.x_begin && x < part.x_end;
            if (!(is_kept ? read_mcu(region, source, x, y, &bits, dc)
                          : skip_mcu(source, &bits, dc)))
                return false;
        }
    }
    return true;
}

static const uint8_t *row_of(const struct region_plane *plane, int64_t y)
{
    if (y < 0)
        y = 0;
    if (y >= plane->height)
        y = plane->height - 1;
    return plane->samples + (size_t)(y - plane->y) * plane->stride;
}

/* Row `y` of a colour at full resolution, from column `x` of the picture on; `x` is even if h is
 * 2. */
static void widen(const struct region *region, uint32_t i, uint32_t y, uint32_t x, uint32_t count,
                  uint8_t *sums, uint8_t *out)
{
    const struct region_plane *plane = &region->planes[i];
    uint32_t first = x / 2;
    uint32_t samples = round_up(count, 2);
    struct jpeg_widen rows = {.near = row_of(plane, y / region->v),
                              .other = row_of(plane, y / region->v),
                              .is_two_rows = region->v == 2,
                              .count = samples};

    if (region->v == 2)
        rows.other = row_of(plane, y % 2 == 0 ? (int64_t)y / 2 - 1 : (int64_t)y / 2 + 1);
    rows.near += first - plane->x;
    rows.other += first - plane->x;
    rows.has_left = first > 0;
    rows.has_right = first + samples < plane->width;
    jpeg_kernels()->widen(&rows, (uint16_t *)(void *)sums, out);
}

static void give_grey(const struct region *region, uint32_t y, uint8_t *rgb)
{
    const uint8_t *row = row_of(&region->planes[0], y) + (region->box.x - region->planes[0].x);

    for (uint32_t x = 0; x < region->box.width; x++)
        memset(rgb + (size_t)3 * x, row[x], 3);
}

void region_rows(struct region *region, picture_take_row *take, void *context)
{
    const struct picture_box *box = &region->box;
    uint32_t x = box->x / region->h * region->h; /* upsampled rows begin here */
    uint32_t count = box->x + box->width - x;
    size_t piece = piece_bytes(box);
    uint8_t *rgb = region->line;
    uint8_t *sums = rgb + 3 * piece;
    uint8_t *colours[2] = {sums + 2 * piece, sums + 3 * piece};

    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        const uint8_t *rows[REGION_COMPONENTS_MAX];

        if (region->component_count == 1) {
            give_grey(region, y, rgb);
            take(context, rgb);
            continue;
        }
        rows[0] = row_of(&region->planes[0], y) + (x - region->planes[0].x);
        for (uint32_t i = 1; i < 3; i++) {
            rows[i] = colours[i - 1];
            if (region->h == 2)
                widen(region, i, y, x, count, sums, colours[i - 1]);
            else
                rows[i] = row_of(&region->planes[i], y) + (x - region->planes[i].x);
        }
        jpeg_kernels()->to_rgb(rows[0], rows[1], rows[2], count, rgb);
        take(context, rgb + (size_t)3 * (box->x - x));
    }
}

void region_close(struct region *region)
{
    for (uint32_t i = 0; i < REGION_COMPONENTS_MAX; i++)
        free(region->planes[i].samples);
    free(region->line);
    free(region->coded);
    *region = (struct region){0};
}
