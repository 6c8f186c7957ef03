/* .pth files: what torch.save writes (zip format, PyTorch 1.6 and later), tensors alone.
 *
 * A file is an archive NAME/data.pkl, NAME/data/0, NAME/data/1, ... The pickle says which tensors there are and
 * how they lie in the storages data/N; pickle.h says why reading it runs no code. All sizes, offsets and
 * strides are checked before a value is read. */
#ifndef WORKER_PTH_PTH_H
#define WORKER_PTH_PTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/pth/types.h"
#include "worker/pth/zip.h"

#define PTH_NAME_BYTES_MAX 255

/* -- reading ---------------------------------------------------------------------------------- */

struct pth_tensor {
    char *name; /* owned by the file */
    enum pth_type type;
    uint32_t dim_count; /* 0: a scalar */
    uint64_t dims[PTH_DIMS_MAX];
    /* In elements of the storage; tensors may share storages and overlap in them. */
    uint64_t strides[PTH_DIMS_MAX], offset;
    const struct zip_entry *storage;
};

struct pth {
    int fd;
    struct zip zip;
    struct pth_tensor *tensors; /* [tensor_count], sorted by name */
    size_t tensor_count;
    char taken[120]; /* "its state_dict, names without module."; "": all of it, as it is */
    /* The storage that was read last. */
    const struct zip_entry *cached;
    unsigned char *cache;
    char what[200];
};

/* Whether `path` begins as a file of torch.save does: of this format, or of one that pth_open refuses
 * with a hint. false for everything else, and for what cannot be read. */
bool pth_is_file(const char *path);
/* Opens a state_dict: the object itself, or what it has as "state_dict", "model" or "model_state_dict". Prefixes
 * that all names have are taken off: "module." (DistributedDataParallel, DataParallel),
 * "_orig_mod." (torch.compile). Reads no value. On success close with pth_close. Errors: those of zip_open
 * and pickle_read, STATUS_NOT_FOUND, STATUS_UNSUPPORTED (a format of before 1.6, TorchScript, big-endian). */
enum status pth_open(struct pth *file, const char *path, struct err *err);
/* The same of an open file, which the caller closes; `what` names it. */
enum status pth_open_fd(struct pth *file, int fd, const char *what, struct err *err);
void pth_close(struct pth *file);

/* Elements of a tensor; UINT64_MAX: more than that. */
uint64_t pth_count(const struct pth_tensor *tensor);
/* Reads a tensor in C order, as fp32. values: [pth_count(tensor)]. Errors: those of zip_read. */
enum status pth_read(struct pth *file, const struct pth_tensor *tensor, float *values,
                     struct err *err);

/* -- writing ---------------------------------------------------------------------------------- */

struct pth_out {
    const char *name;
    enum pth_type type;
    uint32_t dim_count;
    uint64_t dims[PTH_DIMS_MAX];
    uint64_t byte_count; /* of all its values */
};

/* What a file is made of. `read` gives the values of tensor `index` when it is their turn. */
struct pth_content {
    const struct pth_out *tensors; /* in the order of the state_dict */
    size_t tensor_count;
    enum status (*read)(void *user, size_t index, void *bytes, struct err *err);
    void *user;
};

/* Writes a state_dict to `fd`, from its start, so that torch.load(weights_only=True) reads it. Tensors are
 * contiguous, on the CPU. Errors: STATUS_TOO_BIG (over 4 GiB), STATUS_IO, STATUS_MEMORY, those of `read`. */
enum status pth_write(int fd, const struct pth_content *content, struct err *err);

#endif
