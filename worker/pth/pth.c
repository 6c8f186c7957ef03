/* Reader of .pth files. See pth.h. */
#include "worker/pth/pth.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/utf8.h"
#include "kernels/half.h"
#include "worker/data/fileio.h"
#include "worker/pth/pickle.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they are in files");

enum { HEAD_BYTES = 512, TAR_MAGIC_AT = 257, PATH_BYTES = ZIP_NAME_BYTES_MAX + 1 };

static const uint32_t type_bytes[] = {
#define PTH_BYTES_ROW(name, bytes, class_name) [PTH_##name] = (bytes),
    PTH_TYPES(PTH_BYTES_ROW)
#undef PTH_BYTES_ROW
};

/* -- which format -- */

enum format { FORMAT_NONE, FORMAT_ZIP, FORMAT_BEFORE_1_6, FORMAT_TAR, FORMAT_PICKLE };

static enum format format_of(const char *head, size_t byte_count)
{
    /* the number 0x1950a86a20f9469cfc6c as a pickle, in protocol 2 or later */
    static const char legacy[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

    if (byte_count >= 4 && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0))
        return FORMAT_ZIP;
    if (byte_count >= 2 + sizeof legacy - 1 && head[0] == '\x80' &&
        memcmp(head + 2, legacy, sizeof legacy - 1) == 0)
        return FORMAT_BEFORE_1_6;
    if (byte_count >= TAR_MAGIC_AT + 5 && memcmp(head + TAR_MAGIC_AT, "ustar", 5) == 0)
        return FORMAT_TAR;
    if (byte_count > 2 && head[0] == '\x80' && head[1] <= 5 && (byte_count < 9 || head[8] != '{'))
        return FORMAT_PICKLE; /* no safetensors file whose header has 0x280 bytes */
    return FORMAT_NONE;
}

static enum status find_format(int fd, const char *what, enum format *format, struct err *err)
{
    char head[HEAD_BYTES];
    uint64_t byte_count = 0;
    enum status status = fileio_size(fd, what, &byte_count, err);

    if (status != STATUS_OK)
        return status;
    if (byte_count > sizeof head)
        byte_count = sizeof head;
    status = fileio_read_at(fd, what, head, byte_count, 0, err);
    if (status == STATUS_OK)
        *format = format_of(head, (size_t)byte_count);
    return status;
}

bool pth_is_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum format format = FORMAT_NONE;
    struct err err;

    if (fd < 0)
        return false;
    if (find_format(fd, path, &format, &err) != STATUS_OK)
        format = FORMAT_NONE;
    (void)close(fd);
    return format != FORMAT_NONE;
}

static enum status check_format(int fd, const char *what, struct err *err)
{
    enum format format = FORMAT_NONE;
    enum status status = find_format(fd, what, &format, err);

    if (status != STATUS_OK || format == FORMAT_ZIP)
        return status;
    if (format == FORMAT_BEFORE_1_6 || format == FORMAT_TAR)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: in torch.save's format of before PyTorch 1.6: save it anew: "
                       "torch.save(torch.load(FILE, map_location=\"cpu\"), NEW)",
                       what);
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: not a file of torch.save%s", what,
                   format == FORMAT_PICKLE ? ", but a plain pickle, which is never read" : "");
}

/* -- the archive -- */

/* NAME of NAME/data.pkl. The first entry has it: torch has one folder in an archive. */
static enum status find_folder(const struct pth *file, char folder[PATH_BYTES], struct err *err)
{
    const struct zip_entry *first = file->zip.entries;
    const char *slash =
        file->zip.entry_count > 0 ? memchr(first->name, '/', first->name_bytes) : NULL;
    const size_t bytes = slash != NULL ? (size_t)(slash - first->name) : 0;

