/* Sources: torchvision 0.29, transforms.RandomResizedCrop.get_params, functional.center_crop,
 * functional._compute_resized_output_size. */
#include "worker/data/picture/view.h"

#include <assert.h>
#include <math.h>

#include "common/draw.h"

enum { CROP_TRIES = 10 };

void picture_rules_set(struct picture_rules *rules, uint32_t size, bool is_training)
{
    *rules = (struct picture_rules){.size = size,
                                    .is_training = is_training,
                                    .resize = (uint32_t)((uint64_t)size * 256 / 224),
                                    .scale_min = 0.08,
                                    .scale_max = 1,
                                    .ratio_min = 3.0 / 4,
                                    .ratio_max = 4.0 / 3,
                                    .flip = 0.5};
}

void picture_resized(uint32_t width, uint32_t height, uint32_t resize, uint64_t *resized_width,
                     uint64_t *resized_height)
{
    uint32_t shorter = width < height ? width : height;
    uint32_t longer = width < height ? height : width;
    /* As Python computes int(resize * longer / shorter). */
    uint64_t other = (uint64_t)((double)((uint64_t)resize * longer) / (double)shorter);

    *resized_width = width < height ? resize : other;
    *resized_height = width < height ? other : resize;
}

static void centre(struct view *view, uint32_t width, uint32_t height, uint32_t crop_width,
                   uint32_t crop_height)
{
    view->width = crop_width;
    view->height = crop_height;
    view->x = (width - crop_width) / 2;
    view->y = (height - crop_height) / 2;
}

/* The largest box in the middle whose ratio is within the rules. rint() rounds halves to even, as
 * Python's round(). */
static void fall_back(struct view *view, const struct picture_rules *rules, uint32_t width,
                      uint32_t height)
{
    double ratio = (double)width / height;
    double other;

    if (ratio < rules->ratio_min) {
        other = rint(width / rules->ratio_min);
        centre(view, width, height, width, other < 1 ? 1 : (uint32_t)other);
    } else if (ratio > rules->ratio_max) {
        other = rint(height * rules->ratio_max);
        centre(view, width, height, other < 1 ? 1 : (uint32_t)other, height);
    } else {
        centre(view, width, height, width, height);
    }
}

static void random_box(struct view *view, const struct picture_rules *rules, uint32_t width,
                       uint32_t height, struct draw *draw)
{
    double area = (double)width * height;
    double log_min = log(rules->ratio_min);
    double log_max = log(rules->ratio_max);

    for (int i = 0; i < CROP_TRIES; i++) {
        double target =
            area * (rules->scale_min + (rules->scale_max - rules->scale_min) * draw_unit(draw));
        double ratio = exp(log_min + (log_max - log_min) * draw_unit(draw));
        double w = rint(sqrt(target * ratio));
        double h = rint(sqrt(target / ratio));

        if (!(w > 0 && w <= width && h > 0 && h <= height))
            continue;
        view->width = (uint32_t)w;
        view->height = (uint32_t)h;
        view->y = draw_below(draw, height - view->height + 1);
        view->x = draw_below(draw, width - view->width + 1);
        return;
    }
    fall_back(view, rules, width, height);
}

static void check_rules(const struct picture_rules *rules)
{
    assert(rules->size >= 1 && rules->size <= PICTURE_SIZE_MAX);
    assert(rules->is_training ||
           (rules->resize >= rules->size && rules->resize <= 2 * PICTURE_SIZE_MAX));
    assert(rules->scale_min > 0 && rules->scale_min <= rules->scale_max);
    assert(rules->ratio_min > 0 && rules->ratio_min <= rules->ratio_max);
}

struct view view_of(const struct picture_rules *rules, uint32_t width, uint32_t height,
                    uint64_t seed, uint64_t epoch, uint64_t index)
{
    struct view view = {.width = width, .height = height};
    struct draw of_epoch = draw_begin(seed, epoch);
    struct draw draw = draw_begin(draw_u64(&of_epoch), index);

    check_rules(rules);
    if (rules->is_training) {
        random_box(&view, rules, width, height, &draw);
        view.resized_width = view.resized_height = rules->size;
        view.is_flipped = draw_unit(&draw) < rules->flip;
        return view;
    }
    picture_resized(width, height, rules->resize, &view.resized_width, &view.resized_height);
    view.left = (uint64_t)rint((double)(view.resized_width - rules->size) / 2);
    view.top = (uint64_t)rint((double)(view.resized_height - rules->size) / 2);
    return view;
}
