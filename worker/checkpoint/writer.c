/* The thread that writes checkpoints. See writer.h. */
#include "worker/checkpoint/writer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Training keeps every core busy, and this thread must not take its time. */
enum { NICENESS = 10 };

enum phase {
    PHASE_IDLE,
    PHASE_BEGUN, /* the thread writes, or is about to */
    PHASE_DONE,  /* the outcome was not taken yet */
    PHASE_ENDING
};

struct checkpoint_writer {
    struct checkpoint_dir *dir;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    enum phase phase;
    struct checkpoint_state state;
    const struct safetensors_tensor *tensors;
    size_t tensor_count;
    struct err outcome;
};

static void *run(void *user)
{
    struct checkpoint_writer *writer = user;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); /* of this thread alone */
    (void)pthread_mutex_lock(&writer->mutex);
    while (writer->phase != PHASE_ENDING) {
        struct err outcome = {0};

        if (writer->phase != PHASE_BEGUN) {
            (void)pthread_cond_wait(&writer->changed, &writer->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&writer->mutex);
        (void)checkpoint_save(writer->dir, &writer->state, writer->tensors, writer->tensor_count,
                              &outcome);
        (void)pthread_mutex_lock(&writer->mutex);
        writer->outcome = outcome;
        writer->phase = PHASE_DONE;
        (void)pthread_cond_broadcast(&writer->changed);
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

enum status checkpoint_writer_new(struct checkpoint_writer **out, struct checkpoint_dir *dir,
                                  struct err *err)
{
    struct checkpoint_writer *writer = calloc(1, sizeof *writer);
    int code;

    if (writer == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to write checkpoints");
    writer->dir = dir;
    (void)pthread_mutex_init(&writer->mutex, NULL);
    (void)pthread_cond_init(&writer->changed, NULL);
    code = pthread_create(&writer->thread, NULL, run, writer);
    if (code == 0) {
        *out = writer;
        return STATUS_OK;
    }
    (void)pthread_cond_destroy(&writer->changed);
    (void)pthread_mutex_destroy(&writer->mutex);
    free(writer);
    return err_set(err, STATUS_SYSTEM, code, "cannot start the thread that writes checkpoints: %s",
                   strerror(code));
}

static void wait_written(struct checkpoint_writer *writer)
{
    while (writer->phase == PHASE_BEGUN)
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
}

void checkpoint_writer_free(struct checkpoint_writer **out)
{
    struct checkpoint_writer *writer = *out;

    if (writer == NULL)
        return;
    (void)pthread_mutex_lock(&writer->mutex);
    wait_written(writer);
    writer->phase = PHASE_ENDING;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
    (void)pthread_join(writer->thread, NULL);
    (void)pthread_cond_destroy(&writer->changed);
    (void)pthread_mutex_destroy(&writer->mutex);
    free(writer);
    *out = NULL;
}

void checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state,
                             const struct safetensors_tensor *tensors, size_t tensor_count)
{
    (void)pthread_mutex_lock(&writer->mutex);
    assert(writer->phase == PHASE_IDLE);
    writer->state = *state;
    writer->tensors = tensors;
    writer->tensor_count = tensor_count;
    writer->phase = PHASE_BEGUN;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
}

bool checkpoint_writer_take(struct checkpoint_writer *writer, bool wait, struct err *outcome)
{
    bool is_done;

    (void)pthread_mutex_lock(&writer->mutex);
    assert(writer->phase == PHASE_BEGUN || writer->phase == PHASE_DONE);
    if (wait)
        wait_written(writer);
    is_done = writer->phase == PHASE_DONE;
    if (is_done) {
        *outcome = writer->outcome;
        writer->phase = PHASE_IDLE;
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    return is_done;
}
