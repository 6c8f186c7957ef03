/* Models in files, trained for real: the same losses as the built-in ConvNet, a resume, and what
 * happens when the file was changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"

static void read_file(const char *path, char *text, size_t room)
{
    FILE *in = fopen(path, "re");
    size_t count;

    if (in == NULL)
        FAIL("cannot read %s", path);
    count = fread(text, 1, room - 1, in);
    (void)fclose(in);
    CHECK(count > 0 && count < room - 1);
    text[count] = '\0';
}

/* A copy of the example in the test's folder, with `from` replaced once; NULL: as it is. */
static void copy_example(const char *from, const char *to)
{
    char text[16384], path[512], *at;
    FILE *out;

    read_file(test_source("docs/examples/small-resnet.json"), text, sizeof text);
    (void)snprintf(path, sizeof path, "%s/net.json", test_dir());
    out = fopen(path, "we");
    CHECK(out != NULL);
    at = from == NULL ? text : strstr(text, from);
    CHECK(at != NULL);
    (void)fwrite(text, 1, (size_t)(at - text), out);
    (void)fprintf(out, "%s%s", from == NULL ? "" : to, at + (from == NULL ? 0 : strlen(from)));
    CHECK_EQ(fclose(out), 0);
}

/* Two files of --loss-log, byte for byte. */
static void check_same_losses(const char *a, const char *b)
{
    char path[512], one[8192], other[8192];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), a);
    read_file(path, one, sizeof one);
    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), b);
    read_file(path, other, sizeof other);
    CHECK_STR(one, other);
}

static int train(uint32_t world, const char *arch, const char *level, const char *log)
{
    char args[2048];

    (void)snprintf(args, sizeof args,
                   "-a %s -b 16 --lr 0.05 --momentum 0.9 --max-steps 8 --seed 3 "
                   "--opt-level %s --loss-log %s/%s %s/data",
                   arch, level, test_dir(), log, test_dir());
    return gang_run(world, args);
}

TEST(the_convnet_from_a_file_has_the_same_losses)
{
    char path[512];

    small_data_digits(256, 16);
    (void)snprintf(path, sizeof path, "%s", test_source("docs/examples/convnet.json"));
    CHECK_EQ(train(1, "convnet", "O0", "a"), 0);
    CHECK_EQ(train(1, path, "O0", "b"), 0);
    check_same_losses("a", "b");
    CHECK_EQ(train(2, "convnet", "O2", "c-%r"), 0);
    CHECK_EQ(train(2, path, "O2", "d-%r"), 0);
    check_same_losses("c-0", "d-0");
    check_same_losses("c-1", "d-1");
}

static int train_saved(uint32_t steps, const char *checkpoints, const char *more)
{
    char args[2048];

    (void)snprintf(args, sizeof args,
                   "-a %s/net.json -b 16 --lr 0.05 --momentum 0.9 --max-steps %u "
                   "--checkpoint-every 4 --checkpoint-dir %s/%s --loss-log %s/%s.txt %s %s/data",
                   test_dir(), steps, test_dir(), checkpoints, test_dir(), checkpoints, more,
                   test_dir());
    return gang_run(1, args);
}

TEST(a_resume_is_exact)
{
    small_data_digits(256, 16);
    copy_example(NULL, NULL);
    CHECK_EQ(train_saved(8, "whole", ""), 0);
    CHECK_EQ(train_saved(4, "parts", ""), 0);
    CHECK_EQ(train_saved(8, "parts", "--resume auto"), 0);
    check_same_losses("whole.txt", "parts.txt");
}

TEST(a_changed_file_is_refused)
{
    small_data_digits(256, 16);
    copy_example(NULL, NULL);
    CHECK_EQ(train_saved(4, "c", ""), 0);
    copy_example("\"conv1\", \"out_channels\": 16, \"kernel\": 3, \"stride\": 1",
                 "\"conv1\", \"out_channels\": 16, \"kernel\": 3, \"stride\": 2");
    CHECK_EQ(train_saved(8, "c", "--resume auto"), 1);
    if (strstr(gang_output(), "the model file was changed since: it was made with small-resnet@") ==
        NULL)
        FAIL("%s", gang_output());
}

TEST(a_wrong_file_names_line_and_layer)
{
    small_data_digits(256, 16);
    copy_example("\"op\": \"batch_norm\", \"name\": \"bn1\"",
                 "\"op\": \"norm\", \"name\": \"bn1\"");
    CHECK_EQ(train_saved(4, "c", ""), 1);
    if (strstr(gang_output(), "net.json, line 6, layer bn1: no such op: \"norm\"") == NULL)
        FAIL("%s", gang_output());
}

TEST_MAIN
