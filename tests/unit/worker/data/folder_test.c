/* Folders of pictures: what is found in them, in which order, and what is done where they are odd. That
 * torchvision finds the same: tests/pytorch/folder.py. */
#include "worker/data/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "tests/lib/sources.h"
#include "common/io/own_tree.h"
#include "tests/lib/test.h"

enum { SIDE = 4 };

static const char *at(const char *name)
{
    static char path[PATH_MAX];

    CHECK(snprintf(path, sizeof path, "%s/%s", test_dir(), name) < (int)sizeof path);
    return path;
}

static void make_folder(const char *name)
{
    CHECK_EQ(mkdir(at(name), 0700), 0);
}

static void make_link(const char *to, const char *name)
{
    CHECK_EQ(symlink(to, at(name)), 0);
}

static void make_file(const char *name, const void *bytes, size_t byte_count)
{
    FILE *file = fopen(at(name), "wbe");

    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
}

/* A JPEG of one grey, so that every crop of it is. */
static void make_picture(const char *name, uint8_t grey)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    uint8_t row[SIDE];
    FILE *file = fopen(at(name), "wbe");

    CHECK(file != NULL);
    memset(row, grey, sizeof row);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = jpeg.image_height = SIDE;
    jpeg.input_components = 1;
    jpeg.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < SIDE; y++)
        (void)jpeg_write_scanlines(&jpeg, &(JSAMPROW){row}, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    CHECK_EQ(fclose(file), 0);
}

static struct folder_options options_of(bool is_training)
{
    struct folder_options options = {.seed = 3};

    picture_rules_set(&options.rules, SIDE, is_training);
    return options;
}

static struct source *open_good(const char *name)
{
    const struct folder_options options = options_of(false);
    struct source *source = NULL;
    struct err err = {.text = ""};

    if (folder_open(&source, at(name), &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(source->count, folder_list_of(source)->file_count);
    CHECK(source->shape.channels == 3 && source->shape.height == SIDE &&
          source->shape.width == SIDE);
    return source;
}

static void check_files(const char *name, const char *const *expected, size_t count)
{
    struct source *source = open_good(name);
    const struct folder_list *list = folder_list_of(source);
    const size_t above = strlen(at(name)) + 1;

    for (size_t i = 0; i < count && i < list->file_count; i++) {
        char found[PATH_MAX];

        (void)snprintf(found, sizeof found, "%s/%s", list->files[i].dir + above,
                       list->files[i].name);
        CHECK_STR(found, expected[i]);
        CHECK_EQ(strncmp(found, list->classes[list->files[i].class],
                         strlen(list->classes[list->files[i].class])),
                 0);
    }
    CHECK_EQ(list->file_count, count);
    source_free(&source);
}

/* Sorted by folder, then by name: "deep-er" comes before "deep/er" since '-' is before '/'. */
TEST(order_is_that_of_names)
{
    static const char *const expected[] = {
        "Z/b.PpM", "a/1.png",         "a/10.png",         "a/2.png",
        "a/.jpg",  "a/deep-er/x.bmp", "a/deep/er/1.tiff", "b/c.jpeg",
    };
    const char *sorted[sizeof expected / sizeof expected[0]];

    make_folder("set");
    for (const char *const *name = (const char *const[]){"set/a", "set/b", "set/Z", "set/a/deep",
                                                         "set/a/deep-er", "set/a/deep/er", NULL};
         *name != NULL; name++)
        make_folder(*name);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char name[100];

        (void)snprintf(name, sizeof name, "set/%s", expected[i]);
        make_picture(name, 1);
    }
    make_file("set/a/notes.txt", "", 0);
    make_file("set/a/jpg", "", 0);
    make_file("set/a/x.jpg ", "", 0);
    make_file("set/a/x.jp", "", 0);
    make_file("set/a/x.", "", 0);
    make_file("set/top.jpg", "", 0); /* of no class */
    make_folder("set/.hidden");
    make_picture("set/.hidden/1.png", 1);
    memcpy(sorted, expected, sizeof sorted);
    sorted[1] = "a/.jpg"; /* '.' is before the digits */
    sorted[2] = "a/1.png";
    sorted[3] = "a/10.png";
    sorted[4] = "a/2.png";
    check_files("set", sorted, sizeof sorted / sizeof sorted[0]);
}

TEST(labels_and_pixels)
{
    struct source *source;
    uint8_t image[3 * SIDE * SIDE];

    make_folder("two");
    make_folder("two/cat");
    make_folder("two/dog");
    make_picture("two/cat/1.png", 10);
    make_picture("two/dog/1.png", 20);
    source = open_good("two");
    CHECK_EQ(source->shape.classes, 2);
    CHECK_STR(source->class_names[0], "cat");
    CHECK_STR(source->class_names[1], "dog");
    for (int64_t i = 0; i < 2; i++) {
        CHECK_EQ(sources_read(source, 0, i, image), i);
        for (size_t k = 0; k < sizeof image; k++)
            CHECK_EQ(image[k], 10 * (i + 1));
    }
    source_free(&source);
}

static uint64_t hash_of(const char *name)
{
    struct source *source = open_good(name);
    const uint64_t hash = source->hash;

    source_free(&source);
    return hash;
}

static void move(const char *from, const char *to)
{
    char old[PATH_MAX];

    (void)snprintf(old, sizeof old, "%s", at(from));
    CHECK_EQ(rename(old, at(to)), 0);
}

/* Wherever it is, the set is the same; with another name of a class or a file it is another. */
TEST(the_hash_tells_sets_apart)
{
    uint64_t hash;

    make_folder("h1");
    make_folder("h1/x");
    make_folder("h1/y");
    make_picture("h1/x/1.png", 1);
    make_picture("h1/y/1.png", 1);
    hash = hash_of("h1");
    move("h1", "elsewhere");
    CHECK_EQ(hash_of("elsewhere"), hash);
    move("elsewhere/y", "elsewhere/z");
    CHECK(hash_of("elsewhere") != hash);
    move("elsewhere/z", "elsewhere/y");
    move("elsewhere/y/1.png", "elsewhere/y/2.png");
    CHECK(hash_of("elsewhere") != hash);
    move("elsewhere/y/2.png", "elsewhere/x/2.png");
    make_picture("elsewhere/y/1.png", 1);
    CHECK(hash_of("elsewhere") != hash);
    CHECK_EQ(unlink(at("elsewhere/x/2.png")), 0);
    CHECK_EQ(hash_of("elsewhere"), hash);
}

static void check_refused(const char *name, bool allow_empty, enum status expected,
                          const char *words)
{
    struct folder_options options = options_of(false);
    struct source *source = NULL;
    struct err err = {.text = ""};

    options.allow_empty = allow_empty;
    CHECK_EQ(folder_open(&source, at(name), &options, &err), expected);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\", got: %s", words, err.text);
}

