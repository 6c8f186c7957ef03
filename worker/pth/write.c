/* Writer of .pth files: the layout that torch.save has since 1.6. See pth.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/pth/little.h"
#include "worker/pth/pth.h"

#define FOLDER "archive" /* as torch names it in a file without a name */

static const char *const class_names[] = {
#define PTH_CLASS_ROW(name, bytes, class_name) [PTH_##name] = (class_name),
    PTH_TYPES(PTH_CLASS_ROW)
#undef PTH_CLASS_ROW
};

/* -- the pickle, in protocol 2; Lib/pickletools.py describes the opcodes -- */

static void put_text(struct buf *out, const char *text)
{
    buf_add(out, "X", 1); /* BINUNICODE */
    little_put(out, strlen(text), 4);
    buf_add_text(out, text);
}

static void put_int(struct buf *out, uint64_t value)
{
    if (value <= INT32_MAX) {
        buf_add(out, "J", 1); /* BININT */
        little_put(out, value, 4);
    } else {
        assert(value <= INT64_MAX);
        buf_add(out, "\x8a\x08", 2); /* LONG1 of 8 bytes */
        little_put(out, value, 8);
    }
}

static void put_empty_dict(struct buf *out)
{
    buf_add_text(out, "ccollections\nOrderedDict\n)R"); /* GLOBAL, EMPTY_TUPLE, REDUCE */
}

static uint64_t count_of(const uint64_t *dims, uint32_t dim_count)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < dim_count; i++)
        count *= dims[i];
    return count;
}

/* _rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()) */
static void put_tensor(struct buf *out, const struct pth_out *tensor, size_t index)
{
    char key[24];

    (void)snprintf(key, sizeof key, "%zu", index);
    buf_add_text(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(out, "storage");
    buf_printf(out, "ctorch\n%s\n", class_names[tensor->type]);
    put_text(out, key);
    put_text(out, "cpu");
    put_int(out, count_of(tensor->dims, tensor->dim_count));
    buf_add_text(out, "tQ"); /* TUPLE, BINPERSID */
    put_int(out, 0);
    buf_add_text(out, "(");
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        put_int(out, tensor->dims[i]);
    buf_add_text(out, "t(");
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        put_int(out, count_of(tensor->dims + i + 1, tensor->dim_count - i - 1));
    buf_add_text(out, "t\x89"); /* NEWFALSE */
    put_empty_dict(out);
    buf_add_text(out, "tR"); /* TUPLE, REDUCE */
}

static void put_state_dict(struct buf *out, const struct pth_content *content)
{
    put_empty_dict(out);
    buf_add_text(out, "(");
    for (size_t i = 0; i < content->tensor_count; i++) {
        put_text(out, content->tensors[i].name);
        put_tensor(out, &content->tensors[i], i);
    }
    buf_add_text(out, "u"); /* SETITEMS */
}

/* -- the archive -- */

static enum status add_pickle(struct zip_writer *writer, const struct pth_content *content,
                              struct err *err)
{
    struct buf pickle = {0};
    enum status status;

    buf_add(&pickle, "\x80\x02", 2); /* PROTO 2 */
    put_state_dict(&pickle, content);
    buf_add_text(&pickle, "."); /* STOP */
    status = pickle.failed
                 ? err_set(err, STATUS_MEMORY, 0, "no memory for a pickle")
                 : zip_add(writer, FOLDER "/data.pkl", pickle.bytes, pickle.byte_count, err);
    buf_free(&pickle);
    return status;
}

static enum status add_values(struct zip_writer *writer, const struct pth_content *content,
                              size_t index, struct err *err)
{
    const uint64_t byte_count = content->tensors[index].byte_count;
    unsigned char *values = malloc((size_t)byte_count + 1);
    char name[40];
    enum status status;

    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the values of %s",
                       content->tensors[index].name);
    (void)snprintf(name, sizeof name, FOLDER "/data/%zu", index);
    status = content->read(content->user, index, values, err);
    if (status == STATUS_OK)
        status = zip_add(writer, name, values, byte_count, err);
    free(values);
    return status;
}

enum status pth_write(int fd, const struct pth_content *content, struct err *err)
{
    static const struct {
        const char *name, *text;
    } notes[] = {{FOLDER "/.format_version", "1"},
                 {FOLDER "/.storage_alignment", "64"},
                 {FOLDER "/byteorder", "little"}};
    struct buf directory = {0};
    struct zip_writer writer = {.fd = fd, .directory = &directory};
    enum status status = add_pickle(&writer, content, err);

    for (size_t i = 0; status == STATUS_OK && i < sizeof notes / sizeof notes[0]; i++)
        status = zip_add(&writer, notes[i].name, notes[i].text, strlen(notes[i].text), err);
    for (size_t i = 0; status == STATUS_OK && i < content->tensor_count; i++)
        status = add_values(&writer, content, i, err);
    if (status == STATUS_OK)
        status = zip_add(&writer, FOLDER "/version", "3\n", 2, err);
    if (status == STATUS_OK)
        status = zip_finish(&writer, err);
    buf_free(&directory);
    return status;
}
