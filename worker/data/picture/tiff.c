/* TIFF by libtiff, with the colours of Pillow's convert("RGB"): palettes are looked up, alpha is dropped, CMYK is
 * converted, profiles are ignored, the orientation is applied. Of 16-bit values the high byte is taken, except for
 * grey, where Pillow clips at 255. Of several pages the first is read.
 *
 * The whole picture is decoded, so that a damaged file is refused whatever the box is. libtiff reports errors by
 * return values and writes their words to a handler of this file alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "worker/data/picture/cmyk.h"
#include "worker/data/picture/decoder.h"
#include "worker/data/picture/grow.h"
#include "worker/data/picture/resample.h"

enum { SAMPLES_MAX = 8, HEAD_BYTES = 8, ALLOCATION_MAX = 1 << 30 };

struct tiff {
    struct picture_file file;
    uint64_t at; /* in the file */
    TIFF *tiff;
    char text[96]; /* libtiff's first complaint */
    uint32_t width, height;
    uint16_t bits, samples, photometric, orientation;
    bool is_separate;                   /* each sample in a plane of its own */
    const uint16_t *red, *green, *blue; /* of the palette, libtiff's */
    uint8_t *pixels, *piece, *rgb;      /* [height][width][3]; a strip or tile; a row */
    size_t pixels_allocated, piece_allocated, rgb_allocated;
};

/* -- the file in memory -- */

static tmsize_t on_read(thandle_t user, void *to, tmsize_t count)
{
    struct tiff *tiff = user;
    const uint64_t left = tiff->at < tiff->file.byte_count ? tiff->file.byte_count - tiff->at : 0;
    const uint64_t n = (uint64_t)count < left ? (uint64_t)count : left;

    memcpy(to, tiff->file.bytes + (tiff->at < tiff->file.byte_count ? tiff->at : 0), n);
    tiff->at += n;
    return (tmsize_t)n;
}

static tmsize_t on_write(thandle_t user, void *from, tmsize_t count)
{
    (void)user;
    (void)from;
    (void)count;
    return -1;
}

static toff_t on_seek(thandle_t user, toff_t offset, int from)
{
    struct tiff *tiff = user;

    if (from == SEEK_CUR)
        offset += tiff->at;
    else if (from == SEEK_END)
        offset += tiff->file.byte_count;
    tiff->at = offset;
    return offset;
}

static int on_close(thandle_t user)
{
    (void)user;
    return 0;
}

static toff_t on_size(thandle_t user)
{
    return ((struct tiff *)user)->file.byte_count;
}

/* 1: it was dealt with, and goes nowhere else. */
static int on_error(TIFF *reading, void *user, const char *module, const char *format,
                    va_list words)
{
    struct tiff *tiff = user;

    (void)reading;
    (void)module;
    if (tiff->text[0] == '\0')
        (void)vsnprintf(tiff->text, sizeof tiff->text, format, words);
    return 1;
}

static int on_warning(TIFF *reading, void *user, const char *module, const char *format,
                      va_list words)
{
    (void)reading;
    (void)user;
    (void)module;
    (void)format;
    (void)words;
    return 1;
}

static void close_picture(struct tiff *tiff)
{
    if (tiff->tiff != NULL)
        TIFFClose(tiff->tiff);
    tiff->tiff = NULL;
}

static enum status is_damaged(struct tiff *tiff, struct err *err)
{
    close_picture(tiff);
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged TIFF: %s", tiff->file.name,
                   tiff->text[0] != '\0' ? tiff->text : "it is cut off");
}

static enum status is_unsupported(struct tiff *tiff, struct err *err)
{
    close_picture(tiff);
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "%s: a TIFF with %u samples of %u bits and photometric %u: grey, palette, RGB, "
                   "YCbCr in JPEG and CMYK are read: convert or remove it",
                   tiff->file.name, tiff->samples, tiff->bits, tiff->photometric);
}

/* -- the header -- */

