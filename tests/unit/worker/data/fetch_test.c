/* What --fetch reads: lists of hashes, archives. Downloads: tests/integration/train/fetch_test.py. */
#include "worker/data/fetch/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "tests/lib/test.h"
#include "worker/data/fetch/unpack.h"

#define MD5_A "0123456789abcdef0123456789abcdef"
#define SHA_B MD5_A "00000000000000000000000000000000"

TEST(lists_of_hashes)
{
    struct fetch_item *items;
    size_t count;
    struct err err = {0};

    CHECK_EQ(
        fetch_parse_sums(MD5_A "  a.bin\r\n\n" SHA_B " *b-1_2.tar", "sums", &items, &count, &err),
        STATUS_OK);
    CHECK_EQ(count, 2);
    CHECK_STR(items[0].hash, MD5_A);
    CHECK_STR(items[0].name, "a.bin");
    CHECK_STR(items[1].hash, SHA_B);
    CHECK_STR(items[1].name, "b-1_2.tar");
    free(items);
}

TEST(lists_that_are_refused)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "no hash in it"},
        {"\n\n", "no hash in it"},
        {"0123  short", "line 1: expected a hash"},
        {MD5_A "  good\n" MD5_A, "line 2: expected a hash"},
        {MD5_A " name", "line 1: expected a hash"},
        {MD5_A "   spaces", "line 1: a name"},
        {MD5_A "  ../up", "line 1: a name"},
        {MD5_A "  a/b", "line 1: a name"},
        {MD5_A "  .hidden", "line 1: a name"},
        {MD5_A "  a b", "line 1: a name"},
        {MD5_A "  a\x1b[2J", "line 1: a name"},
        {"0123456789ABCDEF0123456789ABCDEF  upper", "line 1: expected a hash"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fetch_item *items;
        size_t count;
        struct err err = {0};

        if (fetch_parse_sums(cases[i].text, "sums", &items, &count, &err) != STATUS_BAD_INPUT)
            FAIL("case %zu was taken", i);
        if (strstr(err.text, cases[i].words) == NULL)
            FAIL("case %zu: expected \"%s\" in: %s", i, cases[i].words, err.text);
        CHECK(items == NULL);
    }
}

/* -- archives -- */

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static unsigned next;
    char *here = path[next++ % 4];

    (void)snprintf(here, sizeof path[0], "%s/%s", test_dir(), name);
    return here;
}

/* A .tar.gz of files whose content is their name. */
static void write_archive(const char *const *names)
{
    struct archive *archive = archive_write_new();

    CHECK_EQ(archive_write_set_format_ustar(archive), ARCHIVE_OK);
    CHECK_EQ(archive_write_add_filter_gzip(archive), ARCHIVE_OK);
    CHECK_EQ(archive_write_open_filename(archive, in_dir("set.tar.gz")), ARCHIVE_OK);
    for (; *names != NULL; names++) {
        struct archive_entry *entry = archive_entry_new();

        archive_entry_set_pathname(entry, *names);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)strlen(*names));
        CHECK_EQ(archive_write_header(archive, entry), ARCHIVE_OK);
        CHECK_EQ(archive_write_data(archive, *names, strlen(*names)), strlen(*names));
        archive_entry_free(entry);
    }
    CHECK_EQ(archive_write_free(archive), ARCHIVE_OK);
}

static const char *const wanted[] = {"one.bin", "two.bin", NULL};

static enum status unpack(struct err *err)
{
    return unpack_files(in_dir("set.tar.gz"), test_dir(), "set", wanted, err);
}

TEST(an_archive_is_unpacked)
{
    const char *const names[] = {
        "set/one.bin",      "../one.bin", "/set/one.bin", "set/other.bin", "set/two.bin",
        "set/../three.bin", NULL};
    struct err err = {0};
    char text[32] = "";
    FILE *file;

    write_archive(names);
    CHECK(!unpack_is_done(test_dir(), "set", wanted));
    CHECK_EQ(unpack(&err), STATUS_OK);
    CHECK(unpack_is_done(test_dir(), "set", wanted));
    file = fopen(in_dir("set/one.bin"), "rb");
    CHECK(file != NULL);
    CHECK_EQ(fread(text, 1, sizeof text, file), strlen("set/one.bin"));
    (void)fclose(file);
    CHECK_STR(text, "set/one.bin");
    CHECK(access(in_dir("set/other.bin"), F_OK) != 0);
    CHECK(access(in_dir("three.bin"), F_OK) != 0);
    CHECK(access(in_dir("../one.bin"), F_OK) != 0);
}

TEST(files_that_are_there_are_not_replaced)
{
    const char *const names[] = {"set/one.bin", "set/two.bin", NULL};
    struct err err = {0};
    char text[32] = "";
    FILE *file;

    write_archive(names);
    CHECK_EQ(mkdir(in_dir("set"), 0777), 0);
    file = fopen(in_dir("set/one.bin"), "w");
    CHECK(file != NULL && fputs("mine", file) >= 0 && fclose(file) == 0);
    CHECK_EQ(unpack(&err), STATUS_OK);
    file = fopen(in_dir("set/one.bin"), "rb");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    CHECK_STR(text, "mine");
    CHECK(unpack_is_done(test_dir(), "set", wanted));
}

TEST(an_archive_that_lacks_a_file)
{
    const char *const names[] = {"set/one.bin", NULL};
    struct err err = {0};

    write_archive(names);
    CHECK_EQ(unpack(&err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "has no set/two.bin") != NULL);
}

TEST(an_archive_that_is_cut_off)
{
    const char *const names[] = {"set/one.bin", "set/two.bin", NULL};
    struct err err = {0};
    struct stat now;

    write_archive(names);
    CHECK_EQ(stat(in_dir("set.tar.gz"), &now), 0);
    CHECK_EQ(truncate(in_dir("set.tar.gz"), now.st_size / 2), 0);
    CHECK_EQ(unpack(&err), STATUS_BAD_INPUT);
    CHECK(!unpack_is_done(test_dir(), "set", wanted));
}

TEST_MAIN
