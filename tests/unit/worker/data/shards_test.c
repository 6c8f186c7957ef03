/* Tar shards: what is a sample, what is refused, the order of an epoch. Pictures are PNM files, which
 * are a few bytes long. */
#include "worker/data/shards/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "tests/lib/test.h"

/* A picture of 4 x 4 pixels of one colour. */
static size_t picture_bytes(char *bytes, unsigned colour)
{
    (void)snprintf(bytes, 12, "P6 4 4 255\n");
    memset(bytes + 11, (int)colour, 48);
    return 59;
}

/* -- making tars -- */

struct made {
    struct archive *archive;
    char path[512];
};

static struct made tar_begin(const char *name)
{
    struct made made = {.archive = archive_write_new()};

    (void)snprintf(made.path, sizeof made.path, "%s/%s", test_dir(), name);
    CHECK_EQ(archive_write_set_format_pax_restricted(made.archive), ARCHIVE_OK);
    CHECK_EQ(archive_write_set_bytes_in_last_block(made.archive, 1), ARCHIVE_OK);
    CHECK_EQ(archive_write_open_filename(made.archive, made.path), ARCHIVE_OK);
    return made;
}

static void add_entry(const struct made *made, struct archive_entry *entry, const char *name,
                      const void *bytes, size_t byte_count)
{
    archive_entry_set_pathname(entry, name);
    if (archive_entry_filetype(entry) == 0)
        archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)byte_count);
    CHECK_EQ(archive_write_header(made->archive, entry), ARCHIVE_OK);
    CHECK_EQ(archive_write_data(made->archive, bytes, byte_count), byte_count);
    archive_entry_free(entry);
}

static void add(const struct made *made, const char *name, const void *bytes, size_t byte_count)
{
    add_entry(made, archive_entry_new(), name, bytes, byte_count);
}

static void add_picture(const struct made *made, const char *name, unsigned colour)
{
    char bytes[64];

    add(made, name, bytes, picture_bytes(bytes, colour));
}

static void add_label(const struct made *made, const char *name, const char *label)
{
    add(made, name, label, strlen(label));
}

static void tar_end(struct made *made)
{
    CHECK_EQ(archive_write_free(made->archive), ARCHIVE_OK);
}

/* -- opening -- */

static struct shards_options options(void)
{
    struct shards_options made = {.seed = 7};

    picture_rules_set(&made.rules, 4, false);
    made.rules.resize = 4;
    return made;
}

static enum status open_named(struct source **source, const char *data, bool is_validation,
                              const struct source *like, struct err *err)
{
    const struct shards_options made = options();
    struct shard_list list;
    char path[600];
    enum status status;

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), data);
    *source = NULL;
    status = shard_list_find(&list, path, is_validation, err);
    if (status == STATUS_OK)
        status = shards_open(source, &list, &made, like, err);
    shard_list_free(&list);
    return status;
}

static struct source *open_good(const char *data)
{
    struct source *source;
    struct err err = {0};

