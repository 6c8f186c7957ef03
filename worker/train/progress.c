#include "worker/train/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

double progress_number(double value)
{
    return isnan(value) ? copysign(value, 1.0) : value;
}

double progress_percent(uint32_t right, uint32_t images)
{
    return images > 0 ? 100.0 * right / images : 0.0;
}

static void begin_window(struct progress *progress, uint64_t now_us)
{
    progress->begun_us = progress->finished_us = now_us;
    progress->images = 0;
    progress->times = (struct progress_times){0};
    progress->steps = 0;
}

void progress_begin(struct progress *progress, uint64_t now_us)
{
    progress->epoch = (struct net_result){0};
    progress->finite_images = 0;
    progress->has_line = false;
    progress->epoch_begun_us = now_us;
    progress->epoch_wait_us = 0;
    progress->epoch_steps = 0;
    begin_window(progress, now_us);
}

void progress_count(struct progress *progress, uint64_t now_us, const struct net_result *sums,
                    uint32_t world, const struct progress_times *times)
{
    struct net_result *epoch = &progress->epoch;
    const uint64_t ended_us = now_us > progress->finished_us ? now_us : progress->finished_us;
    const uint64_t us = ended_us - progress->begun_us;

    if (isfinite(sums->loss_sum)) {
        epoch->loss_sum += sums->loss_sum;
        progress->finite_images += sums->images;
    }
    epoch->images += sums->images;
    epoch->top1 += sums->top1;
    epoch->top5 += sums->top5;
    progress->finished_us = ended_us;
    progress->images += (uint64_t)sums->images * world;
    progress->times.wait_us += times->wait_us;
    progress->times.comm_us += times->comm_us;
    progress->times.exposed_us += times->exposed_us;
    progress->steps++;
    progress->epoch_wait_us += times->wait_us;
    progress->epoch_steps++;
    progress->images_per_s = us > 0 ? (double)progress->images * 1e6 / (double)us : 0;
}

struct progress_means progress_means(const struct progress *progress)
{
    const double scale = progress->steps > 0 ? 1e-3 / progress->steps : 0;

    return (struct progress_means){
        .step_ms = (double)(progress->finished_us - progress->begun_us) * scale,
        .data_ms = (double)progress->times.wait_us * scale,
        .comm_ms = (double)progress->times.comm_us * scale,
        .exposed_ms = (double)progress->times.exposed_us * scale,
    };
}

void progress_print(struct progress *progress, const struct progress_place *place, double loss)
{
    const struct progress_means means = progress_means(progress);
    const struct net_result *epoch = &progress->epoch;

    assert(place->epoch >= 1 && place->epoch <= place->epochs);
    assert(place->step >= 1 && place->step <= place->steps);
    (void)printf(
        "Epoch [%u/%u], Step [%u/%u], Loss: %.4f, %.0f images/s, lr %.6g, Acc@1 %.2f Acc@5 %.2f, "
        "time %.2f ms/step, data %.2f ms/step",
        place->epoch, place->epochs, place->step, place->steps, progress_number(loss),
        progress->images_per_s, place->lr, progress_percent(epoch->top1, epoch->images),
        progress_percent(epoch->top5, epoch->images), means.step_ms, means.data_ms);
    if (progress->times.comm_us > 0)
        (void)printf(", comm %.2f ms/step, exposed %.2f ms/step", means.comm_ms, means.exposed_ms);
    (void)printf("\n");
    (void)fflush(stdout);
    begin_window(progress, progress->finished_us);
}

/* `images`: that loss_sum is over */
static void print_result(const struct net_result *sums, uint32_t images)
{
    (void)printf("Acc@1 %.2f Acc@5 %.2f Loss %.4f\n", progress_percent(sums->top1, sums->images),
                 progress_percent(sums->top5, sums->images),
                 progress_number(sums->loss_sum / (images > 0 ? images : 1)));
    (void)fflush(stdout);
}

void progress_print_training(const struct progress *progress)
{
    (void)printf("Train: ");
    print_result(&progress->epoch, progress->finite_images);
}

void progress_print_validation(const struct net_result *sums)
{
    (void)printf("Val: ");
    print_result(sums, sums->images);
}

void progress_print_validating(const struct net_result *sums, uint32_t count)
{
    (void)printf("Validating [%u/%u], ", sums->images, count);
    print_result(sums, sums->images);
}

void progress_print_end(uint64_t us)
{
    const uint64_t seconds = us / 1000000;

    (void)printf("Training complete in: ");
    if (seconds >= 86400)
        (void)printf("%" PRIu64 " day%s, ", seconds / 86400, seconds < 2 * 86400 ? "" : "s");
    (void)printf("%" PRIu64 ":%02u:%02u.%06u\n", seconds / 3600 % 24, (unsigned)(seconds / 60 % 60),
                 (unsigned)(seconds % 60), (unsigned)(us % 1000000));
    (void)fflush(stdout);
}

void progress_print_no_validation(void)
{
    (void)printf("No validation: the images of --dummy are noise, and --max-steps has ended the "
                 "epoch early\n");
    (void)fflush(stdout);
}

void progress_print_early_stop(const char *metric, uint32_t epochs)
{
    (void)printf("Early stopping: %s has not improved for %u epochs\n", metric, epochs);
    (void)fflush(stdout);
}
