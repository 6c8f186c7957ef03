/* Whose state directory is used where a home is on several machines. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/key_file.h"
#include "launcherd/process/state_place.h"
#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"

static char base[64];
static struct state_place place;

static void begin(void)
{
    (void)snprintf(base, sizeof base, "/tmp/state-place-XXXXXX");
    CHECK(mkdtemp(base) != NULL);
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", base, name);
    file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_EQ(fclose(file), 0);
}

static void write_id(const char *machine, const char *boot)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "{\"version\":1,\"state_id\":\"ab\",\"machine_id\":\"%s\",\"boot_id\":\"%s\"}",
                   machine, boot);
    write_text("state-id.json", text);
}

static void write_key(const char *name)
{
    struct key key = {.server = "head:7400"};
    char path[256];
    struct err err;

    (void)snprintf(key.name, sizeof key.name, "%s", name);
    (void)snprintf(path, sizeof path, "%s/key", base);
    CHECK_EQ(key_file_write(path, &key, &err), STATUS_OK);
}

/* Whether the folder is that one of the usual place; "": the place itself. */
static void check_place(struct state_place_facts facts, const char *folder)
{
    char expected[256];
    struct err err;

    facts.base = base;
    facts.machine_id = facts.machine_id != NULL ? facts.machine_id : "";
    facts.boot_id = facts.boot_id != NULL ? facts.boot_id : "";
    CHECK_EQ(state_place_find(&facts, &place, &err), STATUS_OK);
    (void)snprintf(expected, sizeof expected, "%s%s%s", base, folder[0] != '\0' ? "/" : "", folder);
    CHECK_STR(place.dir, expected);
}

static void end(void)
{
    rundir_remove_all(AT_FDCWD, base);
}

TEST(machines_with_one_home_have_folders_of_their_own)
{
    begin();
    check_place((struct state_place_facts){.host = "m1", .joins = true}, "host-m1");
    CHECK_STR(place.word, "");
    check_place((struct state_place_facts){.host = "m2.example.org"}, "host-m2.example.org");
    check_place((struct state_place_facts){.host = "../m3"}, "host-.._m3");
    end();
}

TEST(a_state_of_before_stays_where_it_is_and_with_its_machine)
{
    begin();
    write_key("m1");
    check_place((struct state_place_facts){.host = "m1"}, "");
    CHECK(strstr(place.word, "is of this machine, m1, from now on") != NULL);
    check_place((struct state_place_facts){.host = "m1"}, "");
    CHECK_STR(place.word, "");
    check_place((struct state_place_facts){.host = "m2"}, "host-m2");
    CHECK(strstr(place.word, "is of another machine, m1; that of this one, m2, is in") != NULL);
    end();
}

/* m1 has not started since: its key is not replaced. */
TEST(another_machine_that_joins_first_leaves_the_key_of_before)
{
    begin();
    write_key("m1");
    check_place((struct state_place_facts){.host = "m2", .joins = true}, "host-m2");
    check_place((struct state_place_facts){.host = "m1.example.org"}, "");
    end();
}

TEST(the_id_of_the_machine_counts_more_than_names)
{
    begin();
    write_key("m2");
    write_id("aa", "b1");
    check_place((struct state_place_facts){.host = "m2", .machine_id = "bb"}, "host-m2");
    check_place((struct state_place_facts){.host = "m1", .machine_id = "aa", .joins = true}, "");
    check_place((struct state_place_facts){.host = "renamed", .machine_id = "aa"}, "");
    check_place((struct state_place_facts){.host = "m3", .machine_id = ""}, "host-m3");
    end();
    begin();
    write_id("", "b1"); /* a machine without an id is known in its boot */
    check_place((struct state_place_facts){.host = "m1", .boot_id = "b1", .joins = true}, "");
    end();
}

TEST(a_machine_with_another_name_is_told_of_its_folder)
{
    char path[256];

    begin();
    (void)snprintf(path, sizeof path, "%s/host-old", base);
    CHECK_EQ(mkdir(path, 0700), 0);
    check_place((struct state_place_facts){.host = "new"}, "host-new");
    CHECK(strstr(place.word, "--state-dir") != NULL && strstr(place.word, "/host-old") != NULL);
    check_place((struct state_place_facts){.host = "old"}, "host-old");
    CHECK_STR(place.word, "");
    end();
}

TEST_MAIN