    if (open_named(&source, data, false, NULL, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return source;
}

/* The very bytes of the file. */
static void check_sample(struct source *source, int64_t index, int64_t label, unsigned colour)
{
    struct source_file file;
    char expected[64];
    void *reader;
    struct err err = {0};

    CHECK_EQ(source->ops->reader_new(source, &reader, &err), STATUS_OK);
    if (source->ops->read_file(source, reader, index, &file, &err) != STATUS_OK)
        FAIL("sample %lld: %s", (long long)index, err.text);
    CHECK_EQ(file.label, label);
    CHECK_EQ(file.byte_count, picture_bytes(expected, colour));
    CHECK_BYTES(file.bytes, expected, file.byte_count);
    source->ops->reader_free(reader);
}

static void check_refused(const char *data, enum status expected, const char *words)
{
    struct source *source;
    struct err err = {0};
    enum status status = open_named(&source, data, false, NULL, &err);

    if (status == STATUS_OK)
        FAIL("taken (expected: %s)", words);
    CHECK_EQ(status, expected);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\" in: %s", words, err.text);
}

/* -- samples -- */

TEST(pictures_with_labels)
{
    struct made made = tar_begin("train-0.tar");
    struct source *source;

    add_picture(&made, "a/000.jpg", 10); /* what it is, its bytes say */
    add_label(&made, "a/000.cls", "3\n");
    add(&made, "a/000.json", "{}", 2);
    add_label(&made, "./a/001.cls", "0");
    add_picture(&made, "./a/001.seg.png", 99); /* not the picture: its ending is seg.png */
    add_picture(&made, "./a/001.PNG", 20);
    tar_end(&made);
    made = tar_begin("train-1.tar");
    add_picture(&made, "a/000.ppm", 30);
    add_label(&made, "a/000.cls", "1");
    tar_end(&made);
    source = open_good("train-{0..1}.tar");
    CHECK_EQ(source->count, 3);
    CHECK_EQ(source->shape.classes, 4);
    CHECK_EQ(shards_refusals(source)->count, 0);
    check_sample(source, 0, 3, 10);
    check_sample(source, 1, 0, 20);
    check_sample(source, 2, 1, 30);
    source->ops->close(source);
}

TEST(folders_of_classes)
{
    struct made made = tar_begin("train-0.tar");
    struct source *train, *validation;
    struct err err = {0};

    add_picture(&made, "train/dog/2.jpg", 1);
    add_picture(&made, "train/cat/1.v2.jpg", 2);
    add(&made, "train/cat/notes.txt", "x", 1);
    add_picture(&made, "train/Zebra/1.jpg", 3);
    tar_end(&made);
    made = tar_begin("val-0.tar");
    add_picture(&made, "val/dog/9.jpg", 4);
    tar_end(&made);
    train = open_good("");
    CHECK_EQ(train->count, 3);
    CHECK_EQ(train->shape.classes, 3);
    check_sample(train, 0, 2, 1); /* Zebra, cat, dog: as bytes */
    check_sample(train, 1, 1, 2);
    check_sample(train, 2, 0, 3);
    if (open_named(&validation, "", true, train, &err) != STATUS_OK || validation == NULL)
        FAIL("%s", err.text);
    CHECK_EQ(validation->shape.classes, 3);
    check_sample(validation, 0, 2, 4);
    validation->ops->close(validation);
    made = tar_begin("val-1.tar");
    add_picture(&made, "val/horse/9.jpg", 4);
    tar_end(&made);
    CHECK_EQ(open_named(&validation, "", true, train, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "no class \"horse\"") != NULL);
    train->ops->close(train);
}

/* -- what is left out, and counted -- */

static void add_link(const struct made *made, const char *name, bool is_hard)
{
    struct archive_entry *entry = archive_entry_new();

    if (is_hard) {
        archive_entry_set_hardlink(entry, "good.jpg");
    } else {
        archive_entry_set_filetype(entry, AE_IFLNK);
        archive_entry_set_symlink(entry, "/etc/passwd");
    }
    add_entry(made, entry, name, NULL, 0);
}

TEST(what_is_left_out)
{
    static const struct {
        const char *name, *label; /* a label: with a good picture; NULL: see below */
        const char *words;
    } cases[] = {
        {"../up.jpg", NULL, "\"..\" in its name"},
        {"a/../up.jpg", NULL, "\"..\" in its name"},
        {"/etc/up.jpg", NULL, "an absolute name"},
        {"x.jpg", NULL, "no label"},
        {"x.cls", NULL, "a label without a picture"},
        {"x", "cat", "expected a class as a number"},
        {"x", "-1", "expected a class as a number"},
        {"x", "65536", "expected a class as a number"},
        {"x", "99999999999999999999", "expected a class as a number"},
        {"x", "1 2", "expected a class as a number"},
        {"good", "1", "a sample of this name"},
        {"symlink.jpg", NULL, "a link"},
        {"hardlink.jpg", NULL, "a link"},
        {"empty.jpg", NULL, "it is empty"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct made made = tar_begin("train-0.tar");
        struct source *source;
        char name[64];

        add_picture(&made, "good.jpg", 10);
        add_label(&made, "good.cls", "0");
        add_picture(&made, "other.jpg", 20);
        add_label(&made, "other.cls", "1");
        if (cases[i].label != NULL) {
            (void)snprintf(name, sizeof name, "%s.jpg", cases[i].name);
            add_picture(&made, name, 30);
            (void)snprintf(name, sizeof name, "%s.cls", cases[i].name);
            add_label(&made, name, cases[i].label);
        } else if (strstr(cases[i].name, "link") != NULL) {
            add_link(&made, cases[i].name, cases[i].name[0] == 'h');
        } else if (cases[i].name[0] == 'e') {
            add(&made, cases[i].name, "", 0);
        } else if (strstr(cases[i].name, ".cls") != NULL) {
            add_label(&made, cases[i].name, "1");
        } else {
            add_picture(&made, cases[i].name, 30);
        }
        tar_end(&made);
        source = open_good("train-0.tar");
        if (source->count != 2 || shards_refusals(source)->count == 0 ||
            strstr(shards_refusals(source)->first, cases[i].words) == NULL)
            FAIL("%s %s: %zu samples, first: %s", cases[i].name,
                 cases[i].label != NULL ? cases[i].label : "", source->count,
                 shards_refusals(source)->first);
        check_sample(source, 0, 0, 10);
        check_sample(source, 1, 1, 20);
        source->ops->close(source);
    }
}

/* -- shards that are refused -- */

static void make_small(const char *name)
{
    struct made made = tar_begin(name);

    add_picture(&made, "good.jpg", 10);
    add_label(&made, "good.cls", "0");
    tar_end(&made);
}

static char *shard_path(const char *name)
{
    static char path[600];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

static void write_bytes(const char *name, const char *bytes, size_t byte_count)
{
    FILE *file = fopen(shard_path(name), "wb");

    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
}

/* Two members of 512 bytes of header and of content each, then 1,024 bytes of zeros: a tar that has
 * lost any part of it is named. */
TEST(every_truncation_is_named)
{
    struct source *source;
    struct err err;

    make_small("train-0.tar");
    for (off_t length = 2048 + 511; length >= 0; length -= length > 600 ? 37 : 1) {
        CHECK_EQ(truncate(shard_path("train-0.tar"), length), 0);
        err = (struct err){0};
        if (open_named(&source, "train-0.tar", false, NULL, &err) != STATUS_BAD_INPUT)
            FAIL("cut to %lld bytes: %d %s", (long long)length, (int)err.status, err.text);
        CHECK(strstr(err.text, "train-0.tar") != NULL);
    }
}

TEST(shards_that_are_refused)
{
    check_refused("train-0.tar", STATUS_NOT_FOUND, "train-0.tar: cannot open the shard");
    write_bytes("train-0.tar", "\x1f\x8b\x08garbage", 10);
    check_refused("train-0.tar", STATUS_UNSUPPORTED, "compressed (gzip)");
    write_bytes("train-0.tar", "\x28\xb5\x2f\xfdgarbage", 11);
    check_refused("train-0.tar", STATUS_UNSUPPORTED, "compressed (zstd)");
    write_bytes("train-0.tar", "no tar at all", 13);
    check_refused("train-0.tar", STATUS_BAD_INPUT, "not a whole tar");
    write_bytes("train-0.tar", "", 0);
    check_refused("train-0.tar", STATUS_BAD_INPUT, "train-0.tar");
    struct made made = tar_begin("train-0.tar");
    add(&made, "readme.txt", "x", 1);
    tar_end(&made);
    check_refused("train-0.tar", STATUS_BAD_INPUT, "no sample in it");
}

TEST(a_shard_that_shrinks_later)
{
    struct source *source;
    uint8_t image[48];
    int64_t label;
    void *reader;
    struct err err = {0};

    make_small("train-0.tar");
    source = open_good("train-0.tar");
    CHECK_EQ(truncate(shard_path("train-0.tar"), 530), 0);
    CHECK_EQ(source->ops->reader_new(source, &reader, &err), STATUS_OK);
    CHECK_EQ(source->ops->read(source, reader, 0, 0, image, &label, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "train-0.tar: good.jpg") != NULL);
    source->ops->reader_free(reader);
    source->ops->close(source);
}

/* -- lists of shards -- */

static void check_list(const char *data, bool is_validation, const char *expected)
{
    struct shard_list list;
    struct err err = {0};
    char found[512] = "";

    if (shard_list_find(&list, data, is_validation, &err) != STATUS_OK)
        FAIL("%s: %s", data, err.text);
    for (size_t i = 0; i < list.count; i++)
        (void)snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s",
                       i > 0 ? " " : "", list.paths[i]);
    shard_list_free(&list);
    CHECK_STR(found, expected);
}

TEST(patterns)
{
    static const char *const bad[] = {"a-{0..}.tar",  "a-{..2}.tar",       "a-{2..1}.tar",
                                      "a-{x..y}.tar", "a-{0..1.tar",       "a-{0}.tar",
                                      "a-{}.tar",     "{0..999999999}.tar"};

    check_list("d/t-{08..11}.tar", false, "d/t-08.tar d/t-09.tar d/t-10.tar d/t-11.tar");
    check_list("{train,val}/{0..1}.tar", false, "train/0.tar train/1.tar");
    check_list("{train,val}/{0..1}.tar", true, "val/0.tar val/1.tar");
    check_list("/d/{train,val}-0.tar", true, "/d/val-0.tar");
    check_list("one.tar", false, "one.tar");
    check_list("a{,b}.tar", false, "a.tar ab.tar");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct shard_list list;
        struct err err = {0};

        if (shard_list_find(&list, bad[i], false, &err) == STATUS_OK)
            FAIL("%s was taken", bad[i]);
        CHECK(err.text[0] != '\0');
    }
}

/* -- the order of an epoch -- */

enum { SHARDS = 5, PER_SHARD = 8, COUNT = SHARDS * PER_SHARD };

static struct source *open_many(void)
{
    char name[32];

