/* Writer and reader of safetensors files. The reader checks everything before it reads a value. */
#include "worker/checkpoint/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "worker/data/fileio.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are written as they are in memory");

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8 };

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
#define TYPE_ROW(type_name, value_bytes) [SAFETENSORS_##type_name] = {#type_name, value_bytes},
    SAFETENSORS_TYPES(TYPE_ROW)
#undef TYPE_ROW
};
static const size_t type_count = sizeof types / sizeof types[0];

uint64_t safetensors_bytes(const struct safetensors_tensor *tensor)
{
    uint64_t bytes = types[tensor->type].bytes;

    assert(tensor->dim_count <= SAFETENSORS_DIMS_MAX);
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        bytes *= tensor->dims[i];
    return bytes;
}

/* -- writing -- */

static bool add_tensor(cJSON *header, const struct safetensors_tensor *tensor, uint64_t begin)
{
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    cJSON *shape, *offsets;
    bool added;

    if (entry == NULL || cJSON_AddStringToObject(entry, "dtype", types[tensor->type].name) == NULL)
        return false;
    shape = cJSON_AddArrayToObject(entry, "shape");
    offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    if (shape == NULL || offsets == NULL)
        return false;
    added = cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin)) &&
            cJSON_AddItemToArray(offsets,
                                 cJSON_CreateNumber((double)(begin + safetensors_bytes(tensor))));
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        added = added && cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->dims[i]));
    return added;
}

static char *header_text(const struct safetensors_tensor *tensors, size_t tensor_count,
                         const struct safetensors_metadata *metadata, size_t metadata_count)
{
    cJSON *header = cJSON_CreateObject();
    cJSON *object = metadata_count > 0 ? cJSON_AddObjectToObject(header, "__metadata__") : NULL;
    bool added = header != NULL && (object != NULL || metadata_count == 0);
    uint64_t begin = 0;
    char *text;

    for (size_t i = 0; added && i < metadata_count; i++)
        added = cJSON_AddStringToObject(object, metadata[i].name, metadata[i].value) != NULL;
    for (size_t i = 0; added && i < tensor_count; i++) {
        assert(strlen(tensors[i].name) <= SAFETENSORS_NAME_BYTES_MAX);
        added = add_tensor(header, &tensors[i], begin);
        begin += safetensors_bytes(&tensors[i]);
    }
    text = added ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    return text;
}

/* Writes the length, the text, and spaces so that the values start at a multiple of 8 bytes. */
static enum status write_header(struct fileio_out *out, const char *text, struct err *err)
{
    static const char spaces[ALIGN_BYTES + 1] = "        ";
    size_t text_bytes = strlen(text);
    size_t padding = (ALIGN_BYTES - text_bytes % ALIGN_BYTES) % ALIGN_BYTES;
    uint64_t length = text_bytes + padding;
    enum status status;

    assert(length % ALIGN_BYTES == 0);
    status = fileio_out_write(out, &length, sizeof length, err);

    if (status == STATUS_OK)
        status = fileio_out_write(out, text, text_bytes, err);
    if (status == STATUS_OK)
        status = fileio_out_write(out, spaces, padding, err);
    return status;
}

enum status safetensors_write_out(struct fileio_out *out, const struct safetensors_tensor *tensors,
                                  size_t tensor_count, const struct safetensors_metadata *metadata,
                                  size_t metadata_count, struct err *err)
{
    char *text = header_text(tensors, tensor_count, metadata, metadata_count);
    enum status status;

    assert(out->fd >= 0);
    if (text == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a header of %zu tensors",
                       tensor_count);
    status = write_header(out, text, err);
    cJSON_free(text);
    for (size_t i = 0; status == STATUS_OK && i < tensor_count; i++)
        status = fileio_out_write(out, tensors[i].values, safetensors_bytes(&tensors[i]), err);
    return status;
}

enum status safetensors_write(int fd, const struct safetensors_tensor *tensors, size_t tensor_count,
                              const struct safetensors_metadata *metadata, size_t metadata_count,
                              struct err *err)
{
    struct fileio_out out = {.fd = fd};

    return safetensors_write_out(&out, tensors, tensor_count, metadata, metadata_count, err);
}

/* -- reading -- */

static enum status bad(struct err *err, const char *what, const char *name, const char *why)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: tensor %.80s: %s", what, name, why);
}

/* A whole number that a double holds exactly. */
static bool read_count(const cJSON *item, uint64_t *count)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53))
        return false;
    *count = (uint64_t)item->valuedouble;
    return (double)*count == item->valuedouble;
}

static bool find_type(const cJSON *item, enum safetensors_type *type)
{
    for (size_t i = 0; cJSON_IsString(item) && i < type_count; i++) {
        if (strcmp(item->valuestring, types[i].name) == 0) {
            *type = (enum safetensors_type)i;
            return true;
        }
    }
    return false;
}

