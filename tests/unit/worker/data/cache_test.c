/* The cache of decoded pictures: the same bytes with and without it, what is refused, what is
 * damaged. The pictures are PNM files that a source of the test makes. */
#include "worker/data/cache/cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker/data/cache/file.h"

enum { COUNT = 12, SIZE = 16, RESIZE = 20, IMAGE_BYTES = SIZE * SIZE * 3, SIDE_MOST = 96 };

/* -- a source of pictures -- */

struct made {
    struct source source;
    atomic_int reads;
    int64_t broken; /* this picture cannot be read; -1: none */
    bool is_closed;
};

struct bytes {
    uint8_t bytes[SIDE_MOST * SIDE_MOST * 3 + 32];
};

static enum status made_reader_new(struct source *source, void **reader, struct err *err)
{
    (void)source;
    (void)err;
    *reader = calloc(1, sizeof(struct bytes));
    return STATUS_OK;
}

/* Of 24 to 90 pixels, wide and high; the last is smaller than what is kept. */
static enum status made_read_file(struct source *source, void *reader, int64_t index,
                                  struct source_file *file, struct err *err)
{
    struct made *made = (struct made *)source;
    struct bytes *to = reader;
    const uint32_t width = index == COUNT - 1 ? 18 : 24 + (uint32_t)index * 6;
    const uint32_t height = index == COUNT - 1 ? 17 : 90 - (uint32_t)index * 5;
    const int head = snprintf((char *)to->bytes, 32, "P6 %u %u 255\n", width, height);

    made->reads++;
    if (index == made->broken)
        return err_set(err, STATUS_BAD_INPUT, 0, "picture %d is broken", (int)index);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++)
                to->bytes[(uint32_t)head + (y * width + x) * 3 + c] =
                    (uint8_t)(index * 17 + x * 3 + y * 2 + c * 40);
    *file = (struct source_file){to->bytes, (size_t)head + (size_t)width * height * 3, "made",
                                 index % 5};
    return STATUS_OK;
}

static void made_close(struct source *source)
{
    ((struct made *)source)->is_closed = true;
}

static int64_t made_label(const struct source *source, int64_t index)
{
    (void)source;
    return index % 5;
}

static const struct source_ops made_ops = {
    .reader_new = made_reader_new,
    .reader_free = free,
    .read_file = made_read_file,
    .close = made_close,
    .label = made_label,
};

static struct made made_new(uint64_t hash)
{
    return (struct made){
        .source = {.ops = &made_ops, .shape = {3, SIZE, SIZE, 5}, .count = COUNT, .hash = hash},
        .broken = -1};
}

/* -- the cache -- */

static struct cache_options options(void)
{
    struct cache_options made = {.seed = 3};

    picture_rules_set(&made.rules, SIZE, true);
    made.rules.resize = RESIZE;
    return made;
}

static const char *path_of(const char *name)
{
    static char path[4][512];
    static unsigned next;
    char *here = path[next++ % 4];

    (void)snprintf(here, sizeof path[0], "%s/%s", test_dir(), name);
    return here;
}

static struct source *open_good(struct made *made, const struct cache_options *how)
{
    struct source *cache;
    struct err err = {0};

