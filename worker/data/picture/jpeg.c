/* JPEG. The usual kind of file is decoded by region.h. libjpeg-turbo reads its header, and decodes
 * all other kinds and all damaged files, with Pillow's settings: the accurate integer IDCT and
 * fancy upsampling. Both give the same pixels.
 *
 * libjpeg computes only the rows and columns of the box: jpeg_skip_scanlines() skips the rows above
 * and jpeg_crop_scanline() the blocks beside it; rows below are never read. libjpeg upsamples the
 * first and last column that it decodes from one neighbour only, so a margin is decoded beside the
 * box, and the pixels of the box equal those of a whole decode.
 *
 * libjpeg reports errors with longjmp(). Everything that must outlive an error is in `struct
 * jpeg`. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "worker/data/picture/cmyk.h"
#include "worker/data/picture/decoder.h"
#include "worker/data/picture/grow.h"
#include "worker/data/picture/region.h"
#include "worker/data/picture/resample.h"

enum {
    SCANS_MAX = 500, /* of a progressive file; each one costs a pass over the whole picture */
    MARGIN = 2,      /* columns beside the box that upsampling reads */
};

struct jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
    bool is_cut_off, has_too_many_scans;
    struct picture_file file;
    struct picture_box box;
    uint32_t left;       /* the picture's column with which decoded rows begin */
    uint32_t rows_above; /* rows above the box that are decoded too */
    picture_take_row *take;
    void *context;
    struct huffman tables[2][NUM_HUFF_TBLS];            /* DC, AC */
    uint16_t quants[MAX_COMPS_IN_SCAN][HUFFMAN_PLACES]; /* in zigzag order */
    struct region region;
    uint8_t *row, *rgb;
    size_t row_allocated, rgb_allocated;
};

static _Noreturn void on_error(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;

    if (!jpeg->is_cut_off)
        common->err->format_message(common, jpeg->text);
    longjmp(jpeg->failed, 1);
}

static void on_message(j_common_ptr common)
{
    (void)common; /* a warning: damaged data is shown as decoded, as Pillow does */
}

static void on_source(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

static boolean on_end(j_decompress_ptr cinfo)
{
    struct jpeg *jpeg = cinfo->client_data;

    jpeg->is_cut_off = true;
    on_error((j_common_ptr)cinfo);
}

static void on_skip(j_decompress_ptr cinfo, long byte_count)
{
    if (byte_count <= 0)
        return;
    if ((unsigned long)byte_count > cinfo->src->bytes_in_buffer)
        (void)on_end(cinfo);
    cinfo->src->next_input_byte += byte_count;
    cinfo->src->bytes_in_buffer -= (size_t)byte_count;
}

static void on_progress(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;

    if (jpeg->cinfo.input_scan_number <= SCANS_MAX)
        return;
    jpeg->has_too_many_scans = true;
    longjmp(jpeg->failed, 1);
}

/* Converts libjpeg's error to a status. */
static enum status fail(struct jpeg *jpeg, struct err *err)
{
    int code = jpeg->errors.msg_code;

    jpeg_abort_decompress(&jpeg->cinfo);
    if (jpeg->is_cut_off)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: the JPEG is cut off: it has %zu bytes",
                       jpeg->file.name, jpeg->file.byte_count);
    if (jpeg->has_too_many_scans)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: the JPEG has more than %d scans",
                       jpeg->file.name, SCANS_MAX);
    if (code == JERR_OUT_OF_MEMORY)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to decode it", jpeg->file.name);
    if (code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED || code == JERR_ARITH_NOTIMPL ||
        code == JERR_CONVERSION_NOTIMPL)
        return err_set(err, STATUS_UNSUPPORTED, code,
                       "%s: a kind of JPEG that libjpeg cannot read: %s", jpeg->file.name,
                       jpeg->text);
    return err_set(err, STATUS_BAD_INPUT, code, "%s: a damaged JPEG: %s", jpeg->file.name,
                   jpeg->text);
}

/* Runs `step`, which calls libjpeg. This function has no local variables that must outlive an
 * error. */
static enum status guard(struct jpeg *jpeg, void (*step)(struct jpeg *jpeg), struct err *err)
{
    if (setjmp(jpeg->failed) != 0)
        return fail(jpeg, err);
    step(jpeg);
    return STATUS_OK;
}

static void create(struct jpeg *jpeg)
{
    jpeg_create_decompress(&jpeg->cinfo);
}

static enum status jpeg_new(void **decoder, struct err *err)
{
    struct jpeg *jpeg = calloc(1, sizeof *jpeg);

