/* Lines with words that are written to files of their own. */
#include "ddpctl/duplicate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"

static struct err err;

static bool matches(const char *words, const char *line)
{
    struct duplicate_filter filter = {.count = 0};
    bool found;

    CHECK_EQ(duplicate_parse(&filter, words, &err), STATUS_OK);
    found = duplicate_matches(&filter, line, strlen(line));
    buf_free(&filter.text);
    return found;
}

TEST(words)
{
    struct duplicate_filter filter = {.count = 0};
    char many[2 * DUPLICATE_WORDS_MAX + 3];

    CHECK(matches("apple,orange", "an orange"));
    CHECK(matches("apple,orange", "apple"));
    CHECK(!matches("apple,orange", "appl, orang"));
    CHECK(matches("a,,b", "xa,bx")); /* two commas are one in a word */
    CHECK(!matches("a,,b", "a"));
    CHECK(matches(",x,", "x"));
    CHECK(!matches(",x,", "y")); /* what is empty is no word */
    CHECK(!matches("", "anything"));
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 == 0 ? 'w' : ',';
    many[sizeof many - 1] = '\0';
    CHECK_EQ(duplicate_parse(&filter, many, &err), STATUS_TOO_BIG);
    buf_free(&filter.text);
}

static void expect_file(const char *folder, const char *name, const char *expected)
{
    char path[128], text[256] = "";
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0 && unlink(path) == 0);
    CHECK_STR(text, expected);
}

TEST(lines_of_each_rank)
{
    char folder[] = "/tmp/ddp-duplicate-XXXXXX";
    const char *const words[] = {"apple", "pear,plum"};
    struct duplicate duplicate = {.lines = NULL};

    CHECK(mkdtemp(folder) != NULL);
    CHECK_EQ(duplicate_open(&duplicate, folder, words, 2, &err), STATUS_OK);
    duplicate_bytes(&duplicate, 0, false, "[0]:", "one app", 7);
    duplicate_bytes(&duplicate, 1, false, "[1]:", "two apples\nle\n", 14);
    duplicate_bytes(&duplicate, 0, false, "[0]:", "le\npear\nan apple", 16);
    duplicate_bytes(&duplicate, 0, true, "[0]:", "apple\nplum\n", 11);
    duplicate_end(&duplicate, 0, false, "[0]:");
    duplicate_end(&duplicate, 1, false, "[1]:");
    duplicate_bytes(&duplicate, 2, false, "[2]:", "apple\n", 6); /* of a larger generation */
    duplicate_close(&duplicate);
    expect_file(folder, "filtered_stdout.log", "[1]:two apples\n[0]:one apple\n[0]:an apple\n");
    expect_file(folder, "filtered_stderr.log", "[0]:plum\n");
    CHECK(rmdir(folder) == 0);
}

TEST(a_folder_that_is_not_there)
{
    const char *const words[] = {NULL, "x"};
    struct duplicate duplicate = {.lines = NULL};

    CHECK_EQ(duplicate_open(&duplicate, "/no/such/folder", words, 1, &err), STATUS_IO);
    CHECK(strstr(err.text, "/no/such/folder/filtered_stderr.log") != NULL);
    duplicate_close(&duplicate);
}

TEST_MAIN
