/* The loader: the same batches for every number of threads, also if a list is abandoned half-way;
 * samples that cannot be read; memory that is still being read. */
#include "worker/data/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sources.h"
#include "tests/lib/test.h"
#include "worker/data/digits.h"

enum { COUNT = 23, BATCH = 5, PIXELS = 784 };

static const uint32_t thread_counts[] = {0, 1, 2, 3, 16};

/* -- a source that is told what to do -- */

struct made {
    struct source source;
    enum status bad[COUNT]; /* STATUS_OK: can be read */
    int64_t slow;           /* this sample is read when `go_on` is set; -1: none */
    bool go_on;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_int readers, reads;
    int reader_limit; /* how many can be made; 0: any number */
};

static enum status made_reader_new(struct source *source, void **reader, struct err *err)
{
    struct made *made = (struct made *)source;

    if (made->reader_limit > 0 && atomic_load(&made->readers) >= made->reader_limit)
        return err_set(err, STATUS_LIBRARY, 0, "no more readers");
    atomic_fetch_add(&made->readers, 1);
    *reader = made;
    return STATUS_OK;
}

static void made_reader_free(void *reader)
{
    atomic_fetch_sub(&((struct made *)reader)->readers, 1);
}

static void wait_to_go_on(struct made *made)
{
    CHECK_EQ(pthread_mutex_lock(&made->mutex), 0);
    while (!made->go_on)
        CHECK_EQ(pthread_cond_wait(&made->changed, &made->mutex), 0);
    CHECK_EQ(pthread_mutex_unlock(&made->mutex), 0);
}

/* Two bytes: the sample and the epoch. */
static enum status made_read(struct source *source, void *reader, uint64_t epoch, int64_t index,
                             uint8_t *image, int64_t *label, struct err *err)
{
    struct made *made = (struct made *)source;

    CHECK(reader == made && index >= 0 && index < COUNT);
    atomic_fetch_add(&made->reads, 1);
    if (made->slow == index)
        wait_to_go_on(made);
    image[0] = (uint8_t)index; /* also if it fails afterwards */
    image[1] = (uint8_t)epoch;
    *label = index;
    return made->bad[index] == STATUS_OK
               ? STATUS_OK
               : err_set(err, made->bad[index], 0, "sample %d is bad", (int)index);
}

static void made_close(struct source *source)
{
    struct made *made = (struct made *)source;

    CHECK_EQ(atomic_load(&made->readers), 0);
    CHECK_EQ(pthread_mutex_destroy(&made->mutex), 0);
    CHECK_EQ(pthread_cond_destroy(&made->changed), 0);
    free(made);
}

static struct made *made_new(size_t count)
{
    static const struct source_ops ops = {.reader_new = made_reader_new,
                                          .reader_free = made_reader_free,
                                          .read = made_read,
                                          .close = made_close};
    struct made *made = calloc(1, sizeof *made);

    CHECK(made != NULL && count <= COUNT);
    made->source = (struct source){.ops = &ops, .shape = {1, 1, 2, COUNT}, .count = count};
    made->slow = -1;
    CHECK_EQ(pthread_mutex_init(&made->mutex, NULL), 0);
    CHECK_EQ(pthread_cond_init(&made->changed, NULL), 0);
    return made;
}

static const int64_t in_order[COUNT] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                        12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};

static struct loader *made_loader(struct made *made, uint32_t batch, uint32_t threads,
                                  enum loader_unreadable unreadable)
{
    const struct loader_options options = {batch, threads, unreadable, NULL};
    struct loader *loader;
    struct err err = {.text = ""};

