/* Named tensors in a file of either kind: safetensors, or .pth of torch.save. The content decides
 * which. Private to worker/model/. */
#ifndef WORKER_MODEL_WEIGHTS_H
#define WORKER_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/checkpoint/safetensors.h"
#include "worker/pth/pth.h"

struct weights {
    bool is_pth;
    struct safetensors safetensors;
    struct pth pth;
    size_t skip; /* bytes at the begin of all names that are not part of them */
    char taken[160];
};

struct weights_tensor {
    const char *name;
    const uint64_t *dims;
    uint32_t dim_count;
    bool is_readable; /* false: a type that weights_read does not know */
};

/* Reads names and shapes. On success close with weights_close; do not move it before. Errors: those
 * of safetensors_open and pth_open. */
enum status weights_open(struct weights *weights, const char *path, struct err *err);
void weights_close(struct weights *weights);
size_t weights_count(const struct weights *weights);
struct weights_tensor weights_tensor(const struct weights *weights, size_t index);
/* Takes `prefix` off all names if all have it, and more. */
void weights_strip(struct weights *weights, const char *prefix);
/* false: there is no such tensor */
bool weights_find(const struct weights *weights, const char *name, size_t *index);
/* Reads a tensor in C order. values: [count], which is the product of its dimensions */
enum status weights_read(struct weights *weights, size_t index, float *values, size_t count,
                         struct err *err);
/* What of the file they are, for a log line: "its state_dict"; "": all of it. */
const char *weights_taken(const struct weights *weights);

#endif
