/* safetensors files, which hold the tensors of a checkpoint.
 *
 * Format (github.com/huggingface/safetensors):
 *     u64, little-endian: bytes of the header
 *     header, JSON: {"NAME": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, ...,
 *                    "__metadata__": {string: string}}
 *     values, C order, little-endian, without gaps or overlap; offsets count from the header's end
 * The reader checks sizes, ranges, order and duplicates before it reads a value. */
#ifndef WORKER_CHECKPOINT_SAFETENSORS_H
#define WORKER_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define SAFETENSORS_DIMS_MAX 8
#define SAFETENSORS_HEADER_BYTES_MAX 100000000U /* the format's own limit */
#define SAFETENSORS_NAME_BYTES_MAX 255

/* X(name, bytes of one value) */
#define SAFETENSORS_TYPES(X)                                                                       \
    X(F32, 4)                                                                                      \
    X(F16, 2)                                                                                      \
    X(BF16, 2)                                                                                     \
    X(F64, 8)                                                                                      \
    X(I64, 8)                                                                                      \
    X(U8, 1)

enum safetensors_type {
#define SAFETENSORS_ENUM(name, bytes) SAFETENSORS_##name,
    SAFETENSORS_TYPES(SAFETENSORS_ENUM)
#undef SAFETENSORS_ENUM
};

struct safetensors_tensor {
    const char *name;
    enum safetensors_type type;
    uint64_t dims[SAFETENSORS_DIMS_MAX];
    uint32_t dim_count; /* 0: a scalar */
    /* When writing: the values, borrowed. */
    const void *values;
    /* When reading: the offset of the values after the header, and their size. */
    uint64_t begin, byte_count;
};

struct safetensors_metadata { /* an entry of __metadata__ */
    const char *name, *value;
};

/* An opened file or parsed bytes. */
struct safetensors {
    struct safetensors_tensor *tensors; /* [tensor_count], sorted by name; owned with the names */
    size_t tensor_count;
    struct safetensors_metadata *metadata; /* [metadata_count], owned */
    size_t metadata_count;
    uint64_t data_begin; /* offset of the values in the file */
    int fd;              /* -1: parsed from memory */
};

/* Bytes of a tensor: the product of its dimensions and its type, which must not overflow. */
uint64_t safetensors_bytes(const struct safetensors_tensor *tensor);

/* Writes a whole file to `fd`, from its current offset, tensors in the given order. Names are
 * unique and have at most SAFETENSORS_NAME_BYTES_MAX bytes. Errors: STATUS_IO with errno in code,
 * STATUS_MEMORY. */
enum status safetensors_write(int fd, const struct safetensors_tensor *tensors, size_t tensor_count,
                              const struct safetensors_metadata *metadata, size_t metadata_count,
                              struct err *err);

/* The same, hashed on the way where `out` is. */
struct fileio_out;
enum status safetensors_write_out(struct fileio_out *out, const struct safetensors_tensor *tensors,
                                  size_t tensor_count, const struct safetensors_metadata *metadata,
                                  size_t metadata_count, struct err *err);

/* Parses and checks a header (without its length) for `data_bytes` bytes of values.
 * `what` names the source in errors. On success close with safetensors_close. Errors:
 * STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_MEMORY. */
enum status safetensors_parse(struct safetensors *file, const char *what, const char *header,
                              size_t header_bytes, uint64_t data_bytes, struct err *err);
/* Opens a file and checks its header; reads no value. Errors as above, and STATUS_IO,
 * STATUS_NOT_FOUND. */
enum status safetensors_open(struct safetensors *file, const char *path, struct err *err);
void safetensors_close(struct safetensors *file);

/* The tensor or the metadata of that name; NULL: there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
const char *safetensors_metadata(const struct safetensors *file, const char *name);
/* Reads the values of a tensor of this file into values [tensor->byte_count]. */
enum status safetensors_read(const struct safetensors *file,
                             const struct safetensors_tensor *tensor, void *values,
                             struct err *err);

/* Whether `values` can be the weights of that name: all finite, and for a `.running_var` not
 * negative. Errors: STATUS_BAD_INPUT (names the tensor and the first bad element). */
enum status safetensors_check_values(const char *name, const float *values, size_t count,
                                     struct err *err);

#endif