    if (slash == NULL || bytes > 200 || memchr(first->name, '\0', bytes) != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: a zip archive, but not one of torch.save: it has no NAME/data.pkl",
                       file->what);
    memcpy(folder, first->name, bytes);
    folder[bytes] = '\0';
    return STATUS_OK;
}

static const struct zip_entry *entry_of(const struct pth *file, const char *folder,
                                        const char *name, size_t name_bytes)
{
    char path[PATH_BYTES];

    if (snprintf(path, sizeof path, "%s/%.*s", folder, (int)name_bytes, name) >= (int)sizeof path)
        return NULL;
    return zip_find(&file->zip, path);
}

static const struct zip_entry *entry_named(const struct pth *file, const char *folder,
                                           const char *name)
{
    return entry_of(file, folder, name, strlen(name));
}

static enum status check_kind(const struct pth *file, const char *folder, struct err *err)
{
    const struct zip_entry *order = entry_named(file, folder, "byteorder");
    char text[8] = "";
    enum status status = STATUS_OK;

    if (entry_named(file, folder, "constants.pkl") != NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: TorchScript, a program: save its weights: "
                       "torch.save(torch.jit.load(FILE).state_dict(), NEW)",
                       file->what);
    if (order == NULL)
        return STATUS_OK; /* before 2.1 there was none */
    if (order->byte_count < sizeof text)
        status = zip_read(&file->zip, order, text, err);
    if (status == STATUS_OK && strcmp(text, "little") != 0)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: its values are big-endian (byteorder \"%.7s\"), which is not read",
                       file->what, text);
    return status;
}

static enum status read_pickle(struct pth *file, const char *folder, char **bytes,
                               struct pickle *pickle, struct err *err)
{
    const struct zip_entry *entry = entry_named(file, folder, "data.pkl");
    enum status status;

    if (entry == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: a zip archive, but not one of torch.save: it has no %.80s/data.pkl",
                       file->what, folder);
    if (entry->byte_count > PICKLE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: a pickle of %llu bytes, over the limit of %u",
                       file->what, (unsigned long long)entry->byte_count, PICKLE_BYTES_MAX);
    status = zip_check(&file->zip, entry, err);
    if (status != STATUS_OK)
        return status;
    *bytes = malloc((size_t)entry->byte_count + 1);
    if (*bytes == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its pickle", file->what);
    status = zip_read(&file->zip, entry, *bytes, err);
    if (status != STATUS_OK)
        return status;
    return pickle_read(pickle, file->what, *bytes, (size_t)entry->byte_count, err);
}

/* -- which of the objects is the state_dict -- */

static enum status choose(struct pth *file, const struct pickle *pickle, uint32_t *dict,
                          struct err *err)
{
    static const char *const keys[] = {"state_dict", "model", "model_state_dict"};
    const uint32_t top = pickle->result;

    if (pickle->values[top].kind != PICKLE_DICT)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: expected a state_dict, found something else: "
                       "torch.save(model.state_dict(), FILE) makes one",
                       file->what);
    *dict = top;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const uint32_t inner = pickle_get(pickle, top, keys[i]);

        if (inner == PICKLE_NONE_INDEX || pickle->values[inner].kind != PICKLE_DICT)
            continue;
        *dict = inner;
        (void)snprintf(file->taken, sizeof file->taken, "its %s", keys[i]);
        break;
    }
    return STATUS_OK;
}

static bool is_name(const struct pickle_value *key)
{
    return key->kind == PICKLE_TEXT && key->count > 0 && key->count <= PTH_NAME_BYTES_MAX &&
           utf8_is_valid(key->text, key->count) && memchr(key->text, '\0', key->count) == NULL;
}