    *decoder = jpeg;
    if (jpeg == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a JPEG decoder");
    jpeg->file.name = "JPEG decoder";
    jpeg->cinfo.err = jpeg_std_error(&jpeg->errors);
    jpeg->cinfo.client_data = jpeg;
    jpeg->errors.error_exit = on_error;
    jpeg->errors.output_message = on_message;
    jpeg->source.init_source = on_source;
    jpeg->source.fill_input_buffer = on_end;
    jpeg->source.skip_input_data = on_skip;
    jpeg->source.resync_to_restart = jpeg_resync_to_restart;
    jpeg->source.term_source = on_source;
    jpeg->progress.progress_monitor = on_progress;
    return guard(jpeg, create, err);
}

static void jpeg_free(void *decoder)
{
    struct jpeg *jpeg = decoder;

    jpeg_destroy_decompress(&jpeg->cinfo);
    region_close(&jpeg->region);
    free(jpeg->row);
    free(jpeg->rgb);
    free(jpeg);
}

static bool jpeg_is_this(const struct picture_file *file)
{
    return file->byte_count >= 3 && memcmp(file->bytes, "\xff\xd8\xff", 3) == 0;
}

static void read_header(struct jpeg *jpeg)
{
    jpeg->cinfo.src = &jpeg->source;
    jpeg->cinfo.progress = &jpeg->progress;
    jpeg->source.next_input_byte = jpeg->file.bytes;
    jpeg->source.bytes_in_buffer = jpeg->file.byte_count;
    (void)jpeg_read_header(&jpeg->cinfo, TRUE);
}

/* Whether an end marker follows the header. Later only a part of the data may be read, so a
 * truncated file is found here, whatever the box is. */
static bool has_end(const struct jpeg *jpeg)
{
    const uint8_t *at = jpeg->file.bytes + jpeg->file.byte_count;
    const uint8_t *begin = jpeg->source.next_input_byte;

    while (at - begin >= 2) {
        const uint8_t *found = memrchr(begin + 1, 0xd9, (size_t)(at - begin - 1));

        if (found == NULL)
            return false;
        if (found[-1] == 0xff)
            return true;
        at = found;
    }
    return false;
}

static enum status jpeg_open(void *decoder, const struct picture_file *file, uint32_t *width,
                             uint32_t *height, struct err *err)
{
    struct jpeg *jpeg = decoder;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    enum status status;

    jpeg_abort_decompress(cinfo); /* ends the decode of the picture before */
    jpeg->file = *file;
    jpeg->is_cut_off = jpeg->has_too_many_scans = false;
    jpeg->text[0] = '\0';
    status = guard(jpeg, read_header, err);
    if (status != STATUS_OK)
        return status;
    if (cinfo->num_components != 1 && cinfo->num_components != 3 && cinfo->num_components != 4)
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s: a JPEG with %d components", file->name,
                       cinfo->num_components);
    if (!has_end(jpeg))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: the JPEG is cut off: no end marker in its %zu bytes", file->name,
                       file->byte_count);
    cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_RGB;
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
    *width = cinfo->image_width;
    *height = cinfo->image_height;
    return STATUS_OK;
}

static void calculate(struct jpeg *jpeg)
{
    jpeg_calc_output_dimensions(&jpeg->cinfo);
}

static enum status jpeg_reduce(void *decoder, uint32_t by, uint32_t *width, uint32_t *height,
                               struct err *err)
{
    struct jpeg *jpeg = decoder;
    enum status status;

    jpeg->cinfo.scale_num = 1;
    jpeg->cinfo.scale_denom = by;
    status = guard(jpeg, calculate, err);
    *width = jpeg->cinfo.output_width;
    *height = jpeg->cinfo.output_height;
    return status;
}

/* Whether a progressive file ends before all bits of its coefficients: then libjpeg smooths across
 * blocks, and the result depends on which blocks it decodes. */
static bool is_smoothed(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode || cinfo->coef_bits == NULL)
        return false;
    for (int component = 0; component < cinfo->num_components; component++)
        for (int i = 1; i < DCTSIZE2; i++)
            if (cinfo->coef_bits[component][i] != 0)
                return true;
    return false;
}

/* Starts decoding and skips the rows above and the columns beside the box. */
static void start(struct jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const struct picture_box *box = &jpeg->box;
    JDIMENSION left = box->x < MARGIN ? 0 : box->x - MARGIN;
    JDIMENSION width;

    (void)jpeg_start_decompress(cinfo);
    jpeg->left = 0;
    jpeg->rows_above = 0;
    if (is_smoothed(cinfo)) {
        jpeg->rows_above = box->y;
        return;
    }
    width = cinfo->output_width - left;
    if (width > box->x - left + box->width + MARGIN)
        width = box->x - left + box->width + MARGIN;
    /* On a reduced picture jpeg_crop_scanline() takes too few columns of the colours. */
    if (width < cinfo->output_width && cinfo->scale_denom == 1) {
        jpeg_crop_scanline(cinfo, &left, &width);
        jpeg->left = left;
    }
    if (box->y > 0)
        (void)jpeg_skip_scanlines(cinfo, box->y);
}

