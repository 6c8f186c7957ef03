/* Libraries loaded on demand: one that exists, one that does not, one that lacks a function. */
#include <stddef.h>

#include "common/archive_library.h"
#include "common/dl_library.h"
#include "common/openssl_library.h"
#include "tests/lib/test.h"

struct math_library {
    void *handle;
    double (*root)(double);
    double (*power)(double, double);
};

static const struct dl_function functions[] = {
    {"sqrt", offsetof(struct math_library, root)},
    {"pow", offsetof(struct math_library, power)},
};

static enum status open_library(struct math_library *library, const char *file, struct err *err)
{
    return dl_library_open(&library->handle, file, functions,
                           sizeof functions / sizeof functions[0], library, "sums need",
                           "the C library (Debian: libc6)", err);
}

TEST(functions_are_found)
{
    struct math_library library = {.handle = NULL};
    struct err err;

    CHECK_EQ(open_library(&library, "libm.so.6", &err), STATUS_OK);
    CHECK(library.root(9) == 3.0 && library.power(2, 10) == 1024.0);
    dl_library_close(&library.handle);
    CHECK(library.handle == NULL);
    dl_library_close(&library.handle); /* NULL is allowed */
}

TEST(missing_library_is_named_with_its_package)
{
    struct math_library library = {.handle = NULL};
    struct err err;

    CHECK_EQ(open_library(&library, "libddp-not-there.so.1", &err), STATUS_LIBRARY);
    CHECK_STR(err.text, "sums need libddp-not-there.so.1: install the C library (Debian: libc6)");
    CHECK(library.handle == NULL);
}

TEST(missing_function_is_named)
{
    struct math_library library = {.handle = NULL};
    struct err err;

    CHECK_EQ(open_library(&library, "libz.so.1", &err), STATUS_LIBRARY);
    CHECK_STR(err.text, "libz.so.1 cannot be used: it has no sqrt");
    CHECK(library.handle == NULL);
}

TEST(archive_can_be_opened_again)
{
    struct archive_library first, second;
    struct archive *archive;
    struct err err;

    CHECK_EQ(archive_library_open(&first, "tests need", &err), STATUS_OK);
    CHECK_EQ(archive_library_open(&second, "tests need", &err), STATUS_OK);
    CHECK(first.handle == second.handle);
    archive = first.read_new();
    CHECK(archive != NULL);
    CHECK_EQ(second.read_free(archive), ARCHIVE_OK);
}

TEST(openssl_is_one_for_the_process)
{
    const struct openssl_library *openssl;
    struct err err;

    openssl = openssl_library(&err);
    CHECK(openssl != NULL && openssl == openssl_library(NULL));
    CHECK(openssl->evp_md_get_type(openssl->evp_sha256()) == NID_sha256);
}

TEST_MAIN
