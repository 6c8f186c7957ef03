/* Stack and arrays of the pickle machine. See machine.h. */
#include "worker/pth/machine.h"

#include <stdlib.h>
#include <string.h>

enum status machine_grow(struct machine *m, void **array, size_t *room, size_t count, size_t item,
                         size_t most, struct err *err)
{
    size_t more = *room * 2 + 64;
    void *bigger;

    if (count < *room)
        return STATUS_OK;
    if (count >= most)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: its pickle has more than %zu values", m->what,
                       most);
    if (more > most)
        more = most;
    while (more <= count)
        more = more * 2 < most ? more * 2 : most;
    bigger = realloc(*array, more * item);
    if (bigger == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its pickle", m->what);
    memset((char *)bigger + *room * item, 0xff, (more - *room) * item);
    *array = bigger;
    *room = more;
    return STATUS_OK;
}

enum status machine_push(struct machine *m, uint32_t value, struct err *err)
{
    enum status status = machine_grow(m, (void **)&m->stack, &m->stack_room, m->stack_count,
                                      sizeof *m->stack, PICKLE_BYTES_MAX, err);

    if (status == STATUS_OK)
        m->stack[m->stack_count++] = value;
    return status;
}

enum status machine_new(struct machine *m, const struct pickle_value *value, struct err *err)
{
    struct pickle *p = m->out;
    enum status status = machine_grow(m, (void **)&p->values, &p->value_room, p->value_count,
                                      sizeof *p->values, PICKLE_VALUES_MAX, err);

    if (status != STATUS_OK)
        return status;
    p->values[p->value_count] = *value;
    p->values[p->value_count].first = p->values[p->value_count].last = PICKLE_NONE_INDEX;
    return machine_push(m, (uint32_t)p->value_count++, err);
}

enum status machine_new_tensor(struct machine *m, const struct pickle_tensor *tensor,
                               struct err *err)
{
    struct pickle *p = m->out;
    enum status status = machine_grow(m, (void **)&p->tensors, &p->tensor_room, p->tensor_count,
                                      sizeof *p->tensors, PICKLE_TENSORS_MAX, err);

    if (status != STATUS_OK)
        return status;
    p->tensors[p->tensor_count] = *tensor;
    return machine_new(
        m, &(struct pickle_value){.kind = PICKLE_TENSOR, .sub = (uint32_t)p->tensor_count++}, err);
}
