/* What the validator takes, cJSON takes too (but for repeated keys), prints, and reads again as the
 * same value. */
#include <string.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "common/limits.h"
#include "tests/fuzz/target.h"

static void check_same(const cJSON *root)
{
    static const struct json_limits wide = {.depth_max = JSON_DEPTH_CAP, .token_max = UINT32_MAX};
    char *text = cJSON_PrintUnformatted(root);
    struct err err = {.text = ""};
    cJSON *again = NULL;

    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK(json_strict_parse(text, strlen(text), &wide, &again, &err) == STATUS_OK);
    FUZZ_CHECK(cJSON_Compare(root, again, 1));
    cJSON_Delete(again);
    cJSON_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    const char *text = (const char *)data;
    struct err err = {.text = ""};
    cJSON *root = NULL;
    enum status valid = json_validate(text, byte_count, NULL, &err);
    enum status status = json_strict_parse(text, byte_count, NULL, &root, &err);

    FUZZ_CHECK((status == STATUS_OK) == (root != NULL));
    if (valid != STATUS_OK) {
        FUZZ_CHECK(status == valid && err.text[0] != '\0');
    } else if (status != STATUS_OK) {
        FUZZ_CHECK(status == STATUS_BAD_INPUT && strstr(err.text, "is there twice") != NULL);
    } else {
        check_same(root);
    }
    cJSON_Delete(root);
    return 0;
}
