#include "launcherd/c10d/keys.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* One allocation for each key: the table's node, the key, the value, and room to append to it. */
struct entry {
    struct table_node node;
    uint32_t value_bytes, capacity; /* of the value */
    char bytes[];
};

struct item {
    struct item *next;
    uint64_t byte_count;
    char bytes[];
};

struct queue {
    struct table_node node;
    struct item *first, *last;
    uint64_t count;
    char key[];
};

static size_t entry_bytes(size_t key_bytes, size_t capacity)
{
    return offsetof(struct entry, bytes) + key_bytes + capacity;
}

static enum keys_result refused(enum c10d_reason *reason, enum c10d_reason why)
{
    *reason = why;
    return KEYS_REFUSED;
}

bool keys_init(struct keys *keys, struct memory *memory, uint64_t limit, const uint64_t seed[2])
{
    *keys = (struct keys){.memory = memory, .limit = limit};
    return table_init(&keys->values, memory, offsetof(struct entry, bytes), seed) &&
           table_init(&keys->queues, memory, offsetof(struct queue, key), seed);
}

static void free_entry(struct keys *keys, struct entry *entry)
{
    (void)memory_resize(keys->memory, entry, entry_bytes(entry->node.key_bytes, entry->capacity),
                        0);
}

static void free_first(struct keys *keys, struct queue *queue)
{
    struct item *item = queue->first;

    queue->first = item->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->count--;
    (void)memory_resize(keys->memory, item, sizeof *item + item->byte_count, 0);
}

static void free_queue(struct keys *keys, struct queue *queue)
{
    while (queue->first != NULL)
        free_first(keys, queue);
    (void)memory_resize(keys->memory, queue, sizeof *queue + queue->node.key_bytes, 0);
}

void keys_close(struct keys *keys)
{
    struct table_node *node, *next;

    for (node = table_next(&keys->values, NULL); node != NULL; node = next) {
        next = table_next(&keys->values, node);
        free_entry(keys, (struct entry *)node);
    }
    for (node = table_next(&keys->queues, NULL); node != NULL; node = next) {
        next = table_next(&keys->queues, node);
        free_queue(keys, (struct queue *)node);
    }
    table_close(&keys->values, keys->memory);
    table_close(&keys->queues, keys->memory);
}

static struct entry *find(const struct keys *keys, struct text key)
{
    return (struct entry *)table_find(&keys->values, key);
}

static struct text value_of(const struct entry *entry)
{
    return (struct text){entry->bytes + entry->node.key_bytes, entry->value_bytes};
}

bool keys_get(const struct keys *keys, struct text key, struct text *value)
{
    const struct entry *entry = find(keys, key);

    if (entry == NULL)
        return false;
    *value = value_of(entry);
    return true;
}

static enum keys_result add_entry(struct keys *keys, struct text key, struct text value,
                                  enum c10d_reason *reason)
{
    struct entry *entry;

    if (keys->count >= keys->limit)
        return refused(reason, C10D_REASON_STORE_FULL);
    entry = memory_resize(keys->memory, NULL, 0, entry_bytes(key.byte_count, value.byte_count));
    if (entry == NULL)
        return refused(reason, C10D_REASON_NO_MEMORY);
    *entry = (struct entry){.node = {.key_bytes = (uint32_t)key.byte_count},
                            .value_bytes = (uint32_t)value.byte_count,
                            .capacity = (uint32_t)value.byte_count};
    memcpy(entry->bytes, key.bytes, key.byte_count);
    memcpy(entry->bytes + key.byte_count, value.bytes, value.byte_count);
    if (!table_add(&keys->values, keys->memory, &entry->node, key.byte_count)) {
        free_entry(keys, entry);
        return refused(reason, C10D_REASON_NO_MEMORY);
    }
    keys->count++;
    return KEYS_DONE;
}

/* NULL: no memory, and the entry is unchanged. */
static struct entry *resize(struct keys *keys, struct entry *entry, size_t capacity)
{
    const uintptr_t old = (uintptr_t)entry;
    const size_t key_bytes = entry->node.key_bytes;

    entry = memory_resize(keys->memory, entry, entry_bytes(key_bytes, entry->capacity),
                          entry_bytes(key_bytes, capacity));
    if (entry == NULL)
        return NULL;
    entry->capacity = (uint32_t)capacity;
    table_moved(&keys->values, old, &entry->node);
    return entry;
}

enum keys_result keys_set(struct keys *keys, struct text key, struct text value,
                          enum c10d_reason *reason)
{
    struct entry *entry = find(keys, key);

    if (entry == NULL)
        return add_entry(keys, key, value, reason);
    if (value.byte_count > entry->capacity || value.byte_count < entry->capacity / 2) {
        entry = resize(keys, entry, value.byte_count);
        if (entry == NULL)
            return refused(reason, C10D_REASON_NO_MEMORY);
    }
    memcpy(entry->bytes + key.byte_count, value.bytes, value.byte_count);
    entry->value_bytes = (uint32_t)value.byte_count;
    return KEYS_DONE;
}