static enum status take_tensor(struct pth *file, const char *folder, const struct pickle *pickle,
                               const struct pickle_item *item, struct err *err)
{
    const struct pickle_value *key = &pickle->values[item->key];
    const struct pickle_value *value = &pickle->values[item->value], *storage;
    struct pth_tensor *out = &file->tensors[file->tensor_count];
    const struct pickle_tensor *tensor;
    uint64_t bytes;

    if (!is_name(key))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: its state_dict has a key that is no name",
                       file->what);
    if (value->kind != PICKLE_TENSOR)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: expected a state_dict, but its %.*s is no tensor: "
                       "torch.save(model.state_dict(), FILE) makes one",
                       file->what, (int)(key->count < 60 ? key->count : 60), key->text);
    tensor = &pickle->tensors[value->sub];
    storage = &pickle->values[tensor->storage];
    *out = (struct pth_tensor){.name = strndup(key->text, key->count),
                               .type = (enum pth_type)storage->sub,
                               .dim_count = tensor->dim_count,
                               .offset = tensor->offset};
    if (out->name == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its names", file->what);
    file->tensor_count++;
    memcpy(out->dims, tensor->dims, sizeof out->dims);
    memcpy(out->strides, tensor->strides, sizeof out->strides);
    if (storage->count <= 32) {
        char path[40] = "data/";

        memcpy(path + 5, storage->text, storage->count);
        out->storage = entry_of(file, folder, path, 5 + storage->count);
    }
    if (out->storage == NULL ||
        __builtin_mul_overflow((uint64_t)storage->number, type_bytes[out->type], &bytes) ||
        bytes != out->storage->byte_count)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: the values of %.80s are not there, or not as many as its pickle says",
                       file->what, out->name);
    return STATUS_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct pth_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Takes `prefix` off all names if all have it. */
static void strip(struct pth *file, const char *prefix)
{
    const size_t count = strlen(prefix), used = strlen(file->taken);

    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;

        assert(name != NULL);
        if (strncmp(name, prefix, count) != 0 || name[count] == '\0')
            return;
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        char *name = file->tensors[i].name;

        memmove(name, name + count, strlen(name + count) + 1);
    }
    (void)snprintf(file->taken + used, sizeof file->taken - used, "%s%s",
                   strstr(file->taken, "names without") != NULL ? " and "
                   : used > 0                                   ? ", names without "
                                                                : "names without ",
                   prefix);
}

static enum status take_tensors(struct pth *file, const char *folder, const struct pickle *pickle,
                                struct err *err)
{
    enum status status;
    uint32_t dict = 0;

    status = choose(file, pickle, &dict, err);
    if (status != STATUS_OK)
        return status;
    file->tensors = calloc((size_t)pickle->values[dict].count + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its tensors", file->what);
    for (uint32_t i = pickle->values[dict].first; status == STATUS_OK && i != PICKLE_NONE_INDEX;
         i = pickle->items[i].next)
        status = take_tensor(file, folder, pickle, &pickle->items[i], err);
    if (status != STATUS_OK)
        return status;
    if (file->tensor_count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: it has no tensors", file->what);
    strip(file, "module.");
    strip(file, "_orig_mod.");
    strip(file, "module."); /* torch.compile around DistributedDataParallel */
    qsort(file->tensors, file->tensor_count, sizeof *file->tensors, by_name);
    for (size_t i = 1; i < file->tensor_count; i++)
        if (by_name(&file->tensors[i - 1], &file->tensors[i]) == 0)
            return err_set(err, STATUS_BAD_INPUT, 0, "%s: its %.80s is there twice", file->what,
                           file->tensors[i].name);
    return STATUS_OK;
}

/* -- opening -- */

static enum status open_checked(struct pth *file, int fd, struct err *err)
{
    struct pickle pickle = {.values = NULL};
    char folder[PATH_BYTES], *bytes = NULL;
    enum status status = check_format(fd, file->what, err);

    if (status == STATUS_OK)
        status = zip_open(&file->zip, fd, file->what, err);
    if (status == STATUS_OK)
        status = find_folder(file, folder, err);
    if (status == STATUS_OK)
        status = check_kind(file, folder, err);
    if (status == STATUS_OK)
        status = read_pickle(file, folder, &bytes, &pickle, err);
    if (status == STATUS_OK)
        status = take_tensors(file, folder, &pickle, err);
    pickle_close(&pickle);
    free(bytes);
    return status;
}

enum status pth_open_fd(struct pth *file, int fd, const char *what, struct err *err)
{
    enum status status;

    *file = (struct pth){.fd = -1, .zip = {.fd = -1}};
    (void)snprintf(file->what, sizeof file->what, "%.120s", what);
    status = open_checked(file, fd, err);
    if (status != STATUS_OK)
        pth_close(file);
    return status;
}

enum status pth_open(struct pth *file, const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status;

    if (fd < 0 && errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, errno, "there is no file %s", path);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "%s: cannot open: %s", path, strerror(errno));
    status = pth_open_fd(file, fd, path, err);
    if (status == STATUS_OK)
        file->fd = fd;
    else
        (void)close(fd);
    return status;
}

void pth_close(struct pth *file)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        free(file->tensors[i].name);
    free(file->tensors);
    free(file->cache);
    zip_close(&file->zip);
    if (file->fd >= 0)
        (void)close(file->fd);
    *file = (struct pth){.fd = -1, .zip = {.fd = -1}};
}