    for (int shard = 0; shard < SHARDS; shard++) {
        (void)snprintf(name, sizeof name, "train-%d.tar", shard);
        struct made made = tar_begin(name);
        for (int i = 0; i < PER_SHARD; i++) {
            (void)snprintf(name, sizeof name, "c/%d.jpg", i);
            add_picture(&made, name, 1);
        }
        tar_end(&made);
    }
    return open_good("");
}

static void check_permutation(const int64_t *order)
{
    bool seen[COUNT] = {false};

    for (int i = 0; i < COUNT; i++) {
        CHECK(order[i] >= 0 && order[i] < COUNT && !seen[order[i]]);
        seen[order[i]] = true;
    }
}

TEST(the_order_of_an_epoch)
{
    struct source *source = open_many();
    int64_t order[COUNT], again[COUNT], other[COUNT];
    int moved = 0;

    shards_order(source, 3, 0, 0, order);
    check_permutation(order);
    for (int i = 0; i < COUNT; i++) { /* whole shards, each in its order */
        CHECK_EQ(order[i] % PER_SHARD, i % PER_SHARD);
        moved += order[i] != i;
    }
    CHECK(moved > 0);
    shards_order(source, 3, 0, 6, order);
    check_permutation(order);
    shards_order(source, 3, 0, 6, again);
    CHECK_BYTES(order, again, sizeof order);
    shards_order(source, 3, 0, 0, again);
    for (int i = 0; i < COUNT; i++) { /* nothing comes more than a window early */
        int place = 0;

        while (again[place] != order[i])
            place++;
        CHECK(place < i + 6);
    }
    shards_order(source, 3, 1, 6, other);
    CHECK(memcmp(order, other, sizeof order) != 0);
    shards_order(source, 4, 0, 6, other);
    CHECK(memcmp(order, other, sizeof order) != 0);
    source->ops->close(source);
}

TEST_MAIN
