#include "common/stage.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/openssl_library.h"

#define READ_BYTES (64u * 1024u)

struct stage_digest {
    const struct openssl_library *openssl;
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

enum status stage_digest_new(struct stage_digest **out, struct err *err)
{
    const struct openssl_library *openssl = openssl_library(err);
    struct stage_digest *digest;

    *out = NULL;
    if (openssl == NULL)
        return STATUS_LIBRARY;
    digest = calloc(1, sizeof *digest);
    if (digest != NULL) {
        digest->openssl = openssl;
        digest->sha256 = openssl->evp_md_ctx_new();
        if (digest->sha256 == NULL ||
            openssl->evp_digest_init_ex(digest->sha256, openssl->evp_sha256(), NULL) != 1)
            stage_digest_free(&digest);
    }
    *out = digest;
    return digest != NULL ? STATUS_OK
                          : err_set(err, STATUS_MEMORY, ENOMEM, "no memory for a SHA-256");
}

void stage_digest_add(struct stage_digest *digest, const void *bytes, size_t byte_count)
{
    int ok = digest->openssl->evp_digest_update(digest->sha256, bytes, byte_count);

    assert(ok == 1); /* SHA-256 in memory cannot fail */
    (void)ok;
}

void stage_digest_end(struct stage_digest **digest, char hash[STAGE_HASH_CHARS + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int byte_count = 0;
    int ok = (*digest)->openssl->evp_digest_final_ex((*digest)->sha256, bytes, &byte_count);

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
    (*digest)->openssl->evp_md_ctx_free((*digest)->sha256);
    free(*digest);
    *digest = NULL;
}

enum status stage_digest_file(int fd, char hash[STAGE_HASH_CHARS + 1], uint64_t *byte_count,
                              struct err *err)
{
    struct stage_digest *digest;
    enum status status = stage_digest_new(&digest, err);
    char bytes[READ_BYTES];
    ssize_t got;

    *byte_count = 0;
    if (status != STATUS_OK)
        return status;
    while ((got = pread(fd, bytes, sizeof bytes, (off_t)*byte_count)) > 0 ||
           (got < 0 && errno == EINTR)) {
        if (got < 0)
            continue;
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
