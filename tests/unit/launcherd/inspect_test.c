/* A process as JSON: only a child of the given parent is described. */
#include "launcherd/inspect/stack.h"

#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "tests/lib/test.h"

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

TEST(a_child_of_its_parent)
{
    cJSON *out = cJSON_CreateObject();

    CHECK(stack_describe(getpid(), getppid(), out));
    CHECK_STR(text_of(out, "state"), "R");
    CHECK_STR(text_of(out, "wchan"), "");
    CHECK(strncmp(text_of(out, "name"), "test-inspect", 12) == 0);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(out, "threads")), 1);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(out, "children")), 0);
    cJSON_Delete(out);
}

TEST(a_process_of_somebody_else)
{
    cJSON *out = cJSON_CreateObject();

    CHECK(!stack_describe(getpid(), getpid(), out)); /* not our child: the pid was reused */
    CHECK(!stack_describe(INT32_MAX, getppid(), out));
    CHECK(out->child == NULL);
    cJSON_Delete(out);
}

TEST(a_program_that_is_no_python)
{
    CHECK_EQ(stack_find_python(getpid()), 0);
}

TEST_MAIN
