#include "common/io/spare_threads.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "common/thread_start.h"

static void *wait_at(void *argument)
{
    pthread_mutex_t *gate = argument;

    (void)pthread_mutex_lock(gate);
    (void)pthread_mutex_unlock(gate);
    return NULL;
}

static enum status explain(uint32_t count, int code, struct err *err)
{
    struct rlimit processes = {0};
    char limit[32] = "unlimited";

    (void)getrlimit(RLIMIT_NPROC, &processes);
    if (processes.rlim_cur != RLIM_INFINITY)
        (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)processes.rlim_cur);
    return err_set(err, STATUS_SYSTEM, code,
                   "it needs %u threads and cannot start them: %s; raise the user's limit of "
                   "processes and threads (ulimit -u, now %s) or that of its cgroup (pids.max), or "
                   "end some of them",
                   count, strerror(code), limit);
}

enum status spare_threads_check(uint32_t count, struct err *err)
{
    static _Atomic bool is_done;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[SPARE_THREADS_MAX];
    uint32_t started = 0;
    int code = 0;

    assert(count <= SPARE_THREADS_MAX);
    if (atomic_load(&is_done))
        return STATUS_OK;
    (void)pthread_mutex_lock(&gate);
    while (started < count && code == 0) {
        code = thread_start(&threads[started], 0, wait_at, &gate);
        started += code == 0;
    }
    (void)pthread_mutex_unlock(&gate);
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    if (code != 0)
        return explain(count, code, err);
    atomic_store(&is_done, true);
    return STATUS_OK;
}