static enum status tiff_new(void **decoder, struct err *err)
{
    *decoder = calloc(1, sizeof(struct tiff));
    if (*decoder == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a TIFF decoder");
    return STATUS_OK;
}

static void tiff_free(void *decoder)
{
    struct tiff *tiff = decoder;

    close_picture(tiff);
    free(tiff->pixels);
    free(tiff->piece);
    free(tiff->rgb);
    free(tiff);
}

static bool tiff_is_this(const struct picture_file *file)
{
    static const char *const heads[] = {"II*\0", "MM\0*", "II+\0", "MM\0+"};

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (file->byte_count >= HEAD_BYTES && memcmp(file->bytes, heads[i], 4) == 0)
            return true;
    return false;
}

static bool is_read(const struct tiff *tiff)
{
    const bool is_whole = tiff->bits == 8 || tiff->bits == 16;

    switch (tiff->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
        return is_whole || (tiff->samples == 1 && tiff->bits <= 4 && tiff->bits != 3);
    case PHOTOMETRIC_PALETTE:
        return tiff->samples == 1 && tiff->bits <= 8 && (tiff->bits & (tiff->bits - 1)) == 0 &&
               tiff->red != NULL;
    case PHOTOMETRIC_RGB:
        return is_whole && tiff->samples >= 3;
    case PHOTOMETRIC_SEPARATED:
        return tiff->bits == 8 && tiff->samples >= 4;
    default:
        return false;
    }
}

static void read_palette(struct tiff *tiff)
{
    uint16_t *red, *green, *blue;

    tiff->red = NULL;
    if (tiff->photometric != PHOTOMETRIC_PALETTE || tiff->bits > 8 ||
        TIFFGetField(tiff->tiff, TIFFTAG_COLORMAP, &red, &green, &blue) != 1)
        return;
    tiff->red = red;
    tiff->green = green;
    tiff->blue = blue;
}

static enum status read_header(struct tiff *tiff, struct err *err)
{
    uint16_t planar = PLANARCONFIG_CONTIG, compression = COMPRESSION_NONE;
    uint16_t format = SAMPLEFORMAT_UINT;
    TIFF *file = tiff->tiff;

    (void)TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &tiff->bits);
    (void)TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &tiff->samples);
    (void)TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planar);
    (void)TIFFGetFieldDefaulted(file, TIFFTAG_COMPRESSION, &compression);
    (void)TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &format);
    (void)TIFFGetFieldDefaulted(file, TIFFTAG_ORIENTATION, &tiff->orientation);
    if (TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &tiff->photometric) != 1)
        tiff->photometric = PHOTOMETRIC_MINISWHITE; /* Pillow's default, 0 */
    tiff->is_separate = planar == PLANARCONFIG_SEPARATE && tiff->samples > 1;
    if (tiff->photometric == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG &&
        TIFFSetField(file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) == 1)
        tiff->photometric = PHOTOMETRIC_RGB;
    read_palette(tiff);
    if (format != SAMPLEFORMAT_UINT || tiff->samples > SAMPLES_MAX || !is_read(tiff))
        return is_unsupported(tiff, err);
    return STATUS_OK;
}

static bool is_turned(const struct tiff *tiff)
{
    return tiff->orientation >= ORIENTATION_LEFTTOP && tiff->orientation <= ORIENTATION_LEFTBOT;
}

static enum status tiff_open(void *decoder, const struct picture_file *file, uint32_t *width,
                             uint32_t *height, struct err *err)
{
    struct tiff *tiff = decoder;
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    enum status status;

    close_picture(tiff);
    tiff->file = *file;
    tiff->at = 0;
    tiff->text[0] = '\0';
    tiff->width = tiff->height = 0;
    tiff->orientation = ORIENTATION_TOPLEFT;
    if (options == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a TIFF decoder");
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, ALLOCATION_MAX);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, tiff);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, tiff);
    tiff->tiff = TIFFClientOpenExt(file->name, "rm", tiff, on_read, on_write, on_seek, on_close,
                                   on_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    if (tiff->tiff == NULL || TIFFGetField(tiff->tiff, TIFFTAG_IMAGEWIDTH, &tiff->width) != 1 ||
        TIFFGetField(tiff->tiff, TIFFTAG_IMAGELENGTH, &tiff->height) != 1 ||
        tiff->width > PICTURE_SIDE_MAX || tiff->height > PICTURE_SIDE_MAX)
        return is_damaged(tiff, err);
    status = read_header(tiff, err);
    *width = is_turned(tiff) ? tiff->height : tiff->width;
    *height = is_turned(tiff) ? tiff->width : tiff->height;
    return status;
}

