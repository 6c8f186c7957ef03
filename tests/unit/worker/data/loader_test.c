/* The loader: the same batches with and without its thread, also when a list is left half-way. */
#include "worker/data/loader.h"

#include <string.h>

#include "tests/lib/test.h"
#include "worker/data/digits.h"

enum { COUNT = 23, BATCH = 5, PIXELS = 784 };

static void check_images(const struct loader_batch *batch, struct dataset *reference,
                         const int64_t *indices)
{
    static float floats[BATCH * PIXELS];
    static uint8_t bytes[BATCH * PIXELS];
    int64_t labels[BATCH];

    CHECK((batch->floats == NULL) != (batch->bytes == NULL));
    dataset_fetch(reference, indices, batch->n, floats, labels);
    CHECK_BYTES(batch->labels, labels, batch->n * sizeof *labels);
    if (batch->floats != NULL) {
        CHECK_BYTES(batch->floats, floats, batch->n * PIXELS * sizeof *floats);
        return;
    }
    dataset_fetch_bytes(reference, indices, batch->n, bytes, labels);
    CHECK_BYTES(batch->bytes, bytes, batch->n * PIXELS);
    CHECK_BYTES(batch->labels, labels, batch->n * sizeof *labels);
    for (size_t i = 0; i < (size_t)batch->n * PIXELS; i++) /* one image in two forms */
        CHECK(floats[i] == (float)bytes[i] / 255.0F);
}

static void check_list(struct loader *loader, struct dataset *reference, const int64_t *indices,
                       size_t count, size_t stop_after)
{
    size_t done = 0;

    loader_begin(loader, indices, count);
    while (done < stop_after) {
        uint32_t expected = count - done < BATCH ? (uint32_t)(count - done) : BATCH;
        struct loader_batch batch = loader_next(loader);
        CHECK_EQ(batch.n, expected);
        if (batch.n == 0)
            return;
        check_images(&batch, reference, indices + done);
        done += batch.n;
    }
}

static void check_loader(bool in_background, bool as_bytes)
{
    const struct loader_options options = {BATCH, in_background, as_bytes};
    struct dataset *set, *reference;
    struct loader *loader;
    int64_t forward[COUNT], backward[COUNT];

    for (int i = 0; i < COUNT; i++) {
        forward[i] = i;
        backward[i] = 1000 - i;
    }
    CHECK_EQ(digits_new_train(&set, NULL), STATUS_OK);
    CHECK_EQ(digits_new_train(&reference, NULL), STATUS_OK);
    CHECK_EQ(loader_new(&loader, set, &options, NULL), STATUS_OK);
    for (int round = 0; round < 20; round++) {
        check_list(loader, reference, forward, COUNT, SIZE_MAX);
        check_list(loader, reference, backward, COUNT, BATCH * (size_t)(round % 4)); /* left */
        check_list(loader, reference, backward, BATCH, SIZE_MAX);
        check_list(loader, reference, forward, 0, SIZE_MAX);
    }
    CHECK_EQ(loader_next(loader).n, 0); /* and again at the end */
    loader_begin(loader, forward, COUNT);
    loader_free(&loader); /* with work under way */
    dataset_free(&set);
    dataset_free(&reference);
}

TEST(without_a_thread)
{
    check_loader(false, false);
    check_loader(false, true);
}

TEST(with_a_thread)
{
    check_loader(true, false);
    check_loader(true, true);
}

TEST_MAIN
