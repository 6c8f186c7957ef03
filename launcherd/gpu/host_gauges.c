/* The load, memory and disk of this machine, from the kernel's files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "launcherd/gpu/gauges.h"

#define APART_US 500000u /* closer readings do not give a usable load */
#define FILE_BYTES_MAX 16384u

/* Reads the beginning of a kernel file; empty: it cannot be read. */
static void read_file(const char *path, char text[FILE_BYTES_MAX])
{
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(text, 1, FILE_BYTES_MAX - 1, file) : 0;

    text[length] = '\0';
    if (file != NULL)
        (void)fclose(file);
}

/* Fields of the line "cpu": user nice system idle iowait irq softirq steal guest guest_nice, of proc(5).
 * The last two are part of the first two. */
void cpu_times_take(struct cpu_times *times, const char *stat, uint64_t now_us)
{
    uint64_t fields[8] = {0}, all = 0, idle;
    const char *at = stat;

    if (times->read_us == 0)
        times->percent = -1;
    if (strncmp(stat, "cpu ", 4) != 0 || (times->read_us > 0 && now_us < times->read_us + APART_US))
        return;
    at += 4;
    for (int i = 0; i < 8; i++) {
        char *end;

        fields[i] = strtoull(at, &end, 10);
        if (end == at)
            return;
        at = end;
        all += fields[i];
    }
    idle = fields[3] + fields[4];
    if (times->read_us > 0 && all > times->all) {
        uint64_t busy = all - idle > times->busy ? all - idle - times->busy : 0;

        times->percent = 100 * (double)busy / (double)(all - times->all);
        times->percent = times->percent > 100 ? 100 : times->percent;
    }
    times->all = all;
    times->busy = all - idle;
    times->read_us = now_us;
}

/* "MemTotal:       65786356 kB"; GAUGE_UNKNOWN: there is no such line. */
static int64_t memory_line(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kib = at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;

    return at != NULL && kib < (uint64_t)INT64_MAX / 1024 ? (int64_t)(kib * 1024) : GAUGE_UNKNOWN;
}

/* "0.52 0.61 0.50 2/913 4242", of proc(5). */
static void take_load(const char *text, double load[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        double value = strtod(text, &end);

        load[i] = end != text && value >= 0 ? value : -1;
        text = end;
    }
}

void host_gauges_read(struct host_gauges *host, struct cpu_times *times, uint64_t now_us,
                      const char *disk_path)
{
    char text[FILE_BYTES_MAX];
    struct statvfs disk;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    *host = (struct host_gauges){.load = {-1, -1, -1}, .cpus = cpus > 0 ? (uint32_t)cpus : 0};
    read_file("/proc/loadavg", text);
    take_load(text, host->load);
    read_file("/proc/stat", text);
    cpu_times_take(times, text, now_us);
    host->cpu_percent = times->percent;
    read_file("/proc/meminfo", text);
    host->memory_total_bytes = memory_line(text, "MemTotal:");
    host->memory_available_bytes = memory_line(text, "MemAvailable:");
    host->up_s = now_us / 1000000;
    host->disk_total_bytes = host->disk_free_bytes = GAUGE_UNKNOWN;
    if (statvfs(disk_path, &disk) == 0) {
        host->disk_total_bytes = (int64_t)((uint64_t)disk.f_blocks * disk.f_frsize);
        host->disk_free_bytes = (int64_t)((uint64_t)disk.f_bavail * disk.f_frsize);
    }
}
