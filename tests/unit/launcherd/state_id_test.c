/* Which state directory, on which machine: what stays the same and what is a copy. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/node/state_id.h"
#include "launcherd/process/machine_id.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/sha256.h"
#include "tests/lib/test.h"

static char base[64];
static char id[IDENTITY_BYTES_MAX], aside[64];
static enum state_id_found found;
static struct err err;

static const char *dir_of(const char *name)
{
    static char paths[4][256];
    static uint32_t next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", base, name);
    return path;
}

static void begin(void)
{
    char path[PATH_MAX];

    (void)snprintf(base, sizeof base, "/tmp/state-id-XXXXXX");
    CHECK(mkdtemp(base) != NULL);
    rundir_join(path, dir_of("a"), "run/ours-1-g1");
    CHECK_EQ(rundir_make(path, 0700, &err), STATUS_OK);
}

static void end(void)
{
    rundir_remove_all(AT_FDCWD, base);
}

static enum status load(const char *name, const char *boot, const char *machine)
{
    return state_id_load(dir_of(name), boot, machine, id, &found, aside, &err);
}

static bool is_there(const char *name)
{
    struct stat stat;

    return lstat(dir_of(name), &stat) == 0;
}

/* As cp -a makes it: the file has its content, and another inode. */
static void copy(const char *from, const char *to)
{
    struct arena arena = {0};
    char path[PATH_MAX], *bytes;
    size_t byte_count;

    rundir_join(path, dir_of(to), "run/ours-1-g1");
    CHECK_EQ(rundir_make(path, 0700, &err), STATUS_OK);
    CHECK_EQ(rundir_read(dir_of(from), "state-id.json", &arena, &bytes, &byte_count, &err),
             STATUS_OK);
    CHECK_EQ(rundir_write(dir_of(to), "state-id.json", bytes, byte_count, &err), STATUS_OK);
    arena_reset(&arena);
}

TEST(it_is_made_once_and_survives_a_rename)
{
    char first[IDENTITY_BYTES_MAX];

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_NEW);
    CHECK_EQ(strlen(id), 32);
    (void)snprintf(first, sizeof first, "%s", id);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_STR(id, first);
    CHECK_EQ(load("a", "boot2", "m1"), STATUS_OK); /* after a restart of the machine */
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_EQ(load("a", "boot2", ""), STATUS_OK); /* the machine's id cannot be read any more */
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_EQ(rename(dir_of("a"), dir_of("b")), 0);
    CHECK_EQ(load("b", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_STR(id, first);
    CHECK(is_there("b/run/ours-1-g1"));
    end();
}

static void check_copy(const char *name, const char *first)
{
    char path[160];

    CHECK_EQ(found, STATE_ID_COPY);
    CHECK(strcmp(id, first) != 0);
    CHECK(strncmp(aside, "run-of-copy-", 12) == 0);
    (void)snprintf(path, sizeof path, "%s/%s/ours-1-g1", name, aside);
    CHECK(is_there(path)); /* not adopted, and not removed */
    (void)snprintf(path, sizeof path, "%s/run", name);
    CHECK(is_there(path));
    (void)snprintf(path, sizeof path, "%s/run/ours-1-g1", name);
    CHECK(!is_there(path));
    (void)snprintf(path, sizeof path, "%s/parts/ours-1-g1.start", name);
    CHECK(!is_there(path));
}

TEST(a_copy_has_another_id_and_no_shims)
{
    char first[IDENTITY_BYTES_MAX], second[IDENTITY_BYTES_MAX];

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    (void)snprintf(first, sizeof first, "%s", id);
    copy("a", "b");
    CHECK_EQ(load("b", "boot1", "m1"), STATUS_OK);
    check_copy("b", first);
    (void)snprintf(second, sizeof second, "%s", id);
    CHECK_EQ(load("b", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_STR(id, second);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_STR(id, first);
    CHECK(is_there("a/run/ours-1-g1"));
    end();
}

/* The whole disk was copied: only the machine differs. */
TEST(the_disk_of_another_machine_is_a_copy)
{
    char first[IDENTITY_BYTES_MAX];

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    (void)snprintf(first, sizeof first, "%s", id);
    CHECK_EQ(load("a", "boot2", "m2"), STATUS_OK);
    check_copy("a", first);
    end();
}

/* Replaces the number of the device in a file of the directory, in place. */
static void set_device(const char *name)
{
    char text[1024], *device;
    const int fd = open(dir_of(name), O_RDWR | O_CLOEXEC);
    const ssize_t got = read(fd, text, sizeof text - 1);

    CHECK(got > 0);
    text[got] = '\0';
    device = strstr(text, "\"device\":\"");
    CHECK(device != NULL);
    device[10] = device[10] == '9' ? '8' : '9';
    CHECK_EQ(pwrite(fd, text, (size_t)got, 0), got);
    CHECK_EQ(close(fd), 0);
}

static bool says(const char *name, const char *word)
{
    char text[1024];
    const int fd = open(dir_of(name), O_RDONLY | O_CLOEXEC);
    const ssize_t got = read(fd, text, sizeof text - 1);

    CHECK(got > 0 && close(fd) == 0);
    text[got] = '\0';
    return strstr(text, word) != NULL;
}

/* After a restart of the machine the device may have another number. A snapshot that is made later keeps the inodes, and is
 * on another device in the same boot. */
TEST(a_snapshot_is_noticed_in_each_boot)
{
    char first[IDENTITY_BYTES_MAX];

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    (void)snprintf(first, sizeof first, "%s", id);
    set_device("a/state-id.json");
    set_device("a/parts/id.json");
    CHECK_EQ(load("a", "boot2", "m1"), STATUS_OK);
    CHECK_STR(id, first);
    CHECK(says("a/state-id.json", "\"boot2\"") && says("a/parts/id.json", "\"boot2\""));
    CHECK_EQ(load("a", "boot2", "m1"), STATUS_OK);
    CHECK_STR(id, first);
    set_device("a/state-id.json");
    set_device("a/parts/id.json");
    CHECK_EQ(load("a", "boot2", "m1"), STATUS_OK);
    check_copy("a", first);
    end();
}

TEST(a_damaged_file_is_kept_aside_and_the_shims_stay)
{
    static const char *const texts[] = {
        "", "{", "[]", "{\"state_id\":\"x\"}",
        ("{\"version\":1,\"state_id\":\"\",\"inode\":\"1\",\"device\":\"1\",\"boot_id\":\"b\","
         "\"machine_id\":\"\"}")};

    begin();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK_EQ(rundir_write(dir_of("a"), "state-id.json", texts[i], strlen(texts[i]), &err),
                 STATUS_OK);
        CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
        CHECK_EQ(found, i == 0 ? STATE_ID_DAMAGED : STATE_ID_RESTORED);
        CHECK_EQ(strlen(id), 32);
        CHECK(is_there("a/run/ours-1-g1"));
        CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
        CHECK_EQ(found, STATE_ID_KNOWN);
        CHECK(is_there("a/state-id.json.damaged"));
        CHECK_EQ(rundir_write(dir_of("a"), "state-id.json", texts[i], strlen(texts[i]), &err),
                 STATUS_OK);
        CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK); /* the one before is not overwritten */
        CHECK_EQ(found, STATE_ID_RESTORED);
        CHECK(is_there("a/state-id.json.damaged"));
        CHECK_EQ(unlink(dir_of("a/state-id.json.damaged-2")), 0);
        CHECK_EQ(unlink(dir_of("a/state-id.json.damaged")), 0);
    }
    end();
}

/* Without the record nobody knows what was started there. */
TEST(a_removed_file_comes_back_from_the_record_and_a_removed_record_makes_a_new_id)
{
    char first[IDENTITY_BYTES_MAX];

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    (void)snprintf(first, sizeof first, "%s", id);
    CHECK_EQ(unlink(dir_of("a/state-id.json")), 0);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_RESTORED);
    CHECK_STR(id, first);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_EQ(unlink(dir_of("a/parts/id.json")), 0);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_NO_RECORD);
    CHECK(strcmp(id, first) != 0);
    CHECK(is_there("a/run/ours-1-g1"));
    (void)snprintf(first, sizeof first, "%s", id);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_KNOWN);
    CHECK_STR(id, first);
    end();
}