    if (loader_new(&loader, &made->source, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return loader;
}

static void end(struct made *made, struct loader *loader)
{
    struct source *source = &made->source;

    loader_free(&loader);
    source_free(&source);
}

/* -- batches -- */

static void check_images(const struct loader_batch *batch, struct source *reference,
                         const int64_t *indices)
{
    static uint8_t image[PIXELS];

    for (uint32_t i = 0; i < batch->n; i++) {
        CHECK_EQ(batch->labels[i], sources_read(reference, 0, indices[i], image));
        CHECK_BYTES(batch->images + (size_t)i * PIXELS, image, PIXELS);
    }
}

static struct loader_batch next(struct loader *loader)
{
    struct loader_batch batch;
    struct err err = {.text = ""};

    if (loader_next(loader, &batch, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return batch;
}

static void check_list(struct loader *loader, struct source *reference, const int64_t *indices,
                       size_t count, size_t stop_after)
{
    size_t done = 0;

    loader_begin(loader, 0, indices, count);
    while (done < stop_after) {
        uint32_t expected = count - done < BATCH ? (uint32_t)(count - done) : BATCH;
        struct loader_batch batch = next(loader);

        CHECK_EQ(batch.n, expected);
        if (batch.n == 0)
            return;
        check_images(&batch, reference, indices + done);
        done += batch.n;
    }
}

static void check_loader(uint32_t threads)
{
    const struct loader_options options = {.batch_max = BATCH, .threads = threads};
    struct source *set, *reference;
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
    CHECK_EQ(next(loader).n, 0); /* and again at the end */
    loader_begin(loader, 0, forward, COUNT);
    loader_free(&loader); /* with work under way */
    source_free(&set);
    source_free(&reference);
}

TEST(batches_are_those_of_the_list)
{
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++)
        check_loader(thread_counts[t]);
}

TEST(a_sample_is_read_as_of_its_epoch)
{
    struct made *made = made_new(COUNT);
    struct loader *loader = made_loader(made, 4, 2, LOADER_FAILS);

    for (uint64_t epoch = 3; epoch < 6; epoch++) {
        struct loader_batch batch;

        loader_begin(loader, epoch, in_order, COUNT);
        while ((batch = next(loader)).n > 0)
            for (uint32_t i = 0; i < batch.n; i++)
                CHECK_EQ(batch.images[2 * (size_t)i + 1], epoch);
    }
    end(made, loader);
}

static void let_go_on(struct made *made)
{
    CHECK_EQ(pthread_mutex_lock(&made->mutex), 0);
    made->go_on = true;
    CHECK_EQ(pthread_cond_broadcast(&made->changed), 0);
    CHECK_EQ(pthread_mutex_unlock(&made->mutex), 0);
}

/* The last image of the second batch is slow: the first batch comes, and the third is read. */
TEST(a_slow_image_delays_its_batch_only)
{
    struct made *made = made_new(COUNT);
    struct loader *loader;

    made->source.shape.width = 65536; /* so that every image is claimed alone */
    made->slow = 7;
    loader = made_loader(made, 4, 2, LOADER_FAILS);
    loader_begin(loader, 0, in_order, COUNT);
    CHECK_EQ(next(loader).labels[0], 0);
    while (atomic_load(&made->reads) < 12)
        (void)sched_yield();
    let_go_on(made);
    CHECK_EQ(next(loader).labels[0], 4);
    CHECK_EQ(next(loader).labels[0], 8);
    end(made, loader);
}

/* -- samples that cannot be read -- */

/* Their places, and one place more at the end. */
static void check_labels(struct loader *loader, const int *expected)
{
    struct loader_batch batch;
    size_t at = 0;

    while ((batch = next(loader)).n > 0)
        for (uint32_t i = 0; i < batch.n; i++, at++) {
            CHECK_EQ(batch.labels[i], expected[at]);
            CHECK_EQ(batch.images[2 * (size_t)i], expected[at]);
        }
    CHECK_EQ(expected[at], -1);
}

static uint32_t reason_count(struct loader *loader)
{
    struct err reason;
    uint32_t count = 0;

    for (; loader_take_reason(loader, &reason); count++)
        CHECK(strstr(reason.text, "is bad") != NULL);
    return count;
}

/* 0, 4 and 5 and the last cannot be read. */
static struct made *made_with_holes(void)
{
    struct made *made = made_new(9);

    made->bad[0] = STATUS_NOT_FOUND;
    made->bad[4] = STATUS_BAD_INPUT;
    made->bad[5] = STATUS_TOO_BIG;
    made->bad[8] = STATUS_UNSUPPORTED;
    return made;
}

TEST(the_next_readable_sample_replaces_one)
{
    static const int expected[] = {1, 1, 2, 3, 6, 6, 6, 7, 1, -1};

    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        struct made *made = made_with_holes();
        struct loader *loader = made_loader(made, 3, thread_counts[t], LOADER_REPLACES);

        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            loader_begin(loader, epoch, in_order, 9);
            check_labels(loader, expected);
            CHECK_EQ(loader_unreadable_count(loader), 4); /* each once an epoch */
            CHECK_EQ(reason_count(loader), epoch == 0 ? 4 : 0);
        }
        end(made, loader);
    }
}

/* Two batches of which nothing is left among them. */
TEST(samples_are_left_out)
{
    static const int expected[] = {1, 2, 3, 6, 7, -1};

    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        struct made *made = made_with_holes();
        struct loader *loader = made_loader(made, 2, thread_counts[t], LOADER_LEAVES_OUT);

        loader_begin(loader, 0, in_order, 9);
        check_labels(loader, expected);
        CHECK_EQ(loader_unreadable_count(loader), 4);
        CHECK_EQ(reason_count(loader), 4);
        end(made, loader);
    }
}