/* -- pixels -- */

/* Sample `index` of a row, in 8 bits. `in`: a row of samples, as libtiff gives it: 16 bits in the machine's order. */
static uint8_t sample(const struct tiff *tiff, const uint8_t *in, size_t index)
{
    uint16_t deep;
    uint32_t at, value;

    if (tiff->bits == 8)
        return in[index];
    if (tiff->bits == 16) {
        memcpy(&deep, in + 2 * index, sizeof deep);
        if (tiff->photometric == PHOTOMETRIC_MINISBLACK ||
            tiff->photometric == PHOTOMETRIC_MINISWHITE)
            return deep > 255 ? 255 : (uint8_t)deep;
        return (uint8_t)(deep >> 8);
    }
    at = (uint32_t)(index * tiff->bits % 8);
    value =
        (uint32_t)in[index * tiff->bits / 8] >> (8 - at - tiff->bits) & ((1U << tiff->bits) - 1);
    return (uint8_t)(tiff->photometric == PHOTOMETRIC_PALETTE
                         ? value
                         : value * 255 / ((1U << tiff->bits) - 1));
}

/* A row of whole pixels. `out`: [n][3] */
static void convert(const struct tiff *tiff, const uint8_t *in, uint32_t n, uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++, out += 3) {
        const size_t first = (size_t)i * tiff->samples;
        uint8_t value = sample(tiff, in, first), inverted[4];

        switch (tiff->photometric) {
        case PHOTOMETRIC_PALETTE:
            out[0] = (uint8_t)(tiff->red[value] >> 8);
            out[1] = (uint8_t)(tiff->green[value] >> 8);
            out[2] = (uint8_t)(tiff->blue[value] >> 8);
            break;
        case PHOTOMETRIC_SEPARATED:
            for (uint32_t c = 0; c < 4; c++)
                inverted[c] = (uint8_t)~in[first + c];
            cmyk_to_rgb(inverted, 1, out);
            break;
        case PHOTOMETRIC_RGB:
            for (uint32_t c = 0; c < 3; c++)
                out[c] = sample(tiff, in, first + c);
            break;
        default:
            memset(out, tiff->photometric == PHOTOMETRIC_MINISWHITE ? (uint8_t)~value : value, 3);
        }
    }
}

/* A row of one plane: sample `plane` of each pixel. */
static void convert_plane(const struct tiff *tiff, const uint8_t *in, uint32_t n, uint32_t plane,
                          uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[(size_t)3 * i + plane] = sample(tiff, in, i);
}

/* A strip or a tile, cut off at the edges of the picture. */
struct piece {
    uint32_t x, y, width, height;
};

static void take_piece(struct tiff *tiff, const struct piece *piece, size_t row_bytes,
                       uint32_t plane)
{
    for (uint32_t row = 0; row < piece->height; row++) {
        const uint8_t *in = tiff->piece + row_bytes * row;
        uint8_t *out = tiff->pixels + ((size_t)(piece->y + row) * tiff->width + piece->x) * 3;

        if (tiff->is_separate)
            convert_plane(tiff, in, piece->width, plane, out);
        else
            convert(tiff, in, piece->width, out);
    }
}

/* Reads the piece at x, y into tiff->piece. */
static bool read_piece(struct tiff *tiff, const struct piece *piece, size_t row_bytes,
                       tmsize_t bytes, uint32_t plane)
{
    TIFF *file = tiff->tiff;
    tmsize_t got;

    if (TIFFIsTiled(file) != 0)
        got =
            TIFFReadEncodedTile(file, TIFFComputeTile(file, piece->x, piece->y, 0, (uint16_t)plane),
                                tiff->piece, bytes);
    else
        got = TIFFReadEncodedStrip(file, TIFFComputeStrip(file, piece->y, (uint16_t)plane),
                                   tiff->piece, bytes);
    return got >= 0 && (size_t)got >= row_bytes * piece->height;
}

