/* Two buffers: one batch is in use while the thread gathers the next. */
#include "worker/data/loader.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2 };

struct loader {
    struct dataset *set;
    uint32_t batch_max;
    bool as_bytes;
    struct slot {
        void *images; /* floats or bytes */
        int64_t *labels;
        uint32_t n;
    } slots[SLOTS];

    const int64_t *indices;
    size_t index_count;
    size_t begun;    /* images in batches that were gathered or are being gathered */
    size_t gathered; /* batches gathered since loader_begin */
    size_t taken;    /* batches returned since loader_begin; the last one is in use */

    bool in_background;
    bool gathering; /* the thread gathers a batch, without the mutex */
    bool ending;    /* the thread must end */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static uint32_t next_count(const struct loader *loader)
{
    size_t left = loader->index_count - loader->begun;

    assert(loader->begun <= loader->index_count);
    return left < loader->batch_max ? (uint32_t)left : loader->batch_max;
}

static void gather(struct loader *loader, struct slot *slot, const int64_t *indices, uint32_t n)
{
    assert(n > 0 && n <= loader->batch_max);
    slot->n = n;
    if (loader->as_bytes)
        dataset_fetch_bytes(loader->set, indices, n, slot->images, slot->labels);
    else
        dataset_fetch(loader->set, indices, n, slot->images, slot->labels);
}

/* Whether the thread may gather a batch: at most one that was not returned yet. */
static bool has_work(const struct loader *loader)
{
    return loader->begun < loader->index_count && loader->gathered <= loader->taken;
}

static void *run(void *user)
{
    struct loader *loader = user;

    (void)pthread_mutex_lock(&loader->mutex);
    while (!loader->ending) {
        if (!has_work(loader)) {
            (void)pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        struct slot *slot = &loader->slots[loader->gathered % SLOTS];
        const int64_t *indices = loader->indices + loader->begun;
        uint32_t n = next_count(loader);
        loader->begun += n;
        loader->gathering = true;
        (void)pthread_mutex_unlock(&loader->mutex);
        gather(loader, slot, indices, n);
        (void)pthread_mutex_lock(&loader->mutex);
        loader->gathering = false;
        loader->gathered++;
        (void)pthread_cond_broadcast(&loader->changed);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* With all signals blocked: the main thread handles them. */
static enum status start_thread(struct loader *loader, struct err *err)
{
    sigset_t all, before;
    int code;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    code = pthread_create(&loader->thread, NULL, run, loader);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return err_set(err, STATUS_SYSTEM, code, "cannot start the loader's thread: %s",
                       strerror(code));
    loader->in_background = true;
    return STATUS_OK;
}

static bool new_slots(struct loader *loader)
{
    const struct dataset_shape shape = dataset_shape(loader->set);
    const size_t pixels = (size_t)shape.channels * shape.height * shape.width;
    bool complete = true;

    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &loader->slots[i];

        slot->images = calloc(loader->batch_max * pixels, loader->as_bytes ? 1 : sizeof(float));
        slot->labels = calloc(loader->batch_max, sizeof *slot->labels);
        complete = complete && slot->images != NULL && slot->labels != NULL;
    }
    return complete;
}

enum status loader_new(struct loader **out, struct dataset *set,
                       const struct loader_options *options, struct err *err)
{
    struct loader *loader = calloc(1, sizeof *loader);
    enum status status = STATUS_OK;

    assert(options->batch_max > 0);
    *out = loader;
    if (loader == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the loader");
    loader->set = set;
    loader->batch_max = options->batch_max;
    loader->as_bytes = options->as_bytes;
    (void)pthread_mutex_init(&loader->mutex, NULL);
    (void)pthread_cond_init(&loader->changed, NULL);
    if (!new_slots(loader))
        status =
            err_set(err, STATUS_MEMORY, 0, "no memory for batches of %u images", loader->batch_max);
    else if (options->in_background)
        status = start_thread(loader, err);
    if (status != STATUS_OK)
        loader_free(out);
    return status;
}

void loader_free(struct loader **out)
{
    struct loader *loader = *out;

    if (loader == NULL)
        return;
    if (loader->in_background) {
        (void)pthread_mutex_lock(&loader->mutex);
        loader->ending = true;
        (void)pthread_cond_broadcast(&loader->changed);
        (void)pthread_mutex_unlock(&loader->mutex);
        (void)pthread_join(loader->thread, NULL);
    }
    (void)pthread_cond_destroy(&loader->changed);
    (void)pthread_mutex_destroy(&loader->mutex);
    for (int i = 0; i < SLOTS; i++) {
        free(loader->slots[i].images);
        free(loader->slots[i].labels);
    }
    free(loader);
    *out = NULL;
}

void loader_begin(struct loader *loader, const int64_t *indices, size_t count)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->index_count = 0; /* the thread starts no further batch */
    loader->begun = 0;
    while (loader->gathering)
        (void)pthread_cond_wait(&loader->changed, &loader->mutex);
    loader->indices = indices;
    loader->index_count = count;
    loader->gathered = 0;
    loader->taken = 0;
    (void)pthread_cond_broadcast(&loader->changed);
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* Waits for a batch, or gathers it where there is no thread. False at the end of the list. Call
 * with the mutex held. */
static bool wait_for_batch(struct loader *loader)
{
    while (loader->gathered == loader->taken) {
        if (!loader->gathering && loader->begun == loader->index_count)
            return false;
        if (loader->in_background) {
            (void)pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        uint32_t n = next_count(loader);
        gather(loader, &loader->slots[loader->gathered % SLOTS], loader->indices + loader->begun,
               n);
        loader->begun += n;
        loader->gathered++;
    }
    return true;
}

struct loader_batch loader_next(struct loader *loader)
{
    struct loader_batch batch = {0};

    (void)pthread_mutex_lock(&loader->mutex);
    if (wait_for_batch(loader)) {
        const struct slot *slot = &loader->slots[loader->taken % SLOTS];

        assert(loader->gathered - loader->taken < SLOTS);
        loader->taken++;
        batch = (struct loader_batch){.labels = slot->labels, .n = slot->n};
        if (loader->as_bytes)
            batch.bytes = slot->images;
        else
            batch.floats = slot->images;
        (void)pthread_cond_broadcast(&loader->changed);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return batch;
}
