/* Tests of the harness itself. Some are meant to fail; harness_test.sh says which. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

TEST(pass_integers)
{
    CHECK_EQ((uint8_t)7, 7L);
    CHECK_EQ((size_t)7, 7);
    CHECK_EQ(-1, -1LL);
    CHECK_EQ(true, 1);
    CHECK_STR("a", "a");
    CHECK_STR(NULL, NULL);
    CHECK_NEAR(1.0F, 1.0, 0);
    CHECK_BYTES("ab", "ab", 2);
}

TEST(pass_dir)
{
    char path[300];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/file", test_dir());
    file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK_EQ(fclose(file), 0);
    (void)printf("dir %s\n", test_dir());
}

TEST(fail_sign)
{
    CHECK_EQ(-1, UINT64_MAX);
}

TEST(fail_nan)
{
    CHECK_NEAR(NAN, 0, 1e9);
}

TEST(fail_string)
{
    CHECK_STR("a", NULL);
}

TEST(fail_bytes)
{
    CHECK_BYTES("ab", "ac", 2);
}

TEST(fail_check)
{
    (void)test_dir(); /* removed after a failure too */
    CHECK(1 + 1 == 3);
}

TEST(skip_it)
{
    SKIP("asked to");
}

TEST_MAIN