    if (cache_open(&cache, &made->source, path_of("cache"), how, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return cache;
}

static void read_all(struct source *cache, uint64_t epoch, uint8_t images[COUNT][IMAGE_BYTES])
{
    void *reader;
    struct err err = {0};

    CHECK_EQ(cache->ops->reader_new(cache, &reader, &err), STATUS_OK);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t label = -1;

        if (cache->ops->read(cache, reader, epoch, i, images[i], &label, &err) != STATUS_OK)
            FAIL("picture %d: %s", (int)i, err.text);
        CHECK_EQ(label, i % 5);
    }
    cache->ops->reader_free(reader);
}

static uint8_t first[COUNT][IMAGE_BYTES], second[COUNT][IMAGE_BYTES];

TEST(the_second_epoch_reads_the_file)
{
    struct made made = made_new(1);
    const struct cache_options how = options();
    struct source *cache = open_good(&made, &how);
    int reads;

    read_all(cache, 0, first);
    reads = made.reads;
    CHECK_EQ(cache_counts(cache).decoded, COUNT);
    read_all(cache, 0, second);
    CHECK_EQ(made.reads, reads);
    CHECK_EQ(cache_counts(cache).read, COUNT);
    CHECK_BYTES(second, first, sizeof first);
    read_all(cache, 1, second);
    CHECK(memcmp(first, second, sizeof first) != 0); /* other crops */
    cache->ops->close(cache);
    CHECK(made.is_closed);
    made = made_new(1); /* another process */
    cache = open_good(&made, &how);
    read_all(cache, 0, second);
    CHECK_EQ(made.reads, 0);
    CHECK_BYTES(second, first, sizeof first);
    cache->ops->close(cache);
}

/* As picture_crop() makes it from the resized picture. */
TEST(what_is_cut_out)
{
    struct made made = made_new(1);
    struct cache_options how = options();
    struct source *cache;

    how.rules.is_training = false;
    cache = open_good(&made, &how);
    for (int epoch = 0; epoch < 2; epoch++) {
        struct picture_reader *reader;
        struct err err = {0};
        struct bytes bytes;
        struct source_file file = {.bytes = NULL};

        read_all(cache, 0, first);
        CHECK_EQ(picture_reader_new(&reader, &err), STATUS_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            uint8_t image[IMAGE_BYTES];

            CHECK_EQ(made_read_file(&made.source, &bytes, i, &file, &err), STATUS_OK);
            CHECK_EQ(picture_read(reader, file.bytes, file.byte_count, "made", &how.rules, 3, 0,
                                  (uint64_t)i, image, &err),
                     STATUS_OK);
            CHECK_BYTES(first[i], image, sizeof image); /* Resize and CenterCrop, to the bit */
        }
        picture_reader_free(&reader);
    }
    cache->ops->close(cache);
}

/* A square of the kept picture, where the draws say. */
TEST(plain_crops)
{
    struct made made = made_new(1);
    struct cache_options how = options();
    struct source *cache;
    struct cache_file file;
    const struct cache_key key = {1, COUNT, RESIZE};
    struct err err = {0};
    bool mirrored[2] = {false, false};

    how.plain_crop = true;
    cache = open_good(&made, &how);
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        read_all(cache, epoch, first);
        CHECK_EQ(cache_file_open(&file, path_of("cache"), &key, 0, 0, false, &err), STATUS_OK);
        for (uint64_t i = 0; i < COUNT; i++) {
            struct picture picture;
            uint32_t label;
            bool found = false;

            CHECK_EQ(cache_file_find(&file, i, &picture, &label), CACHE_FOUND);
            for (uint32_t y = 0; y + SIZE <= picture.height && !found; y++)
                for (uint32_t x = 0; x + SIZE <= picture.width && !found; x++)
                    for (int mirror = 0; mirror < 2 && !found; mirror++) {
                        bool same = true;

                        for (uint32_t at = 0; at < SIZE * SIZE && same; at++) {
                            uint32_t column = at % SIZE;
                            uint32_t from = mirror ? SIZE - 1 - column : column;
                            same = memcmp(first[i] + at * 3,
                                          picture.pixels +
                                              ((y + at / SIZE) * picture.width + x + from) * 3,
                                          3) == 0;
                        }
                        found = same;
                        mirrored[mirror] = mirrored[mirror] || same;
                    }
            if (!found)
                FAIL("epoch %d: picture %d is no square of what is kept", (int)epoch, (int)i);
        }
        cache_file_close(&file);
    }
    CHECK(mirrored[0] && mirrored[1]);
    cache->ops->close(cache);
}

/* -- several at once -- */

struct user {
    struct source *cache;
    uint8_t images[COUNT][IMAGE_BYTES];
    bool failed;
};

