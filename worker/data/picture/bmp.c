/* BMP without compression: 8 bits with a palette, 24 and 32 bits. */
#include <string.h>

#include "worker/data/picture/plain.h"

enum { FILE_HEAD_BYTES = 14, INFO_BYTES_MIN = 40, BITFIELDS = 3 };

static uint32_t get16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t get32(const uint8_t *bytes)
{
    return get16(bytes) | get16(bytes + 2) << 16;
}

static bool bmp_is_this(const struct picture_file *file)
{
    return file->byte_count >= 2 && memcmp(file->bytes, "BM", 2) == 0;
}

/* The palette of 8-bit pixels, blue first; without a palette every value is its own grey. */
static enum status set_colours(struct plain *plain, size_t at, uint32_t count, struct err *err)
{
    for (uint32_t i = 0; i < 256; i++)
        memset(plain->colours[i], (int)i, 3);
    if (plain->bytes_per_pixel != 1)
        return STATUS_OK;
    if (count == 0)
        count = 256;
    if (count > 256 || at > plain->begin || (plain->begin - at) / 4 < count)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged BMP palette", plain->file.name);
    memset(plain->colours, 0, sizeof plain->colours);
    for (uint32_t i = 0; i < count; i++, at += 4)
        for (uint32_t c = 0; c < 3; c++)
            plain->colours[i][c] = plain->file.bytes[at + 2 - c];
    return STATUS_OK;
}

static bool has_usual_masks(const uint8_t *masks)
{
    return get32(masks) == 0xff0000 && get32(masks + 4) == 0xff00 && get32(masks + 8) == 0xff;
}

static enum status bmp_open(void *decoder, const struct picture_file *file, uint32_t *width,
                            uint32_t *height, struct err *err)
{
    struct plain *plain = decoder;
    const uint8_t *info = file->bytes + FILE_HEAD_BYTES;
    uint32_t info_bytes;
    uint32_t bits;
    uint32_t compression;
    enum status status;

    plain->file = *file;
    if (file->byte_count < FILE_HEAD_BYTES + INFO_BYTES_MIN + 12)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged BMP header", file->name);
    info_bytes = get32(info);
    bits = get16(info + 14);
    compression = get32(info + 16);
    if (info_bytes < INFO_BYTES_MIN || (bits != 8 && bits != 24 && bits != 32) ||
        (compression != 0 &&
         !(compression == BITFIELDS && bits == 32 && has_usual_masks(info + INFO_BYTES_MIN))))
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: a BMP with %u bits and compression %u: only 8, 24 and 32 without are "
                       "read",
                       file->name, bits, compression);
    *width = get32(info + 4);
    *height = get32(info + 8);
    plain->is_upwards = *height < 0x80000000u;
    if (!plain->is_upwards)
        *height = 0u - *height;
    if (*width > PICTURE_SIDE_MAX || *height > PICTURE_SIDE_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged BMP header", file->name);
    plain->width = *width;
    plain->height = *height;
    plain->is_blue_first = true;
    plain->bytes_per_pixel = bits / 8;
    plain->begin = get32(file->bytes + 10);
    plain->row_bytes = ((size_t)*width * plain->bytes_per_pixel + 3) / 4 * 4;
    status = plain_check(plain, err);
    if (status != STATUS_OK)
        return status;
    return set_colours(plain, FILE_HEAD_BYTES + (size_t)info_bytes, get32(info + 32), err);
}

const struct picture_format picture_bmp = {.name = "BMP",
                                           .is_this = bmp_is_this,
                                           .decoder_new = plain_new,
                                           .decoder_free = plain_free,
                                           .open = bmp_open,
                                           .rows = plain_rows};