TEST(a_copy_without_its_id_is_known_by_its_record)
{
    struct arena arena = {0};
    char *bytes;
    size_t byte_count;

    begin();
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(rundir_make(dir_of("b/run/ours-1-g1"), 0700, &err), STATUS_OK);
    CHECK_EQ(rundir_make(dir_of("b/parts"), 0700, &err), STATUS_OK);
    CHECK_EQ(rundir_read_state(dir_of("a/parts"), "id.json", &arena, &bytes, &byte_count, &err),
             STATUS_OK);
    CHECK_EQ(rundir_write_state(dir_of("b/parts"), "id.json", bytes, byte_count, &err), STATUS_OK);
    arena_reset(&arena);
    CHECK_EQ(load("b", "boot1", "m1"), STATUS_OK);
    CHECK_EQ(found, STATE_ID_COPY);
    CHECK(!is_there("b/run/ours-1-g1"));
    end();
}

TEST(what_cannot_be_read_is_not_new)
{
    struct stat info;

    begin();
    CHECK_EQ(mkdir(dir_of("a/state-id.json"), 0700), 0);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_REFUSED);
    CHECK(strstr(err.text, "state-id.json") != NULL);
    CHECK_EQ(rmdir(dir_of("a/state-id.json")), 0);
    CHECK_EQ(symlink(dir_of("elsewhere"), dir_of("a/state-id.json")), 0);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_REFUSED);
    CHECK(!is_there("elsewhere") && is_there("a/run/ours-1-g1"));
    CHECK_EQ(unlink(dir_of("a/state-id.json")), 0);
    CHECK_EQ(mkfifo(dir_of("a/state-id.json"), 0600), 0);
    CHECK_EQ(load("a", "boot1", "m1"), STATUS_REFUSED);
    CHECK(lstat(dir_of("a/state-id.json"), &info) == 0 && S_ISFIFO(info.st_mode));
    end();
}

