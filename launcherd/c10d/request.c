/* Carries out the commands. Each gets its complete request. */
#include <assert.h>
#include <string.h>

#include "launcherd/c10d/state.h"

#define STOP_WAITING 0u
#define WAIT_CANCELED 1u
#define READY 0u
#define NOT_READY 1u
#define MAGIC 0x3C85F7CEu

static enum request_result bad(enum c10d_reason *reason, enum c10d_reason why)
{
    *reason = why;
    return REQUEST_BAD;
}

/* -- replies ----------------------------------------------------------------------------------- */

/* Reserves `byte_count` more bytes of reply, and one more byte because the same request may end the
 * client's own wait, which has to be answered, too. The limit is that of one message: replies to
 * earlier requests of the step do not count. */
static enum request_result reserve(struct c10d *core, uint64_t byte_count, enum c10d_reason *reason)
{
    size_t capacity = core->reply_capacity * 2;
    char *moved;

    if (byte_count > core->limits.message_bytes_max)
        return bad(reason, C10D_REASON_REPLY_TOO_LONG);
    if (byte_count < core->reply_capacity - core->reply_bytes)
        return REQUEST_DONE;
    if (capacity < core->reply_bytes + byte_count + 1)
        capacity = core->reply_bytes + byte_count + 1;
    moved = memory_resize(&core->memory, core->reply, core->reply_capacity, capacity);
    if (moved == NULL)
        return bad(reason, C10D_REASON_NO_MEMORY);
    core->reply = moved;
    core->reply_capacity = capacity;
    return REQUEST_DONE;
}

static void put(struct c10d *core, const void *bytes, size_t byte_count)
{
    assert(byte_count <= core->reply_capacity - core->reply_bytes);
    if (byte_count > 0)
        memcpy(core->reply + core->reply_bytes, bytes, byte_count);
    core->reply_bytes += byte_count;
}

static void put_number(struct c10d *core, uint64_t value, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++)
        core->reply[core->reply_bytes++] = (char)(value >> (8 * i));
}

static void put_text(struct c10d *core, struct text text)
{
    put_number(core, text.byte_count, 8);
    put(core, text.bytes, text.byte_count);
}

