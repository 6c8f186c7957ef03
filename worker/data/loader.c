/* A ring of slots, one per batch. Threads claim images in the order of the list, several at a time
 * if the images are small. A batch is complete when all of its images are. */
#include "worker/data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLAIM_BYTES = 65536, /* bytes of images that a thread claims at once; at least one image */
    ALIGNMENT = 64,
};

struct slot {
    uint8_t *images;
    int64_t *labels;
    bool *missing;   /* [batch_max]: images that were left out */
    uint32_t left;   /* images that are not read yet */
    uint32_t failed; /* samples that could not be read */
    enum status status;
    uint32_t status_at; /* the first image that failed, if status is not STATUS_OK */
    struct err why;
};

struct loader {
    struct source *source;
    uint32_t batch_max, ahead, slot_count, per_claim;
    enum loader_unreadable unreadable;
    struct loader_memory memory;
    struct slot *slots;
    void *reader; /* the caller's, if there are no threads */

    /* Used only by the caller's thread. */
    size_t unreadable_count;
    uint64_t epoch;
    const int64_t *indices;

    /* Protected by the mutex. */
    size_t index_count;
    size_t claimed; /* images, from the start of the list */
    size_t taken;   /* batches returned since loader_begin; the caller is using the last one */
    uint32_t first; /* the slot of batch 0 */
    uint32_t reading;
    bool ending;
    uint8_t *has_reason;      /* [count], one bit per sample */
    uint32_t *failed_classes; /* [classes] since loader_begin; NULL: not known */
    struct err reasons[LOADER_REASONS];
    uint32_t reason_count, reasons_taken;

    atomic_bool dropping; /* claimed images need not be read */
    pthread_t *threads;
    uint32_t thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
};

struct claim {
    struct slot *slot;
    size_t at; /* index in the list */
    uint32_t first, n;
};

/* -- one image -- */

/* Stores why the sample could not be read, unless it already has a reason. */
static void note(struct loader *loader, int64_t index, const struct err *why)
{
    const size_t byte = (size_t)index / 8;
    const uint8_t bit = (uint8_t)(1U << ((size_t)index % 8));

    (void)pthread_mutex_lock(&loader->mutex);
    if (loader->failed_classes != NULL)
        loader->failed_classes[loader->source->ops->label(loader->source, index)]++;
    if (loader->reason_count < LOADER_REASONS && (loader->has_reason[byte] & bit) == 0) {
        loader->has_reason[byte] |= bit;
        loader->reasons[loader->reason_count++] = *why;
    }
    (void)pthread_mutex_unlock(&loader->mutex);
}

static enum status read_replacement(struct loader *loader, void *reader, int64_t index,
                                    uint8_t *image, int64_t *label, struct err *err)
{
    const size_t count = loader->source->count;
    struct err why = *err;

    for (size_t k = 1; k < count; k++) {
        const int64_t next = (int64_t)(((size_t)index + k) % count);
        enum status status;

        if (atomic_load(&loader->dropping))
            return STATUS_OK;
        status = loader->source->ops->read(loader->source, reader, loader->epoch, next, image,
                                           label, &why);
        if (status == STATUS_OK || !source_is_of_sample(status)) {
            *err = why;
            return status;
        }
    }
    return err_set(err, why.status, why.code, "none of the %zu samples can be read: %.200s", count,
                   why.text);
}

struct outcome {
    bool failed;
    enum status status;
    struct err why;
};

static struct outcome read_image(struct loader *loader, void *reader, const struct claim *claim,
                                 uint32_t i)
{
    struct slot *slot = claim->slot;
    const uint32_t place = claim->first + i;
    const int64_t index = loader->indices[claim->at + i];
    uint8_t *image = slot->images + place * source_image_bytes(loader->source);
    int64_t *label = &slot->labels[place];
    struct outcome outcome = {.why = {.text = ""}};

    slot->missing[place] = false;
    outcome.status = loader->source->ops->read(loader->source, reader, loader->epoch, index, image,
                                               label, &outcome.why);
    if (!source_is_of_sample(outcome.status))
        return outcome;
    outcome.failed = true;
    if (loader->unreadable == LOADER_FAILS)
        return outcome;
    note(loader, index, &outcome.why);
    if (loader->unreadable == LOADER_LEAVES_OUT) {
        slot->missing[place] = true;
        outcome.status = STATUS_OK;
    } else {
        outcome.status = read_replacement(loader, reader, index, image, label, &outcome.why);
    }
    return outcome;
}

