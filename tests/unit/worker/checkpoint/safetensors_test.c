/* safetensors: files that we write can be read again, also by other programs; inconsistent files
 * are refused. */
#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/worker/data/golden.h"

static const char *write_raw(const char *name, const void *bytes, size_t byte_count)
{
    static char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, byte_count, file), byte_count);
    CHECK_EQ(fclose(file), 0);
    return path;
}

TEST(written_is_read)
{
    const float weights[6] = {1, -2.5F, 0, 3e-40F, 1e38F, 7};
    const int64_t steps = -5;
    const struct safetensors_tensor tensors[] = {
        {.name = "layer.weight",
         .type = SAFETENSORS_F32,
         .dims = {2, 3},
         .dim_count = 2,
         .values = weights},
        {.name = "empty",
         .type = SAFETENSORS_U8,
         .dims = {0, 7},
         .dim_count = 2,
         .values = weights},
        {.name = "a \"quoted\" \xc3\xa9", .type = SAFETENSORS_I64, .values = &steps},
    };
    const struct safetensors_metadata note = {"format", "pt"};
    struct safetensors file;
    struct err err = {0};
    char path[512];
    float weights_again[6];
    int64_t steps_again;
    int fd;

    (void)snprintf(path, sizeof path, "%s/a.safetensors", test_dir());
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK_EQ(safetensors_write(fd, tensors, 3, &note, 1, &err), STATUS_OK);
    CHECK_EQ(close(fd), 0);
    if (safetensors_open(&file, path, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(file.tensor_count, 3);
    CHECK_EQ(file.data_begin % 8, 0);
    CHECK_STR(safetensors_metadata(&file, "format"), "pt");
    CHECK(safetensors_metadata(&file, "Format") == NULL);
    CHECK(safetensors_find(&file, "Layer.weight") == NULL);
    CHECK_EQ(safetensors_find(&file, "empty")->byte_count, 0);
    CHECK_EQ(safetensors_find(&file, "layer.weight")->dims[1], 3);
    CHECK_EQ(safetensors_read(&file, safetensors_find(&file, "layer.weight"), weights_again, &err),
             STATUS_OK);
    CHECK_BYTES(weights_again, weights, sizeof weights);
    CHECK_EQ(safetensors_read(&file, safetensors_find(&file, tensors[2].name), &steps_again, &err),
             STATUS_OK);
    CHECK_EQ(steps_again, -5);
    safetensors_close(&file);
}

/* Written by the safetensors library itself. */
TEST(torchs_file_is_read)
{
    const char *path = test_shared("golden/convnet-seed0-init.safetensors");
    const struct safetensors_tensor *tensor;
    struct safetensors file;
    struct err err = {0};
    cJSON *golden;
    float *values;
    char hex[65];

    if (path == NULL)
        SKIP("the golden values (../shared/golden) are not here");
    if (safetensors_open(&file, path, &err) != STATUS_OK)
        FAIL("%s", err.text);
    golden = golden_read("convnet-mnist-1rank.json");
    tensor = safetensors_find(&file, "fc.weight");
    CHECK(tensor != NULL && tensor->type == SAFETENSORS_F32 && tensor->dim_count == 2);
    CHECK_EQ(tensor->dims[1], 1568);
    values = malloc(tensor->byte_count);
    CHECK_EQ(safetensors_read(&file, tensor, values, &err), STATUS_OK);
    golden_sha256(values, tensor->byte_count, hex);
    free(values);
    CHECK_STR(hex,
              cJSON_GetObjectItem(
                  cJSON_GetObjectItem(cJSON_GetObjectItem(golden, "init"), "fc.weight"), "sha256")
                  ->valuestring);
    cJSON_Delete(golden);
    safetensors_close(&file);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Headers over 8 bytes of values. */
static const struct {
    const char *header;
    const char *word; /* of the refusal; NULL: good */
} headers[] = {
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") "}", NULL},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") "}   \n", NULL},
    {"{\"a\":" ENTRY("F32", "[]", "[0,4]") ",\"b\":" ENTRY("F16", "[2,1]", "[4,8]") "}", NULL},
    {"{\"b\":" ENTRY("I64", "[1]", "[0,8]") ",\"a\":" ENTRY("F32", "[0]", "[0,0]") "}", NULL},
    {"{\"__metadata__\":{\"k\":\"v\"},\"a\":" ENTRY("U8", "[8]", "[0,8]") "}", NULL},
    {"", "not a JSON object"},
    {"{", "not a JSON object"},
    {"[]", "not a JSON object"},
    {"{}", "expected 0 bytes"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") "} x", "not a JSON object"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",\"a\":" ENTRY("F32", "[2]", "[0,8]") "}",
     "not a JSON object"},
    {"{\"a\\u0000b\":" ENTRY("F32", "[2]", "[0,8]") "}", "not a JSON object"},
    {"{\"a\":1}", "not an object"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "not an object"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", "not an object"},
    {"{\"a\":{\"Dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype is not"},
    {"{\"a\":" ENTRY("F8", "[2]", "[0,8]") "}", "dtype is not"},
    {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype is not"},
    {"{\"a\":" ENTRY("F32", "{}", "[0,8]") "}", "shape is not"},
    {"{\"a\":" ENTRY("F32", "[-2]", "[0,8]") "}", "no count"},
    {"{\"a\":" ENTRY("F32", "[1.5]", "[0,8]") "}", "no count"},
    {"{\"a\":" ENTRY("F32", "[\"2\"]", "[0,8]") "}", "no count"},
    {"{\"a\":" ENTRY("F32", "[1e999]", "[0,8]") "}", "no count"},
    {"{\"a\":" ENTRY("F32", "[4294967296,4294967296]", "[0,8]") "}", "too large"},
    {"{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1,2]", "[0,8]") "}", "more than 8"},
    {"{\"a\":" ENTRY("F32", "[2]", "[8,0]") "}", "outside"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,16]") "}", "outside"},
    {"{\"a\":" ENTRY("F32", "[2]", "[-8,0]") "}", "pair of counts"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0]") "}", "pair of counts"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8,8]") "}", "pair of counts"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,4]") "}", "do not agree"},
    {"{\"a\":" ENTRY("F32", "[1]", "[4,8]") "}", "hole"},
    {"{\"a\":" ENTRY("F32", "[1]", "[0,4]") "}", "expected 4 bytes"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",\"b\":" ENTRY("F32", "[1]", "[4,8]") "}", "overlaps"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,8]") ",\"b\":" ENTRY("F32", "[2]", "[0,8]") "}", "overlaps"},
    {"{\"__metadata__\":[],\"a\":" ENTRY("U8", "[8]", "[0,8]") "}", "object of strings"},
    {"{\"__metadata__\":{\"k\":1},\"a\":" ENTRY("U8", "[8]", "[0,8]") "}", "object of strings"},
};

