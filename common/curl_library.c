#include "common/curl_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY_NAME "libcurl.so.4"

enum status curl_library_open(struct curl_library *library, const char *needed_by,
                              const char *otherwise, struct err *err)
{
    bool found = true;

    memset(library, 0, sizeof *library);
    library->handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL)
        return err_set(err, STATUS_LIBRARY, 0,
                       "%s " LIBRARY_NAME ": install libcurl (Debian: libcurl4)%s", needed_by,
                       otherwise);
#define FIND(member, function)                                                                     \
    *(void **)&library->member = dlsym(library->handle, #function);                                \
    found = found && library->member != NULL;
    CURL_LIBRARY_FUNCTIONS(FIND)
#undef FIND
    if (found && library->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return STATUS_OK;
    (void)dlclose(library->handle);
    library->handle = NULL;
    return err_set(err, STATUS_LIBRARY, 0, LIBRARY_NAME " cannot be used");
}

void curl_library_close(struct curl_library *library)
{
    if (library->handle == NULL)
        return;
    library->global_cleanup();
    (void)dlclose(library->handle);
    library->handle = NULL;
}
