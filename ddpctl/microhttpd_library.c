#include "ddpctl/microhttpd_library.h"

#include <string.h>

#include "common/dl_library.h"

#define LIBRARY_NAME "libmicrohttpd.so.12"
#define ROW(member, function) {#function, offsetof(struct microhttpd_library, member)},

static const struct dl_function functions[] = {MICROHTTPD_LIBRARY_FUNCTIONS(ROW)};

enum status microhttpd_library_open(struct microhttpd_library *library, struct err *err)
{
    memset(library, 0, sizeof *library);
    return dl_library_open(&library->handle, LIBRARY_NAME, functions,
                           sizeof functions / sizeof functions[0], library, "ddpctl http needs",
                           "libmicrohttpd (Debian: libmicrohttpd12)", err);
}