TEST(headers_are_checked)
{
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct safetensors file;
        struct err err = {0};
        enum status status =
            safetensors_parse(&file, "test", headers[i].header, strlen(headers[i].header), 8, &err);
        if (headers[i].word == NULL) {
            if (status != STATUS_OK)
                FAIL("refused %s: %s", headers[i].header, err.text);
            safetensors_close(&file);
        } else if (status != STATUS_BAD_INPUT || strstr(err.text, headers[i].word) == NULL) {
            FAIL("header %s: expected a refusal with \"%s\", got %s: %s", headers[i].header,
                 headers[i].word, status_name(status), err.text);
        }
    }
}

/* Every truncation and every changed byte of a good header: an answer, no crash (the sanitizer
 * build looks on). */
TEST(damaged_headers_never_crash)
{
    const char *good = "{\"__metadata__\":{\"k\":\"v\"},\"a\":" ENTRY(
        "F32", "[1]", "[0,4]") ",\"b\":" ENTRY("F16", "[2,1]", "[4,8]") "}";
    static const char changes[] = {'\0', '"', '{', '}', '[',  ']',       ',',
                                   ':',  '9', '-', 'e', '\\', (char)0xff};
    char header[512];
    size_t n = strlen(good), taken = 0, refused = 0;
    struct safetensors file;

    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k < sizeof changes; k++) {
            (void)snprintf(header, sizeof header, "%s", good);
            if (i < n)
                header[i] = changes[k];
            if (safetensors_parse(&file, "test", header, n, 8, NULL) == STATUS_OK) {
                taken++;
                safetensors_close(&file);
            } else {
                refused++;
            }
        }
        if (i < n)
            CHECK(safetensors_parse(&file, "test", good, i, 8, NULL) != STATUS_OK);
    }
    CHECK(taken > 0 && refused > taken);
}

TEST(files_that_lie)
{
    struct safetensors file;
    struct err err = {0};
    uint8_t bytes[16] = {0};

    CHECK_EQ(safetensors_open(&file, "/nonexistent/a.safetensors", &err), STATUS_NOT_FOUND);
    CHECK_EQ(safetensors_open(&file, test_dir(), &err), STATUS_BAD_INPUT);
    for (size_t n = 0; n < 8; n++)
        CHECK_EQ(safetensors_open(&file, write_raw("a.safetensors", bytes, n), &err),
                 STATUS_BAD_INPUT);
    bytes[0] = 9; /* longer than the file */
    CHECK_EQ(safetensors_open(&file, write_raw("a.safetensors", bytes, 16), &err),
             STATUS_BAD_INPUT);
    memset(bytes, 0xff, 8);
    CHECK_EQ(safetensors_open(&file, write_raw("a.safetensors", bytes, 16), &err),
             STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "18446744073709551615") != NULL);
}

TEST_MAIN
