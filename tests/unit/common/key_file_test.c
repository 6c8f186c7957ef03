/* Keys from arguments and files: what is saved, with which permissions, and what remains visible of
 * an argument. */
#include "common/io/key_file.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"
#define URL "ddp://head.example.org:7400/gpu01#" SECRET

static char dir[32];
static char path[64], other[64];

static void begin(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/ddp-key-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof path, "%s/key", dir);
    (void)snprintf(other, sizeof other, "%s/other", dir);
}

static void end(void)
{
    (void)unlink(path);
    (void)unlink(other);
    (void)rmdir(dir);
}

static void put(const char *file, const char *text, mode_t mode)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    CHECK_EQ(fchmod(fd, mode), 0);
    (void)close(fd);
}

TEST(a_key_that_was_written_is_read)
{
    struct key key, back;
    struct stat info;
    struct err err;

    begin();
    CHECK_EQ(key_parse(URL, &key, &err), STATUS_OK);
    CHECK_EQ(key_file_read(path, &back, &err), STATUS_NOT_FOUND);
    (void)umask(0); /* the file's mode must not depend on the umask */
    CHECK_EQ(key_file_write(path, &key, &err), STATUS_OK);
    CHECK_EQ(key_file_write(path, &key, &err), STATUS_OK); /* overwrites the old file */
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(info.st_mode & 07777, 0600);
    CHECK_EQ(key_file_read(path, &back, &err), STATUS_OK);
    CHECK_STR(back.server, key.server);
    CHECK_STR(back.name, key.name);
    CHECK(memcmp(back.secret, key.secret, sizeof key.secret) == 0);
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
    end();
}

TEST(a_write_that_fails_leaves_the_old_key)
{
    struct key key, back;
    struct err err;
    char missing[80], temp[80];

    begin();
    CHECK_EQ(key_parse(URL, &key, &err), STATUS_OK);
    (void)snprintf(missing, sizeof missing, "%s/no/key", dir);
    CHECK_EQ(key_file_write(missing, &key, &err), STATUS_IO);
    CHECK_EQ(key_file_write(path, &key, &err), STATUS_OK);
    (void)snprintf(temp, sizeof temp, "%s.new", path);
    CHECK_EQ(mkdir(temp, 0700), 0); /* blocks the path of the new file */
    CHECK_EQ(key_file_write(path, &key, &err), STATUS_IO);
    CHECK_EQ(key_file_read(path, &back, &err), STATUS_OK);
    CHECK_EQ(rmdir(temp), 0);
    end();
}

TEST(a_file_that_others_may_read_is_refused)
{
    struct key key;
    struct err err;

    begin();
    put(path, URL "\n", 0640);
    CHECK_EQ(key_file_read(path, &key, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "chmod 600") != NULL && strstr(err.text, SECRET) == NULL);
    put(path, "nonsense " SECRET, 0600);
    CHECK_EQ(key_file_read(path, &key, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, SECRET) == NULL);
    end();
}

/* What is read is a plain file of our user. A link would lead to a file of others. */
TEST(a_link_is_no_key_file)
{
    struct key key;
    struct err err;

    begin();
    put(other, URL "\n", 0600);
    CHECK_EQ(symlink(other, path), 0);
    CHECK_EQ(key_file_read(path, &key, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "is a symbolic link") != NULL);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(link(other, path), 0);
    CHECK_EQ(key_file_read(path, &key, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "second name") != NULL);
    end();
}

TEST(a_key_file_of_another_user_is_refused)
{
    struct key key;
    struct err err;

    if (geteuid() != 0)
        SKIP("only root can give a file away");
    begin();
    put(path, URL "\n", 0600);
    CHECK_EQ(chown(path, 65534, 65534), 0);
    CHECK_EQ(key_file_read(path, &key, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "belongs to user 65534") != NULL && strstr(err.text, SECRET) == NULL);
    end();
}

/* A file that somebody names may be a link, as in a Secret of Kubernetes. */
TEST(a_given_file_may_be_a_link)
{
    char argument[80];
    struct key key;
    struct err err;

    begin();
    put(other, URL "\n", 0440);
    CHECK_EQ(symlink("other", path), 0);
    (void)snprintf(argument, sizeof argument, "@%s", path);
    CHECK_EQ(key_argument(argument, &key, &err), STATUS_OK);
    CHECK_STR(key.name, "gpu01");
    end();
}

/* Not waited for, as open(2) would. */
TEST(a_pipe_is_no_key_file)
{
    struct key back;
    struct err err;

    begin();
    CHECK_EQ(mkfifo(path, 0600), 0);
    CHECK_EQ(key_file_read(path, &back, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "is no plain file") != NULL);
    end();
}

TEST(an_argument_is_overwritten)
{
    static const char *const texts[] = {URL, ("ddp://bad#" SECRET), SECRET};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char argument[128];
        size_t byte_count = strlen(texts[i]);
        struct key key;
        struct err err = {.text = ""};

        (void)snprintf(argument, sizeof argument, "%s", texts[i]);
        CHECK_EQ(key_argument(argument, &key, &err), i == 0 ? STATUS_OK : STATUS_BAD_INPUT);
        for (size_t at = 0; at < byte_count; at++)
            CHECK_EQ(argument[at], '\0');
        CHECK(strstr(err.text, SECRET) == NULL);
    }
}

TEST(an_argument_names_a_file)
{
    char argument[80];
    struct key key;
    struct err err;

    begin();
    put(other, "\n  " URL "\n\n", 0644); /* a user's own file: its permissions are not checked */
    (void)snprintf(argument, sizeof argument, "@%s", other);
    CHECK_EQ(key_argument(argument, &key, &err), STATUS_OK);
    CHECK_STR(key.name, "gpu01");
    (void)snprintf(argument, sizeof argument, "@%s/none", dir);
    CHECK_EQ(key_argument(argument, &key, &err), STATUS_NOT_FOUND);
    (void)snprintf(argument, sizeof argument, "@%s", dir);
    CHECK_EQ(key_argument(argument, &key, &err), STATUS_IO);
    CHECK(strstr(err.text, " is a folder, no file with a key. On Kubernetes") != NULL);
    end();
}

/* One line is enough, since nobody types an end of file at a terminal. */
TEST(an_argument_names_stdin)
{
    char argument[] = "-";
    int ends[2], saved = dup(STDIN_FILENO);
    struct key key;
    struct err err;

    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(write(ends[1], URL "\n", strlen(URL) + 1), (ssize_t)strlen(URL) + 1);
    CHECK_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    CHECK_EQ(key_argument(argument, &key, &err), STATUS_OK);
    CHECK_STR(key.name, "gpu01");
    (void)dup2(saved, STDIN_FILENO);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(saved);
}

TEST_MAIN