TEST(empty_ones)
{
    struct source *source = NULL;
    struct folder_options options = options_of(false);

    check_refused("none", false, STATUS_NOT_FOUND, "there is no folder");
    make_file("file", "x", 1);
    check_refused("file", false, STATUS_BAD_INPUT, "is not a folder");
    make_folder("bare");
    make_file("bare/1.jpg", "x", 1);
    check_refused("bare", false, STATUS_BAD_INPUT, "has no folder in it");
    make_folder("bare/one");
    check_refused("bare", false, STATUS_BAD_INPUT, "no pictures in it");
    check_refused("bare", true, STATUS_BAD_INPUT, "no pictures in it");
    make_folder("bare/two");
    make_picture("bare/two/1.jpg", 1);
    check_refused("bare", false, STATUS_BAD_INPUT, "1 of 2 classes have no picture: one;");
    options.allow_empty = true;
    CHECK_EQ(folder_open(&source, at("bare"), &options, NULL), STATUS_OK);
    CHECK_EQ(source->count, 1);
    CHECK_EQ(source->shape.classes, 2);
    CHECK_EQ(folder_list_of(source)->files[0].class, 1);
    source_free(&source);
}

/* A link to a folder above is told and not followed; one to a folder beside it is followed, and so is
 * a link that is a class. */
TEST(links)
{
    static const char *const expected[] = {"a/1.png", "a/again/1.png", "b/1.png", "b/again/1.png"};
    struct source *source;

    make_folder("links");
    make_folder("links/a");
    make_folder("links/other");
    make_folder("links-other");
    CHECK_EQ(rmdir(at("links/other")), 0);
    make_picture("links/a/1.png", 1);
    make_picture("links-other/1.png", 1);
    make_link("../../links-other", "links/a/again");
    make_link("..", "links/a/up");
    make_link("../a", "links/a/self");
    make_link("a", "links/b");
    make_link("to-itself", "links/to-itself"); /* no folder, so no class */
    check_files("links", expected, 4);
    source = open_good("links");
    CHECK_EQ(folder_list_of(source)->problem_count, 6); /* in both: self, up/a, up/b */
    CHECK(strstr(folder_list_of(source)->problems[0].text, "a symbolic link to a folder") != NULL);
    source_free(&source);
}

