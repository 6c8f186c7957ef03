/* PNG by libpng, with the colours of Pillow's convert("RGB"): palettes are looked up, alpha and
 * tRNS are dropped, gamma and profiles are ignored. Of 16-bit values the high byte is taken, except
 * for grey without alpha, where Pillow clips at 255.
 *
 * All rows are decompressed, also those below the box, so that a damaged file is refused whatever
 * the box is. libpng reports errors with longjmp(). Everything that must outlive an error is in
 * `struct png`. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "worker/data/picture/decoder.h"
#include "worker/data/picture/grow.h"
#include "worker/data/picture/resample.h"

enum { SIGNATURE_BYTES = 8, CHUNK_BYTES_MAX = 1 << 24 };

struct png {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    char text[128];
    bool is_out_of_memory;
    struct picture_file file;
    size_t taken; /* bytes of the file that libpng has read */
    bool is_deep_grey, is_interlaced;
    uint32_t width, height, bytes_per_pixel;
    struct picture_box box;
    picture_take_row *take;
    void *context;
    uint8_t *rows; /* all rows of the box and one more if interlaced, else one row */
    uint8_t *rgb;
    size_t rows_allocated, rgb_allocated;
};

static void on_error(png_structp reading, png_const_charp message)
{
    struct png *png = png_get_error_ptr(reading);

    (void)snprintf(png->text, sizeof png->text, "%s", message);
    longjmp(png->failed, 1);
}

static void on_warning(png_structp reading, png_const_charp message)
{
    (void)reading; /* concerns chunks that are ignored */
    (void)message;
}

static png_voidp on_malloc(png_structp reading, png_alloc_size_t byte_count)
{
    struct png *png = png_get_mem_ptr(reading);
    void *memory = malloc(byte_count);

    if (memory == NULL)
        png->is_out_of_memory = true;
    return memory;
}

static void on_free(png_structp reading, png_voidp memory)
{
    (void)reading;
    free(memory);
}

static void on_read(png_structp reading, png_bytep bytes, size_t byte_count)
{
    struct png *png = png_get_io_ptr(reading);

    if (byte_count > png->file.byte_count - png->taken)
        png_error(reading, "it is cut off");
    memcpy(bytes, png->file.bytes + png->taken, byte_count);
    png->taken += byte_count;
}

static void close_picture(struct png *png)
{
    png_destroy_read_struct(&png->png, &png->info, NULL);
}

/* Runs `step`, which calls libpng. This function has no local variables that must outlive an
 * error. */
static enum status guard(struct png *png, void (*step)(struct png *png), struct err *err)
{
    if (setjmp(png->failed) == 0) {
        step(png);
        return STATUS_OK;
    }
    close_picture(png);
    if (png->is_out_of_memory)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to decode it", png->file.name);
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged PNG: %s", png->file.name, png->text);
}

