/* slots.json: written files can be read, also those of older and newer programs; a damaged file
 * only gives an error. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/node/slots_file.h"
#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"

static struct slots_record record;
static struct err err;

static enum status decode(const char *text)
{
    return slots_file_decode(text, strlen(text), &record, &err);
}

static void check_damaged(const char *text, const char *what)
{
    char expected[256];
    (void)snprintf(expected, sizeof expected, "the record of the slots is damaged: %s", what);
    CHECK(decode(text) == STATUS_BAD_INPUT);
    CHECK_STR(err.text, expected);
}

TEST(what_is_written_is_read)
{
    static const struct slots_record written = {
        .boot_id = "boot",
        .gpus = 2,
        .count = 2,
        .slots = {{.slot = 0, .has_baseline = true, .baseline_bytes = UINT64_MAX},
                  {.slot = 63,
                   .has_ecc = true,
                   .ecc_uncorrected = 3,
                   .remap_failed = true,
                   .incident = 1,
                   .reason = "Xid 79: \"the GPU\" \\ \xc3\xa9"}}};
    struct buf buf = {0};
    CHECK(slots_file_encode(&written, &buf, &err) == STATUS_OK);
    CHECK(slots_file_decode(buf.bytes, buf.byte_count, &record, &err) == STATUS_OK);
    CHECK_BYTES(&record, &written, sizeof record);
    CHECK(strstr(buf.bytes, "{\"version\":1,\"boot_id\":\"boot\",\"gpus\":2,"
                            "\"slots\":[{\"slot\":0,") == buf.bytes);
    buf_free(&buf);
}

TEST(a_newer_program_may_have_added_fields)
{
    CHECK(decode(
              "{\"version\":7,\"boot_id\":\"b\",\"gpus\":1,\"racks\":[1,{}],\"slots\":[{\"slot\":4,"
              "\"incident\":\"9\",\"reason\":\"r\",\"voltage\":1.5}]}") == STATUS_OK);
    CHECK_EQ(record.count, 1);
    CHECK_EQ(record.slots[0].slot, 4);
    CHECK_EQ(record.slots[0].incident, 9);
    CHECK_STR(record.slots[0].reason, "r");
}

TEST(an_older_program_may_lack_fields)
{
    CHECK(decode("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1}]}") == STATUS_OK);
    CHECK_EQ(record.gpus, 0);
    CHECK(!record.slots[0].has_baseline && record.slots[0].incident == 0);
    CHECK(decode("{\"version\":1,\"boot_id\":\"b\"}") == STATUS_OK);
    CHECK_EQ(record.count, 0);
}

TEST(the_message_of_before_version_1)
{
    CHECK(decode("{\"type\":\"slots_kept\",\"seq\":1,\"boot_id\":\"b\",\"gpus\":1,\"slots\":[{"
                 "\"slot\":0,"
                 "\"has_baseline\":true,\"baseline_bytes\":\"5\",\"has_ecc\":false,"
                 "\"ecc_uncorrected\":\"0\",\"remap_failed\":false,\"incident\":\"8\","
                 "\"reason\":\"Xid 79\"}]}") == STATUS_OK);
    CHECK_EQ(record.gpus, 1);
    CHECK_EQ(record.slots[0].baseline_bytes, 5);
    CHECK_EQ(record.slots[0].incident, 8);
}

TEST(damage_is_an_error)
{
    char many[4096] = "{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":0}";
    check_damaged("", "it is not JSON");
    check_damaged("{\"version\":1,", "it is not JSON");
    check_damaged("[]", "it is not a JSON object");
    check_damaged("{\"boot_id\":\"b\"}", "it has no version");
    check_damaged("{\"version\":\"1\",\"boot_id\":\"b\"}", "it has no version");
    check_damaged("{\"version\":1}", "it has no boot_id");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"gpus\":65}", "the number of GPUs");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"gpus\":-1}", "the number of GPUs");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":{}}", "slots is not a list");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[7]}", "a slot is not an object");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{}]}", "a slot has no number");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":64}]}",
                  "a slot has no number");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":0.5}]}",
                  "a slot has no number");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1},{\"slot\":1}]}",
                  "a slot is there twice");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1,\"incident\":\"-1\"}]}",
                  "a field of a slot has another type or range");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1,\"reason\":\"a\\nb\"}]}",
                  "a field of a slot has another type or range");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1,\"reason\":\"\xff\"}]}",
                  "a field of a slot has another type or range");
    check_damaged("{\"version\":1,\"boot_id\":\"b\",\"slots\":[{\"slot\":1,\"has_ecc\":1}]}",
                  "a field of a slot has another type or range");
    for (uint32_t i = 1; i <= SLOTS_PER_NODE_MAX; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",{\"slot\":%u}", i);
    (void)snprintf(many + strlen(many), sizeof many - strlen(many), "]}");
    check_damaged(many, "it has too many slots");
}

static void write_file(const char *dir, const char *name, const char *head, const char *text)
{
    char path[PATH_MAX];
    rundir_join(path, dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    (void)fwrite(head, 1, 4, file);
    (void)fputs(text, file);
    CHECK(fclose(file) == 0);
}

TEST(files_of_a_state_directory)
{
    char dir[] = "/tmp/ddp-slots-XXXXXX", path[PATH_MAX];
    CHECK(mkdtemp(dir) != NULL);
    CHECK(slots_file_read(dir, &record, &err) == STATUS_NOT_FOUND);
    write_file(dir, "slots.msg", "\0\0\0\x21", "{\"type\":\"slots_kept\",\"boot_id\":\"old\"}");
    CHECK(slots_file_read(dir, &record, &err) == STATUS_OK);
    CHECK_STR(record.boot_id, "old");
    (void)snprintf(record.boot_id, sizeof record.boot_id, "new");
    CHECK(slots_file_write(dir, &record, &err) == STATUS_OK);
    rundir_join(path, dir, "slots.msg");
    CHECK(access(path, F_OK) != 0);
    CHECK(slots_file_read(dir, &record, &err) == STATUS_OK);
    CHECK_STR(record.boot_id, "new");
    write_file(dir, "slots.json", "{\"ve", "rsion");
    CHECK(slots_file_read(dir, &record, &err) == STATUS_BAD_INPUT);
    rundir_join(path, dir, "slots.json");
    CHECK(unlink(path) == 0 && truncate(dir, 0) != 0);
    write_file(dir, "slots.msg", "\0\0\0\1", "");
    CHECK(slots_file_read(dir, &record, &err) == STATUS_BAD_INPUT);
    rundir_remove_all(AT_FDCWD, dir);
}

TEST_MAIN
