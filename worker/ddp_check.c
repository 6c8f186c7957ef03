#include "worker/ddp_check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BYTES 32
#define TEXT_BYTES 112

/* What every rank tells all others first. No padding: it travels as it is, between equal programs.
 */
struct card {
    uint8_t hash[HASH_BYTES]; /* of the whole net */
    uint64_t tensor_count;
    uint64_t bucket_count;
    uint64_t bucket_hash; /* of the sizes */
    uint64_t settings;
};

/* FNV-1a, 64 bit (draft-eastlake-fnv, section 2). */
static uint64_t hash_buckets(struct net *net)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (uint32_t i = 0; i < net_bucket_count(net); i++) {
        uint64_t count = net_bucket(net, i).count;

        for (uint32_t shift = 0; shift < 64; shift += 8)
            hash = (hash ^ ((count >> shift) & 255)) * UINT64_C(1099511628211);
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

/* Every rank's words on tensor `index`, then the verdict. */
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

/* Some net differs: finds the first rank and tensor. All ranks have `count` tensors. */
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

static enum status compare(struct comm *comm, struct net *net, uint32_t world,
                           const struct card *cards, struct err *err)
{
    bool same = true;

    for (uint32_t i = 1; i < world; i++) {
        if (cards[i].tensor_count != cards[0].tensor_count)
            return err_set(
                err, STATUS_CONFLICT, 0,
                "rank %u has %llu parameters and buffers, rank 0 has %llu: is --arch the "
                "same on all ranks?",
                i, (unsigned long long)cards[i].tensor_count,
                (unsigned long long)cards[0].tensor_count);
        same = same && memcmp(cards[i].hash, cards[0].hash, HASH_BYTES) == 0;
    }
    if (!same)
        return find_tensor(comm, net, world, (uint32_t)cards[0].tensor_count, err);
    for (uint32_t i = 1; i < world; i++) {
        if (cards[i].bucket_count != cards[0].bucket_count ||
            cards[i].bucket_hash != cards[0].bucket_hash)
            return err_set(err, STATUS_CONFLICT, 0,
                           "rank %u cuts the gradients into other buckets (%llu) than rank 0 "
                           "(%llu): are the bucket sizes the same on all ranks?",
                           i, (unsigned long long)cards[i].bucket_count,
                           (unsigned long long)cards[0].bucket_count);
        if (cards[i].settings != cards[0].settings)
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
    struct card mine = {.tensor_count = net_tensor_count(net),
                        .bucket_count = net_bucket_count(net),
                        .bucket_hash = hash_buckets(net),
                        .settings = settings};
    struct card *cards = calloc(world, sizeof *cards);
    enum status status;

    if (cards == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare the nets of %u ranks", world);
    net_hash(net, UINT32_MAX, mine.hash);
    status = comm_all_gather(comm, &mine, sizeof mine, cards, err);
    if (status == STATUS_OK)
        status = compare(comm, net, world, cards, err);
    free(cards);
    return status;
}