static const char *machine(const char *etc, const char *firmware, const char *card)
{
    static char ids[4][IDENTITY_BYTES_MAX];
    static uint32_t next;
    char *out = ids[next++ % 4];

    machine_id_of(&(struct machine_facts){etc, firmware, card}, out);
    return out;
}

TEST(a_machine_has_an_id)
{
    static const char *const etc = "0123456789abcdef0123456789abcdef";
    static const char *const firmware = "12345678-9abc-def0-1234-56789abcdef0";
    static const char *const zeros = "00000000-0000-0000-0000-000000000000";
    static const char *const card = "52:54:00:12:34:56";

    CHECK_STR(machine(etc, NULL, NULL), ""); /* the image's, the same on every machine of it */
    CHECK_STR(machine(etc, zeros, NULL), "");
    CHECK_EQ(strlen(machine(etc, firmware, NULL)), 32);
    CHECK_EQ(strlen(machine(etc, NULL, card)), 32);
    CHECK_EQ(strlen(machine(NULL, NULL, card)), 32);
    CHECK(strstr(machine(etc, firmware, NULL), etc) == NULL); /* machine-id(5): not to be shown */
    CHECK(strcmp(machine(etc, NULL, card), machine(etc, firmware, card)) != 0);
    CHECK(strcmp(machine(etc, firmware, NULL), machine(etc, firmware, card)) != 0);
    CHECK(strcmp(machine(NULL, firmware, NULL), machine(etc, firmware, NULL)) != 0);
    CHECK(strcmp(machine(etc, NULL, card), machine(etc, NULL, "52:54:00:12:34:57")) != 0);
    CHECK_STR(machine(etc, zeros, card), machine(etc, NULL, card));
    CHECK_STR(machine("uninitialized", NULL, NULL), "");
    CHECK_STR(machine("", "", NULL), "");
    CHECK_STR(machine(NULL, NULL, NULL), "");
    CHECK_STR(machine(NULL, "ffffffff-ffff-ffff-ffff-ffffffffffff", NULL), "");
    CHECK_STR(machine(etc, "03000200-0400-0500-0006-000700080009", NULL), "");
    CHECK_STR(machine(etc, "4C4C4544-0000-2010-8020-80C04F202020", NULL), "");
}

/* A device as the kernel shows it. */
static void add_device(const char *name, const char *address, const char *assigned,
                       bool has_hardware)
{
    char path[128];

    (void)snprintf(path, sizeof path, "net/%s", name);
    CHECK_EQ(rundir_make(dir_of(path), 0700, &err), STATUS_OK);
    CHECK_EQ(rundir_write(dir_of(path), "address", address, strlen(address), &err), STATUS_OK);
    CHECK_EQ(rundir_write(dir_of(path), "addr_assign_type", assigned, strlen(assigned), &err),
             STATUS_OK);
    (void)snprintf(path, sizeof path, "net/%s/device", name);
    if (has_hardware)
        CHECK_EQ(rundir_make(dir_of(path), 0700, &err), STATUS_OK);
}

TEST(only_the_address_of_a_card_is_that_of_a_machine)
{
    char card[MACHINE_CARD_BYTES];

    begin();
    CHECK(!machine_card(dir_of("net"), card)); /* no such folder */
    CHECK_EQ(rundir_make(dir_of("net"), 0700, &err), STATUS_OK);
    add_device("lo", "00:00:00:00:00:00\n", "0\n", false);
    add_device("docker0", "02:42:ac:11:00:02\n", "3\n", false);
    add_device("veth1", "0a:58:0a:f4:00:01\n", "0\n", false);
    add_device("vf0", "1a:2b:3c:4d:5e:6f\n", "1\n", true); /* drawn at each boot */
    add_device("none0", "00:00:00:00:00:00\n", "0\n", true);
    add_device("qemu0", "52:54:00:12:34:56\n", "0\n",
               true); /* the same in all machines of one image */
    add_device("fire0", "02:fc:00:00:00:01\n", "0\n", true);
    add_device("vbox0", "08:00:27:12:34:56\n", "0\n", true);
    add_device("group0", "01:00:5e:00:00:01\n", "0\n", true);
    CHECK(!machine_card(dir_of("net"), card));
    add_device("eth1", "b4:2e:99:00:00:02\n", "0\n", true);
    CHECK(machine_card(dir_of("net"), card));
    CHECK_STR(card, "b4:2e:99:00:00:02");
    add_device("eth0", "b4:2e:99:00:00:01\n", "0\n", true);
    CHECK(machine_card(dir_of("net"), card));
    CHECK_STR(card, "b4:2e:99:00:00:01");
    end();
}

static void check_hash(const char *text, const char *expected)
{
    uint8_t hash[SHA256_BYTES];
    char out[2 * SHA256_BYTES + 1];

    sha256(text, strlen(text), hash);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
    CHECK_STR(out, expected);
}

/* NIST's examples, and a text whose padding just needs another block. */
TEST(sha256_is_that_of_fips_180)
{
    check_hash("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hash("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_hash(
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnop"
        "qrlmnopqrsmnopqrstnopqrstu",
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

TEST_MAIN
