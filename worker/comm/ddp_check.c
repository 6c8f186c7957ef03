#include "worker/comm/ddp_check.h"
#include "worker/net/state.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fnv.h"

#define HASH_BYTES 32
#define TEXT_BYTES 112

/* What every rank sends to all others first, byte for byte: all ranks run the same program. Without
 * padding. */
struct summary {
    uint8_t hash[HASH_BYTES]; /* of the whole net */
    uint64_t tensor_count;
    uint64_t bucket_count;
    uint64_t bucket_hash; /* of the sizes */
    uint64_t settings;
};

static uint64_t hash_buckets(struct net *net)
{
    uint64_t hash = FNV_START;

    for (uint32_t i = 0; i < net_bucket_count(net); i++) {
        uint64_t count = net_bucket(net, i).count;

        hash = fnv_add(hash, &count, sizeof count);
    }
    return hash;
}

/* "layer1.0.weight [16, 1, 5, 5]", cut where it is too long. */
static void describe(const struct net_tensor *tensor, char text[TEXT_BYTES])
{
    int used = snprintf(text, TEXT_BYTES, "%.64s [", tensor->name);

    for (uint32_t i = 0; i < tensor->dim_count && used < TEXT_BYTES - 16; i++)
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, "%s%u", i == 0 ? "" : ", ",
                         tensor->dims[i]);
    (void)snprintf(text + used, TEXT_BYTES - (size_t)used, "]");
}

/* Gathers every rank's description of tensor `index`; reports how `rank` differs from rank 0. */
static enum status name_tensor(struct comm *comm, struct net *net, uint32_t world, uint32_t rank,
                               uint32_t index, struct err *err)
{
    char mine[TEXT_BYTES] = "";
    char(*all)[TEXT_BYTES] = calloc(world, sizeof *all);
    enum status status;

    if (all == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare the nets of %u ranks", world);
    describe(net_tensor(net, index), mine);
    status = comm_all_gather(comm, mine, sizeof mine, all, err);
    if (status == STATUS_OK && strcmp(all[rank], all[0]) != 0)
        status = err_set(err, STATUS_CONFLICT, 0,
                         "rank %u differs from rank 0 in parameter %s: rank 0 has %s", rank,
                         all[rank], all[0]);
    else if (status == STATUS_OK)
        status =
            err_set(err, STATUS_CONFLICT, 0,
                    "rank %u differs from rank 0 in parameter %s: type or memory layout; where "
                    "CPUs differ, set ONEDNN_MAX_CPU_ISA=AVX2 for all ranks",
                    rank, all[0]);
    free(all);
    return status;
}

/* Some net differs: finds the first rank and tensor that do. All ranks have `count` tensors. */
static enum status find_tensor(struct comm *comm, struct net *net, uint32_t world, uint32_t count,
                               struct err *err)
{
    size_t mine_bytes = (size_t)count * HASH_BYTES;
    uint8_t *mine = malloc(mine_bytes * (world + 1) + 1);
    uint8_t *all = mine == NULL ? NULL : mine + mine_bytes;
    uint32_t rank = 0, index = 0;
    bool found = false;
    enum status status;

    if (mine == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare the nets of %u ranks", world);
    for (uint32_t i = 0; i < count; i++)
        net_hash(net, i, mine + (size_t)i * HASH_BYTES);
    status = comm_all_gather(comm, mine, mine_bytes, all, err);
    for (uint32_t r = 1; r < world && status == STATUS_OK && !found; r++)
        for (uint32_t i = 0; i < count && !found; i++)
            if (memcmp(all + r * mine_bytes + (size_t)i * HASH_BYTES, all + (size_t)i * HASH_BYTES,
                       HASH_BYTES) != 0) {
                found = true;
                rank = r;
                index = i;
            }
    free(mine);
    if (status != STATUS_OK)
        return status;
    if (!found)
        return err_set(err, STATUS_CONFLICT, 0,
                       "the ranks have the same parameters in different nets: run the same program "
                       "with the same options on all nodes; with -a FILE.json, the same file");
    return name_tensor(comm, net, world, rank, index, err);
}

_Static_assert(sizeof(struct summary) == HASH_BYTES + 4 * sizeof(uint64_t), "no padding");

static enum status compare(struct comm *comm, struct net *net, uint32_t world,
                           const struct summary *all, struct err *err)
{
    bool same = true;

    for (uint32_t i = 1; i < world; i++) {
        if (all[i].tensor_count != all[0].tensor_count)
            return err_set(
                err, STATUS_CONFLICT, 0,
                "rank %u has %llu parameters and buffers, rank 0 has %llu: is --arch the "
                "same on all ranks?",
                i, (unsigned long long)all[i].tensor_count,
                (unsigned long long)all[0].tensor_count);
        same = same && memcmp(all[i].hash, all[0].hash, HASH_BYTES) == 0;
    }
    if (!same)
        return find_tensor(comm, net, world, (uint32_t)all[0].tensor_count, err);
    for (uint32_t i = 1; i < world; i++) {
        if (all[i].bucket_count != all[0].bucket_count || all[i].bucket_hash != all[0].bucket_hash)
            return err_set(err, STATUS_CONFLICT, 0,
                           "rank %u cuts the gradients into other buckets (%llu) than rank 0 "
                           "(%llu): are the bucket sizes the same on all ranks?",
                           i, (unsigned long long)all[i].bucket_count,
                           (unsigned long long)all[0].bucket_count);
        if (all[i].settings != all[0].settings)
            return err_set(err, STATUS_CONFLICT, 0,
                           "rank %u has other DDP options than rank 0: are --delay-allreduce, "
                           "--allreduce-always-fp32, --predivide-factor and the broadcast of "
                           "buffers the same on all ranks?",
                           i);
    }
    return STATUS_OK;
}

enum status ddp_check(struct comm *comm, struct net *net, uint32_t world, uint64_t settings,
                      struct err *err)
{
    struct summary mine = {.tensor_count = net_tensor_count(net),
                           .bucket_count = net_bucket_count(net),
                           .bucket_hash = hash_buckets(net),
                           .settings = settings};
    struct summary *all = calloc(world, sizeof *all);
    enum status status;

    assert(world > 1);
    if (all == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare the nets of %u ranks", world);
    net_hash(net, UINT32_MAX, mine.hash);
    status = comm_all_gather(comm, &mine, sizeof mine, all, err);
    if (status == STATUS_OK)
        status = compare(comm, net, world, all, err);
    free(all);
    return status;
}
