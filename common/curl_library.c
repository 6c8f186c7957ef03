#include "common/curl_library.h"

#include <stdio.h>
#include <string.h>

#include "common/dl_library.h"

#define LIBRARY_NAME "libcurl.so.4"
#define ROW(member, function) {#function, offsetof(struct curl_library, member)},

static const struct dl_function functions[] = {CURL_LIBRARY_FUNCTIONS(ROW)};

enum status curl_library_open(struct curl_library *library, const char *needed_by,
                              const char *otherwise, struct err *err)
{
    char install[128];
    enum status status;

    memset(library, 0, sizeof *library);
    (void)snprintf(install, sizeof install, "libcurl (Debian: libcurl4)%s", otherwise);
    status =
        dl_library_open(&library->handle, LIBRARY_NAME, functions,
                        sizeof functions / sizeof functions[0], library, needed_by, install, err);
    if (status != STATUS_OK)
        return status;
    if (library->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return STATUS_OK;
    dl_library_close(&library->handle);
    return err_set(err, STATUS_LIBRARY, 0, LIBRARY_NAME " cannot be used");
}

void curl_library_close(struct curl_library *library)
{
    if (library->handle == NULL)
        return;
    library->global_cleanup();
    dl_library_close(&library->handle);
}
