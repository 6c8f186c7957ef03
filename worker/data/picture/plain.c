#include "worker/data/picture/plain.h"

#include <stdlib.h>
#include <string.h>

#include "worker/data/picture/grow.h"
#include "worker/data/picture/resample.h"

enum status plain_new(void **decoder, struct err *err)
{
    *decoder = calloc(1, sizeof(struct plain));
    if (*decoder == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a decoder");
    return STATUS_OK;
}

void plain_free(void *decoder)
{
    struct plain *plain = decoder;

    free(plain->rgb);
    free(plain);
}

enum status plain_check(const struct plain *plain, struct err *err)
{
    size_t there = plain->file.byte_count;
    size_t last_bytes = (size_t)plain->width * plain->bytes_per_pixel; /* without padding */

    if (plain->begin > there ||
        (plain->height > 0 &&
         plain->row_bytes * (plain->height - 1) + last_bytes > there - plain->begin))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: cut off: %zu bytes, too few for %u x %u pixels", plain->file.name,
                       there, plain->width, plain->height);
    return STATUS_OK;
}

static void convert(const struct plain *plain, const uint8_t *in, uint32_t n, uint8_t *out)
{
    uint32_t red = plain->is_blue_first ? 2 : 0;

    for (uint32_t i = 0; i < n; i++, in += plain->bytes_per_pixel, out += 3) {
        if (plain->bytes_per_pixel == 1) {
            memcpy(out, plain->colours[in[0]], 3);
        } else {
            out[0] = plain->colours[in[red]][0];
            out[1] = plain->colours[in[1]][0];
            out[2] = plain->colours[in[2 - red]][0];
        }
    }
}

enum status plain_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                       void *context, struct err *err)
{
    struct plain *plain = decoder;

    if (grow(&plain->rgb, &plain->rgb_allocated, (size_t)box->width * 3 + RESAMPLE_ROW_PAD) !=
        STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for a row of it", plain->file.name);
    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        size_t row = plain->is_upwards ? plain->height - 1 - y : y;

        convert(plain,
                plain->file.bytes + plain->begin + row * plain->row_bytes +
                    (size_t)box->x * plain->bytes_per_pixel,
                box->width, plain->rgb);
        take(context, plain->rgb);
    }
    return STATUS_OK;
}
