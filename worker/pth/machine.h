/* Private to worker/pth/: the state of the pickle machine. */
#ifndef WORKER_PTH_MACHINE_H
#define WORKER_PTH_MACHINE_H

#include <stdbool.h>

#include "worker/pth/pickle.h"

struct machine {
    struct pickle *out;
    const char *what;
    const char *bytes;
    size_t byte_count, at;
    size_t opcode_at; /* of the opcode that runs */
    uint32_t *stack;  /* of values */
    size_t stack_count, stack_room;
    size_t *marks; /* heights of the stack */
    size_t mark_count, mark_room;
    uint32_t *memo; /* [memo_room]; PICKLE_NONE_INDEX: nothing was kept there */
    size_t memo_room;
    bool is_done;
};

struct machine_text {
    const char *bytes;
    size_t byte_count;
};

/* Makes room for element `count` of an array. New memory is filled with ones. Errors: STATUS_TOO_BIG
 * (there would be more than `most`), STATUS_MEMORY. */
enum status machine_grow(struct machine *m, void **array, size_t *room, size_t count, size_t item,
                         size_t most, struct err *err);
/* Pushes a value: one that exists, a new one, a new tensor. */
enum status machine_push(struct machine *m, uint32_t value, struct err *err);
enum status machine_new(struct machine *m, const struct pickle_value *value, struct err *err);
enum status machine_new_tensor(struct machine *m, const struct pickle_tensor *tensor,
                               struct err *err);
/* The pickle is damaged at the opcode that runs: STATUS_BAD_INPUT. */
#define machine_bad(m, err, why)                                                                   \
    err_set((err), STATUS_BAD_INPUT, 0, "%s: its pickle is damaged at byte %zu: %s", (m)->what,    \
            (m)->opcode_at, (why))

#endif
