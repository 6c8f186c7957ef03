/* The way to another machine. */
#ifndef COMMON_IO_ADDRESS_TOWARD_H
#define COMMON_IO_ADDRESS_TOWARD_H

#include <stdbool.h>

#include "common/limits.h"

/* The numeric address of this machine from which a numeric `host` would be called. Nothing is sent. False: there is no way to
 * it. */
bool address_toward(const char *host, char own[ADDRESS_BYTES_MAX]);

#endif
