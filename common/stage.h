/* Staged working directories: `ddpctl submit --stage DIR` sends DIR as a tar archive to the server, which passes
 * it on to those of the job's nodes that have no such folder.
 *
 * An archive is named by the SHA-256 of its bytes, in hex. The working directory of a job that uses one is
 * "stage:HASH" instead of an absolute path. */
#ifndef COMMON_STAGE_H
#define COMMON_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define STAGE_PREFIX "stage:"
#define STAGE_CWD_BYTES_MAX (sizeof STAGE_PREFIX + STAGE_HASH_CHARS)

/* Extracts the hash of a working directory "stage:HASH". False: it is another path. */
bool stage_of_cwd(const char *cwd, char hash[STAGE_HASH_CHARS + 1]);
/* True: 64 lower-case hex digits. */
bool stage_is_hash(const char *text);

/* SHA-256 of bytes that are added piece by piece (FIPS 180-4). */
struct stage_digest;
/* STATUS_MEMORY; STATUS_LIBRARY: no OpenSSL. Then `*digest` is NULL. */
enum status stage_digest_new(struct stage_digest **digest, struct err *err);
void stage_digest_add(struct stage_digest *digest, const void *bytes, size_t byte_count);
/* Writes the hash of everything that was added, and frees the digest. */
void stage_digest_end(struct stage_digest **digest, char hash[STAGE_HASH_CHARS + 1]);
/* Frees the digest without a result. */
void stage_digest_free(struct stage_digest **digest);
/* The hash of a whole file, from its first byte. STATUS_IO, STATUS_MEMORY, STATUS_LIBRARY. */
enum status stage_digest_file(int fd, char hash[STAGE_HASH_CHARS + 1], uint64_t *byte_count,
                              struct err *err);

#endif
