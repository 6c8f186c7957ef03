/* Preloaded: a machine without the library $HIDE_LIBRARY, such as "libarchive.so.13". The loader cannot open it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) void *dlopen(const char *file, int flags)
{
    static void *(*real)(const char *, int);
    const char *hidden = getenv("HIDE_LIBRARY");

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return real(hidden != NULL && file != NULL && strcmp(file, hidden) == 0 ? "/nowhere/hidden.so"
                                                                            : file,
                flags);
}