static void *use(void *argument)
{
    struct user *user = argument;
    struct err err = {0};
    void *reader;

    user->failed = user->cache->ops->reader_new(user->cache, &reader, &err) != STATUS_OK;
    for (int64_t i = 0; i < COUNT && !user->failed; i++) {
        int64_t label;
        user->failed = user->cache->ops->read(user->cache, reader, 0, i, user->images[i], &label,
                                              &err) != STATUS_OK;
    }
    user->cache->ops->reader_free(reader);
    return NULL;
}

TEST(threads_and_processes)
{
    enum { USERS = 4 };
    static struct user users[USERS];
    struct made alone = made_new(1);
    const struct cache_options how = options();
    struct source *cache = open_good(&alone, &how);
    pthread_t threads[USERS];
    pid_t child;
    int code;

    read_all(cache, 0, first);
    cache->ops->close(cache);
    CHECK_EQ(unlink(path_of("cache")), 0);
    child = fork();
    for (int i = 0; i < USERS; i++) {
        static struct made made[USERS];

        made[i] = made_new(1);
        struct err err = {0};
        if (cache_open(&users[i].cache, &made[i].source, path_of("cache"), &how, &err) != STATUS_OK)
            _exit(1);
        if (pthread_create(&threads[i], NULL, use, &users[i]) != 0)
            _exit(1);
    }
    for (int i = 0; i < USERS; i++) {
        (void)pthread_join(threads[i], NULL);
        if (child == 0 && (users[i].failed || memcmp(users[i].images, first, sizeof first) != 0))
            _exit(1);
        users[i].cache->ops->close(users[i].cache);
    }
    if (child == 0)
        _exit(0);
    CHECK_EQ(waitpid(child, &code, 0), child);
    CHECK_EQ(code, 0);
    for (int i = 0; i < USERS; i++) {
        CHECK(!users[i].failed);
        CHECK_BYTES(users[i].images, first, sizeof first);
    }
    struct made after = made_new(1);
    cache = open_good(&after, &how);
    read_all(cache, 0, second);
    CHECK_EQ(after.reads, 0); /* all of it is there */
    CHECK_BYTES(second, first, sizeof first);
    cache->ops->close(cache);
}

/* -- what is refused -- */

static void check_refused(uint64_t hash, const struct cache_options *how, enum status expected,
                          const char *words)
{
    struct made made = made_new(hash);
    struct source *cache;
    struct err err = {0};
    enum status status = cache_open(&cache, &made.source, path_of("cache"), how, &err);

    if (status == STATUS_OK)
        FAIL("taken (expected: %s)", words);
    CHECK_EQ(status, expected);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\" in: %s", words, err.text);
    CHECK(made.is_closed);
}

static void fill_cache(uint64_t hash)
{
    struct made made = made_new(hash);
    const struct cache_options how = options();
    struct source *cache = open_good(&made, &how);

    read_all(cache, 0, first);
    cache->ops->close(cache);
}

TEST(a_cache_of_other_data)
{
    struct cache_options how = options();
    struct made made = made_new(2);
    struct source *cache;

    fill_cache(1);
    check_refused(2, &how, STATUS_CONFLICT, "a cache of other data (12 pictures at 20 pixels");
    how.rules.resize = RESIZE + 1;
    check_refused(1, &how, STATUS_CONFLICT, "--cache-rebuild");
    how = options();
    how.rebuild = true;
    cache = open_good(&made, &how);
    read_all(cache, 0, second);
    CHECK(made.reads >= COUNT);
    CHECK_BYTES(second, first, sizeof first);
    cache->ops->close(cache);
}

/* Ranks of one job: the first begins anew, the others take what it has begun. */
TEST(one_job_rebuilds_once)
{
    struct cache_options how = options();
    struct made one = made_new(1), two = made_new(1), three = made_new(1);
    struct source *cache, *other;

    fill_cache(1);
    how.rebuild = true;
    how.job = 77;
    cache = open_good(&one, &how);
    read_all(cache, 0, second);
    other = open_good(&two, &how);
    read_all(other, 0, second);
    CHECK_EQ(cache_counts(other).decoded, 0);
    other->ops->close(other);
    how.job = 78;
    other = open_good(&three, &how);
    read_all(other, 0, second);
    CHECK_EQ(cache_counts(other).decoded, COUNT);
    other->ops->close(other);
    read_all(cache, 0, second); /* its own file is still there */
    CHECK_BYTES(second, first, sizeof first);
    cache->ops->close(cache);
}

