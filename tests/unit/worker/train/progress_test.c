/* The rates of progress lines, metrics and reports: images/s times seconds are the images of the
 * finished steps, however many steps the host has queued meanwhile. */
#include "worker/train/progress.h"

#include <math.h>

#include "tests/lib/test.h"

#define STEP_US 37670u
#define IMAGES 256u
#define WORLD 2u

static const struct net_result sums = {.loss_sum = 512.0, .images = IMAGES, .top1 = 64};
static const struct progress_times times = {.wait_us = 1000, .comm_us = 4000, .exposed_us = 500};
static const struct progress_place place = {.epoch = 1, .epochs = 1, .step = 1, .steps = 100};

static bool is_near(double value, double right)
{
    return fabs(value - right) <= 1e-9 * fabs(right);
}

/* Windows of 1, 6 and 50 steps: the first step of a window counts like every other. */
TEST(rate_times_time_is_what_was_computed)
{
    static const uint32_t windows[] = {1, 6, 50};
    struct progress progress = {0};
    uint64_t now_us = 1000000;

    progress_begin(&progress, now_us);
    for (int i = 0; i < 3; i++) {
        struct progress_means means;
        double seconds = (double)STEP_US * windows[i] * 1e-6;

        for (uint32_t step = 0; step < windows[i]; step++)
            progress_count(&progress, now_us += STEP_US, &sums, WORLD, &times);
        means = progress_means(&progress);
        CHECK(is_near(progress.images_per_s * seconds, (double)IMAGES * WORLD * windows[i]));
        CHECK(is_near(means.step_ms * windows[i] * 1e-3, seconds));
        CHECK(is_near(progress.images_per_s * means.step_ms * 1e-3, (double)IMAGES * WORLD));
        CHECK(is_near(means.data_ms, 1.0) && is_near(means.comm_ms, 4.0));
        CHECK(is_near(means.exposed_ms, 0.5));
        progress_print(&progress, &place, 2.0);
    }
    CHECK_EQ(progress.epoch.images, 57 * IMAGES); /* the epoch goes on over lines */
}

/* What it takes until the line is printed belongs to the next window, and a validation to none. */
TEST(windows_have_no_gap_between_them_and_no_validation)
{
    struct progress progress = {0};

    progress_begin(&progress, 0);
    progress_count(&progress, 100000, &sums, 1, &times);
    progress_print(&progress, &place, 2.0);
    CHECK(is_near(progress.images_per_s, 2560.0)); /* until the next step is finished */
    progress_count(&progress, 300000, &sums, 1, &times);
    CHECK(is_near(progress.images_per_s, 1280.0));
    progress_begin(&progress, 900000);
    progress_count(&progress, 1000000, &sums, 1, &times);
    CHECK(is_near(progress.images_per_s, 2560.0));
    CHECK_EQ(progress.epoch.images, IMAGES);
}

/* A step in no time, as a clock of microseconds may say, has no rate and divides by nothing. */
TEST(no_time_is_no_rate)
{
    struct progress progress = {0};

    progress_begin(&progress, 5);
    CHECK(progress_means(&progress).step_ms == 0.0);
    progress_count(&progress, 5, &sums, 1, &times);
    CHECK(progress.images_per_s == 0.0);
}

/* The sign of a NaN says nothing, and x86 makes negative ones. */
TEST(a_nan_has_no_sign)
{
    char text[16];

    (void)snprintf(text, sizeof text, "%g", progress_number(-(double)NAN));
    CHECK_STR(text, "nan");
    CHECK(progress_number(-1.5) == -1.5 && isinf(progress_number(-(double)INFINITY)));
}

TEST_MAIN