enum keys_result keys_append(struct keys *keys, struct text key, struct text value,
                             enum c10d_reason *reason)
{
    struct entry *entry = find(keys, key);
    size_t byte_count;

    if (entry == NULL)
        return add_entry(keys, key, value, reason);
    byte_count = entry->value_bytes + value.byte_count;
    if (byte_count > C10D_VALUE_BYTES_MAX)
        return refused(reason, C10D_REASON_VALUE_TOO_LONG);
    if (byte_count > entry->capacity) {
        entry = resize(keys, entry, byte_count + byte_count / 2);
        if (entry == NULL)
            return refused(reason, C10D_REASON_NO_MEMORY);
    }
    memcpy(entry->bytes + key.byte_count + entry->value_bytes, value.bytes, value.byte_count);
    entry->value_bytes = (uint32_t)byte_count;
    return KEYS_DONE;
}

/* Decimal, with or without a sign, in 64 bits. */
static bool read_number(struct text text, int64_t *number)
{
    const bool is_negative = text.byte_count > 0 && text.bytes[0] == '-';
    size_t at = text.byte_count > 0 && (is_negative || text.bytes[0] == '+') ? 1 : 0;

    *number = 0;
    if (at == text.byte_count)
        return false;
    for (; at < text.byte_count; at++) {
        const int digit = text.bytes[at] - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, is_negative ? -digit : digit, number))
            return false;
    }
    return true;
}

enum keys_result keys_add(struct keys *keys, struct text key, int64_t delta, int64_t *sum,
                          enum c10d_reason *reason)
{
    struct text value;
    char text[24];
    int64_t old = 0;

    if (keys_get(keys, key, &value) && !read_number(value, &old))
        return refused(reason, C10D_REASON_NOT_A_NUMBER);
    if (__builtin_add_overflow(old, delta, sum))
        return refused(reason, C10D_REASON_OUT_OF_RANGE);
    value.bytes = text;
    value.byte_count = (size_t)snprintf(text, sizeof text, "%lld", (long long)*sum);
    return keys_set(keys, key, value, reason);
}

bool keys_delete(struct keys *keys, struct text key)
{
    struct entry *entry = find(keys, key);

    if (entry == NULL)
        return false;
    table_remove(&keys->values, &entry->node);
    free_entry(keys, entry);
    keys->count--;
    return true;
}

static struct queue *find_queue(const struct keys *keys, struct text key)
{
    return (struct queue *)table_find(&keys->queues, key);
}

static struct queue *add_queue(struct keys *keys, struct text key)
{
    struct queue *queue = memory_resize(keys->memory, NULL, 0, sizeof *queue + key.byte_count);

    if (queue == NULL)
        return NULL;
    *queue = (struct queue){.node = {.key_bytes = (uint32_t)key.byte_count}};
    memcpy(queue->key, key.bytes, key.byte_count);
    if (!table_add(&keys->queues, keys->memory, &queue->node, key.byte_count)) {
        free_queue(keys, queue);
        return NULL;
    }
    return queue;
}

enum keys_result keys_push(struct keys *keys, struct text key, struct text value,
                           enum c10d_reason *reason)
{
    struct queue *queue = find_queue(keys, key);
    struct item *item;

    if (keys->count >= keys->limit)
        return refused(reason, C10D_REASON_STORE_FULL);
    item = memory_resize(keys->memory, NULL, 0, sizeof *item + value.byte_count);
    if (item == NULL)
        return refused(reason, C10D_REASON_NO_MEMORY);
    *item = (struct item){.byte_count = value.byte_count};
    memcpy(item->bytes, value.bytes, value.byte_count);
    if (queue == NULL)
        queue = add_queue(keys, key);
    if (queue == NULL) {
        (void)memory_resize(keys->memory, item, sizeof *item + value.byte_count, 0);
        return refused(reason, C10D_REASON_NO_MEMORY);
    }
    if (queue->last != NULL)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
    queue->count++;
    keys->count++;
    return KEYS_DONE;
}

uint64_t keys_first(const struct keys *keys, struct text key, struct text *value)
{
    const struct queue *queue = find_queue(keys, key);

    if (queue == NULL)
        return 0;
    *value = (struct text){queue->first->bytes, queue->first->byte_count};
    return queue->count;
}

/* An empty queue is removed, so that nothing is left of a key that was used once. */
void keys_drop_first(struct keys *keys, struct text key)
{
    struct queue *queue = find_queue(keys, key);

    assert(queue != NULL);
    free_first(keys, queue);
    keys->count--;
    if (queue->count > 0)
        return;
    table_remove(&keys->queues, &queue->node);
    free_queue(keys, queue);
}

bool keys_has(const struct keys *keys, struct text key)
{
    return find(keys, key) != NULL || find_queue(keys, key) != NULL;
}