/* -- values -- */

uint64_t pth_count(const struct pth_tensor *tensor)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (tensor->dims[i] == 0)
            return 0;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (__builtin_mul_overflow(count, tensor->dims[i], &count))
            return UINT64_MAX;
    return count;
}

static float value_at(enum pth_type type, const unsigned char *storage, uint64_t index)
{
    const unsigned char *from = storage + index * type_bytes[type];
    union {
        float f32;
        double f64;
        uint16_t half;
        int64_t i64;
        int32_t i32;
        int16_t i16;
    } value = {.i64 = 0};

    memcpy(&value, from, type_bytes[type]);
    switch (type) {
    case PTH_F32:
        return value.f32;
    case PTH_F16:
        return half_f16_to(value.half);
    case PTH_BF16:
        return half_bf16_to(value.half);
    case PTH_F64:
        return (float)value.f64;
    case PTH_I64:
        return (float)value.i64;
    case PTH_I32:
        return (float)value.i32;
    case PTH_I16:
        return value.i16;
    case PTH_I8:
        return (signed char)*from;
    case PTH_U8:
        return *from;
    case PTH_BOOL:
        return *from != 0 ? 1.0F : 0.0F;
    case PTH_TYPE_COUNT:
        break;
    }
    assert(false);
    return 0;
}

static enum status load_storage(struct pth *file, const struct zip_entry *storage, struct err *err)
{
    enum status status = zip_check(&file->zip, storage, err);

    if (status != STATUS_OK || file->cached == storage)
        return status;
    free(file->cache);
    file->cached = NULL;
    file->cache = malloc((size_t)storage->byte_count + 1);
    if (file->cache == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for %llu bytes of values", file->what,
                       (unsigned long long)storage->byte_count);
    status = zip_read(&file->zip, storage, file->cache, err);
    if (status == STATUS_OK)
        file->cached = storage;
    return status;
}

enum status pth_read(struct pth *file, const struct pth_tensor *tensor, float *values,
                     struct err *err)
{
    const uint64_t count = pth_count(tensor);
    uint64_t index[PTH_DIMS_MAX] = {0}, at = tensor->offset;
    enum status status = load_storage(file, tensor->storage, err);

    for (uint64_t i = 0; status == STATUS_OK && i < count; i++) {
        values[i] = value_at(tensor->type, file->cache, at);
        for (uint32_t d = tensor->dim_count; d-- > 0;) {
            at += tensor->strides[d];
            if (++index[d] < tensor->dims[d])
                break;
            at -= tensor->strides[d] * tensor->dims[d];
            index[d] = 0;
        }
    }
    return status;
}
