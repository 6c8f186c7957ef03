/* The command line of ddp-worker export, and its failures. */
#include "worker/pth/export.h"

#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "tests/lib/test.h"

static bool read_line(struct export_request *request, char *line, int *code, struct err *err)
{
    char *argv[8] = {"export"}, *rest = line, *word;
    struct buf out = {0};
    bool is_read;
    int argc = 1;

    for (char *from = line; argc < 8 && (word = strtok_r(from, " ", &rest)) != NULL; from = NULL)
        argv[argc++] = word;
    is_read = export_read(request, argc, argv, &out, code, err);
    buf_free(&out);
    return is_read;
}

TEST(export_asks_for_one_file)
{
    struct export_request request;
    struct err err = {.text = ""};
    char good[] = "--from dir --which 12 out.pth", none[] = "--from dir", two[] = "a b",
         help[] = "--help";
    int code;

    CHECK(read_line(&request, good, &code, &err));
    CHECK_STR(request.from, "dir");
    CHECK_STR(request.which, "12");
    CHECK_STR(request.to, "out.pth");
    CHECK(!read_line(&request, none, &code, &err) && code == 2);
    CHECK(strstr(err.text, "export writes one file") != NULL);
    CHECK(!read_line(&request, two, &code, &err) && code == 2);
    CHECK(!read_line(&request, help, &code, &err) && code == 0);
}

static void check_export(const char *from, const char *which, const char *to, const char *words)
{
    const struct export_request request = {from, which, to};
    struct err said, err = {.text = ""};

    CHECK(export_run(&request, &said, &err) != STATUS_OK);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\", got \"%s\"", words, err.text);
}

TEST(export_says_what_is_wrong)
{
    const char *dir = test_dir();
    char none[600];

    (void)snprintf(none, sizeof none, "%s/none", dir);
    check_export(none, "latest", "x", "there is no file");
    check_export(dir, "latest", "x", "no whole checkpoint");
    check_export(dir, "newest", "x", "--which");
    check_export(dir, "best", "x", "no best checkpoint");
    check_export(dir, "5", "x", "step-00000005.json");
    check_export(test_source("LICENSE"), "latest", "x", "LICENSE");
    check_export(test_source("LICENSE"), "3", "x", "is no folder");
}

TEST_MAIN
