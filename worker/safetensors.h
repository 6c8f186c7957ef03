/* safetensors files: u64 little-endian header length, a JSON header, the values. What checkpoints
 * are made of.
 *
 * Format: github.com/huggingface/safetensors. {"name": {"dtype", "shape", "data_offsets": [begin,
 * end]}, "__metadata__": {string: string}}; offsets count from the end of the header; the values
 * lie without holes or overlap, in C order, little-endian. The reader takes nothing on trust:
 * sizes, ranges, order, duplicates are all checked before a value is read. */
#ifndef WORKER_SAFETENSORS_H
#define WORKER_SAFETENSORS_H

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
    /* Writing: the values, borrowed. */
    const void *values;
    /* Reading: where they lie behind the header. */
    uint64_t begin, byte_count;
};

struct safetensors_note { /* an entry of __metadata__ */
    const char *name, *value;
};

/* An opened file or parsed bytes. */
struct safetensors {
    struct safetensors_tensor *tensors; /* [tensor_count], by name; names owned */
    size_t tensor_count;
    struct safetensors_note *notes; /* [note_count], owned */
    size_t note_count;
    uint64_t data_begin; /* in the file */
    int fd;              /* -1 when parsed from memory */
};

/* Bytes of one tensor; the product was checked by whoever made it. */
uint64_t safetensors_bytes(const struct safetensors_tensor *tensor);

/* Writes a whole file to `fd` from its present offset; tensors keep the order given. Names are
 * unique and at most SAFETENSORS_NAME_BYTES_MAX long. Errors: STATUS_IO with errno in code,
 * STATUS_MEMORY. */
enum status safetensors_write(int fd, const struct safetensors_tensor *tensors, size_t tensor_count,
                              const struct safetensors_note *notes, size_t note_count,
                              struct err *err);

/* Checks a header of `header_bytes` bytes (no length in front) over `data_bytes` bytes of values.
 * `what` names the source in errors. On success close with safetensors_close. Errors:
 * STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_MEMORY. */
enum status safetensors_parse(struct safetensors *file, const char *what, const char *header,
                              size_t header_bytes, uint64_t data_bytes, struct err *err);
/* Opens and checks; no value is read yet. Errors as above, and STATUS_IO, STATUS_NOT_FOUND. */
enum status safetensors_open(struct safetensors *file, const char *path, struct err *err);
void safetensors_close(struct safetensors *file);

/* NULL where there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
const char *safetensors_note(const struct safetensors *file, const char *name);
/* values: [tensor->byte_count]. */
enum status safetensors_read(const struct safetensors *file,
                             const struct safetensors_tensor *tensor, void *values,
                             struct err *err);

#endif
