/* The pickle machine. See pickle.h. */
#include "worker/pth/pickle.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "worker/pth/little.h"
#include "worker/pth/machine.h"
#include "worker/pth/rebuild.h"

enum { PROTOCOL_MAX = 3, SHOWN_BYTES = 40, PATH_SHOWN = 36 };

static enum status add_item(struct machine *m, uint32_t container, uint32_t key, uint32_t value,
                            struct err *err)
{
    struct pickle *p = m->out;
    struct pickle_value *to = &p->values[container];
    enum status status = machine_grow(m, (void **)&p->items, &p->item_room, p->item_count,
                                      sizeof *p->items, PICKLE_VALUES_MAX, err);

    if (status != STATUS_OK)
        return status;
    p->items[p->item_count] = (struct pickle_item){key, value, PICKLE_NONE_INDEX};
    if (to->last == PICKLE_NONE_INDEX)
        to->first = (uint32_t)p->item_count;
    else
        p->items[to->last].next = (uint32_t)p->item_count;
    to->last = (uint32_t)p->item_count++;
    to->count++;
    return STATUS_OK;
}

/* -- what is on the stack -- */

/* Values above the newest mark. */
static size_t above_mark(const struct machine *m)
{
    return m->stack_count - (m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0);
}

static enum status need(const struct machine *m, size_t count, struct err *err)
{
    return above_mark(m) >= count ? STATUS_OK
                                  : machine_bad(m, err, "an opcode finds too little on the stack");
}

static enum status take_bytes(struct machine *m, uint64_t count, const char **bytes,
                              struct err *err)
{
    if (count > m->byte_count - m->at)
        return machine_bad(m, err, "it ends within an opcode");
    *bytes = m->bytes + m->at;
    m->at += (size_t)count;
    return STATUS_OK;
}

static enum status take_number(struct machine *m, size_t count, uint64_t *number, struct err *err)
{
    const char *bytes = NULL;
    enum status status = take_bytes(m, count, &bytes, err);

    if (status == STATUS_OK)
        *number = little_take(bytes, count);
    return status;
}

/* -- opcodes; `arg`: of their row -- */

static enum status on_proto(struct machine *m, uint32_t arg, struct err *err)
{
    uint64_t version = 0;
    enum status status = take_number(m, arg, &version, err);

    if (status == STATUS_OK && version > PROTOCOL_MAX)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: pickle protocol %llu; torch.save writes 2 unless pickle_protocol= says "
                       "otherwise",
                       m->what, (unsigned long long)version);
    return status;
}

static enum status on_constant(struct machine *m, uint32_t arg, struct err *err)
{
    return machine_new(m, &(struct pickle_value){.kind = (enum pickle_kind)arg}, err);
}

static enum status on_bool(struct machine *m, uint32_t arg, struct err *err)
{
    return machine_new(m, &(struct pickle_value){.kind = PICKLE_BOOL, .number = arg}, err);
}

/* BININT has four bytes and a sign, BININT1 and BININT2 have none. */
static enum status on_int(struct machine *m, uint32_t arg, struct err *err)
{
    uint64_t number = 0;
    enum status status = take_number(m, arg, &number, err);

    if (status != STATUS_OK)
        return status;
    return machine_new(m,
                       &(struct pickle_value){.kind = PICKLE_INT,
                                              .number = arg == 4
                                                            ? (int64_t)(int32_t)(uint32_t)number
                                                            : (int64_t)number},
                       err);
}

/* Two's complement of any length; one of more than eight bytes is kept as something unknown. */
static enum status on_long(struct machine *m, uint32_t arg, struct err *err)
{
    const char *bytes = NULL;
    uint64_t count = 0, number;
    enum status status = take_number(m, arg, &count, err);

    if (status == STATUS_OK)
        status = take_bytes(m, count, &bytes, err);
    if (status != STATUS_OK)
        return status;
    if (count > 8)
        return machine_new(m, &(struct pickle_value){.kind = PICKLE_OTHER}, err);
    number = little_take(bytes, (size_t)count);
    if (count > 0 && count < 8 && (bytes[count - 1] & 0x80) != 0)
        number |= UINT64_MAX << (8 * count);
    return machine_new(m, &(struct pickle_value){.kind = PICKLE_INT, .number = (int64_t)number},
                       err);
}

static enum status on_float(struct machine *m, uint32_t arg, struct err *err)
{
    const char *bytes = NULL;
    enum status status = take_bytes(m, arg, &bytes, err);

    return status == STATUS_OK ? on_constant(m, PICKLE_OTHER, err) : status;
}

static enum status on_text(struct machine *m, uint32_t arg, struct err *err)
{
    struct pickle_value value = {.kind = PICKLE_TEXT};
    uint64_t count = 0;
    enum status status = take_number(m, arg, &count, err);

