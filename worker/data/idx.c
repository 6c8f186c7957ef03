/* Reader of IDX files. Sizes are checked before memory is allocated. */
#include "worker/data/idx.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/data/gz.h"

enum { PATH_BYTES = 1024, DIMS_MAX = 3 };
enum { TYPE_U8 = 0x08 };

/* The best compression ratio of deflate (zlib's technical details). It limits how much memory the
 * header of a compressed file can make this program allocate. */
enum { DEFLATE_RATIO_MAX = 1032 };

struct idx_file {
    char path[PATH_BYTES];
    struct gz *gz;
    uint32_t dims[DIMS_MAX];
    uint64_t value_bytes;
};

/* Opens the plain file, else the compressed one. */
static enum status open_either(struct idx_file *file, const char *dir, const char *prefix,
                               const char *kind, struct err *err)
{
    static const char *const endings[] = {"", ".gz"};
    struct stat folder;

    if (stat(dir, &folder) != 0 && errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, ENOENT,
                       "there is no folder %s: give the one with MNIST's IDX files, or none for "
                       "the built-in digits",
                       dir);
    if (stat(dir, &folder) == 0 && !S_ISDIR(folder.st_mode))
        return err_set(err, STATUS_BAD_INPUT, ENOTDIR,
                       "%s is not a folder: give the one with MNIST's IDX files", dir);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        int n = snprintf(file->path, sizeof file->path, "%s/%s-%s-ubyte%s", dir, prefix, kind,
                         endings[i]);
        if (n < 0 || (size_t)n >= sizeof file->path)
            return err_set(err, STATUS_TOO_BIG, 0, "%.100s...: the path is too long", dir);
        enum status status = gz_open(&file->gz, file->path, err);
        if (status != STATUS_NOT_FOUND)
            return status;
    }
    return err_set(
        err, STATUS_NOT_FOUND, ENOENT,
        "%s has neither %s-%s-ubyte nor %s-%s-ubyte.gz: give the folder with MNIST's IDX "
        "files, or no folder for the built-in digits",
        dir, prefix, kind, prefix, kind);
}

/* Reads `byte_count` bytes; the error tells why the file ended early. */
static enum status read_exactly(struct idx_file *file, uint8_t *bytes, uint64_t byte_count,
                                const char *what, struct err *err)
{
    uint64_t got;
    enum status status = gz_read(file->gz, bytes, byte_count, &got, err);

    if (status != STATUS_OK || got == byte_count)
        return status;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: expected %llu bytes of %s, found %llu: the file is truncated", file->path,
                   (unsigned long long)byte_count, what, (unsigned long long)got);
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum status check_dims(struct idx_file *file, uint32_t dim_count, struct err *err)
{
    uint64_t bytes = file->dims[0];

    if (file->dims[0] == 0 || file->dims[0] > IDX_IMAGES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: expected 1 to %u items, the header says %u",
                       file->path, IDX_IMAGES_MAX, file->dims[0]);
    for (uint32_t i = 1; i < dim_count; i++) {
        if (file->dims[i] == 0 || file->dims[i] > IDX_SIDE_MAX)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%s: expected a side of 1 to %u pixels, the header says %u", file->path,
                           IDX_SIDE_MAX, file->dims[i]);
        bytes *= file->dims[i]; /* at most 1e8 * 2^24: fits 64 bits */
    }
    if (bytes > IDX_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: %llu bytes are over the limit of %llu",
                       file->path, (unsigned long long)bytes, (unsigned long long)IDX_BYTES_MAX);
    file->value_bytes = bytes;
    return STATUS_OK;
}

static enum status check_room(const struct idx_file *file, uint32_t dim_count, struct err *err)
{
    const uint64_t need = file->value_bytes + 4 + 4 * (uint64_t)dim_count;
    const uint64_t found = gz_file_bytes(file->gz);
    const bool plain = !gz_is_compressed(file->gz);

    if (plain ? found == need : need / DEFLATE_RATIO_MAX <= found)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: expected %llu bytes as the header says, found %llu%s", file->path,
                   (unsigned long long)need, (unsigned long long)found, plain ? "" : " compressed");
}

static enum status read_header(struct idx_file *file, uint32_t dim_count, struct err *err)
{
    uint8_t bytes[4 + 4 * DIMS_MAX];
    uint32_t expected = TYPE_U8 << 8 | dim_count;
    enum status status = read_exactly(file, bytes, 4, "header", err);

    if (status != STATUS_OK)
        return status;
    if (big_endian(bytes) != expected)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: expected an IDX file of %s (magic 0x%08x), found 0x%08x", file->path,
                       dim_count == 3 ? "images" : "labels", expected, big_endian(bytes));
    status = read_exactly(file, bytes + 4, 4 * (uint64_t)dim_count, "header", err);
    if (status != STATUS_OK)
        return status;
    for (uint32_t i = 0; i < dim_count; i++)
        file->dims[i] = big_endian(bytes + 4 + 4 * (size_t)i);
    status = check_dims(file, dim_count, err);
    return status != STATUS_OK ? status : check_room(file, dim_count, err);
}

