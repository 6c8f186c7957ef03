#include "common/after_spec.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static struct after_spec spec;
static struct err err;

TEST(jobs_with_what_is_asked_of_each)
{
    CHECK_EQ(after_spec_parse("12", &spec, &err), STATUS_OK);
    CHECK(spec.count == 1 && !spec.items[0].any);
    CHECK_STR(spec.items[0].job, "12");
    CHECK_EQ(after_spec_parse("12:ok,prep:any,@last,3_4:any", &spec, &err), STATUS_OK);
    CHECK_EQ(spec.count, 4);
    CHECK_STR(spec.items[0].job, "12");
    CHECK_STR(spec.items[1].job, "prep");
    CHECK_STR(spec.items[2].job, "@last");
    CHECK_STR(spec.items[3].job, "3_4");
    CHECK(!spec.items[0].any && spec.items[1].any && !spec.items[2].any && spec.items[3].any);
    CHECK_EQ(after_spec_parse(" 12, prep:any ", &spec, &err), STATUS_OK);
    CHECK_STR(spec.items[0].job, "12");
    CHECK_STR(spec.items[1].job, "prep");
    CHECK(!spec.items[0].any && spec.items[1].any);
}

TEST(what_is_none_is_refused)
{
    static const char *const bad[] = {
        "",     ",",        "1,",   ",1", "1,,2", "1:",  ":ok",   "1:never", "1:oka",
        "1:an", "1:ok:any", "1:,2", " ",  "1, ",  "1 2", "1 :ok", "1: ok"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (after_spec_parse(bad[i], &spec, &err) != STATUS_BAD_INPUT)
            FAIL("'%s' is taken", bad[i]);
        CHECK(strstr(err.text, "a job is expected") != NULL);
    }
}

TEST(names_and_lists_have_limits)
{
    char name[JOB_NAME_BYTES_MAX + 1], text[AFTER_SPEC_BYTES_MAX] = "";

    memset(name, 'a', sizeof name);
    name[JOB_NAME_BYTES_MAX] = '\0';
    CHECK_EQ(after_spec_parse(name, &spec, &err), STATUS_BAD_INPUT);
    name[JOB_NAME_BYTES_MAX - 1] = '\0';
    for (uint32_t i = 0; i < AFTER_MAX; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:any",
                       i == 0 ? "" : ",", name);
    CHECK_EQ(after_spec_parse(text, &spec, &err), STATUS_OK);
    CHECK_EQ(spec.count, AFTER_MAX);
    CHECK_STR(spec.items[AFTER_MAX - 1].job, name);
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), ",1");
    CHECK_EQ(after_spec_parse(text, &spec, &err), STATUS_TOO_BIG);
}

TEST_MAIN
