/* The harness behind test.h. A failed check jumps back to the runner, so a helper deep in a test
 * may check too. */
#include "tests/lib/test.h"

#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

enum outcome { OUTCOME_NONE, OUTCOME_PASSED, OUTCOME_FAILED, OUTCOME_SKIPPED };

static struct {
    struct test_case *first, *last;
    const struct test_case *current;
    pthread_t thread;
    jmp_buf ended;
    uint32_t outcome_count[OUTCOME_SKIPPED + 1];
    char dir[PATH_BYTES_MAX]; /* "" until the running test asks for one */
    char path[PATH_BYTES_MAX];
} suite;

void test_register(struct test_case *test)
{
    if (suite.last == NULL)
        suite.first = test;
    else
        suite.last->next = test;
    suite.last = test;
}

/* Leaves the running test. */
__attribute__((noreturn)) static void end(enum outcome outcome)
{
    if (suite.current == NULL || !pthread_equal(pthread_self(), suite.thread)) {
        (void)fflush(stdout);
        abort(); /* no way back to the runner from another thread */
    }
    longjmp(suite.ended, (int)outcome);
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;

    (void)printf("# %s:%d: failed: ", file, line);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    end(OUTCOME_FAILED);
}

void test_skip(const char *reason)
{
    (void)printf("skip %s: %s\n", suite.current != NULL ? suite.current->name : "-", reason);
    end(OUTCOME_SKIPPED);
}

struct test_integer test_from_signed(long long value)
{
    return (struct test_integer){.is_negative = value < 0, .bits = (uint64_t)value};
}

struct test_integer test_from_unsigned(unsigned long long value)
{
    return (struct test_integer){.is_negative = false, .bits = value};
}

/* text: at least 24 bytes */
static const char *integer_text(struct test_integer integer, char text[24])
{
    if (integer.is_negative)
        (void)snprintf(text, 24, "%" PRId64, (int64_t)integer.bits);
    else
        (void)snprintf(text, 24, "%" PRIu64, integer.bits);
    return text;
}

void test_check_eq(const char *file, int line, const char *what, struct test_integer actual,
                   struct test_integer expected)
{
    char actual_text[24], expected_text[24];

    if (actual.is_negative == expected.is_negative && actual.bits == expected.bits)
        return;
    test_fail(file, line, "%s is %s, expected %s", what, integer_text(actual, actual_text),
              integer_text(expected, expected_text));
}

void test_check_str(const char *file, int line, const char *what, const char *actual,
                    const char *expected)
{
    if (actual == NULL && expected == NULL)
        return;
    if (actual != NULL && expected != NULL && strcmp(actual, expected) == 0)
        return;
    test_fail(file, line, "%s is \"%s\", expected \"%s\"", what, actual != NULL ? actual : "(null)",
              expected != NULL ? expected : "(null)");
}

void test_check_near(const char *file, int line, const char *what, double actual, double expected,
                     double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance)) /* written so that a NaN fails */
        test_fail(file, line, "%s is %.17g, expected %.17g within %g", what, actual, expected,
                  tolerance);
}

void test_check_bytes(const char *file, int line, const char *what, const void *actual,
                      const void *expected, size_t byte_count)
{
    const unsigned char *a = actual, *b = expected;

    for (size_t i = 0; i < byte_count; i++)
        if (a[i] != b[i])
            test_fail(file, line, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i,
                      byte_count, a[i], b[i]);
}

const char *test_dir(void)
{
    const char *base = getenv("TMPDIR");

    if (suite.dir[0] != '\0')
        return suite.dir;
    (void)snprintf(suite.dir, sizeof suite.dir, "%s/ddp-test-XXXXXX",
                   base != NULL && base[0] != '\0' ? base : "/tmp");
    if (mkdtemp(suite.dir) == NULL) {
        suite.dir[0] = '\0';
        test_fail(__FILE__, __LINE__, "cannot make a temporary directory");
    }
    return suite.dir;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    (void)remove(path);
    return 0;
}

void test_remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_dir(void)
{
    if (suite.dir[0] == '\0')
        return;
    (void)nftw(suite.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    suite.dir[0] = '\0';
}

const char *test_source(const char *name)
{
    (void)snprintf(suite.path, sizeof suite.path, "%s/%s", TEST_SOURCE_ROOT, name);
    return suite.path;
}

const char *test_shared(const char *name)
{
    const char *base = getenv("DDP_SHARED");

    if (base == NULL || base[0] == '\0')
        base = TEST_SOURCE_ROOT "/../shared";
    (void)snprintf(suite.path, sizeof suite.path, "%s/%s", base, name);
    return access(suite.path, R_OK) == 0 ? suite.path : NULL;
}

/* On a crash, names the test, then dies of the same signal. The test's directory is kept for
 * debugging. */
static void on_crash(int signal_number)
{
    static const char before[] = "\nnot ok ", after[] = " (crashed)\n";
    const char *name = suite.current != NULL ? suite.current->name : "-";

    (void)!write(STDOUT_FILENO, before, sizeof before - 1);
    (void)!write(STDOUT_FILENO, name, strlen(name));
    (void)!write(STDOUT_FILENO, after, sizeof after - 1);
    (void)raise(signal_number); /* SA_RESETHAND: the default action now */
}

static void catch_crashes(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these report it better */
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = on_crash,
                               .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)sigaction(signals[i], &action, NULL);
#else
    (void)on_crash;
#endif
}

static void run(const struct test_case *test)
{
    int outcome;

    suite.current = test;
    outcome = setjmp(suite.ended);
    if (outcome == OUTCOME_NONE) {
        test->run();
        outcome = OUTCOME_PASSED;
    }
    if (outcome != OUTCOME_SKIPPED)
        (void)printf("%s %s\n", outcome == OUTCOME_PASSED ? "ok" : "not ok", suite.current->name);
    (void)fflush(stdout);
    remove_dir();
    suite.outcome_count[outcome]++;
    suite.current = NULL;
}

static bool is_wanted(const struct test_case *test, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(test->name, argv[i]) == 0)
            return true;
    return argc < 2;
}

static bool is_known(const char *name)
{
    for (const struct test_case *test = suite.first; test != NULL; test = test->next)
        if (strcmp(test->name, name) == 0)
            return true;
    return false;
}

static int list(void)
{
    for (const struct test_case *test = suite.first; test != NULL; test = test->next)
        (void)printf("%s\n", test->name);
    return 0;
}

int test_main(int argc, char **argv)
{
    const uint32_t *count = suite.outcome_count;

    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list();
    for (int i = 1; i < argc; i++)
        if (!is_known(argv[i])) {
            (void)fprintf(stderr, "no test is called \"%s\"; --list names them\n", argv[i]);
            return 2;
        }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    suite.thread = pthread_self();
    catch_crashes();
    for (const struct test_case *test = suite.first; test != NULL; test = test->next)
        if (is_wanted(test, argc, argv))
            run(test);
    (void)printf("%u passed, %u failed, %u skipped\n", count[OUTCOME_PASSED], count[OUTCOME_FAILED],
                 count[OUTCOME_SKIPPED]);
    if (count[OUTCOME_FAILED] > 0)
        return 1;
    return count[OUTCOME_PASSED] == 0 && count[OUTCOME_SKIPPED] > 0 ? 77 : 0;
}
