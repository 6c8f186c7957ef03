/* Opt levels: a table, the overrides, the banner. */
#include "worker/graph/amp.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 4 };

/* Apex's properties of each level, as it prints them; has_masters and is_dynamic as we use them. */
static const struct level {
    const char *brief;
    bool casts_model, patches, keeps_norm, has_masters, is_dynamic;
    const char *keep_norm_text, *masters_text;
} levels[LEVELS] = {
    {"O0:  Pure FP32 training.", true, false, true, false, false, "None", "False"},
    {"O1:  Insert automatic casts around Pytorch functions and Tensor methods.", false, true, true,
     true, true, "None", "None"},
    {"O2:  FP16 training with FP32 batchnorm and FP32 master weights.", true, false, true, true,
     true, "True", "True"},
    {"O3:  Pure FP16 training.", true, false, false, false, false, "False", "False"},
};

struct amp amp_none(void)
{
    return (struct amp){
        .norm_is_fp32 = true,
        .scaler = {false, 1.0F, SCALER_MIN, SCALER_MAX, SCALER_WINDOW},
    };
}

static enum status read_level(struct amp *amp, const char *text, struct err *err)
{
    if (strlen(text) != 2 || text[0] != 'O' || text[1] < '0' || text[1] >= '0' + LEVELS)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "Unexpected optimization level %.20s. Options are 'O0', 'O1', 'O2', 'O3'.  Note "
            "that in `O0`, `O1`, etc., the prefix O is the letter O, not the number zero.",
            text);
    amp->level = (uint32_t)(text[1] - '0');
    amp->norm_is_fp32 = levels[amp->level].keeps_norm;
    amp->has_masters = levels[amp->level].has_masters;
    return STATUS_OK;
}

static enum status read_half_type(struct amp *amp, const char *text, struct err *err)
{
    bool is_bf16 = text != NULL && strcmp(text, "bf16") == 0;

    if (text != NULL && !is_bf16 && strcmp(text, "fp16") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--low-type %.20s: expected fp16 or bf16", text);
    if (amp->level > 0)
        amp->half = is_bf16 ? GRAPH_BF16 : GRAPH_F16;
    return STATUS_OK;
}

static enum status read_keep_norm(struct amp *amp, const char *text, struct err *err)
{
    bool is_true, is_false;

    if (text == NULL || strcmp(text, "None") == 0)
        return STATUS_OK;
    is_true = strcmp(text, "True") == 0 || strcmp(text, "true") == 0;
    is_false = strcmp(text, "False") == 0 || strcmp(text, "false") == 0;
    if (!is_true && !is_false)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "keep_batchnorm_fp32 must be a boolean, the string 'True' or 'False', or "
                       "None, found keep_batchnorm_fp32=%.40s",
                       text);
    if (amp->level == 1)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "With opt_level O1, batchnorm functions are automatically patched to run in "
                       "FP32, so keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was %s",
                       is_true ? "True" : "False");
    if (amp->level > 1)
        amp->norm_is_fp32 = is_true;
    return STATUS_OK;
}

static enum status read_loss_scale(struct amp *amp, const char *text, struct err *err)
{
    char *end = NULL;
    double value;

    if (text == NULL)
        return STATUS_OK;
    if (strcmp(text, "dynamic") == 0) {
        amp->scaler.is_dynamic = true;
        return STATUS_OK;
    }
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 1e-30 && value <= 1e30))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--loss-scale %.40s: expected dynamic or a number above 0", text);
    amp->scaler.is_dynamic = false;
    amp->scaler.init = (float)value;
    return STATUS_OK;
}

static enum status read_range(struct amp *amp, const struct amp_request *request, struct err *err)
{
    struct scaler_options *scaler = &amp->scaler;