static enum status read_one(struct source *source, int64_t index, struct err *err)
{
    uint8_t image[3 * SIDE * SIDE];
    void *reader = NULL;
    int64_t label;
    enum status status;

    CHECK_EQ(source_reader_new(source, &reader, err), STATUS_OK);
    status = source->ops->read(source, reader, 0, index, image, &label, err);
    source_reader_free(source, &reader);
    return status;
}

static void check_unreadable(struct source *source, int64_t index, const char *name,
                             const char *words)
{
    struct err err = {.text = ""};

    CHECK(source_is_of_sample(read_one(source, index, &err)));
    CHECK(source_is_of_sample(err.status));
    if (strstr(err.text, name) == NULL || strstr(err.text, words) == NULL)
        FAIL("expected %s and \"%s\", got: %s", name, words, err.text);
}

TEST(files_that_cannot_be_read)
{
    struct source *source;
    int fd;

    make_folder("odd");
    make_folder("odd/x");
    make_picture("odd/x/1.png", 9);
    make_file("odd/x/2.jpg", "", 0);
    CHECK_EQ(mkfifo(at("odd/x/3.jpg"), 0600), 0);
    make_link("4.jpg", "odd/x/4.jpg");
    make_link("nowhere", "odd/x/5.jpg");
    fd = open(at("odd/x/6.jpg"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)FOLDER_FILE_BYTES_MAX + 1), 0);
    CHECK_EQ(close(fd), 0);
    make_picture("odd/x/7.jpg", 3);
    make_file("odd/x/8\n\xff.jpg", "no picture", 10);
    source = open_good("odd");
    CHECK_EQ(source->count, 8);
    CHECK_EQ(read_one(source, 0, NULL), STATUS_OK);
    check_unreadable(source, 1, "2.jpg", "empty");
    check_unreadable(source, 2, "3.jpg", "not a regular file");
    check_unreadable(source, 3, "4.jpg", "symbolic links");
    check_unreadable(source, 4, "5.jpg", "No such file");
    check_unreadable(source, 5, "6.jpg", "at most");
    CHECK_EQ(read_one(source, 6, NULL), STATUS_OK); /* by its bytes, not by its name */
    CHECK_EQ(unlink(at("odd/x/7.jpg")), 0);
    check_unreadable(source, 6, "7.jpg", "No such file"); /* it has vanished */
    check_unreadable(source, 7, "8\n\xff.jpg", "");
    source_free(&source);
}

/* Not even a privileged user has such a path. */
TEST(a_folder_that_is_too_deep)
{
    struct source *source;
    char name[201];
    int dir, made;

    make_folder("deep");
    make_folder("deep/x");
    make_picture("deep/x/1.png", 1);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    dir = open(at("deep/x"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (made = 0; made < 30; made++) {
        int next;

        CHECK_EQ(mkdirat(dir, name, 0700), 0);
        next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        CHECK_EQ(close(dir), 0);
        dir = next;
    }
    CHECK_EQ(close(dir), 0);
    source = open_good("deep");
    CHECK_EQ(source->count, 1);
    CHECK_EQ(folder_list_of(source)->problem_count, 1);
    CHECK(strstr(folder_list_of(source)->problems[0].text, "File name too long") != NULL);
    source_free(&source);
    own_tree_remove(AT_FDCWD, at("deep")); /* too deep for what removes the test's folder */
}

/* 2^24 paths, but no circle. */
TEST(folders_without_end)
{
    make_folder("many");
    make_folder("many/0");
    for (int i = 0; i < 24; i++) {
        char name[64], to[64];

        (void)snprintf(name, sizeof name, "many-%d", i);
        make_folder(name);
        (void)snprintf(to, sizeof to, "%s/many-%d", test_dir(), i + 1);
        (void)snprintf(name, sizeof name, "many-%d/a", i);
        make_link(to, name);
        (void)snprintf(name, sizeof name, "many-%d/b", i);
        make_link(to, name);
    }
    make_folder("many-24");
    make_link("../../many-0", "many/0/a");
    check_refused("many", false, STATUS_TOO_BIG, "is there a circle?");
}

TEST_MAIN