static const char *read_shape(const cJSON *shape, struct safetensors_tensor *tensor)
{
    uint64_t bytes = types[tensor->type].bytes;
    const cJSON *dim;

    if (!cJSON_IsArray(shape))
        return "shape is not a list";
    cJSON_ArrayForEach(dim, shape)
    {
        uint64_t *out = &tensor->dims[tensor->dim_count];
        if (tensor->dim_count == SAFETENSORS_DIMS_MAX)
            return "shape has more than 8 dimensions";
        if (!read_count(dim, out))
            return "shape has something that is no count";
        if (__builtin_mul_overflow(bytes, *out, &bytes))
            return "shape is too large";
        tensor->dim_count++;
    }
    tensor->byte_count = bytes;
    return NULL;
}

static const char *read_offsets(const cJSON *offsets, struct safetensors_tensor *tensor,
                                uint64_t data_bytes)
{
    uint64_t end;

    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !read_count(offsets->child, &tensor->begin) || !read_count(offsets->child->next, &end))
        return "data_offsets is not a pair of counts";
    if (tensor->begin > end || end > data_bytes)
        return "data_offsets lie outside the file";
    if (end - tensor->begin != tensor->byte_count)
        return "data_offsets do not agree with dtype and shape";
    return NULL;
}

/* Reads an entry with exactly three keys. Returns what is wrong with it, or NULL. */
static const char *read_entry(const cJSON *entry, struct safetensors_tensor *tensor,
                              uint64_t data_bytes)
{
    const char *why;

    if (!cJSON_IsObject(entry) || cJSON_GetArraySize(entry) != 3)
        return "not an object of dtype, shape and data_offsets";
    if (strlen(entry->string) > SAFETENSORS_NAME_BYTES_MAX)
        return "its name is too long";
    if (!find_type(cJSON_GetObjectItemCaseSensitive(entry, "dtype"), &tensor->type))
        return "dtype is not F32, F16, BF16, F64, I64 or U8";
    why = read_shape(cJSON_GetObjectItemCaseSensitive(entry, "shape"), tensor);
    if (why == NULL)
        why = read_offsets(cJSON_GetObjectItemCaseSensitive(entry, "data_offsets"), tensor,
                           data_bytes);
    return why;
}

static int by_begin(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->byte_count < y->byte_count ? -1
                                         : x->byte_count > y->byte_count; /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Checks that there is no gap, no overlap, nothing after the last value and no name twice. Sorts
 * the tensors by name. */
static enum status check_together(struct safetensors *file, const char *what, uint64_t data_bytes,
                                  struct err *err)
{
    struct safetensors_tensor *tensors = file->tensors;
    uint64_t end = 0;

    if (file->tensor_count > 0)
        qsort(tensors, file->tensor_count, sizeof *tensors, by_begin);
    for (size_t i = 0; i < file->tensor_count; i++) {
        if (tensors[i].begin != end)
            return bad(err, what, tensors[i].name, "overlaps another, or leaves a hole");
        end += tensors[i].byte_count;
    }
    if (end != data_bytes)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: expected %llu bytes of values as the header says, found %llu", what,
                       (unsigned long long)end, (unsigned long long)data_bytes);
    if (file->tensor_count > 0)
        qsort(tensors, file->tensor_count, sizeof *tensors, by_name);
    for (size_t i = 1; i < file->tensor_count; i++)
        if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
            return bad(err, what, tensors[i].name, "is there twice");
    return STATUS_OK;
}

static enum status take_metadata(struct safetensors *file, const char *what, const cJSON *metadata,
                                 struct err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(metadata) || file->metadata != NULL)
        return bad(err, what, "__metadata__", "is not one object of strings");
    file->metadata = calloc((size_t)cJSON_GetArraySize(metadata) + 1, sizeof *file->metadata);
    if (file->metadata == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its header", what);
    cJSON_ArrayForEach(item, metadata)
    {
        struct safetensors_metadata *out = &file->metadata[file->metadata_count];
        if (!cJSON_IsString(item))
            return bad(err, what, "__metadata__", "is not one object of strings");
        file->metadata_count++;
        out->name = strdup(item->string);
        out->value = strdup(item->valuestring);
        if (out->name == NULL || out->value == NULL)
            return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its header", what);
    }
    return STATUS_OK;
}