static void check_fails(struct made *made, enum loader_unreadable unreadable, enum status expected,
                        const char *words)
{
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        struct loader *loader = made_loader(made, 3, thread_counts[t], unreadable);
        struct loader_batch batch = {.n = 1};
        struct err err = {.text = ""};

        loader_begin(loader, 0, in_order + 1, 8);
        CHECK_EQ(next(loader).n, 3); /* what comes before is good */
        CHECK_EQ(loader_next(loader, &batch, &err), expected);
        CHECK_EQ(batch.n, 0);
        if (strstr(err.text, words) == NULL)
            FAIL("expected \"%s\", got: %s", words, err.text);
        CHECK_EQ(next(loader).n, 0);
        loader_begin(loader, 0, in_order + 1, 3);
        CHECK_EQ(next(loader).n, 3);
        loader_free(&loader);
    }
}

/* The first one in the list is named, whichever is found first. */
TEST(samples_fail)
{
    struct made *made = made_with_holes();
    struct source *source = &made->source;

    check_fails(made, LOADER_FAILS, STATUS_BAD_INPUT, "sample 4");
    made->bad[4] = STATUS_OK;
    check_fails(made, LOADER_FAILS, STATUS_TOO_BIG, "sample 5");
    source_free(&source);
}

TEST(a_source_that_fails_ends_all)
{
    struct made *made = made_with_holes();
    struct source *source = &made->source;

    made->bad[5] = STATUS_IO;
    check_fails(made, LOADER_REPLACES, STATUS_IO, "sample 5"); /* in the place of 4 */
    made->bad[4] = STATUS_LIBRARY;
    check_fails(made, LOADER_LEAVES_OUT, STATUS_LIBRARY, "sample 4");
    source_free(&source);
}

TEST(nothing_can_be_read)
{
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        struct made *made = made_new(COUNT);
        struct loader *loader = made_loader(made, 4, thread_counts[t], LOADER_REPLACES);
        struct loader_batch batch;
        struct err err = {.text = ""};

        for (size_t i = 0; i < COUNT; i++)
            made->bad[i] = STATUS_NOT_FOUND;
        loader_begin(loader, 0, in_order, COUNT);
        CHECK_EQ(loader_next(loader, &batch, &err), STATUS_NOT_FOUND);
        CHECK(strstr(err.text, "none of the 23 samples can be read: sample ") != NULL);
        CHECK(reason_count(loader) <= LOADER_REASONS);
        end(made, loader);
    }
}

TEST(reasons_are_bounded)
{
    struct made *made = made_new(COUNT);
    struct loader *loader = made_loader(made, 4, 2, LOADER_LEAVES_OUT);

    for (size_t i = 0; i < COUNT; i++)
        made->bad[i] = STATUS_NOT_FOUND;
    loader_begin(loader, 0, in_order, COUNT);
    CHECK_EQ(next(loader).n, 0); /* left out, to the last */
    CHECK_EQ(loader_unreadable_count(loader), COUNT);
    CHECK_EQ(reason_count(loader), LOADER_REASONS);
    end(made, loader);
}

