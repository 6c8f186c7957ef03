/* Speed of the loader alone: random resized crops of a folder of pictures, batch after batch.
 *
 *   bench_loader FOLDER SIZE BATCH THREADS...
 *
 * Prints a line "threads N: X images/s" for each number of threads, after one epoch that is not timed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/io/mono.h"
#include "worker/data/folder.h"
#include "worker/data/loader.h"

enum { EPOCHS = 3 };

static enum status run_epoch(struct loader *loader, uint64_t epoch, const int64_t *order,
                             size_t count, struct err *err)
{
    struct loader_batch batch;
    enum status status;

    loader_begin(loader, epoch, order, count);
    do
        status = loader_next(loader, &batch, err);
    while (status == STATUS_OK && batch.n > 0);
    return status;
}

static enum status measure(struct source *source, uint32_t batch, uint32_t threads,
                           const int64_t *order, struct err *err)
{
    const struct loader_options options = {batch, threads, LOADER_REPLACES, NULL};
    struct loader *loader = NULL;
    uint64_t begun_us = 0;
    enum status status = loader_new(&loader, source, &options, err);

    for (uint64_t epoch = 0; status == STATUS_OK && epoch <= EPOCHS; epoch++) {
        if (epoch == 1)
            begun_us = mono_us();
        status = run_epoch(loader, epoch, order, source->count, err);
    }
    if (status == STATUS_OK)
        (void)printf("threads %u: %.0f images/s\n", threads,
                     (double)source->count * EPOCHS * 1e6 / (double)(mono_us() - begun_us));
    (void)fflush(stdout);
    loader_free(&loader);
    return status;
}

static enum status measure_all(struct source *source, uint32_t batch, int count, char **threads,
                               struct err *err)
{
    int64_t *order = calloc(source->count, sizeof *order);
    enum status status = STATUS_OK;

    if (order == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the order");
    for (size_t i = 0; i < source->count; i++)
        order[i] = (int64_t)i;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = measure(source, batch, (uint32_t)strtoul(threads[i], NULL, 10), order, err);
    free(order);
    return status;
}

int main(int argc, char **argv)
{
    struct folder_options options = {.seed = 1};
    struct source *source = NULL;
    struct err err;
    enum status status;

    if (argc < 5) {
        (void)fprintf(stderr, "usage: bench_loader FOLDER SIZE BATCH THREADS...\n");
        return 2;
    }
    picture_rules_set(&options.rules, (uint32_t)strtoul(argv[2], NULL, 10), true);
    status = folder_open(&source, argv[1], &options, &err);
    if (status == STATUS_OK)
        status =
            measure_all(source, (uint32_t)strtoul(argv[3], NULL, 10), argc - 4, argv + 4, &err);
    source_free(&source);
    if (status != STATUS_OK)
        (void)fprintf(stderr, "bench_loader: %s\n", err.text);
    return status != STATUS_OK;
}
