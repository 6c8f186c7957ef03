/* .pth files. The first byte of an input decides: an even one is followed by a whole file; an odd one by a
 * pickle, which is put into a sound archive, where no sum stands in its way. What is opened must have tensors
 * within their storages, with names once; they are read under the sanitizers. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/buf.h"
#include "tests/fuzz/target.h"
#include "worker/pth/pth.h"

enum { STORAGE_BYTES = 24, READ_MAX = 4096 };

/* -- the corpus -- */

#define DICT "ccollections\nOrderedDict\n)R"
#define TENSOR                                                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\nq\x03((X\x07\0\0\0storageq\x04"                            \
    "ctorch\nFloatStorage\nX\x01\0\0\0"                                                            \
    "0X\x03\0\0\0cpuK\x06tQK\0(K\x02K\x03t(K\x03K\x01t\x89" DICT "tR"

static void put_archive(int fd, const void *pickle, size_t byte_count)
{
    static const unsigned char zeros[STORAGE_BYTES];
    struct buf directory = {0};
    struct zip_writer writer = {.fd = fd, .directory = &directory};

    FUZZ_CHECK(zip_add(&writer, "f/data.pkl", pickle, byte_count, NULL) == STATUS_OK);
    FUZZ_CHECK(zip_add(&writer, "f/data/0", zeros, sizeof zeros, NULL) == STATUS_OK);
    FUZZ_CHECK(zip_add(&writer, "f/data/1", zeros, 8, NULL) == STATUS_OK);
    FUZZ_CHECK(zip_finish(&writer, NULL) == STATUS_OK);
}

static void add_archive(fuzz_add *add, const char *pickle, size_t byte_count)
{
    char bytes[4096] = {0};
    const int fd = memfd_create("corpus", MFD_CLOEXEC);
    ssize_t count;

    FUZZ_CHECK(fd >= 0);
    put_archive(fd, pickle, byte_count);
    count = pread(fd, bytes + 1, sizeof bytes - 1, 0);
    FUZZ_CHECK(count > 0 && count < (ssize_t)sizeof bytes - 1);
    add(bytes, (size_t)count + 1);
    (void)close(fd);
}

void fuzz_corpus(fuzz_add *add)
{
    static const char one[] = "\x01\x80\x02" DICT "(X\x01\0\0\0a" TENSOR "u.";
    static const char nested[] =
        "\x01\x80\x02}(X\x05\0\0\0epochK\x03X\x0a\0\0\0state_dict" DICT
        "q\x01(X\x08\0\0\0module.a" TENSOR
        "X\x08\0\0\0module.bctorch._utils\n_rebuild_parameter\n(h\x05\x88" DICT "tR"
        "u}X\x09\0\0\0_metadatah\x01sbX\x04\0\0\0list](K\x01G\0\0\0\0\0\0\0\0M\1\1\x8a\1\xff"
        "J\xff\xff\xff\xff\x88Ne\x85\x86\x87u.";
    static const char longs[] =
        "\x01\x80\x02}(X\x01\0\0\0a" TENSOR "r\x05\0\0\0X\x01\0\0\0bj\x05\0\0\0X\x01\0\0\0"
        "cctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nLongStorage\nX\x01\0\0\0"
        "1X\x03\0\0\0cpuK\x01tQ\x8a\0)"
        ")\x89" DICT "tRu.";

    for (size_t i = 0; i < 20; i++) {
        add(one, sizeof one - 1);
        add(nested, sizeof nested - 1);
        add(longs, sizeof longs - 1);
        add_archive(add, one + 1, sizeof one - 2);
        add_archive(add, longs + 1, sizeof longs - 2);
    }
}

/* -- the target -- */

__extension__ typedef unsigned __int128 wide;

/* Recomputed apart from the reader, in wider numbers. */
static void check_within(const struct pth_tensor *tensor)
{
    static const unsigned bytes_of[] = {
#define BYTES_ROW(name, bytes, class_name) [PTH_##name] = (bytes),
        PTH_TYPES(BYTES_ROW)
#undef BYTES_ROW
    };
    wide end = tensor->offset;

    FUZZ_CHECK(tensor->dim_count <= PTH_DIMS_MAX && tensor->type < PTH_TYPE_COUNT);
    if (pth_count(tensor) == 0)
        return;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        end += (wide)(tensor->dims[i] - 1) * tensor->strides[i];
    FUZZ_CHECK((end + 1) * bytes_of[tensor->type] <= tensor->storage->byte_count);
}

static void check_tensors(struct pth *file)
{
    static float values[READ_MAX];

    FUZZ_CHECK(file->tensor_count > 0);
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct pth_tensor *tensor = &file->tensors[i];
        struct err err = {.text = ""};

        FUZZ_CHECK(strlen(tensor->name) > 0 && strlen(tensor->name) <= PTH_NAME_BYTES_MAX);
        FUZZ_CHECK(i == 0 || strcmp(file->tensors[i - 1].name, tensor->name) < 0);
        check_within(tensor);
        if (pth_count(tensor) <= READ_MAX && pth_read(file, tensor, values, &err) != STATUS_OK)
            FUZZ_CHECK(strstr(err.text, "f.pth") != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct pth file;
    struct err err = {.text = ""};
    enum status status;
    int fd;

    if (byte_count == 0)
        return 0;
    fd = memfd_create("input", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    if ((data[0] & 1) != 0)
        put_archive(fd, data + 1, byte_count - 1);
    else
        FUZZ_CHECK(write(fd, data + 1, byte_count - 1) == (ssize_t)byte_count - 1);
    status = pth_open_fd(&file, fd, "f.pth", &err);
    if (status == STATUS_OK) {
        check_tensors(&file);
        pth_close(&file);
    } else {
        FUZZ_CHECK(status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG ||
                   status == STATUS_REFUSED || status == STATUS_UNSUPPORTED);
        FUZZ_CHECK(strstr(err.text, "f.pth") != NULL);
    }
    (void)close(fd);
    return 0;
}