static void write_at(long at, const void *bytes, size_t byte_count)
{
    FILE *file = fopen(path_of("cache"), "r+b");

    CHECK(file != NULL);
    CHECK_EQ(fseek(file, at, SEEK_SET), 0);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
}

TEST(what_is_no_cache_stays)
{
    struct cache_options how = options();
    FILE *file = fopen(path_of("cache"), "wb");

    CHECK(file != NULL);
    for (int i = 0; i < 1000; i++)
        (void)fputs("my thesis\n", file);
    CHECK_EQ(fclose(file), 0);
    how.rebuild = true;
    check_refused(1, &how, STATUS_CONFLICT, "is no cache: it stays as it is");
    struct stat now;
    CHECK_EQ(stat(path_of("cache"), &now), 0);
    CHECK_EQ(now.st_size, 10000);
    CHECK_EQ(truncate(path_of("cache"), 0), 0);
    write_at(5000, "the image of a disk begins with zeros", 10);
    check_refused(1, &how, STATUS_CONFLICT, "is no cache: it stays as it is");
    CHECK_EQ(truncate(path_of("cache"), 0), 0);
    CHECK_EQ(truncate(path_of("cache"), 5000), 0); /* its creation was interrupted */
    how.rebuild = false;
    check_refused(1, &how, STATUS_BAD_INPUT, "damaged: --cache-rebuild");
}

