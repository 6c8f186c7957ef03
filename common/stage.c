#include "common/stage.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (64u * 1024u)

struct stage_digest {
    EVP_MD_CTX *sha256;
};

bool stage_is_hash(const char *text)
{
    return strlen(text) == STAGE_HASH_CHARS && strspn(text, "0123456789abcdef") == STAGE_HASH_CHARS;
}

bool stage_of_cwd(const char *cwd, char hash[STAGE_HASH_CHARS + 1])
{
    if (strncmp(cwd, STAGE_PREFIX, strlen(STAGE_PREFIX)) != 0 ||
        !stage_is_hash(cwd + strlen(STAGE_PREFIX)))
        return false;
    memcpy(hash, cwd + strlen(STAGE_PREFIX), STAGE_HASH_CHARS + 1);
    return true;
}

struct stage_digest *stage_digest_new(void)
{
    struct stage_digest *digest = calloc(1, sizeof *digest);

    if (digest == NULL)
        return NULL;
    digest->sha256 = EVP_MD_CTX_new();
    if (digest->sha256 == NULL || EVP_DigestInit_ex(digest->sha256, EVP_sha256(), NULL) != 1)
        stage_digest_free(&digest);
    return digest;
}

void stage_digest_add(struct stage_digest *digest, const void *bytes, size_t byte_count)
{
    int ok = EVP_DigestUpdate(digest->sha256, bytes, byte_count);

    assert(ok == 1); /* SHA-256 in memory cannot fail */
    (void)ok;
}

void stage_digest_end(struct stage_digest **digest, char hash[STAGE_HASH_CHARS + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int byte_count = 0;
    int ok = EVP_DigestFinal_ex((*digest)->sha256, bytes, &byte_count);

    assert(ok == 1 && 2 * byte_count == STAGE_HASH_CHARS);
    (void)ok;
    for (unsigned int i = 0; i < byte_count; i++)
        (void)snprintf(hash + 2 * (size_t)i, 3, "%02x", bytes[i]);
    stage_digest_free(digest);
}

void stage_digest_free(struct stage_digest **digest)
{
    if (*digest == NULL)
        return;
    EVP_MD_CTX_free((*digest)->sha256);
    free(*digest);
    *digest = NULL;
}

enum status stage_digest_file(int fd, char hash[STAGE_HASH_CHARS + 1], uint64_t *byte_count,
                              struct err *err)
{
    struct stage_digest *digest = stage_digest_new();
    char bytes[READ_BYTES];
    ssize_t got;

    *byte_count = 0;
    if (digest == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory for a SHA-256");
    while ((got = pread(fd, bytes, sizeof bytes, (off_t)*byte_count)) > 0) {
        stage_digest_add(digest, bytes, (size_t)got);
        *byte_count += (uint64_t)got;
    }
    if (got < 0) {
        stage_digest_free(&digest);
        return err_set(err, STATUS_IO, errno, "reading a staged archive: %s", strerror(errno));
    }
    stage_digest_end(&digest, hash);
    return STATUS_OK;
}