static bool read_plane(struct tiff *tiff, uint32_t plane)
{
    TIFF *file = tiff->tiff;
    const bool is_tiled = TIFFIsTiled(file) != 0;
    const tmsize_t row_bytes = is_tiled ? TIFFTileRowSize(file) : TIFFScanlineSize(file);
    const tmsize_t bytes = is_tiled ? TIFFTileSize(file) : TIFFStripSize(file);
    uint32_t width = tiff->width, height = tiff->height;

    if (is_tiled) {
        (void)TIFFGetField(file, TIFFTAG_TILEWIDTH, &width);
        (void)TIFFGetField(file, TIFFTAG_TILELENGTH, &height);
    } else {
        (void)TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &height);
    }
    if (bytes <= 0 || row_bytes <= 0 || bytes > ALLOCATION_MAX || width == 0 || height == 0 ||
        grow(&tiff->piece, &tiff->piece_allocated, (size_t)bytes) != STATUS_OK)
        return false;
    for (uint64_t y = 0; y < tiff->height; y += height)
        for (uint64_t x = 0; x < tiff->width; x += width) {
            struct piece piece = {(uint32_t)x, (uint32_t)y, width, height};

            if (piece.width > tiff->width - piece.x)
                piece.width = tiff->width - piece.x;
            if (piece.height > tiff->height - piece.y)
                piece.height = tiff->height - piece.y;
            if (!read_piece(tiff, &piece, (size_t)row_bytes, bytes, plane))
                return false;
            take_piece(tiff, &piece, (size_t)row_bytes, plane);
        }
    return true;
}

/* Where pixel x, y of the turned picture is. Source: TIFF 6.0, section 8, Orientation. */
static const uint8_t *pixel(const struct tiff *tiff, uint32_t x, uint32_t y)
{
    const uint32_t right = tiff->width - 1, bottom = tiff->height - 1;
    uint32_t from_x = x, from_y = y;

    switch (tiff->orientation) {
    case ORIENTATION_TOPRIGHT:
        from_x = right - x;
        break;
    case ORIENTATION_BOTRIGHT:
        from_x = right - x;
        from_y = bottom - y;
        break;
    case ORIENTATION_BOTLEFT:
        from_y = bottom - y;
        break;
    case ORIENTATION_LEFTTOP:
        from_x = y;
        from_y = x;
        break;
    case ORIENTATION_RIGHTTOP:
        from_x = y;
        from_y = bottom - x;
        break;
    case ORIENTATION_RIGHTBOT:
        from_x = right - y;
        from_y = bottom - x;
        break;
    case ORIENTATION_LEFTBOT:
        from_x = right - y;
        from_y = x;
        break;
    default:
        break;
    }
    return tiff->pixels + ((size_t)from_y * tiff->width + from_x) * 3;
}

static enum status tiff_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                             void *context, struct err *err)
{
    struct tiff *tiff = decoder;
    const uint32_t planes = !tiff->is_separate ? 1 : tiff->photometric == PHOTOMETRIC_RGB ? 3 : 0;

    if (planes == 0)
        return is_unsupported(tiff, err);
    if (grow(&tiff->pixels, &tiff->pixels_allocated, (size_t)tiff->width * tiff->height * 3) !=
            STATUS_OK ||
        grow(&tiff->rgb, &tiff->rgb_allocated, (size_t)box->width * 3 + RESAMPLE_ROW_PAD) !=
            STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its pixels", tiff->file.name);
    for (uint32_t plane = 0; plane < planes; plane++)
        if (!read_plane(tiff, plane))
            return is_damaged(tiff, err);
    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        for (uint32_t x = 0; x < box->width; x++)
            memcpy(tiff->rgb + (size_t)3 * x, pixel(tiff, box->x + x, y), 3);
        take(context, tiff->rgb);
    }
    close_picture(tiff);
    return STATUS_OK;
}

const struct picture_format picture_tiff = {.name = "TIFF",
                                            .is_this = tiff_is_this,
                                            .decoder_new = tiff_new,
                                            .decoder_free = tiff_free,
                                            .open = tiff_open,
                                            .rows = tiff_rows};
