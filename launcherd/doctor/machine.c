/* What the kernel says about the machine: clock, limits, memory, settings. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/process/cgroup.h"

#define JOB_FILES_MAX                                                                              \
    65536 /* the limit that launcherd gives to jobs, where the hard one allows it */

const char *doctor_read_line(const char *path)
{
    static char line[512];
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return NULL;
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    (void)fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static int64_t read_number(const char *path)
{
    const char *line = doctor_read_line(path);
    char *end;
    long long number;

    if (line == NULL)
        return FACT_UNKNOWN;
    number = strtoll(line, &end, 10);
    return end == line || number < 0 ? FACT_UNKNOWN : number;
}

static int64_t limit_of(rlim_t value)
{
    return value == RLIM_INFINITY || value > (rlim_t)FACT_UNLIMITED ? FACT_UNLIMITED
                                                                    : (int64_t)value;
}

static void limits(struct node_facts *facts)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        facts->nofile =
            limit_of(limit.rlim_max) < JOB_FILES_MAX ? limit_of(limit.rlim_max) : JOB_FILES_MAX;
    if (getrlimit(RLIMIT_NPROC, &limit) == 0)
        facts->nproc = limit_of(limit.rlim_cur);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        facts->memlock = limit_of(limit.rlim_cur);
    if (getrlimit(RLIMIT_STACK, &limit) == 0)
        facts->stack = limit_of(limit.rlim_cur);
}

/* The values of /proc/meminfo are in KiB, except the counts of huge pages. */
static void memory(struct node_facts *facts)
{
    int64_t swap_free = 0, huge_kib = 0, huge_total = 0, huge_free = 0;
    const struct {
        const char *name;
        int64_t *value;
    } wanted[] = {
        {"MemTotal:", &facts->memory_bytes}, {"MemAvailable:", &facts->memory_available_bytes},
        {"SwapTotal:", &facts->swap_bytes},  {"SwapFree:", &swap_free},
        {"HugePages_Total:", &huge_total},   {"HugePages_Free:", &huge_free},
        {"Hugepagesize:", &huge_kib}};
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];

    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL)
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (strncmp(line, wanted[i].name, strlen(wanted[i].name)) == 0)
                *wanted[i].value =
                    strtoll(line + strlen(wanted[i].name), NULL, 10) * (i < 4 ? 1024 : 1);
    (void)fclose(file);
    facts->swap_used_bytes = facts->swap_bytes < 0 ? FACT_UNKNOWN : facts->swap_bytes - swap_free;
    facts->huge_pages_bytes = huge_total * huge_kib * 1024;
    facts->huge_pages_free_bytes = huge_free * huge_kib * 1024;
}

static void shared_memory(struct node_facts *facts)
{
    struct statvfs shm;

    if (statvfs("/dev/shm", &shm) != 0)
        return;
    facts->shm_bytes = (int64_t)(shm.f_blocks * shm.f_frsize);
    facts->shm_free_bytes = (int64_t)(shm.f_bavail * shm.f_frsize);
}

/* Finds the word in brackets in "always [madvise] never". */
static void huge_pages(struct node_facts *facts)
{
    const char *line = doctor_read_line("/sys/kernel/mm/transparent_hugepage/enabled");
    const char *begin = line != NULL ? strchr(line, '[') : NULL;

    if (begin != NULL)
        (void)snprintf(facts->transparent_huge_pages, sizeof facts->transparent_huge_pages, "%.*s",
                       (int)strcspn(begin + 1, "]"), begin + 1);
}

static void settings(struct node_facts *facts)
{
    const char *line;

    facts->ptrace_scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
    facts->overcommit = read_number("/proc/sys/vm/overcommit_memory");
    huge_pages(facts);
    line = doctor_read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (line != NULL)
        (void)snprintf(facts->governor, sizeof facts->governor, "%.31s", line);
    line = doctor_read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    if (line != NULL)
        (void)snprintf(facts->scaling_driver, sizeof facts->scaling_driver, "%.31s", line);
    facts->has_peermem = access("/sys/module/nvidia_peermem", F_OK) == 0;
}

static void cgroups(struct node_facts *facts)
{
    char base[PATH_MAX];
    struct err err = {0};

    facts->has_cgroup = cgroup_find_base(base, &err) == STATUS_OK;
    facts->has_cgroup_memory = facts->has_cgroup && cgroup_has(base, "memory");
    (void)snprintf(facts->cgroup_problem, sizeof facts->cgroup_problem, "%.155s", err.text);
}

void doctor_machine(const struct doctor *doctor, struct node_facts *facts)
{
    struct timex clock = {0};
    struct sysinfo info;
    struct utsname name;

    if (uname(&name) == 0)
        (void)snprintf(facts->kernel, sizeof facts->kernel, "%.90s", name.release);
    if (sysinfo(&info) == 0)
        facts->up_s = info.uptime;
    facts->is_root = geteuid() == 0;
    facts->slots = doctor->slots;
    if (adjtimex(&clock) >= 0)
        facts->ntp_synchronised = (clock.status & STA_UNSYNC) == 0;
    limits(facts);
    memory(facts);
    shared_memory(facts);
    settings(facts);
    cgroups(facts);
}
