#include "common/dl_library.h"

#include <dlfcn.h>
#include <string.h>

enum status dl_library_open(void **handle, const char *file, const struct dl_function *functions,
                            size_t count, void *table, const char *needed_by, const char *install,
                            struct err *err)
{
    *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*handle == NULL)
        return err_set(err, STATUS_LIBRARY, 0, "%s %s: install %s", needed_by, file, install);
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(*handle, functions[i].name);

        if (found == NULL) {
            dl_library_close(handle);
            return err_set(err, STATUS_LIBRARY, 0, "%s cannot be used: it has no %s", file,
                           functions[i].name);
        }
        memcpy((char *)table + functions[i].offset, &found, sizeof found);
    }
    return STATUS_OK;
}

void dl_library_close(void **handle)
{
    if (*handle != NULL)
        (void)dlclose(*handle);
    *handle = NULL;
}
