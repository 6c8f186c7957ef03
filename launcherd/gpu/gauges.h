/* What a node shows of itself to those who look at the cluster: its load, memory and disk, and of each
 * slot with a GPU what NVML says. Plain values, and their JSON ("ddp.gauges.v1", docs/watching.md). */
#ifndef LAUNCHERD_GPU_GAUGES_H
#define LAUNCHERD_GPU_GAUGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/msg_enum.h"

#define GAUGE_UNKNOWN (-1) /* of every signed value here */

/* One GPU, as NVML said it last. */
struct gpu_gauges {
    uint64_t read_us; /* boot clock; 0: never read */
    char name[96], uuid[96];
    int32_t utilization_percent, temperature_c;
    int64_t power_mw, power_limit_mw;
    int64_t memory_used_bytes, memory_total_bytes;
    char error[64]; /* of the last read; empty: none, and then the values are of read_us */
};

struct slot_gauges {
    enum slot_state state;
    uint64_t job_id; /* on it; 0: none */
    uint32_t generation, rank;
    char reason[REASON_BYTES_MAX]; /* why it is closed */
};

struct host_gauges {
    double load[3]; /* of 1, 5 and 15 minutes; below 0: not known */
    uint32_t cpus;
    double cpu_percent; /* of all of them, since the last reading; below 0: not known */
    int64_t memory_total_bytes, memory_available_bytes;
    int64_t disk_total_bytes, disk_free_bytes; /* where the logs are */
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

/* Appends one JSON object. Pure but for the heap. */
void gauges_write(const struct gauges *gauges, struct buf *out);

/* The times that the processors spent, of /proc/stat: zero before the first reading. */
struct cpu_times {
    uint64_t busy, all, read_us;
    double
        percent; /* between the last two readings that are far enough apart; below 0: not known */
};
/* Reads the files of the kernel and asks the file system of `disk_path`. May hang with that disk: not for
 * the loop thread. */
void host_gauges_read(struct host_gauges *host, struct cpu_times *times, uint64_t now_us,
                      const char *disk_path);
/* The same from the texts of /proc/stat, for tests. */
void cpu_times_take(struct cpu_times *times, const char *stat, uint64_t now_us);

#endif
