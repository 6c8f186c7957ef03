/* SHA-256, FIPS 180-4. Of our own, because loading OpenSSL would double the time that a start takes;
 * for short texts only. */
#ifndef LAUNCHERD_PROCESS_SHA256_H
#define LAUNCHERD_PROCESS_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32u
#define SHA256_TEXT_BYTES_MAX 512u

/* byte_count: at most SHA256_TEXT_BYTES_MAX. */
void sha256(const void *bytes, size_t byte_count, uint8_t out[SHA256_BYTES]);

#endif
