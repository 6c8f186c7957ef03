/* WebP by libwebp, with the colours of Pillow's convert("RGB"): alpha is dropped, profiles are ignored. Of an
 * animation the first frame is taken, on its canvas. */
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "worker/data/picture/decoder.h"
#include "worker/data/picture/grow.h"
#include "worker/data/picture/resample.h"

enum { HEAD_BYTES = 12 };

struct webp {
    struct picture_file file;
    uint32_t width, height;
    uint8_t *rgb;
    size_t rgb_allocated;
};

static enum status webp_new(void **decoder, struct err *err)
{
    *decoder = calloc(1, sizeof(struct webp));
    if (*decoder == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a WebP decoder");
    return STATUS_OK;
}

static void webp_free(void *decoder)
{
    struct webp *webp = decoder;

    free(webp->rgb);
    free(webp);
}

static bool webp_is_this(const struct picture_file *file)
{
    return file->byte_count >= HEAD_BYTES && memcmp(file->bytes, "RIFF", 4) == 0 &&
           memcmp(file->bytes + 8, "WEBP", 4) == 0;
}

static enum status is_damaged(const struct webp *webp, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged WebP", webp->file.name);
}

static enum status webp_open(void *decoder, const struct picture_file *file, uint32_t *width,
                             uint32_t *height, struct err *err)
{
    struct webp *webp = decoder;
    WebPBitstreamFeatures features;

    webp->file = *file;
    if (WebPGetFeatures(file->bytes, file->byte_count, &features) != VP8_STATUS_OK ||
        features.width <= 0 || features.height <= 0)
        return is_damaged(webp, err);
    *width = webp->width = (uint32_t)features.width;
    *height = webp->height = (uint32_t)features.height;
    return STATUS_OK;
}

/* `rgba`: [height][width][4] */
static void give_rows(struct webp *webp, const uint8_t *rgba, const struct picture_box *box,
                      picture_take_row *take, void *context)
{
    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        const uint8_t *in = rgba + ((size_t)y * webp->width + box->x) * 4;

        for (uint32_t x = 0; x < box->width; x++)
            memcpy(webp->rgb + (size_t)3 * x, in + (size_t)4 * x, 3);
        take(context, webp->rgb);
    }
}

/* Pillow decodes every WebP as an animation, which also refuses one that is cut off. */
static enum status webp_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                             void *context, struct err *err)
{
    struct webp *webp = decoder;
    const WebPData data = {webp->file.bytes, webp->file.byte_count};
    WebPAnimDecoderOptions options;
    WebPAnimDecoder *frames = NULL;
    WebPAnimInfo info;
    uint8_t *rgba = NULL;
    int time_ms;
    bool is_read;

    if (grow(&webp->rgb, &webp->rgb_allocated, (size_t)box->width * 3 + RESAMPLE_ROW_PAD) !=
        STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for a row of it", webp->file.name);
    if (WebPAnimDecoderOptionsInit(&options) != 0) {
        options.color_mode = MODE_RGBA;
        frames = WebPAnimDecoderNew(&data, &options);
    }
    is_read = frames != NULL && WebPAnimDecoderGetInfo(frames, &info) != 0 &&
              info.canvas_width == webp->width && info.canvas_height == webp->height &&
              WebPAnimDecoderGetNext(frames, &rgba, &time_ms) != 0;
    if (is_read)
        give_rows(webp, rgba, box, take, context);
    WebPAnimDecoderDelete(frames);
    return is_read ? STATUS_OK : is_damaged(webp, err);
}

const struct picture_format picture_webp = {.name = "WebP",
                                            .is_this = webp_is_this,
                                            .decoder_new = webp_new,
                                            .decoder_free = webp_free,
                                            .open = webp_open,
                                            .rows = webp_rows};