static enum request_result reply_number(struct c10d *core, uint64_t value, size_t byte_count,
                                        enum c10d_reason *reason)
{
    if (reserve(core, byte_count, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    put_number(core, value, byte_count);
    return REQUEST_DONE;
}

static enum request_result reply_text(struct c10d *core, struct text text, enum c10d_reason *reason)
{
    if (reserve(core, 8 + text.byte_count, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    put_text(core, text);
    return REQUEST_DONE;
}

bool request_reply(struct c10d *core, struct text text, enum c10d_reason *reason)
{
    if (reserve(core, text.byte_count, reason) != REQUEST_DONE)
        return false;
    put(core, text.bytes, text.byte_count);
    return true;
}

/* -- waiting ----------------------------------------------------------------------------------- */

/* A request of a client may end the wait of the same client. Then the answer is part of its reply
 * (see reserve). */
static void on_woken(void *owner, struct waiting *waiting)
{
    static const char stop = STOP_WAITING;
    struct c10d *core = owner;
    struct client *client = (struct client *)waiting;

    client->waits = C10D_WAITS_NOT;
    assert(core->action_count < core->action_capacity);
    if (client == core->current)
        put(core, &stop, 1);
    else
        core->actions[core->action_count++] = (struct c10d_action){
            .type = C10D_SEND, .client = client->number, .bytes = &stop, .byte_count = 1};
}

static void wake(struct c10d *core, struct text key)
{
    waits_wake(&core->waits, key, false, on_woken, core);
}

static void begin_wait(struct c10d *core, enum c10d_waits waits)
{
    core->current->waits = waits;
    core->current->waits_since_us = core->now_us;
}

static void stop_wait(struct c10d *core)
{
    waits_drop(core->current->waits == C10D_WAITS_AT_BARRIER ? &core->barriers : &core->waits,
               &core->current->waiting);
    core->current->waits = C10D_WAITS_NOT;
}

/* Waits for the keys of the list that are missing. */
static enum request_result wait_for(struct c10d *core, struct waits *waits, struct fields list,
                                    uint64_t key_count, uint32_t missing, enum c10d_reason *reason)
{
    if (!waits_reserve(waits, &core->current->waiting, missing))
        return bad(reason, C10D_REASON_NO_MEMORY);
    for (uint64_t i = 0; i < key_count; i++) {
        struct text key = fields_text(&list);

        if (waits == &core->waits && keys_has(&core->keys, key))
            continue;
        if (!waits_add(waits, &core->current->waiting, key)) {
            waits_drop(waits, &core->current->waiting);
            return bad(reason, C10D_REASON_NO_MEMORY);
        }
    }
    begin_wait(core, waits == &core->waits ? C10D_WAITS_FOR_KEYS : C10D_WAITS_AT_BARRIER);
    return REQUEST_DONE;
}

static uint32_t count_missing(const struct c10d *core, struct fields list, uint64_t key_count)
{
    uint32_t missing = 0;

    for (uint64_t i = 0; i < key_count; i++)
        if (!keys_has(&core->keys, fields_text(&list)))
            missing++;
    return missing;
}

/* -- commands ---------------------------------------------------------------------------------- */

static enum request_result on_set(struct c10d *core, unsigned command, struct fields *fields,
                                  enum c10d_reason *reason)
{
    const struct text key = fields_text(fields), value = fields_text(fields);
    enum keys_result result;

    if (command == COMMAND_APPEND)
        result = keys_append(&core->keys, key, value, reason);
    else
        result = keys_set(&core->keys, key, value, reason);
    if (result != KEYS_DONE)
        return REQUEST_BAD;
    wake(core, key);
    return REQUEST_DONE;
}

/* If the key is missing and a value was expected, nothing is stored and the reply is the expected
 * value, as PyTorch documents. PyTorch's server wakes the key's waiters even then, and they find
 * nothing; here they go on waiting. */
static enum request_result on_compare_set(struct c10d *core, struct fields *fields,
                                          enum c10d_reason *reason)
{
    const struct text key = fields_text(fields), expected = fields_text(fields),
                      desired = fields_text(fields);
    struct text now;
    const bool is_there = keys_get(&core->keys, key, &now);

    if (is_there && (now.byte_count != expected.byte_count ||
                     memcmp(now.bytes, expected.bytes, now.byte_count) != 0))
        return reply_text(core, now, reason);
    if (!is_there && expected.byte_count > 0)
        return reply_text(core, expected, reason);
    if (reply_text(core, desired, reason) != REQUEST_DONE ||
        keys_set(&core->keys, key, desired, reason) != KEYS_DONE)
        return REQUEST_BAD;
    wake(core, key);
    return REQUEST_DONE;
}

static enum request_result on_get(struct c10d *core, struct fields *fields,
                                  enum c10d_reason *reason)
{
    struct text value = {"", 0};

    (void)keys_get(&core->keys, fields_text(fields), &value);
    return reply_text(core, value, reason);
}

static enum request_result on_add(struct c10d *core, struct fields *fields,
                                  enum c10d_reason *reason)
{
    const struct text key = fields_text(fields);
    int64_t sum;

    if (keys_add(&core->keys, key, (int64_t)fields_number(fields, 8), &sum, reason) != KEYS_DONE)
        return REQUEST_BAD;
    wake(core, key);
    return reply_number(core, (uint64_t)sum, 8, reason);
}

static enum request_result on_check(struct c10d *core, struct fields *fields,
                                    enum c10d_reason *reason)
{
    const uint64_t key_count = fields_number(fields, 8);

    return reply_number(core, count_missing(core, *fields, key_count) == 0 ? READY : NOT_READY, 1,
                        reason);
}

static enum request_result on_wait(struct c10d *core, struct fields *fields,
                                   enum c10d_reason *reason)
{
    const uint64_t key_count = fields_number(fields, 8);
    const uint32_t missing = count_missing(core, *fields, key_count);

    if (missing == 0)
        return reply_number(core, STOP_WAITING, 1, reason);
    return wait_for(core, &core->waits, *fields, key_count, missing, reason);
}

/* Counts this client in. The client that completes the number releases them all. The barrier's key
 * now exists for those who wait for it. */
static enum request_result on_barrier(struct c10d *core, struct fields fields,
                                      enum c10d_reason *reason)
{
    struct fields list = fields;
    const struct text key = fields_text(&fields);
    const int64_t world_size = (int64_t)fields_number(&fields, 8);
    int64_t arrived;

    if (keys_add(&core->keys, key, 1, &arrived, reason) != KEYS_DONE)
        return REQUEST_BAD;
    wake(core, key);
    if (arrived < world_size)
        return wait_for(core, &core->barriers, list, 1, 1, reason);
    waits_wake(&core->barriers, key, false, on_woken, core);
    return reply_number(core, STOP_WAITING, 1, reason);
}

static enum request_result on_multi_get(struct c10d *core, struct fields *fields,
                                        enum c10d_reason *reason)
{
    const uint64_t key_count = fields_number(fields, 8);
    struct fields again = *fields;
    uint64_t byte_count = 0;

    for (uint64_t i = 0; i < key_count; i++) {
        struct text value = {"", 0};

        (void)keys_get(&core->keys, fields_text(fields), &value);
        byte_count += 8 + value.byte_count;
    }
    if (reserve(core, byte_count, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    for (uint64_t i = 0; i < key_count; i++) {
        struct text value = {"", 0};

        (void)keys_get(&core->keys, fields_text(&again), &value);
        put_text(core, value);
    }
    return REQUEST_DONE;
}

static enum request_result on_multi_set(struct c10d *core, struct fields *fields,
                                        enum c10d_reason *reason)
{
    const uint64_t key_count = fields_number(fields, 8);

    for (uint64_t i = 0; i < key_count; i++)
        if (on_set(core, COMMAND_SET, fields, reason) != REQUEST_DONE)
            return REQUEST_BAD;
    return REQUEST_DONE;
}

static enum request_result on_push(struct c10d *core, struct fields *fields,
                                   enum c10d_reason *reason)
{
    const struct text key = fields_text(fields);

    if (keys_push(&core->keys, key, fields_text(fields), reason) != KEYS_DONE)
        return REQUEST_BAD;
    waits_wake(&core->waits, key, true, on_woken, core);
    return REQUEST_DONE;
}

/* Replies with the length before the pop, then with the entry if there is one. */
static enum request_result on_pop(struct c10d *core, struct fields *fields,
                                  enum c10d_reason *reason)
{
    const struct text key = fields_text(fields);
    struct text value = {"", 0};
    const uint64_t length = keys_first(&core->keys, key, &value);

    if (reserve(core, 16 + value.byte_count, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    put_number(core, length, 8);
    if (length == 0)
        return REQUEST_DONE;
    put_text(core, value);
    keys_drop_first(&core->keys, key);
    return REQUEST_DONE;
}

static enum request_result on_list(struct c10d *core, enum c10d_reason *reason)
{
    const struct table *values = &core->keys.values;
    uint64_t byte_count = 8;

    for (struct table_node *node = table_next(values, NULL); node; node = table_next(values, node))
        byte_count += 8 + node->key_bytes;
    if (reserve(core, byte_count, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    put_number(core, values->count, 8);
    for (struct table_node *node = table_next(values, NULL); node; node = table_next(values, node))
        put_text(core, table_key(values, node));
    return REQUEST_DONE;
}

static enum request_result on_validate(struct c10d *core, struct fields *fields,
                                       enum c10d_reason *reason)
{
    if (fields_number(fields, 4) != MAGIC)
        return bad(reason, C10D_REASON_WRONG_MAGIC);
    core->current->is_validated = true;
    return REQUEST_DONE;
}

/* PyTorch's clients have at most one wait at a time. With two, nobody could tell which one an
 * answer belongs to. */
static enum request_result on_waiting_command(struct c10d *core, unsigned command,
                                              struct fields fields, enum c10d_reason *reason)
{
    if (core->current->waits != C10D_WAITS_NOT)
        return bad(reason, C10D_REASON_WAITS_ALREADY);
    return command == COMMAND_WAIT ? on_wait(core, &fields, reason)
                                   : on_barrier(core, fields, reason);
}

enum request_result request_carry_out(struct c10d *core, unsigned command, struct fields fields,
                                      enum c10d_reason *reason)
{
    struct text value;

    if (reserve(core, 0, reason) != REQUEST_DONE)
        return REQUEST_BAD;
    switch ((enum command)command) {
    case COMMAND_VALIDATE:
        return on_validate(core, &fields, reason);
    case COMMAND_SET:
    case COMMAND_APPEND:
        return on_set(core, command, &fields, reason);
    case COMMAND_COMPARE_SET:
        return on_compare_set(core, &fields, reason);
    case COMMAND_GET:
        return on_get(core, &fields, reason);
    case COMMAND_ADD:
        return on_add(core, &fields, reason);
    case COMMAND_CHECK:
        return on_check(core, &fields, reason);
    case COMMAND_WAIT:
    case COMMAND_BARRIER:
        return on_waiting_command(core, command, fields, reason);
    case COMMAND_GETNUMKEYS:
        return reply_number(core, core->keys.values.count, 8, reason);
    case COMMAND_DELETE_KEY:
        return reply_number(core, keys_delete(&core->keys, fields_text(&fields)), 8, reason);
    case COMMAND_MULTI_GET:
        return on_multi_get(core, &fields, reason);
    case COMMAND_MULTI_SET:
        return on_multi_set(core, &fields, reason);
    case COMMAND_CANCEL_WAIT:
        stop_wait(core);
        return reply_number(core, WAIT_CANCELED, 1, reason);
    case COMMAND_PING:
        core->current->pid = (uint32_t)fields_number(&fields, 4);
        return reply_number(core, core->current->pid, 4, reason);
    case COMMAND_QUEUE_PUSH:
        return on_push(core, &fields, reason);
    case COMMAND_QUEUE_POP:
        return on_pop(core, &fields, reason);
    case COMMAND_QUEUE_LEN:
        return reply_number(core, keys_first(&core->keys, fields_text(&fields), &value), 8, reason);
    case COMMAND_LIST_KEYS:
        return on_list(core, reason);
    }
    return bad(reason, C10D_REASON_UNKNOWN_COMMAND);
}
