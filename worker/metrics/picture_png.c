#include "worker/metrics/picture_png.h"

#include <assert.h>
#include <png.h>
#include <stdlib.h>

enum status metrics_png(struct buf *png, const uint8_t *pixels, uint32_t height, uint32_t width,
                        uint32_t channels, struct err *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = width,
                       .height = height,
                       .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t byte_count = PNG_IMAGE_PNG_SIZE_MAX(image); /* what libpng may need at most */
    enum status status = STATUS_OK;
    void *bytes;

    assert(channels == 1 || channels == 3);
    bytes = malloc(byte_count);
    if (bytes == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a PNG of %u x %u", width, height);
    if (png_image_write_to_memory(&image, bytes, &byte_count, 0, pixels, 0, NULL) != 0)
        buf_add(png, bytes, byte_count);
    else
        status = err_set(err, STATUS_LIBRARY, 0, "libpng: %.64s", image.message);
    free(bytes);
    if (status == STATUS_OK && png->failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a PNG of %u x %u", width, height);
    return status;
}
