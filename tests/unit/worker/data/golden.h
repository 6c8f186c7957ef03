/* Reads of the golden values (PyTorch's own) that several tests share. */
#ifndef TESTS_UNIT_WORKER_DATA_GOLDEN_H
#define TESTS_UNIT_WORKER_DATA_GOLDEN_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>
#include <openssl/evp.h>

#include "tests/lib/test.h"

/* The parsed file golden/`name`; the running test is skipped where it is missing. Free with
 * cJSON_Delete. */
static inline cJSON *golden_read(const char *name)
{
    char shared[256];
    const char *path;
    FILE *file;
    char *text = NULL;
    size_t byte_count = 0;
    cJSON *json;

    (void)snprintf(shared, sizeof shared, "golden/%s", name);
    path = test_shared(shared);
    if (path == NULL || (file = fopen(path, "rb")) == NULL)
        SKIP("the golden values (../shared/golden) are not here");
    if (getdelim(&text, &byte_count, 0, file) < 0)
        FAIL("cannot read %s", path);
    (void)fclose(file);
    json = cJSON_Parse(text);
    free(text);
    if (json == NULL)
        FAIL("%s is not JSON", shared);
    return json;
}

/* Lower-case hex of the SHA-256 of `bytes`, in `hex` [65]. */
static inline void golden_sha256(const void *bytes, size_t byte_count, char *hex)
{
    unsigned char digest[32];

    CHECK(EVP_Digest(bytes, byte_count, digest, NULL, EVP_sha256(), NULL) == 1);
    for (size_t i = 0; i < sizeof digest; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

#endif
