#include "launcherd/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NVML_NAME "libnvidia-ml.so.1"

/* Shared by who asks and who answers; the last of the two frees it. */
struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done, abandoned;
    enum status status;
    struct err err;
    unsigned count;
};

/* ISO C has no way from an object pointer to a function's; POSIX, dlsym, promises this one. */
static bool load(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Source: NVML API reference: nvmlInit_v2, nvmlDeviceGetCount_v2, nvmlShutdown; 0 is success. */
static enum status ask(unsigned *count, struct err *err)
{
    int (*init)(void);
    int (*get_count)(unsigned *);
    int (*shut_down)(void);
    void *library = dlopen(NVML_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "no NVIDIA driver here (%s)", NVML_NAME);
    enum status status = STATUS_OK;
    if (!load(library, "nvmlInit_v2", &init) ||
        !load(library, "nvmlDeviceGetCount_v2", &get_count) ||
        !load(library, "nvmlShutdown", &shut_down)) {
        status = err_set(err, STATUS_LIBRARY, 0, "%s lacks functions that any NVML has", NVML_NAME);
    } else {
        int code = init();
        if (code == 0) {
            code = get_count(count);
            shut_down();
        }
        if (code != 0)
            status = err_set(err, STATUS_LIBRARY, code,
                             "NVML cannot tell the GPUs (error %d): see nvidia-smi", code);
    }
    dlclose(library);
    return status;
}

static void release(struct question *question, bool is_last)
{
    pthread_mutex_unlock(&question->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

static void *answer(void *arg)
{
    struct question *question = arg;
    unsigned count = 0;
    struct err err = {0};
    enum status status = ask(&count, &err);

    pthread_mutex_lock(&question->lock);
    question->status = status;
    question->err = err;
    question->count = count;
    question->done = true;
    pthread_cond_signal(&question->answered);
    release(question, question->abandoned);
    return NULL;
}

static struct question *question_new(void)
{
    struct question *question = calloc(1, sizeof *question);
    pthread_condattr_t attributes;
    if (question == NULL)
        return NULL;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&question->answered, &attributes);
    pthread_mutex_init(&question->lock, NULL);
    pthread_condattr_destroy(&attributes);
    return question;
}

static enum status await(struct question *question, uint64_t timeout_us, uint32_t *count,
                         struct err *err)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_us / 1000000);
    until.tv_nsec += (long)(timeout_us % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&question->lock);
    while (!question->done && rc == 0)
        rc = pthread_cond_timedwait(&question->answered, &question->lock, &until);
    if (!question->done) {
        question->abandoned = true;
        release(question, false);
        return err_set(err, STATUS_TIMEOUT, 0, "NVML does not answer: the driver hangs");
    }
    enum status status = question->status;
    *count = status == STATUS_OK ? question->count : 0;
    if (status != STATUS_OK && err != NULL)
        *err = question->err;
    release(question, true);
    return status;
}

enum status gpu_count(uint32_t *count, uint64_t timeout_us, struct err *err)
{
    pthread_t thread;
    struct question *question = question_new();
    *count = 0;
    if (question == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    int code = pthread_create(&thread, NULL, answer, question);
    if (code != 0) {
        pthread_mutex_lock(&question->lock);
        release(question, true);
        return err_set(err, STATUS_SYSTEM, code, "no thread to ask NVML: %s", strerror(code));
    }
    pthread_detach(thread);
    return await(question, timeout_us, count, err);
}
