/* The threads of oneDNN, which are OpenMP's. The runtime is looked up by name: oneDNN brings its own,
 * and a second one, of another compiler, would have settings of its own. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "worker/backend/cpu/internal.h"

void cpu_threads_use(uint32_t count)
{
    void *const address = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set)(int);

    if (count == 0 || address == NULL)
        return;
    memcpy(&set, &address, sizeof set);
    set((int)count);
}

uint32_t cpu_threads(void)
{
    void *const address = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    int (*get)(void);

    if (address == NULL)
        return 1;
    memcpy(&get, &address, sizeof get);
    return (uint32_t)get();
}

static void do_nothing(void *unused)
{
    (void)unused;
}

void cpu_threads_start(void)
{
    void *const address = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    void (*parallel)(void (*run)(void *), void *data, unsigned count, unsigned flags);
    sigset_t all, before;

    if (address == NULL)
        return;
    memcpy(&parallel, &address, sizeof parallel);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    parallel(do_nothing, NULL, 0, 0); /* 0: as many threads as cpu_threads() */
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
