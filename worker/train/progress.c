#include "worker/train/progress.h"

#include <assert.h>
#include <stdio.h>

#include "common/io/mono.h"

void progress_begin(struct progress *progress)
{
    *progress = (struct progress){.begun_us = mono_us(), .images_per_s = progress->images_per_s};
}

void progress_add(struct progress *progress, uint64_t images, uint64_t wait_us, uint64_t comm_us,
                  uint64_t exposed_us)
{
    const uint64_t us = mono_us() - progress->begun_us;

    progress->images += images;
    progress->wait_us += wait_us;
    progress->comm_us += comm_us;
    progress->exposed_us += exposed_us;
    progress->steps++;
    progress->images_per_s = us > 0 ? (double)progress->images * 1e6 / (double)us : 0;
}

static double step_ms(const struct progress *progress, uint64_t us)
{
    return progress->steps > 0 ? (double)us / 1e3 / progress->steps : 0;
}

void progress_print(struct progress *progress, const struct progress_place *place, double loss)
{
    assert(place->epoch >= 1 && place->epoch <= place->epochs);
    assert(place->step >= 1 && place->step <= place->steps);
    (void)printf(
        "Epoch [%u/%u], Step [%u/%u], Loss: %.4f, %.0f images/s, lr %.6g, data %.2f ms/step",
        place->epoch, place->epochs, place->step, place->steps, loss, progress->images_per_s,
        place->lr, step_ms(progress, progress->wait_us));
    if (progress->comm_us > 0)
        (void)printf(", comm %.2f ms/step, exposed %.2f ms/step",
                     step_ms(progress, progress->comm_us), step_ms(progress, progress->exposed_us));
    (void)printf("\n");
    (void)fflush(stdout);
    progress_begin(progress);
}

void progress_print_validation(const struct net_result *sums)
{
    double n = sums->images > 0 ? sums->images : 1;

    (void)printf("Val: Acc@1 %.2f Acc@5 %.2f Loss %.4f\n", 100.0 * sums->top1 / n,
                 100.0 * sums->top5 / n, sums->loss_sum / n);
    (void)fflush(stdout);
}

void progress_print_validating(uint32_t images, uint32_t count)
{
    (void)printf("Validating [%u/%u]\n", images, count);
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
