/* Gauges that a node shows to people who watch the cluster: its load, memory and disk, and NVML's
 * values for each slot with a GPU. Plain values and their JSON ("ddp.gauges.v1",
 * docs/watching.md). */
#ifndef LAUNCHERD_GPU_GAUGES_H
#define LAUNCHERD_GPU_GAUGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/msg_enum.h"

#define GAUGE_UNKNOWN (-1) /* for every signed value here */

/* One GPU, as last read from NVML. */
struct gpu_gauges {
    uint64_t read_us; /* boot clock; 0: never read */
    char name[96], uuid[96];
    int32_t utilization_percent, temperature_c;
    int64_t power_mw, power_limit_mw;
    int64_t memory_used_bytes, memory_total_bytes;
    char error[64]; /* of the last read, which left the values as of read_us; empty: none */
};

struct slot_gauges {
    enum slot_state state;
    uint64_t job_id; /* the job on it; 0: none */
    uint32_t generation, rank;
    char reason[REASON_BYTES_MAX]; /* why it is closed */
};

struct host_gauges {
    double load[3]; /* over 1, 5 and 15 minutes; below 0: not known */
    uint32_t cpus;
    double cpu_percent; /* of all processors, since the last reading; below 0: not known */
    int64_t memory_total_bytes, memory_available_bytes;
    int64_t disk_total_bytes, disk_free_bytes; /* of the disk with the logs */
    uint64_t up_s;                             /* since the machine was started */
};

struct gauges {
    char node[NODE_NAME_BYTES_MAX];
    uint64_t now_us; /* boot clock */
    struct host_gauges host;
    uint32_t slot_count, gpu_count; /* slot i is GPU i for every i < gpu_count */
    struct slot_gauges slots[SLOTS_PER_NODE_MAX];
    struct gpu_gauges gpus[SLOTS_PER_NODE_MAX];
};

/* Appends one JSON object. Pure, apart from the heap. */
void gauges_write(const struct gauges *gauges, struct buf *out);

/* Times from /proc/stat; zero before the first reading. */
struct cpu_times {
    uint64_t busy, all, read_us;
    double percent; /* between the last two readings that are far enough apart; below 0: unknown */
};
/* Reads the kernel's files and the free space at `disk_path`. May hang if that disk does: not for
 * the loop thread. */
void host_gauges_read(struct host_gauges *host, struct cpu_times *times, uint64_t now_us,
                      const char *disk_path);
/* The CPU part of it, from a text of /proc/stat; also for tests. */
void cpu_times_take(struct cpu_times *times, const char *stat, uint64_t now_us);

#endif