    if (status == STATUS_OK)
        status = take_bytes(m, count, &value.text, err);
    value.count = (uint32_t)count;
    return status == STATUS_OK ? machine_new(m, &value, err) : status;
}

static enum status on_mark(struct machine *m, uint32_t arg, struct err *err)
{
    enum status status = machine_grow(m, (void **)&m->marks, &m->mark_room, m->mark_count,
                                      sizeof *m->marks, PICKLE_BYTES_MAX, err);

    (void)arg;
    if (status == STATUS_OK)
        m->marks[m->mark_count++] = m->stack_count;
    return status;
}

/* Takes the newest mark away: the values from stack[*from] on were above it. */
static enum status pop_mark(struct machine *m, size_t *from, struct err *err)
{
    if (m->mark_count == 0)
        return machine_bad(m, err, "an opcode finds no mark on the stack");
    *from = m->marks[--m->mark_count];
    return STATUS_OK;
}

static enum status make_tuple(struct machine *m, size_t from, struct err *err)
{
    const uint32_t tuple = (uint32_t)m->out->value_count;
    const size_t end = m->stack_count;
    enum status status = machine_new(m, &(struct pickle_value){.kind = PICKLE_TUPLE}, err);

    for (size_t i = from; status == STATUS_OK && i < end; i++)
        status = add_item(m, tuple, PICKLE_NONE_INDEX, m->stack[i], err);
    if (status != STATUS_OK)
        return status;
    m->stack[from] = tuple;
    m->stack_count = from + 1;
    return STATUS_OK;
}

static enum status on_tuple(struct machine *m, uint32_t arg, struct err *err)
{
    size_t from = 0;
    enum status status = pop_mark(m, &from, err);

    (void)arg;
    return status == STATUS_OK ? make_tuple(m, from, err) : status;
}

static enum status on_small_tuple(struct machine *m, uint32_t arg, struct err *err)
{
    enum status status = need(m, arg, err);

    return status == STATUS_OK ? make_tuple(m, m->stack_count - arg, err) : status;
}

/* Values from stack[from] on go into the container below them: pairs into a dict. */
static enum status store(struct machine *m, enum pickle_kind kind, size_t from, struct err *err)
{
    const size_t by = kind == PICKLE_DICT ? 2 : 1;
    enum status status = STATUS_OK;
    uint32_t container;

    if (from == 0 || (m->mark_count > 0 && m->marks[m->mark_count - 1] >= from))
        return machine_bad(m, err, "an opcode finds too little on the stack");
    container = m->stack[from - 1];
    if (m->out->values[container].kind != kind || (m->stack_count - from) % by != 0)
        return machine_bad(m, err, "items are for a dict or a list, and there is none");
    for (size_t i = from; status == STATUS_OK && i < m->stack_count; i += by)
        status = add_item(m, container, by == 2 ? m->stack[i] : PICKLE_NONE_INDEX,
                          m->stack[i + by - 1], err);
    m->stack_count = from;
    return status;
}

static enum status on_items(struct machine *m, uint32_t arg, struct err *err)
{
    size_t from = 0;
    enum status status = pop_mark(m, &from, err);

    return status == STATUS_OK ? store(m, (enum pickle_kind)arg, from, err) : status;
}

static enum status on_item(struct machine *m, uint32_t arg, struct err *err)
{
    const size_t count = arg == PICKLE_DICT ? 2 : 1;
    enum status status = need(m, count + 1, err);

    return status == STATUS_OK ? store(m, (enum pickle_kind)arg, m->stack_count - count, err)
                               : status;
}

static enum status on_put(struct machine *m, uint32_t arg, struct err *err)
{
    uint64_t index = 0;
    enum status status = take_number(m, arg, &index, err);

    if (status == STATUS_OK)
        status = need(m, 1, err);
    if (status == STATUS_OK)
        status = machine_grow(m, (void **)&m->memo, &m->memo_room, (size_t)index, sizeof *m->memo,
                              PICKLE_VALUES_MAX, err);
    if (status == STATUS_OK)
        m->memo[index] = m->stack[m->stack_count - 1];
    return status;
}

static enum status on_get(struct machine *m, uint32_t arg, struct err *err)
{
    uint64_t index = 0;
    enum status status = take_number(m, arg, &index, err);

    if (status != STATUS_OK)
        return status;
    if (index >= m->memo_room || m->memo[index] == PICKLE_NONE_INDEX)
        return machine_bad(m, err, "it refers to something that was never kept");
    return machine_push(m, m->memo[index], err);
}

/* A line of the text of GLOBAL, without its end. */
static enum status take_line(struct machine *m, struct machine_text *line, struct err *err)
{
    const char *from = m->bytes + m->at, *end = memchr(from, '\n', m->byte_count - m->at);