static enum status png_new(void **decoder, struct err *err)
{
    *decoder = calloc(1, sizeof(struct png));
    if (*decoder == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a PNG decoder");
    return STATUS_OK;
}

static void png_free_decoder(void *decoder)
{
    struct png *png = decoder;

    close_picture(png);
    free(png->rows);
    free(png->rgb);
    free(png);
}

static bool png_is_this(const struct picture_file *file)
{
    return file->byte_count >= SIGNATURE_BYTES && png_sig_cmp(file->bytes, 0, SIGNATURE_BYTES) == 0;
}

static void read_header(struct png *png)
{
    png->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png,
                                        on_malloc, on_free);
    if (png->png == NULL) {
        png->is_out_of_memory = true;
        longjmp(png->failed, 1);
    }
    png->info = png_create_info_struct(png->png);
    if (png->info == NULL)
        png_error(png->png, "no memory");
    png_set_chunk_malloc_max(png->png, CHUNK_BYTES_MAX);
    png_set_keep_unknown_chunks(png->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles */
    png_set_read_fn(png->png, png, on_read);
    png_read_info(png->png, png->info);
    png->width = png_get_image_width(png->png, png->info);
    png->height = png_get_image_height(png->png, png->info);
}

static enum status png_open(void *decoder, const struct picture_file *file, uint32_t *width,
                            uint32_t *height, struct err *err)
{
    struct png *png = decoder;
    enum status status;

    close_picture(png);
    png->file = *file;
    png->taken = 0;
    png->is_out_of_memory = false;
    status = guard(png, read_header, err);
    *width = png->width;
    *height = png->height;
    return status;
}

/* Asks libpng for 8-bit RGB, or for 16-bit grey. */
static void start(struct png *png)
{
    int type = png_get_color_type(png->png, png->info);
    int depth = png_get_bit_depth(png->png, png->info);

    png->is_deep_grey = type == PNG_COLOR_TYPE_GRAY && depth == 16;
    png->is_interlaced = png_set_interlace_handling(png->png) > 1;
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(png->png);
    if (depth == 16 && !png->is_deep_grey)
        png_set_strip_16(png->png);
    if ((type & PNG_COLOR_MASK_COLOR) == 0 && !png->is_deep_grey)
        png_set_gray_to_rgb(png->png);
    png_set_strip_alpha(png->png);
    png_read_update_info(png->png, png->info);
    png->bytes_per_pixel = png->is_deep_grey ? 2 : 3;
    if (png_get_rowbytes(png->png, png->info) != (size_t)png->width * png->bytes_per_pixel)
        png_error(png->png, "rows of an unexpected size");
}

/* Gives a decoded row, converted to 8-bit RGB if it is 16-bit grey. */
static void give(struct png *png, const uint8_t *row)
{
    row += (size_t)png->box.x * png->bytes_per_pixel;
    if (png->is_deep_grey) {
        for (uint32_t x = 0; x < png->box.width; x++)
            memset(png->rgb + (size_t)3 * x, row[2 * x] != 0 ? 255 : row[2 * x + 1], 3);
        row = png->rgb;
    }
    png->take(png->context, row);
}

static void read_rows(struct png *png)
{
    const struct picture_box *box = &png->box;

    for (uint32_t y = 0; y < png->height; y++) {
        png_read_row(png->png, png->rows, NULL);
        if (y >= box->y && y - box->y < box->height)
            give(png, png->rows);
    }
}

/* Every pass has some pixels of all rows. Rows outside of the box share one extra row. */
static void read_passes(struct png *png)
{
    const struct picture_box *box = &png->box;
    size_t row_bytes = (size_t)png->width * png->bytes_per_pixel;

    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++) {
        for (uint32_t y = 0; y < png->height; y++) {
            bool is_inside = y >= box->y && y - box->y < box->height;

            png_read_row(png->png, png->rows + row_bytes * (is_inside ? y - box->y : box->height),
                         NULL);
        }
    }
    for (uint32_t y = 0; y < box->height; y++)
        give(png, png->rows + y * row_bytes);
}

static enum status png_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                            void *context, struct err *err)
{
    struct png *png = decoder;
    enum status status;
    size_t row_count;

    png->box = *box;
    png->take = take;
    png->context = context;
    status = guard(png, start, err);
    if (status != STATUS_OK)
        return status;
    row_count = png->is_interlaced ? (size_t)box->height + 1 : 1;
    if (grow(&png->rows, &png->rows_allocated,
             (size_t)png->width * png->bytes_per_pixel * row_count + RESAMPLE_ROW_PAD) !=
            STATUS_OK ||
        grow(&png->rgb, &png->rgb_allocated, (size_t)box->width * 3 + RESAMPLE_ROW_PAD) !=
            STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its rows", png->file.name);
    status = guard(png, png->is_interlaced ? read_passes : read_rows, err);
    close_picture(png);
    return status;
}

const struct picture_format picture_png = {.name = "PNG",
                                           .is_this = png_is_this,
                                           .decoder_new = png_new,
                                           .decoder_free = png_free_decoder,
                                           .open = png_open,
                                           .rows = png_rows};
