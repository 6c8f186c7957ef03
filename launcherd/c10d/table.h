/* A hash table with chaining. The owner allocates the nodes; each begins with a struct table_node
 * and contains its key. The table doubles, so adding takes constant time on average. It uses
 * SipHash with a secret seed, so nobody can choose keys that make long chains. */
#ifndef LAUNCHERD_C10D_TABLE_H
#define LAUNCHERD_C10D_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcherd/c10d/memory.h"

struct table_node {
    struct table_node *next;
    uint32_t hash, key_bytes;
};

struct table {
    struct table_node **buckets;
    size_t bucket_count, count;
    size_t key_at; /* offset of the key within a node */
    uint64_t seed[2];
};

/* SipHash-1-3 (Aumasson and Bernstein, 2012, with one round a block and three at the end). */
uint64_t table_hash(const uint64_t seed[2], struct text key);
bool table_init(struct table *table, struct memory *memory, size_t key_at, const uint64_t seed[2]);
/* Frees the buckets only: the nodes are freed by their owner. */
void table_close(struct table *table, struct memory *memory);
struct text table_key(const struct table *table, const struct table_node *node);
struct table_node *table_find(const struct table *table, struct text key);
/* Adds a node. Its key must be in it and not yet in the table; hash and key_bytes are set here.
 * False: no memory. */
bool table_add(struct table *table, struct memory *memory, struct table_node *node,
               size_t key_bytes);
void table_remove(struct table *table, struct table_node *node);
/* The node was reallocated from the address `old` to `node`. `old` is only compared, not read. */
void table_moved(struct table *table, uintptr_t old, struct table_node *node);
/* Iterates over all nodes in no particular order, from NULL to NULL. */
struct table_node *table_next(const struct table *table, const struct table_node *node);

#endif
