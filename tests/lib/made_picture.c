#include "tests/lib/made_picture.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

/* One sample of a picture with edges, slopes and noise. */
static uint8_t sample(uint32_t x, uint32_t y, uint32_t c)
{
    uint32_t noise = (x * 2654435761u ^ y * 2246822519u ^ c * 3266489917u) * 668265263u >> 27;

    return (uint8_t)(x * (3 + c) + y * 2 + (x / 9 + y / 7) % 2 * 90 + noise);
}

uint8_t *made_jpeg(const struct made_picture *picture, size_t *byte_count)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long count = 0;
    uint8_t *row = malloc((size_t)picture->width * 4);

    assert(row != NULL);
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &count);
    cinfo.image_width = picture->width;
    cinfo.image_height = picture->height;
    cinfo.input_components = picture->components;
    cinfo.in_color_space = picture->components == 1   ? JCS_GRAYSCALE
                           : picture->components == 3 ? JCS_RGB
                                                      : JCS_CMYK;
    jpeg_set_defaults(&cinfo);
    if (picture->components == 4)
        jpeg_set_colorspace(&cinfo, JCS_YCCK);
    jpeg_set_quality(&cinfo, picture->quality > 0 ? picture->quality : 85, TRUE);
    cinfo.comp_info[0].h_samp_factor = picture->h;
    cinfo.comp_info[0].v_samp_factor = picture->v;
    if (picture->components == 4) {
        cinfo.comp_info[3].h_samp_factor = picture->h;
        cinfo.comp_info[3].v_samp_factor = picture->v;
    }
    cinfo.restart_interval = (unsigned)picture->restart;
    if (picture->is_staged)
        jpeg_simple_progression(&cinfo);
    jpeg_start_compress(&cinfo, TRUE);
    for (uint32_t y = 0; y < picture->height; y++) {
        for (uint32_t x = 0; x < picture->width; x++)
            for (uint32_t c = 0; c < (uint32_t)picture->components; c++)
                row[x * (uint32_t)picture->components + c] = sample(x, y, c);
        (void)jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    free(row);
    *byte_count = count;
    return bytes;
}

struct bytes {
    uint8_t *bytes;
    size_t count;
};

static void on_write(png_structp writing, png_bytep bytes, size_t byte_count)
{
    struct bytes *all = png_get_io_ptr(writing);

    all->bytes = realloc(all->bytes, all->count + byte_count);
    assert(all->bytes != NULL);
    memcpy(all->bytes + all->count, bytes, byte_count);
    all->count += byte_count;
}

uint8_t *made_png(const struct made_picture *picture, size_t *byte_count)
{
    png_structp writing = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(writing);
    png_color colours[256];
    struct bytes all = {NULL, 0};
    uint8_t *rows;
    size_t row_bytes;
    int passes;

    for (uint32_t i = 0; i < 256; i++)
        colours[i] = (png_color){sample(i, 1, 0), sample(i, 2, 1), sample(i, 3, 2)};
    png_set_write_fn(writing, &all, on_write, NULL);
    png_set_IHDR(writing, info, picture->width, picture->height, picture->depth, picture->colour,
                 picture->is_staged ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (picture->colour == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(writing, info, colours, 1 << picture->depth);
    png_write_info(writing, info);
    passes = png_set_interlace_handling(writing);
    row_bytes = png_get_rowbytes(writing, info);
    rows = malloc(row_bytes * picture->height);
    assert(rows != NULL);
    for (size_t i = 0; i < row_bytes * picture->height; i++)
        rows[i] = sample((uint32_t)(i % row_bytes), (uint32_t)(i / row_bytes), 0);
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < picture->height; y++)
            png_write_row(writing, rows + y * row_bytes);
    png_write_end(writing, info);
    png_destroy_write_struct(&writing, &info);
    free(rows);
    *byte_count = all.count;
    return all.bytes;
}

static uint32_t get32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

void made_png_mend(uint8_t *bytes, size_t byte_count)
{
    size_t at = 8;

    while (byte_count - at >= 12 && at < byte_count) {
        uint32_t length = get32(bytes + at);
        uint32_t sum;

        if (length > byte_count - at - 12)
            return;
        sum = (uint32_t)crc32(0, bytes + at + 4, length + 4);
        for (uint32_t i = 0; i < 4; i++)
            bytes[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += (size_t)length + 12;
    }
}
