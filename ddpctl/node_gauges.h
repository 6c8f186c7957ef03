/* Parses a node's gauges (`ddp.gauges.v1`, docs/watching.md). They come from a node, so nothing in
 * them is trusted. Pure, apart from the heap. */
#ifndef DDPCTL_NODE_GAUGES_H
#define DDPCTL_NODE_GAUGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg_enum.h"
#include "common/status.h"

/* In the numbers NaN means not known. */
struct slot_gauges {
    uint32_t slot;
    enum slot_state state;
    uint64_t job_id; /* the job on it; 0: none */
    uint32_t generation, rank;
    bool has_gpu; /* the other fields are about its GPU */
    char gpu[64], uuid[64];
    double utilization_percent, memory_used, memory_total, temperature_c, power_w, power_limit_w;
    double age_s;   /* age of these values when the node sent them */
    char error[64]; /* empty: none */
};

struct node_gauges {
    double load, cpus, cpu_percent, memory_total, memory_available, disk_total, disk_free, up_s;
    uint32_t slot_count;
    struct slot_gauges *slots; /* [slot_count], owned */
};

/* `gauges`: zeroed, or older values, which are freed. On failure it is unchanged: STATUS_BAD_INPUT
 * with the reason, STATUS_MEMORY. */
enum status node_gauges_parse(struct node_gauges *gauges, const char *text, size_t byte_count,
                              struct err *err);
void node_gauges_free(struct node_gauges *gauges);

#endif