/* Reads the values and checks that nothing follows. */
static enum status read_values(struct idx_file *file, uint8_t **values, struct err *err)
{
    uint8_t beyond;
    uint64_t got;
    enum status status;

    *values = malloc(file->value_bytes);
    if (*values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for %llu bytes", file->path,
                       (unsigned long long)file->value_bytes);
    status = read_exactly(file, *values, file->value_bytes, "values", err);
    if (status != STATUS_OK)
        return status;
    status = gz_read(file->gz, &beyond, 1, &got, err);
    if (status != STATUS_OK || got == 0)
        return status;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: expected the end after %llu values, found more bytes", file->path,
                   (unsigned long long)file->value_bytes);
}

/* Reads a whole file. *values is owned by the caller on success; dims: [dim_count], written. */
static enum status read_file(const char *dir, const char *prefix, uint32_t dim_count,
                             uint32_t *dims, uint8_t **values, struct idx_file *file,
                             struct err *err)
{
    enum status status =
        open_either(file, dir, prefix, dim_count == 3 ? "images-idx3" : "labels-idx1", err);

    *values = NULL;
    if (status != STATUS_OK)
        return status;
    status = read_header(file, dim_count, err);
    if (status == STATUS_OK)
        status = read_values(file, values, err);
    gz_close(&file->gz);
    if (status != STATUS_OK) {
        free(*values);
        *values = NULL;
        return status;
    }
    memcpy(dims, file->dims, dim_count * sizeof *dims);
    return STATUS_OK;
}

static uint32_t greatest(const uint8_t *labels, uint32_t count, uint32_t found)
{
    for (uint32_t i = 0; i < count; i++)
        if (labels[i] > found)
            found = labels[i];
    return found;
}

/* Both sets have the same classes, also where one has no image of the last ones. A file of the other set that is
 * missing or damaged says nothing here. */
static uint32_t count_classes(const char *dir, const char *prefix, const uint8_t *labels,
                              uint32_t count)
{
    const char *other = strcmp(prefix, "train") == 0 ? "t10k" : "train";
    uint32_t last = greatest(labels, count, 1), other_count = 0;
    struct idx_file file;
    uint8_t *others = NULL;

    if (read_file(dir, other, 1, &other_count, &others, &file, NULL) == STATUS_OK)
        last = greatest(others, other_count, last);
    free(others);
    return last + 1;
}

static struct idx_unused find_unused(const uint8_t *labels, uint32_t count, uint32_t classes)
{
    bool is_used[UINT8_MAX + 1] = {false};
    struct idx_unused unused = {0, 0};

    for (uint32_t i = 0; i < count; i++)
        is_used[labels[i]] = true;
    for (uint32_t c = classes; c-- > 0;)
        if (!is_used[c])
            unused = (struct idx_unused){unused.count + 1, c};
    return unused;
}

/* Makes the set, whose labels have 16 bits. Takes ownership of both arrays. */
static enum status make_set(struct source **set, const struct dataset_shape *shape,
                            size_t image_count, uint8_t *pixels, uint8_t *labels, struct err *err)
{
    uint16_t *wide = malloc(image_count * sizeof *wide);

    for (size_t i = 0; i < image_count && wide != NULL; i++)
        wide[i] = labels[i];
    free(labels);
    if (wide == NULL) {
        free(pixels);
        return err_set(err, STATUS_MEMORY, 0, "no memory for %zu labels", image_count);
    }
    return dataset_new(set, shape, image_count, pixels, wide, err);
}

bool idx_is_in(const char *dir)
{
    static const char *const names[] = {"train-images-idx3", "train-labels-idx1",
                                        "t10k-images-idx3", "t10k-labels-idx1"};

    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        char path[PATH_BYTES];
        int n = snprintf(path, sizeof path, "%s/%s-ubyte%s", dir, names[i / 2],
                         i % 2 == 0 ? "" : ".gz");

        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

enum status idx_read(struct source **set, const char *dir, const char *prefix,
                     struct idx_unused *unused, struct err *err)
{
    struct idx_file images_file, labels_file;
    uint32_t dims[DIMS_MAX], label_count = 0;
    uint8_t *pixels = NULL, *labels = NULL;
    enum status status = read_file(dir, prefix, 3, dims, &pixels, &images_file, err);

    if (status == STATUS_OK)
        status = read_file(dir, prefix, 1, &label_count, &labels, &labels_file, err);
    if (status == STATUS_OK && label_count != dims[0])
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "%s: expected %u labels, one for each image, found %u", labels_file.path,
                         dims[0], label_count);
    if (status != STATUS_OK) {
        free(pixels);
        free(labels);
        return status;
    }
    const struct dataset_shape shape = {1, dims[1], dims[2],
                                        count_classes(dir, prefix, labels, label_count)};
    *unused = find_unused(labels, label_count, shape.classes);
    return make_set(set, &shape, dims[0], pixels, labels, err);
}