TEST(a_thread_without_a_reader)
{
    struct made *made = made_new(COUNT);
    const struct loader_options options = {BATCH, 3, LOADER_FAILS, NULL};
    struct source *source = &made->source;
    struct loader *loader;
    struct err err = {.text = ""};

    made->reader_limit = 2;
    CHECK_EQ(loader_new(&loader, source, &options, &err), STATUS_LIBRARY);
    CHECK(loader == NULL && strstr(err.text, "no more readers") != NULL);
    source_free(&source); /* which has got its readers back */
}

/* -- memory of somebody else -- */

enum { BLOCKS = 32, HELD = 2 };

struct lender {
    struct block {
        uint8_t *memory;
        uint8_t copy[4]; /* what the batch in it was when it was returned */
        bool is_read;    /* since it was returned, until settle */
    } blocks[BLOCKS];
    uint32_t count, settled;
    enum status fails;
};

static void *lender_allocate(void *user, size_t bytes)
{
    struct lender *lender = user;
    struct block *block = &lender->blocks[lender->count++];

    CHECK(lender->count <= BLOCKS && bytes == sizeof block->copy);
    block->memory = malloc(bytes);
    return block->memory;
}

static struct block *block_of(struct lender *lender, const void *memory)
{
    for (uint32_t i = 0; i < lender->count; i++)
        if (lender->blocks[i].memory == memory)
            return &lender->blocks[i];
    FAIL("not of this lender");
}

static void lender_release(void *user, void *memory)
{
    struct block *block = block_of(user, memory);

    CHECK(!block->is_read);
    block->memory = NULL;
    free(memory);
}

/* Nobody has written it meanwhile. */
static enum status lender_settle(void *user, const void *memory, struct err *err)
{
    struct lender *lender = user;
    struct block *block = block_of(lender, memory);

    if (block->is_read) {
        CHECK_BYTES(block->memory, block->copy, sizeof block->copy);
        lender->settled++;
    }
    block->is_read = false;
    return lender->fails == STATUS_OK ? STATUS_OK : err_set(err, lender->fails, 0, "of the lender");
}

TEST(lent_memory_is_not_written_before_it_is_settled)
{
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        struct lender lender = {.count = 0};
        const struct loader_memory memory = {lender_allocate, lender_release, lender_settle,
                                             &lender, HELD};
        const struct loader_options options = {2, thread_counts[t], LOADER_REPLACES, &memory};
        struct made *made = made_new(COUNT);
        struct loader *loader;
        uint32_t taken = 0;

        CHECK_EQ(loader_new(&loader, &made->source, &options, NULL), STATUS_OK);
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            loader_begin(loader, epoch, in_order, COUNT);
            for (uint64_t i = 0; i < epoch % 5 + 1; i++, taken++) { /* the rest is dropped */
                const struct loader_batch batch = next(loader);
                struct block *block = block_of(&lender, batch.images);

                CHECK(!block->is_read);
                block->is_read = true;
                memcpy(block->copy, batch.images, sizeof block->copy);
                CHECK_EQ(lender.settled, taken > HELD ? taken - HELD : 0);
            }
        }
        loader_free(&loader);
        CHECK_EQ(lender.settled, taken);
        end(made, NULL);
    }
}

TEST(a_lender_that_fails)
{
    struct lender lender = {.count = 0};
    const struct loader_memory memory = {lender_allocate, lender_release, lender_settle, &lender,
                                         HELD};
    const struct loader_options options = {2, 2, LOADER_REPLACES, &memory};
    struct made *made = made_new(COUNT);
    struct loader *loader;
    struct loader_batch batch;
    struct err err = {.text = ""};

    CHECK_EQ(loader_new(&loader, &made->source, &options, NULL), STATUS_OK);
    loader_begin(loader, 0, in_order, COUNT);
    lender.fails = STATUS_LIBRARY;
    CHECK_EQ(loader_next(loader, &batch, &err), STATUS_LIBRARY);
    CHECK_STR(err.text, "of the lender");
    end(made, loader);
}

TEST_MAIN
