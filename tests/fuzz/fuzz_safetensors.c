/* The header of a safetensors file: refused with its name, or every tensor lies within the values, by
 * itself, and is found by its name. The first 4 bytes say how many bytes of values there are. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/target.h"
#include "worker/checkpoint/safetensors.h"

/* What mutations begin with. */
static const struct {
    uint32_t data_bytes;
    const char *header;
} examples[] = {
    {24, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
         "\"b.w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]},"
         "\"__metadata__\":{\"format\":\"pt\",\"arch\":\"resnet18\"}}"},
    {8, "{\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}"},
    {0, "{}"},
    {0, "{\"none\":{\"dtype\":\"U8\",\"shape\":[0,3],\"data_offsets\":[0,0]}}     "},
    {12, "{\"y\":{\"dtype\":\"F16\",\"shape\":[1,2,1],\"data_offsets\":[8,12]},"
         "\"x\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
    {24, "{\"over\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
         "\"lap\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}"},
    {24, "{\"ho\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"le\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24]}}"},
    {16, "{\"twice\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
         "\"twice\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]}}"},
    {4, "{\"big\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}"},
};

void fuzz_corpus(fuzz_add *add)
{
    char bytes[512];

    for (size_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        uint32_t data_bytes = examples[i % (sizeof examples / sizeof examples[0])].data_bytes;
        const char *header = examples[i % (sizeof examples / sizeof examples[0])].header;

        memcpy(bytes, &data_bytes, sizeof data_bytes);
        (void)snprintf(bytes + sizeof data_bytes, sizeof bytes - sizeof data_bytes, "%s", header);
        add(bytes, sizeof data_bytes + strlen(header));
    }
}

static void check_tensors(const struct safetensors *file, uint64_t data_bytes)
{
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct safetensors_tensor *one = &file->tensors[i];

        FUZZ_CHECK(one->dim_count <= SAFETENSORS_DIMS_MAX);
        FUZZ_CHECK(strlen(one->name) <= SAFETENSORS_NAME_BYTES_MAX);
        FUZZ_CHECK(one->byte_count <= data_bytes && one->begin <= data_bytes - one->byte_count);
        FUZZ_CHECK(one->byte_count == safetensors_bytes(one));
        FUZZ_CHECK(i == 0 || strcmp(file->tensors[i - 1].name, one->name) < 0);
        FUZZ_CHECK(safetensors_find(file, one->name) == one);
        for (size_t j = 0; j < i && file->tensor_count <= 16; j++) {
            const struct safetensors_tensor *other = &file->tensors[j];

            FUZZ_CHECK(one->byte_count == 0 || other->byte_count == 0 ||
                       one->begin >= other->begin + other->byte_count ||
                       other->begin >= one->begin + one->byte_count);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct safetensors file;
    struct err err = {.text = ""};
    uint32_t data_bytes;
    enum status status;

    if (byte_count < sizeof data_bytes)
        return 0;
    memcpy(&data_bytes, data, sizeof data_bytes);
    status = safetensors_parse(&file, "f.safetensors", (const char *)data + sizeof data_bytes,
                               byte_count - sizeof data_bytes, data_bytes, &err);
    if (status != STATUS_OK) {
        FUZZ_CHECK(status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG);
        FUZZ_CHECK(strstr(err.text, "f.safetensors") != NULL);
        return 0;
    }
    check_tensors(&file, data_bytes);
    for (size_t i = 0; i < file.metadata_count; i++)
        FUZZ_CHECK(safetensors_metadata(&file, file.metadata[i].name) != NULL);
    safetensors_close(&file);
    return 0;
}
