/* A pickle machine that can make tensors, containers of them, numbers and texts, and nothing else.
 *
 * A pickle is a program for a stack machine (Python's Lib/pickletools.py describes it). Two tables say all that
 * this one does: the opcodes that torch.save writes (protocol 2), and the classes and functions that
 * tensors need, and what scripts keep beside them, which becomes nothing. Those are recognised by name; nothing is imported or run. Anything else is refused by
 * its name. Work and memory are proportional to the bytes; nothing recurses.
 *
 * Pure: bytes in, values out. */
#ifndef WORKER_PTH_PICKLE_H
#define WORKER_PTH_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/pth/types.h"

#define PICKLE_BYTES_MAX (16U << 20)
#define PICKLE_VALUES_MAX (1U << 20)
#define PICKLE_TENSORS_MAX (1U << 16)
#define PICKLE_NONE_INDEX UINT32_MAX

enum pickle_kind {
    PICKLE_OTHER, /* None, a float, a device: nothing that a tensor is made of */
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR,
};

struct pickle_value {
    enum pickle_kind kind;
    uint32_t sub;         /* GLOBAL: which; STORAGE: enum pth_type; TENSOR: index in `tensors` */
    uint32_t first, last; /* TUPLE, LIST, DICT: of its items; PICKLE_NONE_INDEX: it is empty */
    uint32_t count;       /* items; TEXT and STORAGE: bytes of `text` */
    int64_t number;       /* INT, BOOL; STORAGE: its elements */
    const char *text;     /* TEXT; STORAGE: its key. Points into the bytes; no NUL at its end */
};

struct pickle_item { /* of a tuple, a list or a dict; they are chained by `next` */
    uint32_t key, value, next;
};

struct pickle_tensor {
    uint32_t storage; /* a value */
    uint32_t dim_count;
    uint64_t offset;                                    /* in elements */
    uint64_t dims[PTH_DIMS_MAX], strides[PTH_DIMS_MAX]; /* strides in elements */
};

struct pickle {
    struct pickle_value *values;
    struct pickle_item *items;
    struct pickle_tensor *tensors;
    size_t value_count, value_room, item_count, item_room, tensor_count, tensor_room;
    uint32_t result; /* a value */
};

/* Runs the program. `what` names the source in errors; `bytes` must live as long as the result.
 * Close with pickle_close in any case. Errors: STATUS_REFUSED (it asks for something that is not in the
 * tables), STATUS_BAD_INPUT, STATUS_TOO_BIG, STATUS_MEMORY. */
enum status pickle_read(struct pickle *pickle, const char *what, const char *bytes,
                        size_t byte_count, struct err *err);
void pickle_close(struct pickle *pickle);

/* The value of that key in a dict; PICKLE_NONE_INDEX: there is none. */
uint32_t pickle_get(const struct pickle *pickle, uint32_t dict, const char *key);

#endif
