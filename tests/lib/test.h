/* A small test harness.
 *
 *     TEST(ring_wraps)
 *     {
 *         CHECK(ring_is_empty(&ring));
 *         CHECK_EQ(ring_count(&ring), 3);
 *     }
 *     TEST_MAIN
 *
 * Tests register themselves and run in the order of the file. A failed check ends its test and
 * prints its file and line; the other tests still run. Output: one line a test ("ok NAME", "not ok NAME",
 * "skip NAME: reason"), then "N passed, N failed, N skipped". Exit code: 1 when a test failed, 77
 * when every test was skipped, else 0. `PROGRAM NAME...` runs only those tests, `PROGRAM --list`
 * lists all names. Checks belong to the thread that runs the test: a failed check on another thread
 * aborts the program. */
#ifndef TESTS_LIB_TEST_H
#define TESTS_LIB_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One registered test; made by TEST. */
struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

/* An integer of any type, sign kept, so that -1 never equals UINT64_MAX. */
struct test_integer {
    bool is_negative;
    uint64_t bits;
};

#define TEST(test_name)                                                                            \
    static void test_run_##test_name(void);                                                        \
    __attribute__((constructor)) static void test_register_##test_name(void)                       \
    {                                                                                              \
        static struct test_case test_case = {                                                      \
            .name = #test_name, .run = test_run_##test_name, .next = NULL};                        \
        test_register(&test_case);                                                                 \
    }                                                                                              \
    static void test_run_##test_name(void)

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return test_main(argc, argv);                                                              \
    }

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_fail(__FILE__, __LINE__, "%s", #condition);                                       \
    } while (0)
/* Integers of any types, compared by value; both are printed. */
#define CHECK_EQ(actual, expected)                                                                 \
    test_check_eq(__FILE__, __LINE__, #actual, TEST_INTEGER(actual), TEST_INTEGER(expected))
/* Strings; NULL equals only NULL. */
#define CHECK_STR(actual, expected)                                                                \
    test_check_str(__FILE__, __LINE__, #actual, (actual), (expected))
/* |actual - expected| <= tolerance; a NaN fails. */
#define CHECK_NEAR(actual, expected, tolerance)                                                    \
    test_check_near(__FILE__, __LINE__, #actual, (double)(actual), (double)(expected),             \
                    (double)(tolerance))
/* Bytes; the first difference is printed. */
#define CHECK_BYTES(actual, expected, byte_count)                                                  \
    test_check_bytes(__FILE__, __LINE__, #actual, (actual), (expected), (byte_count))
/* End this test as failed, with a sentence: FAIL("seed %u: rank %u twice", seed, rank). */
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
/* End this test as skipped, because something outside the project is missing. */
#define SKIP(reason) test_skip(reason)

/* clang-format off */
#define TEST_INTEGER(value)                                                                        \
    _Generic((value),                                                                              \
        unsigned int: test_from_unsigned,                                                          \
        unsigned long: test_from_unsigned,                                                         \
        unsigned long long: test_from_unsigned,                                                    \
        default: test_from_signed)(value)
/* clang-format on */

/* A fresh, empty directory for the running test, removed with its contents when the test ends. One
 * a test. The text lives until then. */
const char *test_dir(void);
/* Removes a folder of the test that is elsewhere. */
void test_remove_tree(const char *path);
/* The path of `name` in the folder of shared data ($DDP_SHARED, else ../shared beside the source
 * tree), or NULL where it is not there: then SKIP. The text lives until the next call. */
const char *test_shared(const char *name);
/* The path of `name` in the source tree. The text lives until the next call. */
const char *test_source(const char *name);

/* What the macros call. */
void test_register(struct test_case *test);
int test_main(int argc, char **argv);
__attribute__((noreturn, format(printf, 3, 4))) void test_fail(const char *file, int line,
                                                               const char *format, ...);
__attribute__((noreturn)) void test_skip(const char *reason);
struct test_integer test_from_signed(long long value);
struct test_integer test_from_unsigned(unsigned long long value);
void test_check_eq(const char *file, int line, const char *what, struct test_integer actual,
                   struct test_integer expected);
void test_check_str(const char *file, int line, const char *what, const char *actual,
                    const char *expected);
void test_check_near(const char *file, int line, const char *what, double actual, double expected,
                     double tolerance);
void test_check_bytes(const char *file, int line, const char *what, const void *actual,
                      const void *expected, size_t byte_count);

#endif
