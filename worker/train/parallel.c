/* --data-parallel: the net with its replicas in this process, as torch.nn.DataParallel. See
 * worker/net/replicas.h. */
#include <assert.h>
#include <string.h>

#include "worker/net/replicas.h"
#include "worker/train/internal.h"

uint32_t train_parallel_part(const struct train *train, uint32_t images)
{
    const uint32_t count = train->options->data_parallel;
    uint32_t first;

    return count > 1 && images > 0 ? replicas_part(images, count, 0, &first) : images;
}

static enum status check(const struct train *train, struct err *err)
{
    const struct options *options = train->options;
    const uint32_t count = options->data_parallel, there = train->device->device_count;

    if (train->place->world > 1)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--data-parallel %u is for one process, and here are %u ranks, which are "
                       "parallel already: leave it out, or start one worker",
                       count, train->place->world);
    if (train->device->runtime != NULL && there < count)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--data-parallel %u: there %s %u GPU%s here: give a smaller number, or "
                       "--device cpu",
                       count, there == 1 ? "is" : "are", there, there == 1 ? "" : "s");
    return STATUS_OK;
}

enum status train_parallel_open(struct train *train, const struct graph *graph,
                                const struct net_options *net_options, struct err *err)
{
    const struct dataset_shape shape = train->validation_set->shape;
    const struct replicas_options options = {
        .count = train->options->data_parallel,
        .image_elements = (size_t)shape.channels * shape.height * shape.width,
        .choose_device = train->device->runtime != NULL ? device_choose : NULL,
    };
    enum status status;

    if (options.count < 2)
        return STATUS_OK;
    status = check(train, err);
    if (status == STATUS_OK)
        status = replicas_new(&train->replicas, train->net, graph, net_options, &options, err);
    if (status != STATUS_OK)
        return status;
    log_line(
        LOG_INFO, train_log_about(train),
        "--data-parallel: %u replicas in this process, %s; a batch of %u is cut into parts of %u",
        options.count, train->device->runtime != NULL ? "a GPU each" : "a thread each",
        train->options->batch, train_parallel_part(train, train->options->batch));
    return STATUS_OK;
}

static enum status check_parts(const struct train *train, uint32_t n, struct err *err)
{
    uint32_t first;

    for (uint32_t i = 0; i < train->options->data_parallel && train->lone_norm[0] != '\0'; i++)
        if (replicas_part(n, train->options->data_parallel, i, &first) == 1)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%.80s: a batch norm needs more than 1 value per channel when training, "
                           "and of a batch of %u images replica %u gets 1: give another -b or "
                           "--data-parallel",
                           train->lone_norm, n, i);
    return STATUS_OK;
}

enum status train_parallel_forward(struct train *train, const struct net_images *images,
                                   const struct loader_batch *batch, bool training,
                                   struct net_result *result, struct err *err)
{
    enum status status = training ? check_parts(train, batch->n, err) : STATUS_OK;

    assert(result != NULL);
    return status == STATUS_OK ? replicas_forward(train->replicas, images, batch->labels, batch->n,
                                                  training, result, err)
                               : status;
}
