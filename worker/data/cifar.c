/* CIFAR-10. See cifar.h. */
#include "worker/data/cifar.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/data/dataset.h"
#include "worker/data/fileio.h"

enum {
    CHANNELS = 3,
    PLANE_BYTES = CIFAR_SIDE * CIFAR_SIDE,
    IMAGE_BYTES = CHANNELS * PLANE_BYTES,
    RECORD_BYTES = 1 + IMAGE_BYTES,
    FILE_RECORDS = 10000,
    FILE_BYTES = FILE_RECORDS * RECORD_BYTES,
};

static const char *const training_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                             "data_batch_3.bin", "data_batch_4.bin",
                                             "data_batch_5.bin"};
static const char *const test_files[] = {"test_batch.bin"};
static const char folder[] = "cifar-10-batches-bin", packed[] = "cifar-10-binary.tar.gz";

static bool has(const char *dir, const char *between, const char *name)
{
    char path[PATH_MAX];
    int n =
        snprintf(path, sizeof path, "%s/%s%s%s", dir, between, *between != '\0' ? "/" : "", name);

    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

bool cifar_is_there(const char *dir)
{
    return has(dir, "", training_files[0]) || has(dir, "", test_files[0]) ||
           has(dir, folder, training_files[0]) || has(dir, folder, test_files[0]) ||
           has(dir, "", packed);
}

/* Finds the files: in `dir`, or in the folder that the archive contains. */
static enum status find_folder(const char *dir, const char *name, const char **between,
                               struct err *err)
{
    *between = has(dir, "", name) ? "" : folder;
    if (has(dir, *between, name))
        return STATUS_OK;
    if (has(dir, "", packed))
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%.120s/%s is packed: unpack it first: tar -xzf %s", dir, packed, packed);
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "%.120s has no %s: give the folder with CIFAR-10's binary files, or fetch them: "
                   "ddp-worker --fetch cifar10 DIR",
                   dir, name);
}

/* Converts records: planes become pixels. */
static enum status take_records(const char *path, const char *bytes, uint8_t *pixels,
                                uint16_t *labels, struct err *err)
{
    for (size_t i = 0; i < FILE_RECORDS; i++) {
        const uint8_t *record = (const uint8_t *)bytes + i * RECORD_BYTES;

        if (record[0] >= CIFAR_CLASSES)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%.150s: expected labels 0 to %u, picture %zu has %u", path,
                           CIFAR_CLASSES - 1, i, record[0]);
        labels[i] = record[0];
        for (size_t at = 0; at < PLANE_BYTES; at++)
            for (size_t channel = 0; channel < CHANNELS; channel++)
                pixels[i * IMAGE_BYTES + at * CHANNELS + channel] =
                    record[1 + channel * PLANE_BYTES + at];
    }
    return STATUS_OK;
}

static enum status take_file(const char *dir, const char *between, const char *name,
                             uint8_t *pixels, uint16_t *labels, struct err *err)
{
    char path[PATH_MAX], *bytes = NULL;
    uint64_t byte_count = 0;
    int n =
        snprintf(path, sizeof path, "%s/%s%s%s", dir, between, *between != '\0' ? "/" : "", name);
    enum status status;

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, STATUS_TOO_BIG, 0, "%.100s...: the path is too long", dir);
    status = fileio_read_file(path, FILE_BYTES, &bytes, &byte_count, err);
    if (status == STATUS_TOO_BIG || (status == STATUS_OK && byte_count != FILE_BYTES))
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "%.150s: expected %d bytes, %d pictures of %d, found %llu", path,
                         FILE_BYTES, FILE_RECORDS, RECORD_BYTES, (unsigned long long)byte_count);
    if (status == STATUS_OK)
        status = take_records(path, bytes, pixels, labels, err);
    free(bytes);
    return status;
}

enum status cifar_read(struct source **set, const char *dir, bool is_training, struct err *err)
{
    const struct dataset_shape shape = {CHANNELS, CIFAR_SIDE, CIFAR_SIDE, CIFAR_CLASSES};
    const char *const *names = is_training ? training_files : test_files;
    const size_t file_count = is_training ? sizeof training_files / sizeof training_files[0] : 1;
    const size_t count = file_count * FILE_RECORDS;
    const char *between = "";
    uint8_t *pixels = NULL;
    uint16_t *labels = NULL;
    enum status status = find_folder(dir, names[0], &between, err);

    if (status != STATUS_OK)
        return status;
    pixels = malloc(count * IMAGE_BYTES);
    labels = malloc(count * sizeof *labels);
    if (pixels == NULL || labels == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "no memory for %zu pictures of CIFAR-10", count);
    for (size_t i = 0; status == STATUS_OK && i < file_count; i++)
        status = take_file(dir, between, names[i], pixels + i * FILE_RECORDS * IMAGE_BYTES,
                           labels + i * FILE_RECORDS, err);
    if (status == STATUS_OK)
        return dataset_new(set, &shape, count, pixels, labels, err);
    free(pixels);
    free(labels);
    return status;
}
