/* A cache that somebody else has written: refused with its name, or every picture that is found in
 * it lies within the file. The input is the file; the first byte says whether its checksums are made
 * right, so that changes come past them. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/target.h"
#include "worker/data/cache/file.h"
#include "worker/data/hash.h"

enum {
    COUNT = 4,
    SIDE = 64,
    WIDTH = 8,
    HEADER_BYTES = 4096,
    ENTRY_BYTES = 40,
    INPUT_BYTES_MAX = 1 << 20
};

static const struct cache_key key = {0x1234, COUNT, SIDE};
static char path[64];

static void make_file(void)
{
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("cache", 0);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

static int input_fd(void)
{
    return (int)strtol(strrchr(path, '/') + 1, NULL, 10);
}

/* A whole cache, small enough to be mutated: the header is HEADER_BYTES long, most of it zeros, which
 * inputs leave out. */
void fuzz_corpus(fuzz_add *add)
{
    struct cache_file file;
    struct err err = {.text = ""};
    static char bytes[1 << 16];
    static const uint8_t pixels[WIDTH * 20 * 3] = {1, 2, 3};

    make_file();
    FUZZ_CHECK(cache_file_open(&file, path, &key, 0, 0, false, &err) == STATUS_OK);
    for (uint32_t i = 0; i < COUNT - 1; i++) {
        const struct picture picture = {WIDTH, 8 + 4 * i, pixels};
        FUZZ_CHECK(cache_file_add(&file, i, &picture, i, &err) == STATUS_OK);
    }
    cache_file_close(&file);
    ssize_t n = pread(input_fd(), bytes + 1, sizeof bytes - 1, 0);
    FUZZ_CHECK(n > HEADER_BYTES);
    memmove(bytes + 1 + 56, bytes + 1 + HEADER_BYTES, (size_t)n - HEADER_BYTES);
    for (size_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        bytes[0] = i % 4 != 0;
        add(bytes, (size_t)n + 1 - HEADER_BYTES + 56);
    }
}

/* The sums of file.c, over what the input has. */
static void right_checksums(uint8_t *bytes, size_t byte_count)
{
    const uint64_t words[] = {key.source, key.count, key.side};
    const uint64_t key_hash = hash_bytes(HASH_BEGIN, words, sizeof words);
    uint64_t check = hash_bytes(HASH_BEGIN, bytes, 48);

    memcpy(bytes + 48, &check, sizeof check);
    for (uint64_t i = 0; i < COUNT && HEADER_BYTES + (i + 1) * ENTRY_BYTES <= byte_count; i++) {
        uint8_t *entry = bytes + HEADER_BYTES + i * ENTRY_BYTES;

        check = hash_u64(hash_u64(HASH_BEGIN, key_hash), i);
        check = hash_bytes(check, entry, 32);
        memcpy(entry + 32, &check, sizeof check);
    }
}

static void look_at_all(struct cache_file *file, size_t byte_count)
{
    const uint8_t grey[WIDTH * WIDTH * 3] = {0};
    const struct picture added = {WIDTH, WIDTH, grey};
    uint64_t sum = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        struct picture picture;
        uint32_t label;
        struct err err = {.text = ""};

        if (cache_file_find(file, i, &picture, &label) == CACHE_FOUND) {
            const size_t bytes = (size_t)picture.width * picture.height * 3;

            FUZZ_CHECK(picture.pixels >= file->mapped + file->data_at);
            FUZZ_CHECK(bytes > 0 && (size_t)(picture.pixels - file->mapped) + bytes <= byte_count);
            for (size_t at = 0; at < bytes; at++)
                sum += picture.pixels[at];
        }
        FUZZ_CHECK(sum < UINT64_MAX);
        FUZZ_CHECK(cache_file_add(file, i, &added, 1, &err) == STATUS_OK);
        FUZZ_CHECK(cache_file_find(file, i, &picture, &label) == CACHE_FOUND && label == 1);
        byte_count += sizeof grey;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static uint8_t bytes[INPUT_BYTES_MAX + HEADER_BYTES];
    struct cache_file file;
    struct err err = {.text = ""};
    size_t file_bytes;
    enum status status;

    if (byte_count < 1 + 56 || byte_count > INPUT_BYTES_MAX)
        return 0;
    make_file();
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, data + 1, 56);
    memcpy(bytes + HEADER_BYTES, data + 1 + 56, byte_count - 1 - 56);
    file_bytes = HEADER_BYTES + byte_count - 1 - 56;
    if (data[0] != 0)
        right_checksums(bytes, file_bytes);
    FUZZ_CHECK(pwrite(input_fd(), bytes, file_bytes, 0) == (ssize_t)file_bytes);
    status = cache_file_open(&file, path, &key, 0, 0, false, &err);
    if (status == STATUS_OK)
        look_at_all(&file, file_bytes);
    else
        FUZZ_CHECK((status == STATUS_CONFLICT || status == STATUS_BAD_INPUT) &&
                   strstr(err.text, path) != NULL);
    cache_file_close(&file);
    return 0;
}
