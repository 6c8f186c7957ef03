#include "tests/unit/ddpctl/golden_tools.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

void check_golden(const char *name, struct buf *out)
{
    char path[256], expected[32768];
    size_t length;
    FILE *file;

    buf_add(out, "", 1);
    CHECK(!out->failed);
    (void)snprintf(path, sizeof path, "tests/unit/ddpctl/golden/%s.ok", name);
    if (getenv("DDP_UPDATE_GOLDEN")) {
        file = fopen(test_source(path), "we");
        CHECK(file != NULL);
        CHECK(fputs(out->bytes, file) >= 0);
        CHECK_EQ(fclose(file), 0);
    }
    file = fopen(test_source(path), "re");
    if (!file)
        FAIL("%s is missing", path);
    length = fread(expected, 1, sizeof expected - 1, file);
    expected[length] = '\0';
    (void)fclose(file);
    CHECK_STR(out->bytes, expected);
    buf_free(out);
    *out = (struct buf){0};
}

void check_json(const struct buf *out)
{
    const char *at = out->bytes, *end = out->bytes + out->byte_count;

    while (at < end) {
        size_t length = strcspn(at, "\n");
        cJSON *object = cJSON_ParseWithLength(at, length);

        CHECK(cJSON_IsObject(object));
        cJSON_Delete(object);
        at += length + 1;
    }
}