/* The new file of a rebuild has this name at first. */
TEST(a_file_at_the_temporary_name_stays)
{
    struct cache_options how = options();
    struct made first_made = made_new(2), made = made_new(2);
    struct stat left;
    char temp[600], text[8] = "";
    struct source *cache;
    FILE *file;

    fill_cache(1);
    (void)snprintf(temp, sizeof temp, "%s.%ld.new", path_of("cache"), (long)getpid());
    file = fopen(temp, "w");
    CHECK(file != NULL && fputs("mine", file) >= 0 && fclose(file) == 0);
    how.rebuild = true;
    cache = open_good(&first_made, &how); /* training goes on without a cache */
    cache->ops->close(cache);
    file = fopen(temp, "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    CHECK_STR(text, "mine");
    CHECK_EQ(truncate(temp, 0), 0); /* left by a process that was killed */
    cache = open_good(&made, &how);
    CHECK(lstat(temp, &left) != 0);
    cache->ops->close(cache);
}

TEST(a_damaged_head)
{
    struct cache_options how = options();
    struct made made = made_new(1);
    struct source *cache;

    fill_cache(1);
    write_at(16, "\xff", 1);
    check_refused(1, &how, STATUS_BAD_INPUT, "damaged: --cache-rebuild");
    how.rebuild = true;
    cache = open_good(&made, &how);
    read_all(cache, 0, second);
    CHECK_BYTES(second, first, sizeof first);
    cache->ops->close(cache);
    CHECK_EQ(truncate(path_of("cache"), 4100), 0); /* in the table */
    how.rebuild = false;
    check_refused(1, &how, STATUS_BAD_INPUT, "damaged: --cache-rebuild");
}

/* Every byte behind the head: damaged pictures are decoded again, and added again. */
TEST(a_torn_cache)
{
    const struct cache_options how = options();
    const long table = 4096, data = table + COUNT * 40;
    struct stat whole;

    fill_cache(1);
    CHECK_EQ(stat(path_of("cache"), &whole), 0);
    for (long at = table; at < whole.st_size; at += at < data ? 3 : 997) {
        struct made made = made_new(1);
        struct source *cache;
        uint8_t byte;
        FILE *file = fopen(path_of("cache"), "rb");

        CHECK(file != NULL);
        CHECK_EQ(fseek(file, at, SEEK_SET), 0);
        CHECK_EQ(fread(&byte, 1, 1, file), 1);
        (void)fclose(file);
        byte ^= 0x41;
        write_at(at, &byte, 1);
        cache = open_good(&made, &how);
        read_all(cache, 0, second);
        if (cache_counts(cache).damaged != 1 || cache_counts(cache).decoded != 1)
            FAIL("byte %ld: %d damaged", at, (int)cache_counts(cache).damaged);
        CHECK_BYTES(second, first, sizeof first);
        read_all(cache, 0, second); /* mended */
        CHECK_EQ(cache_counts(cache).decoded, 1);
        cache->ops->close(cache);
        CHECK_EQ(unlink(path_of("cache")), 0);
        fill_cache(1);
    }
}

TEST(a_cache_that_is_cut_off)
{
    const struct cache_options how = options();
    struct made made = made_new(1);
    struct source *cache;

    fill_cache(1);
    cache = open_good(&made, &how);
    read_all(cache, 0, second);
    CHECK_EQ(made.reads, 0);
    CHECK_EQ(truncate(path_of("cache"), 4096 + COUNT * 40 + 100), 0); /* while it is in use */
    read_all(cache, 0, second);
    CHECK_BYTES(second, first, sizeof first);
    CHECK_EQ(cache_counts(cache).damaged, COUNT);
    cache->ops->close(cache);
}

/* -- what cannot be read or written -- */

TEST(a_broken_picture)
{
    const struct cache_options how = options();
    struct made made = made_new(1);
    struct source *cache;
    struct err err = {0};
    uint8_t image[IMAGE_BYTES];
    int64_t label;
    void *reader;

    made.broken = 4;
    cache = open_good(&made, &how);
    CHECK_EQ(cache->ops->reader_new(cache, &reader, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cache->ops->read(cache, reader, 0, 4, image, &label, &err), STATUS_BAD_INPUT);
        CHECK_STR(err.text, "picture 4 is broken");
        CHECK_EQ(cache->ops->read(cache, reader, 0, 5, image, &label, &err), STATUS_OK);
    }
    cache->ops->reader_free(reader);
    cache->ops->close(cache);
}

TEST(a_folder_that_cannot_be_written_to)
{
    const struct cache_options how = options();
    struct made made = made_new(1);
    struct source *cache;
    struct err err = {0};

    fill_cache(1);
    CHECK_EQ(cache_open(&cache, &made.source, path_of("none/cache"), &how, &err), STATUS_OK);
    CHECK(!cache_counts(cache).has_file);
    read_all(cache, 0, second);
    CHECK_BYTES(second, first, sizeof first); /* as with a file */
    cache->ops->close(cache);
}

static void check_small_disk(unsigned kib, bool begins)
{
    const struct cache_options how = options();
    struct made made = made_new(1);
    struct source *cache;
    struct err err = {0};
    char size[32], where[512];

    (void)snprintf(where, sizeof where, "%s/disk", test_dir());
    (void)snprintf(size, sizeof size, "size=%uk", kib);
    (void)mkdir(where, 0700);
    if (mount("ddp-test", where, "tmpfs", 0, size) != 0)
        SKIP("mounting a tmpfs is not allowed here");
    enum status status = cache_open(&cache, &made.source, path_of("disk/cache"), &how, &err);
    bool has_file = status == STATUS_OK && cache_counts(cache).has_file;
    FILE *other = fopen(path_of("disk/other"), "wb"); /* takes the room that was there */
    while (other != NULL && fputc('x', other) != EOF && fflush(other) == 0)
        ;
    if (status == STATUS_OK) {
        read_all(cache, 0, second);
        read_all(cache, 0, second);
        has_file = has_file && !cache_counts(cache).has_file;
        cache->ops->close(cache);
    }
    if (other != NULL)
        (void)fclose(other);
    CHECK_EQ(umount(where), 0);
    CHECK_EQ(status, STATUS_OK);
    CHECK_EQ(has_file, begins); /* begun, and given up when the disk was full */
    CHECK_BYTES(second, first, sizeof first);
}

TEST(a_full_disk)
{
    fill_cache(1);
    check_small_disk(16, false);
    check_small_disk(64, true);
}

TEST_MAIN