    if (end == NULL)
        return machine_bad(m, err, "it ends within an opcode");
    *line = (struct machine_text){from, (size_t)(end - from)};
    m->at += line->byte_count + 1;
    return STATUS_OK;
}

static enum status on_global(struct machine *m, uint32_t arg, struct err *err)
{
    struct machine_text module = {NULL, 0}, name = {NULL, 0};
    char shown_module[SHOWN_BYTES], shown_name[SHOWN_BYTES];
    const size_t length = strlen(m->what);
    uint32_t index = 0;
    enum status status = take_line(m, &module, err);

    (void)arg;
    if (status == STATUS_OK)
        status = take_line(m, &name, err);
    if (status != STATUS_OK)
        return status;
    if (rebuild_find(module, name, &index))
        return machine_new(m, &(struct pickle_value){.kind = PICKLE_GLOBAL, .sub = index}, err);
    utf8_printable(module.bytes, module.byte_count, shown_module, sizeof shown_module);
    utf8_printable(name.bytes, name.byte_count, shown_name, sizeof shown_name);
    return err_set(err, STATUS_REFUSED, 0,
                   "%s%s: GLOBAL %s.%s: refused: no code is run; if you trust it: python3 -c "
                   "'import torch; s=torch.load(\"OLD\",\"cpu\",weights_only=False); "
                   "torch.save(s.get(\"state_dict\",s.get(\"model\",s)),\"NEW\")'",
                   length > PATH_SHOWN ? "..." : "",
                   m->what + (length > PATH_SHOWN ? length - PATH_SHOWN : 0), shown_module,
                   shown_name);
}

static enum status on_build(struct machine *m, uint32_t arg, struct err *err)
{
    enum pickle_kind kind;
    enum status status = need(m, 2, err);

    (void)arg;
    if (status != STATUS_OK)
        return status;
    kind = m->out->values[m->stack[m->stack_count - 2]].kind;
    if (kind != PICKLE_DICT && kind != PICKLE_OTHER)
        return err_set(err, STATUS_REFUSED, 0,
                       "%s: its pickle builds an object that is no OrderedDict: refused; only "
                       "tensors are read",
                       m->what);
    m->stack_count--; /* attributes, such as a state_dict's _metadata or a Namespace's options */
    return STATUS_OK;
}

static enum status on_reduce(struct machine *m, uint32_t arg, struct err *err)
{
    uint32_t args, what;
    enum status status = need(m, 2, err);

    (void)arg;
    if (status != STATUS_OK)
        return status;
    args = m->stack[--m->stack_count];
    what = m->stack[--m->stack_count];
    return rebuild_call(m, what, args, err);
}

/* Opcodes of which an error says more than a number: they make or call objects. */
static const struct {
    unsigned char code;
    const char *name;
} refused[] = {
    {'i', "INST"},       {'o', "OBJ"},           {0x81, "NEWOBJ"},
    {0x82, "EXT1"},      {0x83, "EXT2"},         {0x84, "EXT4"},
    {0x92, "NEWOBJ_EX"}, {0x93, "STACK_GLOBAL"}, {0x8c, "SHORT_BINUNICODE"},
    {0x95, "FRAME"},
};

static enum status refuse(const struct machine *m, unsigned char code, struct err *err)
{
    const char *name = NULL;

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].code == code)
            name = refused[i].name;
    return err_set(
        err, STATUS_REFUSED, 0,
        "%s: its pickle has opcode 0x%02x%s%s at byte %zu: refused; torch.save writes no "
        "such opcode for tensors",
        m->what, code, name != NULL ? " " : "", name != NULL ? name : "", m->opcode_at);
}

/* An object of a class that becomes nothing. */
static enum status on_newobj(struct machine *m, uint32_t arg, struct err *err)
{
    enum status status = need(m, 2, err);

    if (status != STATUS_OK)
        return status;
    if (!rebuild_is_nothing(m, m->stack[m->stack_count - 2]))
        return refuse(m, (unsigned char)arg, err);
    return on_reduce(m, 0, err);
}

static enum status on_persid(struct machine *m, uint32_t arg, struct err *err)
{
    enum status status = need(m, 1, err);

    (void)arg;
    return status == STATUS_OK ? rebuild_storage(m, m->stack[--m->stack_count], err) : status;
}

static enum status on_stop(struct machine *m, uint32_t arg, struct err *err)
{
    (void)arg;
    if (m->stack_count != 1 || m->mark_count != 0)
        return machine_bad(m, err, "it ends with other than one value");
    if (m->at != m->byte_count)
        return machine_bad(m, err, "something follows its end");
    m->out->result = m->stack[0];
    m->is_done = true;
    return STATUS_OK;
}

