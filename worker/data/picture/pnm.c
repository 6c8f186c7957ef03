/* PGM and PPM with values of one byte: "P5" or "P6", width, height, the largest value, pixels. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "worker/data/picture/plain.h"

static bool pnm_is_this(const struct picture_file *file)
{
    return file->byte_count >= 3 && file->bytes[0] == 'P' && file->bytes[1] >= '1' &&
           file->bytes[1] <= '6' && isspace(file->bytes[2]);
}

/* The next number of the header, after white space and comments; false if there is none, or if it
 * has over 9 digits. */
static bool next_number(const struct picture_file *file, size_t *at, uint32_t *number)
{
    size_t digits = 0;

    while (*at < file->byte_count && (isspace(file->bytes[*at]) || file->bytes[*at] == '#')) {
        if (file->bytes[*at] == '#')
            while (*at < file->byte_count && file->bytes[*at] != '\n')
                (*at)++;
        else
            (*at)++;
    }
    *number = 0;
    for (; *at < file->byte_count && isdigit(file->bytes[*at]) && digits < 9; (*at)++, digits++)
        *number = *number * 10 + (uint32_t)(file->bytes[*at] - '0');
    return digits > 0;
}

static enum status pnm_open(void *decoder, const struct picture_file *file, uint32_t *width,
                            uint32_t *height, struct err *err)
{
    struct plain *plain = decoder;
    uint32_t largest;
    size_t at = 2;

    plain->file = *file;
    if (file->bytes[1] != '5' && file->bytes[1] != '6')
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s: PNM of kind P%c: only P5 and P6 are read",
                       file->name, file->bytes[1]);
    if (!next_number(file, &at, width) || !next_number(file, &at, height) ||
        !next_number(file, &at, &largest) || at >= file->byte_count || !isspace(file->bytes[at]) ||
        largest == 0 || largest > 65535)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged PNM header", file->name);
    if (largest > 255)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: PNM with values up to %u: only those up to 255 are read", file->name,
                       largest);
    plain->width = *width;
    plain->height = *height;
    plain->bytes_per_pixel = file->bytes[1] == '5' ? 1 : 3;
    plain->begin = at + 1;
    plain->row_bytes = (size_t)*width * plain->bytes_per_pixel;
    for (uint32_t i = 0; i < 256; i++) {
        double shown = rint((double)i / largest * 255);

        memset(plain->colours[i], shown > 255 ? 255 : (int)shown, 3);
    }
    return plain_check(plain, err);
}

const struct picture_format picture_pnm = {.name = "PNM",
                                           .is_this = pnm_is_this,
                                           .decoder_new = plain_new,
                                           .decoder_free = plain_free,
                                           .open = pnm_open,
                                           .rows = plain_rows};
