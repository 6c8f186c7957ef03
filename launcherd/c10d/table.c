#include "launcherd/c10d/table.h"

#include <assert.h>
#include <string.h>

#define BUCKETS_MIN 64u

struct sip {
    uint64_t a, b, c, d;
};

static uint64_t rotate(uint64_t value, unsigned count)
{
    return value << count | value >> (64 - count);
}

static void sip_round(struct sip *sip)
{
    sip->a += sip->b;
    sip->c += sip->d;
    sip->b = rotate(sip->b, 13) ^ sip->a;
    sip->d = rotate(sip->d, 16) ^ sip->c;
    sip->a = rotate(sip->a, 32);
    sip->c += sip->b;
    sip->a += sip->d;
    sip->b = rotate(sip->b, 17) ^ sip->c;
    sip->d = rotate(sip->d, 21) ^ sip->a;
    sip->c = rotate(sip->c, 32);
}

uint64_t table_hash(const uint64_t seed[2], struct text key)
{
    struct sip sip = {seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                      seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u};
    uint64_t block;
    size_t at = 0;

    for (; key.byte_count - at >= 8; at += 8) {
        memcpy(&block, key.bytes + at, 8);
        sip.d ^= block;
        sip_round(&sip);
        sip.a ^= block;
    }
    block = (uint64_t)key.byte_count << 56;
    for (size_t i = 0; at + i < key.byte_count; i++)
        block |= (uint64_t)(unsigned char)key.bytes[at + i] << (8 * i);
    sip.d ^= block;
    sip_round(&sip);
    sip.a ^= block;
    sip.c ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&sip);
    return sip.a ^ sip.b ^ sip.c ^ sip.d;
}

bool table_init(struct table *table, struct memory *memory, size_t key_at, const uint64_t seed[2])
{
    *table = (struct table){.key_at = key_at, .seed = {seed[0], seed[1]}};
    table->buckets = memory_resize(memory, NULL, 0, BUCKETS_MIN * sizeof(struct table_node *));
    if (table->buckets == NULL)
        return false;
    table->bucket_count = BUCKETS_MIN;
    memset(table->buckets, 0, BUCKETS_MIN * sizeof(struct table_node *));
    return true;
}

void table_close(struct table *table, struct memory *memory)
{
    (void)memory_resize(memory, table->buckets, table->bucket_count * sizeof(struct table_node *),
                        0);
    *table = (struct table){.buckets = NULL};
}

struct text table_key(const struct table *table, const struct table_node *node)
{
    return (struct text){(const char *)node + table->key_at, node->key_bytes};
}

static struct table_node **bucket_of(const struct table *table, uint32_t hash)
{
    return &table->buckets[hash & (table->bucket_count - 1)];
}

struct table_node *table_find(const struct table *table, struct text key)
{
    uint32_t hash = (uint32_t)table_hash(table->seed, key);

    for (struct table_node *node = *bucket_of(table, hash); node != NULL; node = node->next)
        if (node->hash == hash && node->key_bytes == key.byte_count &&
            memcmp((const char *)node + table->key_at, key.bytes, key.byte_count) == 0)
            return node;
    return NULL;
}

/* Doubles the table. The nodes of a bucket stay in it or move to its twin in the new half. */
static bool grow(struct table *table, struct memory *memory)
{
    const size_t half = table->bucket_count, bytes = half * sizeof(struct table_node *);
    struct table_node **buckets = memory_resize(memory, table->buckets, bytes, 2 * bytes);

    if (buckets == NULL)
        return false;
    memset(buckets + half, 0, bytes);
    table->buckets = buckets;
    table->bucket_count = 2 * half;
    for (size_t i = 0; i < half; i++) {
        struct table_node *node = buckets[i], *next;

        buckets[i] = NULL;
        for (; node != NULL; node = next) {
            struct table_node **bucket = bucket_of(table, node->hash);

            next = node->next;
            node->next = *bucket;
            *bucket = node;
        }
    }
    return true;
}

bool table_add(struct table *table, struct memory *memory, struct table_node *node,
               size_t key_bytes)
{
    struct table_node **bucket;

    if (table->count >= table->bucket_count && !grow(table, memory))
        return false;
    node->key_bytes = (uint32_t)key_bytes;
    node->hash = (uint32_t)table_hash(table->seed, table_key(table, node));
    bucket = bucket_of(table, node->hash);
    node->next = *bucket;
    *bucket = node;
    table->count++;
    return true;
}

void table_remove(struct table *table, struct table_node *node)
{
    struct table_node **link = bucket_of(table, node->hash);

    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    table->count--;
}

void table_moved(struct table *table, uintptr_t old, struct table_node *node)
{
    struct table_node **link = bucket_of(table, node->hash);

    while ((uintptr_t)*link != old)
        link = &(*link)->next;
    *link = node;
}

struct table_node *table_next(const struct table *table, const struct table_node *node)
{
    size_t i = 0;

    if (node != NULL && node->next != NULL)
        return node->next;
    if (node != NULL)
        i = (node->hash & (table->bucket_count - 1)) + 1;
    while (i < table->bucket_count && table->buckets[i] == NULL)
        i++;
    return i < table->bucket_count ? table->buckets[i] : NULL;
}