static void read_rows(struct jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const struct picture_box *box = &jpeg->box;
    size_t skipped = (size_t)(box->x - jpeg->left) * (size_t)cinfo->output_components;

    for (uint32_t y = 0; y < jpeg->rows_above + box->height; y++) {
        JSAMPROW row = jpeg->row;

        (void)jpeg_read_scanlines(cinfo, &row, 1);
        if (y < jpeg->rows_above)
            continue;
        if (cinfo->output_components == 4) {
            cmyk_to_rgb(row + skipped, box->width, jpeg->rgb);
            jpeg->take(jpeg->context, jpeg->rgb);
        } else {
            jpeg->take(jpeg->context, row + skipped);
        }
    }
    jpeg_abort_decompress(cinfo);
}

/* Fills `source` if this is the usual kind of file for region.h; otherwise returns false. */
static bool set_source(struct jpeg *jpeg, struct region_source *source)
{
    const struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const jpeg_component_info *luma = &cinfo->comp_info[0];

    *source = (struct region_source){.width = cinfo->image_width,
                                     .height = cinfo->image_height,
                                     .component_count = (uint32_t)cinfo->num_components,
                                     .h = 1,
                                     .v = 1,
                                     .restart_interval = cinfo->restart_interval,
                                     .data = jpeg->source.next_input_byte,
                                     .end = jpeg->file.bytes + jpeg->file.byte_count};
    if (cinfo->progressive_mode || cinfo->arith_code || cinfo->data_precision != 8 ||
        cinfo->scale_denom != 1 || cinfo->comps_in_scan != cinfo->num_components)
        return false;
    if (cinfo->num_components == 1)
        return cinfo->jpeg_color_space == JCS_GRAYSCALE;
    source->h = (uint32_t)luma->h_samp_factor;
    source->v = (uint32_t)luma->v_samp_factor;
    if (cinfo->num_components != 3 || cinfo->jpeg_color_space != JCS_YCbCr || source->h > 2 ||
        source->v > source->h)
        return false;
    for (int i = 1; i < 3; i++)
        if (cinfo->comp_info[i].h_samp_factor != 1 || cinfo->comp_info[i].v_samp_factor != 1)
            return false;
    return true;
}

/* Looks up the tables that the scan names; all of them must exist. */
static bool set_tables(struct jpeg *jpeg, struct region_source *source)
{
    const struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;

    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *component = cinfo->cur_comp_info[i];
        const JQUANT_TBL *quant;
        const JHUFF_TBL *dc;
        const JHUFF_TBL *ac;

        if (component != &cinfo->comp_info[i] || component->quant_tbl_no < 0 ||
            component->quant_tbl_no >= NUM_QUANT_TBLS || component->dc_tbl_no < 0 ||
            component->dc_tbl_no >= NUM_HUFF_TBLS || component->ac_tbl_no < 0 ||
            component->ac_tbl_no >= NUM_HUFF_TBLS)
            return false;
        quant = cinfo->quant_tbl_ptrs[component->quant_tbl_no];
        dc = cinfo->dc_huff_tbl_ptrs[component->dc_tbl_no];
        ac = cinfo->ac_huff_tbl_ptrs[component->ac_tbl_no];
        source->components[i].dc = &jpeg->tables[0][component->dc_tbl_no];
        source->components[i].ac = &jpeg->tables[1][component->ac_tbl_no];
        source->components[i].quant = jpeg->quants[i];
        if (quant == NULL || dc == NULL || ac == NULL ||
            !huffman_set(&jpeg->tables[0][component->dc_tbl_no], true, dc->bits, dc->huffval) ||
            !huffman_set(&jpeg->tables[1][component->ac_tbl_no], false, ac->bits, ac->huffval))
            return false;
        for (int k = 0; k < DCTSIZE2; k++)
            jpeg->quants[i][k] = quant->quantval[huffman_natural[k]];
    }
    return true;
}

static enum status jpeg_rows(void *decoder, const struct picture_box *box, picture_take_row *take,
                             void *context, struct err *err)
{
    struct jpeg *jpeg = decoder;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    struct region_source source;
    enum status status;

    jpeg->box = *box;
    jpeg->take = take;
    jpeg->context = context;
    if (set_source(jpeg, &source) && region_is_possible(&source, box) &&
        set_tables(jpeg, &source) && region_decode(&jpeg->region, &source, box)) {
        region_rows(&jpeg->region, take, context);
        return STATUS_OK;
    }
    status = guard(jpeg, start, err);
    if (status != STATUS_OK)
        return status;
    if (grow(&jpeg->row, &jpeg->row_allocated,
             (size_t)cinfo->output_width * 4 + RESAMPLE_ROW_PAD) != STATUS_OK ||
        grow(&jpeg->rgb, &jpeg->rgb_allocated, (size_t)box->width * 3 + RESAMPLE_ROW_PAD) !=
            STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for a row of it", jpeg->file.name);
    return guard(jpeg, read_rows, err);
}

const struct picture_format picture_jpeg = {.name = "JPEG",
                                            .is_this = jpeg_is_this,
                                            .decoder_new = jpeg_new,
                                            .decoder_free = jpeg_free,
                                            .open = jpeg_open,
                                            .reduce = jpeg_reduce,
                                            .rows = jpeg_rows};
