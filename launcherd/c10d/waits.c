#include "launcherd/c10d/waits.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

struct topic {
    struct table_node node;
    struct waiter *first, *last;
    char key[];
};

bool waits_init(struct waits *waits, struct memory *memory, const uint64_t seed[2])
{
    waits->memory = memory;
    return table_init(&waits->topics, memory, offsetof(struct topic, key), seed);
}

void waits_close(struct waits *waits)
{
    assert(waits->topics.count == 0);
    table_close(&waits->topics, waits->memory);
}

bool waits_reserve(struct waits *waits, struct waiting *waiting, uint32_t capacity)
{
    assert(waiting->waiters == NULL && capacity > 0);
    waiting->waiters = memory_resize(waits->memory, NULL, 0, capacity * sizeof *waiting->waiters);
    if (waiting->waiters == NULL)
        return false;
    waiting->capacity = capacity;
    return true;
}

static void free_topic(struct waits *waits, struct topic *topic)
{
    (void)memory_resize(waits->memory, topic, sizeof *topic + topic->node.key_bytes, 0);
}

static struct topic *topic_of(struct waits *waits, struct text key)
{
    struct topic *topic = (struct topic *)table_find(&waits->topics, key);

    if (topic != NULL)
        return topic;
    topic = memory_resize(waits->memory, NULL, 0, sizeof *topic + key.byte_count);
    if (topic == NULL)
        return NULL;
    *topic = (struct topic){.node = {.key_bytes = (uint32_t)key.byte_count}};
    memcpy(topic->key, key.bytes, key.byte_count);
    if (table_add(&waits->topics, waits->memory, &topic->node, key.byte_count))
        return topic;
    free_topic(waits, topic);
    return NULL;
}

bool waits_add(struct waits *waits, struct waiting *waiting, struct text key)
{
    struct topic *topic = topic_of(waits, key);
    struct waiter *waiter = &waiting->waiters[waiting->count];

    assert(waiting->count < waiting->capacity);
    if (topic == NULL)
        return false;
    *waiter = (struct waiter){.topic = topic, .owner = waiting, .previous = topic->last};
    if (topic->last != NULL)
        topic->last->next = waiter;
    else
        topic->first = waiter;
    topic->last = waiter;
    waiting->count++;
    waiting->missing++;
    return true;
}

static void leave(struct waits *waits, struct waiter *waiter)
{
    struct topic *topic = waiter->topic;

    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        topic->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    else
        topic->last = waiter->previous;
    waiter->topic = NULL;
    if (topic->first != NULL)
        return;
    table_remove(&waits->topics, &topic->node);
    free_topic(waits, topic);
}

void waits_drop(struct waits *waits, struct waiting *waiting)
{
    for (uint32_t i = 0; i < waiting->count; i++)
        if (waiting->waiters[i].topic != NULL)
            leave(waits, &waiting->waiters[i]);
    (void)memory_resize(waits->memory, waiting->waiters,
                        waiting->capacity * sizeof *waiting->waiters, 0);
    *waiting = (struct waiting){.waiters = NULL};
}

void waits_wake(struct waits *waits, struct text key, bool only_first, waits_woken *woken,
                void *owner)
{
    struct topic *topic = (struct topic *)table_find(&waits->topics, key);
    struct waiter *waiter = topic != NULL ? topic->first : NULL, *next;

    for (; waiter != NULL; waiter = next) {
        struct waiting *waiting = waiter->owner;

        next = only_first ? NULL : waiter->next;
        leave(waits, waiter);
        if (--waiting->missing > 0)
            continue;
        /* If a key was named twice, its second waiter ended the wait. So `next` belongs to another
         * client. */
        waits_drop(waits, waiting);
        woken(owner, waiting);
    }
}

struct text waits_key(const struct waits *waits, const struct waiter *waiter)
{
    return table_key(&waits->topics, &waiter->topic->node);
}