/* -- claims -- */

static size_t batch_count(const struct loader *loader)
{
    return (loader->index_count + loader->batch_max - 1) / loader->batch_max;
}

static struct slot *slot_of(const struct loader *loader, size_t batch)
{
    return &loader->slots[(loader->first + batch) % loader->slot_count];
}

/* Images of batch `batch`. */
static uint32_t size_of(const struct loader *loader, size_t batch)
{
    const size_t left = loader->index_count - batch * loader->batch_max;

    return left < loader->batch_max ? (uint32_t)left : loader->batch_max;
}

static bool has_work(const struct loader *loader)
{
    return loader->claimed < loader->index_count &&
           loader->claimed / loader->batch_max < loader->taken + loader->ahead;
}

/* Call with the mutex held. */
static struct claim take_claim(struct loader *loader)
{
    const size_t batch = loader->claimed / loader->batch_max;
    struct claim claim = {.slot = slot_of(loader, batch),
                          .at = loader->claimed,
                          .first = (uint32_t)(loader->claimed % loader->batch_max)};
    const uint32_t size = size_of(loader, batch), left = size - claim.first;

    assert(has_work(loader) && claim.first < size);
    claim.n = left < loader->per_claim ? left : loader->per_claim;
    if (claim.first == 0) {
        claim.slot->left = size;
        claim.slot->failed = 0;
        claim.slot->status = STATUS_OK;
    }
    loader->claimed += claim.n;
    loader->reading++;
    return claim;
}

/* Reads the claimed images. Call with the mutex held; it is released while reading. */
static void carry_out(struct loader *loader, void *reader, const struct claim *claim)
{
    struct slot *slot = claim->slot;
    struct outcome bad = {.status = STATUS_OK};
    uint32_t bad_at = 0, failed = 0;

    (void)pthread_mutex_unlock(&loader->mutex);
    for (uint32_t i = 0; i < claim->n && !atomic_load(&loader->dropping); i++) {
        const struct outcome outcome = read_image(loader, reader, claim, i);

        failed += outcome.failed;
        if (outcome.status == STATUS_OK || bad.status != STATUS_OK)
            continue;
        bad = outcome;
        bad_at = claim->first + i;
    }
    (void)pthread_mutex_lock(&loader->mutex);
    if (bad.status != STATUS_OK && (slot->status == STATUS_OK || bad_at < slot->status_at)) {
        slot->status = bad.status;
        slot->status_at = bad_at;
        slot->why = bad.why;
    }
    slot->failed += failed;
    slot->left -= claim->n;
    loader->reading--;
    if (slot->left == 0 || loader->reading == 0)
        (void)pthread_cond_broadcast(&loader->done);
}

