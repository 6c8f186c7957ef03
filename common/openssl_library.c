#include "common/openssl_library.h"

#include <pthread.h>

#define LIBRARY_NAME "libssl.so.3" /* with it comes libcrypto */
#define ROW(member, function) {#function, offsetof(struct openssl_library, member)},

static const struct dl_function functions[] = {OPENSSL_LIBRARY_FUNCTIONS(ROW)};
static struct openssl_library library;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const struct openssl_library *openssl_library(struct err *err)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&lock);
    if (library.handle == NULL)
        status = dl_library_open(
            &library.handle, LIBRARY_NAME, functions, sizeof functions / sizeof functions[0],
            &library, "keys, TLS and staged folders need", "OpenSSL 3 (Debian: libssl3)", err);
    (void)pthread_mutex_unlock(&lock);
    return status == STATUS_OK ? &library : NULL;
}
