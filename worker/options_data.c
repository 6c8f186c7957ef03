#include "worker/options_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads up to `limit` numbers with commas between; returns how many, 0: the text is something
 * else. */
static uint32_t read_numbers(const char *text, double *numbers, uint32_t limit)
{
    uint32_t count = 0;

    for (;;) {
        char *rest = NULL;

        if (count == limit || ((*text < '0' || *text > '9') && *text != '.'))
            return 0;
        numbers[count] = strtod(text, &rest);
        if (!isfinite(numbers[count++]) || (*rest != ',' && *rest != '\0'))
            return 0;
        if (*rest == '\0')
            return count;
        text = rest + 1;
    }
}

/* "MIN,MAX", both above 0. */
static enum status take_range(const char *name, const char *text, double max, double range[2],
                              struct err *err)
{
    if (text == NULL)
        return STATUS_OK;
    if (read_numbers(text, range, 2) == 2 && range[0] > 0 && range[0] <= range[1] &&
        range[1] <= max)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "--%s %.40s: expected MIN,MAX: two numbers above 0, MIN not above MAX, at most "
                   "%g",
                   name, text, max);
}

/* One number for all channels, or three. */
static enum status take_colours(const char *name, const char *text, double above, uint32_t *count,
                                float values[OPTIONS_COLOURS], struct err *err)
{
    double numbers[OPTIONS_COLOURS] = {0};

    *count = text != NULL ? read_numbers(text, numbers, OPTIONS_COLOURS) : 0;
    for (uint32_t i = 0; i < OPTIONS_COLOURS; i++) {
        values[i] = (float)numbers[*count == 1 ? 0 : i];
        if (*count > 0 && !(numbers[*count == 1 ? 0 : i] > above))
            *count = 0;
    }
    if (text == NULL || *count == 1 || *count == OPTIONS_COLOURS)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "--%s %.40s: expected one number or R,G,B, for bytes that are divided by 255%s",
                   name, text, above >= 0 ? "; each above 0" : "");
}

static enum status take_augment(struct options *options, struct err *err)
{
    static const char *const names[] = {[AUGMENT_IMAGENET] = "imagenet",
                                        [AUGMENT_CIFAR] = "cifar",
                                        [AUGMENT_CROP] = "crop",
                                        [AUGMENT_NONE] = "none"};
    struct options_images *images = &options->images;

    images->augment = AUGMENT_USUAL;
    if (images->augment_text == NULL)
        return STATUS_OK;
    for (size_t i = AUGMENT_IMAGENET; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(images->augment_text, names[i]) == 0)
            images->augment = (enum options_augment)i;
    if (images->augment != AUGMENT_USUAL)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "--augment %.40s: expected imagenet, cifar, crop or none", images->augment_text);
}

enum status options_check_data(struct options *options, struct err *err)
{
    struct options_images *images = &options->images;
    enum status status = take_augment(options, err);

    images->scale[0] = images->scale[1] = images->ratio[0] = images->ratio[1] = 0;
    if (status == STATUS_OK)
        status = take_range("crop-scale", images->scale_text, 1, images->scale, err);
    if (status == STATUS_OK)
        status = take_range("crop-ratio", images->ratio_text, 1e3, images->ratio, err);
    if (status == STATUS_OK)
        status =
            take_colours("mean", images->mean_text, -1, &images->mean_count, images->mean, err);
    if (status == STATUS_OK)
        status = take_colours("std", images->std_text, 0, &images->std_count, images->std, err);
    if (status == STATUS_OK && images->cache_rebuild && images->cache == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--cache-rebuild needs --cache FILE");
    if (status == STATUS_OK && (images->mean_text == NULL) != (images->std_text == NULL))
        return err_set(err, STATUS_BAD_INPUT, 0, "--mean and --std go together: one is missing");
    return status;
}
