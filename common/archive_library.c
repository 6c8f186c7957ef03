#include "common/archive_library.h"

#include <string.h>

#include "common/dl_library.h"

#define LIBRARY_NAME "libarchive.so.13"
#define ROW(member, function) {#function, offsetof(struct archive_library, member)},

static const struct dl_function functions[] = {ARCHIVE_LIBRARY_FUNCTIONS(ROW)};

enum status archive_library_open(struct archive_library *library, const char *needed_by,
                                 struct err *err)
{
    memset(library, 0, sizeof *library);
    return dl_library_open(&library->handle, LIBRARY_NAME, functions,
                           sizeof functions / sizeof functions[0], library, needed_by,
                           "libarchive (Debian: libarchive13)", err);
}
