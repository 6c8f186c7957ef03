/* A tar shard: refused with its name, or every sample lies within the file and has a name that leads
 * nowhere else. The first byte says whether the headers' checksums are made right, so that changes
 * come past them. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "tests/fuzz/target.h"
#include "worker/data/shards/index.h"

enum { BLOCK_BYTES = 512, SUM_AT = 148, SUM_BYTES = 8, MAGIC_AT = 257, INPUT_BYTES_MAX = 1 << 20 };

/* -- what mutations begin with -- */

static void add_member(struct archive *archive, const char *name, const char *content, int kind)
{
    struct archive_entry *entry = archive_entry_new();

    archive_entry_set_pathname(entry, name);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_filetype(entry, kind == 1 ? AE_IFLNK : kind == 3 ? AE_IFDIR : AE_IFREG);
    if (kind == 1)
        archive_entry_set_symlink(entry, content);
    else if (kind == 2)
        archive_entry_set_hardlink(entry, content);
    else
        archive_entry_set_size(entry, (la_int64_t)strlen(content));
    if (kind == 4) { /* with a hole */
        archive_entry_set_size(entry, 100000);
        archive_entry_sparse_add_entry(entry, 50000, 100);
    }
    FUZZ_CHECK(archive_write_header(archive, entry) >= ARCHIVE_WARN);
    if (kind == 0)
        FUZZ_CHECK(archive_write_data(archive, content, strlen(content)) >= 0);
    archive_entry_free(entry);
}

/* `choice` says which odd members it has: few, because long inputs are not mutated. */
static void add_tar(fuzz_add *add, int format, bool is_folder_like, char checked, size_t choice)
{
    static char bytes[1 << 16];
    size_t used = 0;
    struct archive *archive = archive_write_new();
    char name[300];

    FUZZ_CHECK(archive_write_set_format(archive, format) == ARCHIVE_OK);
    FUZZ_CHECK(archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK);
    bytes[0] = checked;
    FUZZ_CHECK(archive_write_open_memory(archive, bytes + 1, sizeof bytes - 1, &used) ==
               ARCHIVE_OK);
    add_member(archive, "a", "", 3);
    add_member(archive, is_folder_like ? "a/one.jpg" : "one.jpg", "a picture", 0);
    if (!is_folder_like)
        add_member(archive, "one.cls", "7\n", 0);
    memset(name, 'n', 200);
    (void)snprintf(name + 100, sizeof name - 100, "/%s", "x.png");
    switch (choice % 6) {
    case 0:
        add_member(archive, name, "another picture", 0);
        break;
    case 1:
        add_member(archive, "two.jpg", "another picture", 0);
        add_member(archive, "two.cls", "12", 0);
        break;
    case 2:
        add_member(archive, "../up.jpg", "x", 0);
        break;
    case 3:
        add_member(archive, "link.jpg", "one.jpg", 1);
        break;
    case 4:
        add_member(archive, "hard.jpg", "one.jpg", 2);
        break;
    default:
        add_member(archive, "sparse.jpg", "", format == ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE ? 4 : 3);
    }
    FUZZ_CHECK(archive_write_free(archive) == ARCHIVE_OK);
    FUZZ_CHECK(used < 8192);
    add(bytes, used + 1);
}

void fuzz_corpus(fuzz_add *add)
{
    static const int formats[] = {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE,
                                  ARCHIVE_FORMAT_TAR_GNUTAR};

    for (size_t i = 0; i < 600; i++) /* more than there are broken inputs of messages */
        add_tar(add, formats[i % 3], i / 3 % 2 == 1, i / 6 % 4 != 0, i / 24);
}

/* -- the target -- */

static void right_checksums(uint8_t *bytes, size_t byte_count)
{
    for (size_t at = 0; at + BLOCK_BYTES <= byte_count; at += BLOCK_BYTES) {
        uint8_t *block = bytes + at;
        unsigned sum = 0;

        if (memcmp(block + MAGIC_AT, "ustar", 5) != 0)
            continue;
        memset(block + SUM_AT, ' ', SUM_BYTES);
        for (size_t i = 0; i < BLOCK_BYTES; i++)
            sum += block[i];
        (void)snprintf((char *)block + SUM_AT, SUM_BYTES, "%06o", sum & 0777777);
    }
}

static void check_index(const struct index *index, size_t byte_count)
{
    for (size_t i = 0; i < index->count; i++) {
        const struct index_sample *sample = &index->samples[i];
        const char *name = index_name(index, sample);

        FUZZ_CHECK(sample->byte_count > 0 && sample->offset <= byte_count);
        FUZZ_CHECK(sample->byte_count <= byte_count - sample->offset);
        FUZZ_CHECK(name[0] != '\0' && name[0] != '/' && strlen(name) <= TAR_NAME_BYTES_MAX);
        FUZZ_CHECK(strncmp(name, "../", 3) != 0 && strstr(name, "/../") == NULL);
        FUZZ_CHECK(sample->label < index->class_count);
        FUZZ_CHECK(i == 0 || index->is_folder_like ||
                   index->samples[i - 1].offset < sample->offset);
    }
    FUZZ_CHECK(!index->is_folder_like || index->class_count == index->name_count);
    for (uint32_t i = 1; i < index->name_count; i++)
        FUZZ_CHECK(strcmp(index->classes[i - 1], index->classes[i]) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    static int fd = -1;
    struct index index = {0};
    struct err err = {.text = ""};
    enum status status;

    if (byte_count < 1 || byte_count > sizeof bytes)
        return 0;
    if (fd < 0)
        fd = memfd_create("tar", 0);
    FUZZ_CHECK(fd >= 0);
    byte_count--;
    memcpy(bytes, data + 1, byte_count);
    if (data[0] != 0)
        right_checksums(bytes, byte_count);
    FUZZ_CHECK(ftruncate(fd, (off_t)byte_count) == 0);
    FUZZ_CHECK(pwrite(fd, bytes, byte_count, 0) == (ssize_t)byte_count);
    status = index_add(&index, fd, "f.tar", 0, &err);
    if (status == STATUS_OK)
        status = index_finish(&index, NULL, &err);
    if (status == STATUS_OK)
        check_index(&index, byte_count);
    else
        FUZZ_CHECK((status == STATUS_BAD_INPUT || status == STATUS_UNSUPPORTED) &&
                   strstr(err.text, "f.tar") != NULL);
    index_close(&index);
    return 0;
}