static void work(struct loader *loader, void *reader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    while (!loader->ending) {
        if (has_work(loader)) {
            const struct claim claim = take_claim(loader);

            carry_out(loader, reader, &claim);
        } else {
            (void)pthread_cond_wait(&loader->work, &loader->mutex);
        }
    }
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* -- threads -- */

struct start {
    struct loader *loader;
    void *reader;
};

static void *run(void *user)
{
    struct start start = *(struct start *)user;

    free(user);
    work(start.loader, start.reader);
    source_reader_free(start.loader->source, &start.reader);
    return NULL;
}

static enum status start_thread(struct loader *loader, struct err *err)
{
    struct start *start = malloc(sizeof *start);
    enum status status;
    int code;

    if (start == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a thread of the loader");
    start->loader = loader;
    status = source_reader_new(loader->source, &start->reader, err);
    if (status != STATUS_OK) {
        free(start);
        return status;
    }
    code = pthread_create(&loader->threads[loader->thread_count], NULL, run, start);
    if (code == 0) {
        loader->thread_count++;
        return STATUS_OK;
    }
    source_reader_free(loader->source, &start->reader);
    free(start);
    return err_set(err, STATUS_SYSTEM, code, "cannot start thread %u of -j: %s",
                   loader->thread_count + 1, strerror(code));
}

static enum status start_threads(struct loader *loader, uint32_t count, struct err *err)
{
    enum status status = STATUS_OK;

    if (count == 0)
        return source_reader_new(loader->source, &loader->reader, err);
    loader->threads = calloc(count, sizeof *loader->threads);
    if (loader->threads == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %u threads", count);
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        status = start_thread(loader, err);
    return status;
}

static void end_threads(struct loader *loader)
{
    atomic_store(&loader->dropping, true);
    (void)pthread_mutex_lock(&loader->mutex);
    loader->ending = true;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
    for (uint32_t i = 0; i < loader->thread_count; i++)
        (void)pthread_join(loader->threads[i], NULL);
    free(loader->threads);
}

/* -- creating and freeing -- */

static void *own_allocate(void *user, size_t bytes)
{
    (void)user;
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void own_release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static bool new_slots(struct loader *loader)
{
    const size_t bytes = loader->batch_max * source_image_bytes(loader->source);
    bool complete;

    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    loader->has_reason = calloc(loader->source->count / 8 + 1, 1);
    if (loader->source->ops->label != NULL)
        loader->failed_classes =
            calloc(loader->source->shape.classes, sizeof *loader->failed_classes);
    complete = loader->slots != NULL && loader->has_reason != NULL &&
               (loader->failed_classes != NULL || loader->source->ops->label == NULL);
    for (uint32_t i = 0; i < loader->slot_count && complete; i++) {
        struct slot *slot = &loader->slots[i];

        slot->images = loader->memory.allocate(loader->memory.user, bytes);
        slot->labels = calloc(loader->batch_max, sizeof *slot->labels);
        slot->missing = calloc(loader->batch_max, sizeof *slot->missing);
        complete = slot->images != NULL && slot->labels != NULL && slot->missing != NULL;
    }
    return complete;
}

static void free_slots(struct loader *loader)
{
    const struct loader_memory *memory = &loader->memory;

    for (uint32_t i = 0; i < loader->slot_count && loader->slots != NULL; i++) {
        struct slot *slot = &loader->slots[i];

        if (slot->images != NULL && memory->settle != NULL)
            (void)memory->settle(memory->user, slot->images, NULL);
        if (slot->images != NULL)
            memory->release(memory->user, slot->images);
        free(slot->labels);
        free(slot->missing);
    }
    free(loader->slots);
    free(loader->has_reason);
    free(loader->failed_classes);
}

/* How many batches `threads` threads fill at the same time. */
static uint32_t batches_at_once(const struct loader *loader, uint32_t threads)
{
    const uint64_t images = (uint64_t)threads * loader->per_claim;

    return (uint32_t)(images / loader->batch_max);
}

static void init(struct loader *loader, const struct loader_options *options)
{
    const size_t claim = CLAIM_BYTES / source_image_bytes(loader->source);

    loader->batch_max = options->batch_max;
    loader->unreadable = options->unreadable;
    if (options->memory != NULL)
        loader->memory = *options->memory;
    else
        loader->memory = (struct loader_memory){own_allocate, own_release, NULL, NULL, 0};
    loader->per_claim = claim > 0 ? (uint32_t)claim : 1;
    if (loader->per_claim > loader->batch_max)
        loader->per_claim = loader->batch_max;
    loader->ahead =
        options->threads == 0 ? 1 : LOADER_AHEAD + batches_at_once(loader, options->threads);
    loader->slot_count = 1 + loader->memory.held + loader->ahead;
    (void)pthread_mutex_init(&loader->mutex, NULL);
    (void)pthread_cond_init(&loader->work, NULL);
    (void)pthread_cond_init(&loader->done, NULL);
}

enum status loader_new(struct loader **out, struct source *source,
                       const struct loader_options *options, struct err *err)
{
    struct loader *loader = calloc(1, sizeof *loader);
    enum status status;

    assert(options->batch_max > 0 && source->count > 0);
    *out = loader;
    if (loader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the loader");
    loader->source = source;
    init(loader, options);
    if (new_slots(loader))
        status = start_threads(loader, options->threads, err);
    else
        status = err_set(err, STATUS_MEMORY, 0, "no memory for %u batches of %u images",
                         loader->slot_count, loader->batch_max);
    if (status != STATUS_OK)
        loader_free(out);
    return status;
}

void loader_free(struct loader **out)
{
    struct loader *loader = *out;

    if (loader == NULL)
        return;
    end_threads(loader);
    source_reader_free(loader->source, &loader->reader);
    (void)pthread_cond_destroy(&loader->work);
    (void)pthread_cond_destroy(&loader->done);
    (void)pthread_mutex_destroy(&loader->mutex);
    free_slots(loader);
    free(loader);
    *out = NULL;
}

/* -- an epoch -- */

/* The slots of the last returned batches stay as they are: the new list starts with the slot after
 * them. */
void loader_begin(struct loader *loader, uint64_t epoch, const int64_t *indices, size_t count)
{
    atomic_store(&loader->dropping, true);
    (void)pthread_mutex_lock(&loader->mutex);
    loader->index_count = 0; /* prevents further claims */
    while (loader->reading > 0)
        (void)pthread_cond_wait(&loader->done, &loader->mutex);
    atomic_store(&loader->dropping, false);
    loader->first = (uint32_t)((loader->first + loader->taken) % loader->slot_count);
    loader->epoch = epoch;
    loader->indices = indices;
    loader->index_count = count;
    loader->claimed = loader->taken = 0;
    loader->unreadable_count = 0;
    if (loader->failed_classes != NULL)
        memset(loader->failed_classes, 0,
               loader->source->shape.classes * sizeof *loader->failed_classes);
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* Waits until the next batch is complete, or reads it if there are no threads. */
static void complete_next(struct loader *loader)
{
    const size_t end = loader->taken * loader->batch_max + size_of(loader, loader->taken);
    const struct slot *slot = slot_of(loader, loader->taken);

    while (loader->claimed < end || slot->left > 0) {
        if (loader->thread_count > 0) {
            (void)pthread_cond_wait(&loader->done, &loader->mutex);
        } else {
            const struct claim claim = take_claim(loader);

            carry_out(loader, loader->reader, &claim);
        }
    }
}

/* Closes the gaps that left-out images leave; returns the number of images. */
static uint32_t close_gaps(const struct loader *loader, const struct slot *slot, uint32_t n)
{
    const size_t bytes = source_image_bytes(loader->source);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (slot->missing[i])
            continue;
        if (kept != i) {
            memcpy(slot->images + kept * bytes, slot->images + i * bytes, bytes);
            slot->labels[kept] = slot->labels[i];
        }
        kept++;
    }
    return kept;
}

/* Settles the slot that threads may overwrite once the next batch is taken. */
static enum status settle_oldest(struct loader *loader, struct err *err)
{
    const struct loader_memory *memory = &loader->memory;
    const struct slot *slot = slot_of(loader, loader->taken + loader->ahead);

    return memory->settle != NULL ? memory->settle(memory->user, slot->images, err) : STATUS_OK;
}

static enum status take(struct loader *loader, struct loader_batch *batch, struct err *err)
{
    const uint32_t n = size_of(loader, loader->taken);
    struct slot *slot = slot_of(loader, loader->taken);
    enum status status;

    (void)pthread_mutex_lock(&loader->mutex);
    complete_next(loader);
    loader->unreadable_count += slot->failed;
    status = slot->status;
    if (status != STATUS_OK)
        loader->claimed = loader->index_count; /* the list ends here */
    (void)pthread_mutex_unlock(&loader->mutex);
    if (status != STATUS_OK)
        return err_set(err, slot->why.status, slot->why.code, "%s", slot->why.text);
    status = settle_oldest(loader, err);
    if (status != STATUS_OK)
        return status;
    (void)pthread_mutex_lock(&loader->mutex);
    loader->taken++;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
    *batch = (struct loader_batch){slot->images, slot->labels, close_gaps(loader, slot, n)};
    return STATUS_OK;
}

enum status loader_next(struct loader *loader, struct loader_batch *batch, struct err *err)
{
    enum status status = STATUS_OK;

    *batch = (struct loader_batch){.n = 0};
    while (status == STATUS_OK && batch->n == 0 && loader->taken < batch_count(loader))
        status = take(loader, batch, err);
    if (status == STATUS_OK)
        return STATUS_OK;
    loader_begin(loader, loader->epoch, NULL, 0);
    *batch = (struct loader_batch){.n = 0};
    return status;
}

size_t loader_unreadable_count(const struct loader *loader)
{
    return loader->unreadable_count;
}

const uint32_t *loader_unreadable_classes(const struct loader *loader)
{
    return loader->failed_classes;
}

bool loader_take_reason(struct loader *loader, struct err *reason)
{
    bool is_taken;

    (void)pthread_mutex_lock(&loader->mutex);
    is_taken = loader->reasons_taken < loader->reason_count;
    if (is_taken)
        *reason = loader->reasons[loader->reasons_taken++];
    (void)pthread_mutex_unlock(&loader->mutex);
    return is_taken;
}
