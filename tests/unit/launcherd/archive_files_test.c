/* What a node keeps of a staged archive that the server sends: nothing but its own bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/stage.h"
#include "launcherd/node/archive_files.h"
#include "tests/lib/test.h"

static const char content[] = "the bytes of an archive";

static void hash_of(const char *bytes, char hash[STAGE_HASH_CHARS + 1])
{
    struct stage_digest *digest;
    struct err err;

    CHECK_EQ(stage_digest_new(&digest, &err), STATUS_OK);
    stage_digest_add(digest, bytes, strlen(bytes));
    stage_digest_end(&digest, hash);
}

/* Two pieces, as they come from the server. */
static enum status receive(const char *hash, struct err *err)
{
    struct archive_files *files = archive_files_new(test_dir(), hash, NULL);
    const size_t half = strlen(content) / 2;
    enum status status;

    CHECK(files != NULL);
    archive_files_begin(&files->work);
    CHECK_EQ(files->status, STATUS_OK);
    for (int i = 0; i < 2; i++) {
        const char *bytes = i == 0 ? content : content + half;

        files->byte_count = i == 0 ? half : strlen(content) - half;
        free(files->bytes);
        files->bytes = malloc(files->byte_count);
        CHECK(files->bytes != NULL);
        memcpy(files->bytes, bytes, files->byte_count);
        files->is_last = i == 1;
        archive_files_write(&files->work);
        CHECK(i == 1 || files->status == STATUS_OK);
    }
    status = files->status;
    *err = files->err;
    archive_files_abandon(&files->work);
    files->work.drop(&files->work);
    return status;
}

static bool is_there(const char *hash, const char *suffix)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s%s", test_dir(), hash, suffix);
    return access(path, F_OK) == 0;
}

TEST(only_an_archive_whose_bytes_have_its_hash_is_kept)
{
    char good[STAGE_HASH_CHARS + 1], other[STAGE_HASH_CHARS + 1];
    struct err err = {.text = ""};

    hash_of(content, good);
    hash_of("other bytes", other);
    CHECK_EQ(receive(other, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "its bytes do not have its hash");
    CHECK(!is_there(other, ".tar") && !is_there(other, ".part"));
    CHECK_EQ(receive(good, &err), STATUS_OK);
    CHECK(is_there(good, ".tar") && !is_there(good, ".part"));
}

static bool is_found(const char *hash)
{
    struct archive_files *files = archive_files_new(test_dir(), hash, NULL);
    bool found;

    CHECK(files != NULL);
    archive_files_check(&files->work);
    found = files->is_there;
    files->work.drop(&files->work);
    return found;
}

/* It was whole when it came, and its disk has changed it since. */
TEST(an_archive_that_was_damaged_is_not_used)
{
    char hash[STAGE_HASH_CHARS + 1], path[PATH_MAX];
    struct err err = {.text = ""};
    int fd;

    hash_of(content, hash);
    CHECK(!is_found(hash));
    CHECK_EQ(receive(hash, &err), STATUS_OK);
    CHECK(is_found(hash));
    (void)snprintf(path, sizeof path, "%s/%s.tar", test_dir(), hash);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 3) == 1 && close(fd) == 0);
    CHECK(!is_found(hash));
}

TEST_MAIN