static enum status take_tensor(struct safetensors *file, const char *what, const cJSON *entry,
                               uint64_t data_bytes, struct err *err)
{
    struct safetensors_tensor *tensor = &file->tensors[file->tensor_count];
    const char *why = read_entry(entry, tensor, data_bytes);

    if (why != NULL)
        return bad(err, what, entry->string, why);
    tensor->name = strdup(entry->string);
    if (tensor->name == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its header", what);
    file->tensor_count++;
    return STATUS_OK;
}

static enum status take_entries(struct safetensors *file, const char *what, const cJSON *header,
                                uint64_t data_bytes, struct err *err)
{
    const cJSON *entry;

    file->tensors = calloc((size_t)cJSON_GetArraySize(header) + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its header", what);
    cJSON_ArrayForEach(entry, header)
    {
        enum status status = strcmp(entry->string, "__metadata__") == 0
                                 ? take_metadata(file, what, entry, err)
                                 : take_tensor(file, what, entry, data_bytes, err);
        if (status != STATUS_OK)
            return status;
    }
    return check_together(file, what, data_bytes, err);
}

enum status safetensors_parse(struct safetensors *file, const char *what, const char *header,
                              size_t header_bytes, uint64_t data_bytes, struct err *err)
{
    cJSON *json = fileio_parse_json(header, header_bytes);
    enum status status;

    *file = (struct safetensors){.fd = -1};
    if (json == NULL || !cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: its header is not a JSON object", what);
    }
    status = take_entries(file, what, json, data_bytes, err);
    cJSON_Delete(json);
    if (status != STATUS_OK)
        safetensors_close(file);
    return status;
}

/* Reads the header after a check of its length; owned by the caller. */
static enum status read_header(int fd, const char *path, uint64_t file_bytes, char **header,
                               uint64_t *header_bytes, struct err *err)
{
    enum status status;

    if (file_bytes < LENGTH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: expected at least 8 bytes, found %llu", path,
                       (unsigned long long)file_bytes);
    status = fileio_read_at(fd, path, header_bytes, sizeof *header_bytes, 0, err);
    if (status != STATUS_OK)
        return status;
    if (*header_bytes > SAFETENSORS_HEADER_BYTES_MAX || *header_bytes > file_bytes - LENGTH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: expected a header of %llu bytes, the file has %llu in all", path,
                       (unsigned long long)*header_bytes, (unsigned long long)file_bytes);
    *header = malloc(*header_bytes + 1);
    if (*header == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its header", path);
    return fileio_read_at(fd, path, *header, *header_bytes, LENGTH_BYTES, err);
}

static enum status open_checked(struct safetensors *file, int fd, const char *path, struct err *err)
{
    uint64_t header_bytes = 0, file_bytes = 0;
    char *header = NULL;
    enum status status = fileio_size(fd, path, &file_bytes, err);

    if (status == STATUS_OK)
        status = read_header(fd, path, file_bytes, &header, &header_bytes, err);
    if (status == STATUS_OK)
        status = safetensors_parse(file, path, header, header_bytes,
                                   file_bytes - LENGTH_BYTES - header_bytes, err);
    free(header);
    if (status != STATUS_OK)
        return status;
    assert(file_bytes >= LENGTH_BYTES + header_bytes);
    file->data_begin = LENGTH_BYTES + header_bytes;
    file->fd = fd;
    return STATUS_OK;
}

enum status safetensors_open(struct safetensors *file, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status;

    *file = (struct safetensors){.fd = -1};
    if (fd < 0 && errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, errno, "there is no file %s", path);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "%s: cannot open: %s", path, strerror(errno));
    status = open_checked(file, fd, path, err);
    if (status != STATUS_OK)
        (void)close(fd);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        free((void *)(uintptr_t)file->tensors[i].name);
    for (size_t i = 0; i < file->metadata_count; i++) {
        free((void *)(uintptr_t)file->metadata[i].name);
        free((void *)(uintptr_t)file->metadata[i].value);
    }
    free(file->tensors);
    free(file->metadata);
    if (file->fd >= 0)
        (void)close(file->fd);
    *file = (struct safetensors){.fd = -1};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    struct safetensors_tensor key = {.name = name};

    if (file->tensor_count == 0)
        return NULL;
    return bsearch(&key, file->tensors, file->tensor_count, sizeof *file->tensors, by_name);
}

const char *safetensors_metadata(const struct safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].name, name) == 0)
            return file->metadata[i].value;
    return NULL;
}

enum status safetensors_read(const struct safetensors *file,
                             const struct safetensors_tensor *tensor, void *values, struct err *err)
{
    assert(file->fd >= 0 && tensor->byte_count == safetensors_bytes(tensor));
    return fileio_read_at(file->fd, tensor->name, values, tensor->byte_count,
                          file->data_begin + tensor->begin, err);
}

static bool is_variance(const char *name)
{
    static const char ending[] = ".running_var";
    const size_t length = strlen(name);

    return length >= sizeof ending - 1 && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

enum status safetensors_check_values(const char *name, const float *values, size_t count,
                                     struct err *err)
{
    const bool may_be_negative = !is_variance(name);
    size_t i = 0;

    while (i < count && isfinite(values[i]) && (may_be_negative || values[i] >= 0.0F))
        i++;
    if (i == count)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0, "%.100s has %g at element %zu: it must be %s", name,
                   (double)values[i], i,
                   isfinite(values[i]) ? "0 or more, a variance" : "a finite number");
}
