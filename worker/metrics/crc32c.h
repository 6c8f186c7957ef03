/* CRC-32C (Castagnoli): RFC 3720, appendix B.4. */
#ifndef WORKER_METRICS_CRC32C_H
#define WORKER_METRICS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* By the processor's instruction where it has one. */
uint32_t crc32c(const void *bytes, size_t byte_count);
/* The same by a table, on any processor. */
uint32_t crc32c_table(const void *bytes, size_t byte_count);

#endif
