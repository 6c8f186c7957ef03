/* oneDNN's threads, which are OpenMP's. The OpenMP runtime is looked up by name: oneDNN loads its
 * own, and a second one, from another compiler, would have its own settings. */
#include <dlfcn.h>
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