/* arg: bytes of the operand, or what the function says. */
static const struct {
    enum status (*run)(struct machine *m, uint32_t arg, struct err *err);
    uint32_t arg;
} opcodes[256] = {
    [0x80] = {on_proto, 1},              /* PROTO */
    ['N'] = {on_constant, PICKLE_OTHER}, /* NONE */
    [0x88] = {on_bool, 1},               /* NEWTRUE */
    [0x89] = {on_bool, 0},               /* NEWFALSE */
    ['J'] = {on_int, 4},                 /* BININT */
    ['K'] = {on_int, 1},                 /* BININT1 */
    ['M'] = {on_int, 2},                 /* BININT2 */
    [0x8a] = {on_long, 1},               /* LONG1 */
    ['G'] = {on_float, 8},               /* BINFLOAT */
    ['X'] = {on_text, 4},                /* BINUNICODE */
    ['T'] = {on_text, 4},                /* BINSTRING: from Python 2 */
    ['U'] = {on_text, 1},                /* SHORT_BINSTRING */
    [')'] = {on_constant, PICKLE_TUPLE}, /* EMPTY_TUPLE */
    [']'] = {on_constant, PICKLE_LIST},  /* EMPTY_LIST */
    ['}'] = {on_constant, PICKLE_DICT},  /* EMPTY_DICT */
    ['('] = {on_mark, 0},                /* MARK */
    ['t'] = {on_tuple, 0},               /* TUPLE */
    [0x85] = {on_small_tuple, 1},        /* TUPLE1 */
    [0x86] = {on_small_tuple, 2},        /* TUPLE2 */
    [0x87] = {on_small_tuple, 3},        /* TUPLE3 */
    ['a'] = {on_item, PICKLE_LIST},      /* APPEND */
    ['e'] = {on_items, PICKLE_LIST},     /* APPENDS */
    ['s'] = {on_item, PICKLE_DICT},      /* SETITEM */
    ['u'] = {on_items, PICKLE_DICT},     /* SETITEMS */
    ['q'] = {on_put, 1},                 /* BINPUT */
    ['r'] = {on_put, 4},                 /* LONG_BINPUT */
    ['h'] = {on_get, 1},                 /* BINGET */
    ['j'] = {on_get, 4},                 /* LONG_BINGET */
    ['c'] = {on_global, 0},              /* GLOBAL */
    ['R'] = {on_reduce, 0},              /* REDUCE */
    [0x81] = {on_newobj, 0x81},          /* NEWOBJ */
    ['b'] = {on_build, 0},               /* BUILD */
    ['Q'] = {on_persid, 0},              /* BINPERSID */
    ['.'] = {on_stop, 0},                /* STOP */
};

static enum status run(struct machine *m, struct err *err)
{
    enum status status = STATUS_OK;

    while (status == STATUS_OK && !m->is_done) {
        unsigned char code;

        m->opcode_at = m->at;
        if (m->at == m->byte_count)
            return machine_bad(m, err, "it ends without STOP");
        code = (unsigned char)m->bytes[m->at++];
        status = opcodes[code].run == NULL ? refuse(m, code, err)
                                           : opcodes[code].run(m, opcodes[code].arg, err);
    }
    return status;
}

enum status pickle_read(struct pickle *pickle, const char *what, const char *bytes,
                        size_t byte_count, struct err *err)
{
    struct machine machine = {
        .out = pickle, .what = what, .bytes = bytes, .byte_count = byte_count};
    enum status status;

    *pickle = (struct pickle){.result = PICKLE_NONE_INDEX};
    if (byte_count > PICKLE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: a pickle of %zu bytes, over the limit of %u",
                       what, byte_count, PICKLE_BYTES_MAX);
    status = run(&machine, err);
    assert(status != STATUS_OK || pickle->result < pickle->value_count);
    free(machine.stack);
    free(machine.marks);
    free(machine.memo);
    return status;
}

void pickle_close(struct pickle *pickle)
{
    free(pickle->values);
    free(pickle->items);
    free(pickle->tensors);
    *pickle = (struct pickle){.result = PICKLE_NONE_INDEX};
}

uint32_t pickle_get(const struct pickle *pickle, uint32_t dict, const char *key)
{
    const struct pickle_value *from = &pickle->values[dict];
    const size_t key_bytes = strlen(key);

    for (uint32_t i = from->first; from->kind == PICKLE_DICT && i != PICKLE_NONE_INDEX;
         i = pickle->items[i].next) {
        const struct pickle_value *name = &pickle->values[pickle->items[i].key];

        if (name->kind == PICKLE_TEXT && name->count == key_bytes &&
            memcmp(name->text, key, key_bytes) == 0)
            return pickle->items[i].value;
    }
    return PICKLE_NONE_INDEX;
}
