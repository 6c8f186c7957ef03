#include "common/nvml_library.h"

#include <dlfcn.h>
#include <stddef.h>

bool nvml_library_is_there(void)
{
    void *handle = dlopen(NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    if (handle == NULL)
        return false;
    (void)dlclose(handle);
    return true;
}