    if (request->min_scale > 0.0F)
        scaler->min = request->min_scale;
    if (request->max_scale > 0.0F)
        scaler->max = request->max_scale;
    if (!scaler->is_dynamic) {
        if (request->init_scale > 0.0F)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--init-loss-scale needs --loss-scale dynamic; it is %g",
                           (double)scaler->init);
        return STATUS_OK;
    }
    scaler->init = request->init_scale > 0.0F ? request->init_scale : SCALER_INIT;
    if (scaler->init > scaler->max)
        scaler->init = scaler->max;
    if (scaler->min > scaler->init)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--min-loss-scale %g is above the scale to begin with, %g",
                       (double)scaler->min, (double)scaler->init);
    return STATUS_OK;
}

enum status amp_resolve(struct amp *amp, const struct amp_request *request, struct err *err)
{
    enum status status;

    assert(request->level != NULL);
    *amp = amp_none();
    status = read_level(amp, request->level, err);
    if (status == STATUS_OK)
        status = read_half_type(amp, request->half_type, err);
    if (status == STATUS_OK)
        status = read_keep_norm(amp, request->keep_batchnorm_fp32, err);
    if (status != STATUS_OK)
        return status;
    /* bf16 has the exponent range of fp32: small gradients need no scaling */
    amp->scaler.is_dynamic = levels[amp->level].is_dynamic && amp->half != GRAPH_BF16;
    status = read_loss_scale(amp, request->loss_scale, err);
    return status == STATUS_OK ? read_range(amp, request, err) : status;
}

/* -- the banner -- */

static const char *model_type(const struct amp *amp)
{
    if (amp->level == 0)
        return "torch.float32";
    return amp->half == GRAPH_BF16 ? "torch.bfloat16" : "torch.float16";
}

static void print_row(FILE *out, const char *name, const char *value)
{
    (void)fprintf(out, "%-22s : %s\n", name, value);
}

static void print_table(const struct amp *amp, const char *keep_norm, FILE *out)
{
    const struct level *level = &levels[amp->level];
    const char name[] = {'O', (char)('0' + amp->level), '\0'};
    char scale[AMP_SCALE_TEXT_BYTES];

    print_row(out, "enabled", "True");
    print_row(out, "opt_level", name);
    print_row(out, "cast_model_type", level->casts_model ? model_type(amp) : "None");
    print_row(out, "patch_torch_functions", level->patches ? "True" : "False");
    print_row(out, "keep_batchnorm_fp32", keep_norm);
    print_row(out, "master_weights", level->masters_text);
    print_row(out, "loss_scale",
              amp->scaler.is_dynamic ? "dynamic" : amp_scale_text(amp->scaler.init, scale));
}

void amp_print_banner(const struct amp_request *request, const struct amp *amp, FILE *out)
{
    const struct level *level = &levels[amp->level];
    const char *keep = request->keep_batchnorm_fp32;
    struct amp defaults = *amp;

    assert(amp->level < LEVELS);
    defaults.scaler.is_dynamic = level->is_dynamic;
    defaults.scaler.init = 1.0F;
    if (defaults.half == GRAPH_BF16)
        defaults.half = GRAPH_F16;
    (void)fprintf(out, "Selected optimization level %s\n\n", level->brief);
    (void)fputs("Defaults for this optimization level are:\n", out);
    print_table(&defaults, level->keep_norm_text, out);
    (void)fputs("Processing user overrides (additional kwargs that are not None)...\n", out);
    (void)fputs("After processing overrides, optimization options are:\n", out);
    if (keep == NULL || strcmp(keep, "None") == 0)
        keep = level->keep_norm_text;
    else
        keep = keep[0] == 'T' || keep[0] == 't' ? "True" : "False";
    print_table(amp, keep, out);
}

const char *amp_scale_text(float scale, char text[AMP_SCALE_TEXT_BYTES])
{
    const double value = (double)scale;

    /* the fewest digits that read back as the same value, as repr() of Python */
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, AMP_SCALE_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (value >= 1.0 && value < 1e16 && strchr(text, 'e') != NULL)
        (void)snprintf(text, AMP_SCALE_TEXT_BYTES, "%.0f", value);
    if (strpbrk(text, ".en") == NULL)
        (void)snprintf(text + strlen(text), AMP_SCALE_TEXT_BYTES - strlen(text), ".0");
    return text;
}
