/* One node: its network, settings, limits, memory and disks. Each check reports one thing. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/doctor.h"
#include "ddpctl/units.h"

#define MIB 1048576ll
#define GIB 1073741824ll
#define CLOCK_WARN_MS 1000
#define CLOCK_FAIL_MS 60000
#define BOOT_RECENT_S 600
#define PORTS_MIN 4096
#define FILES_WANTED 65536
#define FILES_MIN 4096
#define PROCESSES_MIN 4096
#define SHM_PER_SLOT (64 * MIB)
#define DISK_WARN (GIB)
#define DISK_FAIL (100 * MIB)

static const struct {
    const char *name, *about, *remedy;
} checks[] = {
#define ROW(suffix, name, about, remedy) {name, about, remedy},
    DOCTOR_CHECK_TABLE(ROW)
#undef ROW
};

const char *doctor_check_name(enum doctor_check check)
{
    return checks[check].name;
}

const char *doctor_check_about(enum doctor_check check)
{
    return checks[check].about;
}

const char *doctor_check_remedy(enum doctor_check check)
{
    return checks[check].remedy;
}

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const names[] = {
        [DOCTOR_OK] = "ok", [DOCTOR_SKIP] = "skip", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "FAIL"};

    return names[level];
}

void doctor_say(struct doctor_findings *out, enum doctor_check check, enum doctor_level level,
                const char *format, ...)
{
    struct doctor_finding *finding;
    va_list args;

    if (out->count == out->capacity) {
        uint32_t capacity = out->capacity > 0 ? 2 * out->capacity : 64;
        struct doctor_finding *items = realloc(out->items, capacity * sizeof *items);

        out->failed = out->failed || items == NULL;
        if (items == NULL)
            return;
        out->items = items;
        out->capacity = capacity;
    }
    finding = &out->items[out->count++];
    *finding = (struct doctor_finding){.check = check, .level = level};
    (void)snprintf(finding->node, sizeof finding->node, "%s", out->node != NULL ? out->node : "");
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
    (void)vsnprintf(finding->text, sizeof finding->text, format, args);
    va_end(args);
}

void doctor_findings_free(struct doctor_findings *out)
{
    free(out->items);
    *out = (struct doctor_findings){0};
}

/* "1.5 GiB", "64 MiB", "12 KiB" */
static const char *size_text(int64_t bytes, char text[TEXT_BYTES])
{
    if (bytes >= FACT_UNLIMITED)
        (void)snprintf(text, TEXT_BYTES, "unlimited");
    else if (bytes >= 10 * GIB)
        (void)snprintf(text, TEXT_BYTES, "%lld GiB", (long long)(bytes / GIB));
    else if (bytes >= GIB)
        (void)snprintf(text, TEXT_BYTES, "%.1f GiB", (double)bytes / (double)GIB);
    else if (bytes >= MIB)
        (void)snprintf(text, TEXT_BYTES, "%lld MiB", (long long)(bytes / MIB));
    else
        (void)snprintf(text, TEXT_BYTES, "%lld KiB", (long long)(bytes / 1024));
    return text;
}

static void unknown(struct doctor_findings *out, enum doctor_check check)
{
    doctor_say(out, check, DOCTOR_SKIP, "not known here");
}

/* -- clock and network -- */

void doctor_judge_clock(const char *whose, int64_t off_ms, int64_t accuracy_ms,
                        struct doctor_findings *out)
{
    const int64_t size_ms = off_ms < 0 ? -off_ms : off_ms;
    const int64_t sure_ms = size_ms > accuracy_ms ? size_ms - accuracy_ms : 0;
    const enum doctor_level level = sure_ms >= CLOCK_FAIL_MS   ? DOCTOR_FAIL
                                    : sure_ms >= CLOCK_WARN_MS ? DOCTOR_WARN
                                                               : DOCTOR_OK;

    if (level == DOCTOR_OK)
        doctor_say(out, DOCTOR_CLOCK, level, "%s within %.3f s of the server's", whose,
                   (double)(size_ms + accuracy_ms) / 1e3);
    else
        doctor_say(out, DOCTOR_CLOCK, level, "%s is %.1f s %s the server's", whose,
                   (double)size_ms / 1e3, off_ms > 0 ? "ahead of" : "behind");
}

static void judge_boot(const struct node_facts *facts, struct doctor_findings *out)
{
    char text[TEXT_BYTES];

    if (facts->up_s < 0) {
        unknown(out, DOCTOR_BOOT);
        return;
    }
    duration_text((uint64_t)facts->up_s * 1000000u, text);
    doctor_say(out, DOCTOR_BOOT, facts->up_s < BOOT_RECENT_S ? DOCTOR_WARN : DOCTOR_OK,
               "started %s ago, kernel %s", text, facts->kernel);
}

static void judge_ntp(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->ntp_synchronised < 0)
        unknown(out, DOCTOR_NTP);
    else if (facts->ntp_synchronised == 0)
        doctor_say(out, DOCTOR_NTP, DOCTOR_WARN, "nothing keeps the clock right: no NTP runs");
    else
        doctor_say(out, DOCTOR_NTP, DOCTOR_OK, "the clock is held by NTP");
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static void judge_own_name(const struct doctor_case *about, const struct node_facts *facts,
                           struct doctor_findings *out)
{
    if (facts->host_name[0] == '\0')
        unknown(out, DOCTOR_OWN_NAME);
    else if (facts->host_address[0] == '\0')
        doctor_say(out, DOCTOR_OWN_NAME, DOCTOR_WARN, "its own name, %s, has no address: %s",
                   facts->host_name, facts->host_problem);
    else if (about->nodes > 1 && is_loopback(facts->host_address))
        doctor_say(out, DOCTOR_OWN_NAME, DOCTOR_WARN,
                   "its own name, %s, resolves to %s, which no other machine reaches",
                   facts->host_name, facts->host_address);
    else
        doctor_say(out, DOCTOR_OWN_NAME, DOCTOR_OK, "%s is %s", facts->host_name,
                   facts->host_address);
}

static void judge_interface(const struct doctor_case *about, const struct node_facts *facts,
                            struct doctor_findings *out)
{
    if (facts->interface[0] == '\0')
        doctor_say(out, DOCTOR_INTERFACE, DOCTOR_FAIL, "no interface has the address %s",
                   facts->address);
    else if (facts->is_link_up == 0)
        doctor_say(out, DOCTOR_INTERFACE, DOCTOR_FAIL, "%s (%s) is down", facts->interface,
                   facts->address);
    else if (about->nodes > 1 && facts->is_loopback > 0)
        doctor_say(out, DOCTOR_INTERFACE, DOCTOR_WARN,
                   "%s (%s) is the loopback: its jobs reach no other machine", facts->interface,
                   facts->address);
    else if (facts->link_mbps > 0)
        doctor_say(out, DOCTOR_INTERFACE, DOCTOR_OK, "%s (%s), %lld Mbit/s", facts->interface,
                   facts->address, (long long)facts->link_mbps);
    else
        doctor_say(out, DOCTOR_INTERFACE, DOCTOR_OK, "%s (%s)", facts->interface, facts->address);
}

static void judge_ports(const struct node_facts *facts, struct doctor_findings *out)
{
    const int64_t count = facts->port_last - facts->port_first + 1;

    if (facts->port_first < 0 || facts->port_last < 0)
        unknown(out, DOCTOR_PORTS);
    else
        doctor_say(out, DOCTOR_PORTS, count < PORTS_MIN ? DOCTOR_WARN : DOCTOR_OK,
                   "%lld ports for outgoing connections, from %lld to %lld", (long long)count,
                   (long long)facts->port_first, (long long)facts->port_last);
}

/* -- limits -- */

static void judge_open_files(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->nofile < 0)
        unknown(out, DOCTOR_OPEN_FILES);
    else
        doctor_say(out, DOCTOR_OPEN_FILES,
                   facts->nofile < FILES_MIN      ? DOCTOR_FAIL
                   : facts->nofile < FILES_WANTED ? DOCTOR_WARN
                                                  : DOCTOR_OK,
                   "a process of a job may open %lld files", (long long)facts->nofile);
}

static void judge_processes(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->nproc < 0)
        unknown(out, DOCTOR_PROCESSES);
    else if (facts->nproc >= FACT_UNLIMITED)
        doctor_say(out, DOCTOR_PROCESSES, DOCTOR_OK, "no limit of processes");
    else
        doctor_say(out, DOCTOR_PROCESSES, facts->nproc < PROCESSES_MIN ? DOCTOR_WARN : DOCTOR_OK,
                   "a user may have %lld processes and threads", (long long)facts->nproc);
}

static void judge_memlock(const struct node_facts *facts, struct doctor_findings *out)
{
    char text[TEXT_BYTES];

    if (facts->fabric_count == 0)
        doctor_say(out, DOCTOR_MEMLOCK, DOCTOR_SKIP, "no InfiniBand or RoCE device here");
    else if (facts->memlock < 0)
        unknown(out, DOCTOR_MEMLOCK);
    else if (facts->memlock < FACT_UNLIMITED)
        doctor_say(out, DOCTOR_MEMLOCK, DOCTOR_FAIL,
                   "the locked-memory limit is %s; NCCL over InfiniBand or RoCE needs unlimited",
                   size_text(facts->memlock, text));
    else
        doctor_say(out, DOCTOR_MEMLOCK, DOCTOR_OK, "locked memory is unlimited");
}

static void judge_stack(const struct node_facts *facts, struct doctor_findings *out)
{
    char text[TEXT_BYTES];

    if (facts->stack < 0)
        unknown(out, DOCTOR_STACK);
    else
        doctor_say(out, DOCTOR_STACK, facts->stack < MIB ? DOCTOR_WARN : DOCTOR_OK,
                   "the stack limit is %s", size_text(facts->stack, text));
}

/* -- the kernel -- */

static void judge_cgroup(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->has_cgroup < 0)
        unknown(out, DOCTOR_CGROUP);
    else if (facts->has_cgroup == 0)
        doctor_say(out, DOCTOR_CGROUP, DOCTOR_WARN,
                   "no cgroups for jobs: what a job leaves is found by its parents and environment "
                   "alone (%s)",
                   facts->cgroup_problem);
    else if (facts->has_cgroup_memory == 0)
        doctor_say(out, DOCTOR_CGROUP, DOCTOR_WARN,
                   "cgroups without the memory controller: no --job-memory, and a kill for want of "
                   "memory is not told");
    else
        doctor_say(out, DOCTOR_CGROUP, DOCTOR_OK, "cgroups with the memory controller");
}

/* ptrace_scope says what a process may trace. 0: all processes of its user; 1: its descendants;
 * 2: only root may trace; 3: nobody may. */
static void judge_ptrace(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->ptrace_scope < 0)
        doctor_say(out, DOCTOR_PTRACE, DOCTOR_OK, "the kernel does not restrict it (no Yama)");
    else if (facts->ptrace_scope >= 3 || (facts->ptrace_scope >= 1 && facts->is_root == 0))
        doctor_say(out, DOCTOR_PTRACE, DOCTOR_WARN,
                   "kernel.yama.ptrace_scope is %lld%s: no Python stacks in ddpctl why",
                   (long long)facts->ptrace_scope,
                   facts->is_root == 0 ? " and launcherd is not root" : "");
    else
        doctor_say(out, DOCTOR_PTRACE, DOCTOR_OK, "kernel.yama.ptrace_scope is %lld",
                   (long long)facts->ptrace_scope);
}

static void judge_overcommit(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->overcommit < 0)
        unknown(out, DOCTOR_OVERCOMMIT);
    else if (facts->overcommit == 2)
        doctor_say(out, DOCTOR_OVERCOMMIT, DOCTOR_WARN,
                   "vm.overcommit_memory is 2: CUDA, and the forks of loaders, fail for want of "
                   "address space");
    else
        doctor_say(out, DOCTOR_OVERCOMMIT, DOCTOR_OK, "vm.overcommit_memory is %lld",
                   (long long)facts->overcommit);
}

static void judge_huge_pages(const struct node_facts *facts, struct doctor_findings *out)
{
    const char *mode = facts->transparent_huge_pages;
    char text[TEXT_BYTES];

    if (facts->huge_pages_bytes < 0 || facts->memory_bytes <= 0)
        unknown(out, DOCTOR_HUGE_PAGES);
    else if (facts->huge_pages_free_bytes > facts->memory_bytes / 2)
        doctor_say(out, DOCTOR_HUGE_PAGES, DOCTOR_WARN,
                   "%s of the memory is reserved as huge pages that nobody uses",
                   size_text(facts->huge_pages_free_bytes, text));
    else
        doctor_say(out, DOCTOR_HUGE_PAGES, DOCTOR_OK, "%s reserved, transparent ones: %s",
                   facts->huge_pages_bytes == 0 ? "none" : size_text(facts->huge_pages_bytes, text),
                   mode[0] != '\0' ? mode : "not in this kernel");
}

static void judge_governor(const struct node_facts *facts, struct doctor_findings *out)
{
    /* With these two drivers the governor "powersave" still raises the speed under load. */
    const bool is_dynamic = strcmp(facts->scaling_driver, "intel_pstate") == 0 ||
                            strcmp(facts->scaling_driver, "amd-pstate-epp") == 0;

    if (facts->governor[0] == '\0')
        doctor_say(out, DOCTOR_GOVERNOR, DOCTOR_SKIP, "no frequencies to choose here");
    else if (strcmp(facts->governor, "powersave") == 0 && !is_dynamic)
        doctor_say(out, DOCTOR_GOVERNOR, DOCTOR_WARN,
                   "the governor powersave keeps processors at their lowest frequency");
    else
        doctor_say(out, DOCTOR_GOVERNOR, DOCTOR_OK, "governor %s", facts->governor);
}

/* -- memory and disks -- */

static void judge_shm(const struct node_facts *facts, struct doctor_findings *out)
{
    const int64_t slots = facts->slots > 0 ? facts->slots : 1;
    char size[TEXT_BYTES], room[TEXT_BYTES];

    if (facts->shm_bytes < 0) {
        doctor_say(out, DOCTOR_SHM, DOCTOR_FAIL,
                   "no /dev/shm: torch's loaders with workers cannot pass batches");
        return;
    }
    doctor_say(out, DOCTOR_SHM,
               facts->shm_free_bytes < SHM_PER_SLOT           ? DOCTOR_FAIL
               : facts->shm_free_bytes < slots * SHM_PER_SLOT ? DOCTOR_WARN
                                                              : DOCTOR_OK,
               "/dev/shm has %s, %s of it free, for %lld slot%s%s",
               size_text(facts->shm_bytes, size), size_text(facts->shm_free_bytes, room),
               (long long)slots, slots == 1 ? "" : "s",
               facts->shm_free_bytes < slots * SHM_PER_SLOT ? ": loaders die of a bus error" : "");
}

static void judge_memory(const struct node_facts *facts, struct doctor_findings *out)
{
    char all[TEXT_BYTES], room[TEXT_BYTES];

    if (facts->memory_bytes <= 0 || facts->memory_available_bytes < 0)
        unknown(out, DOCTOR_MEMORY);
    else
        doctor_say(out, DOCTOR_MEMORY,
                   facts->memory_available_bytes < facts->memory_bytes / 10 ? DOCTOR_WARN
                                                                            : DOCTOR_OK,
                   "%s of %s available", size_text(facts->memory_available_bytes, room),
                   size_text(facts->memory_bytes, all));
    if (facts->swap_used_bytes < 0)
        unknown(out, DOCTOR_SWAP);
    else
        doctor_say(out, DOCTOR_SWAP, facts->swap_used_bytes >= GIB ? DOCTOR_WARN : DOCTOR_OK,
                   "%s swapped out",
                   facts->swap_used_bytes > 0 ? size_text(facts->swap_used_bytes, all) : "nothing");
}

static void judge_disk(const struct disk_facts *disk, struct doctor_findings *out)
{
    char room[TEXT_BYTES];
    const bool has_no_files = disk->files > 0 && disk->files_free < disk->files / 100;

    if (disk->problem[0] != '\0')
        doctor_say(out, DOCTOR_DISK, DOCTOR_FAIL, "%s (%s): %s", disk->path, disk->what,
                   disk->problem);
    else if (disk->is_writable == 0)
        doctor_say(out, DOCTOR_DISK, strcmp(disk->what, "job") == 0 ? DOCTOR_WARN : DOCTOR_FAIL,
                   "%s (%s) cannot be written to", disk->path, disk->what);
    else if (disk->free_bytes >= 0 && disk->free_bytes < DISK_WARN)
        doctor_say(out, DOCTOR_DISK, disk->free_bytes < DISK_FAIL ? DOCTOR_FAIL : DOCTOR_WARN,
                   "%s (%s) has only %s free", disk->path, disk->what,
                   size_text(disk->free_bytes, room));
    else if (has_no_files)
        doctor_say(out, DOCTOR_DISK, DOCTOR_WARN, "%s (%s) has only %lld inodes free", disk->path,
                   disk->what, (long long)disk->files_free);
    else
        doctor_say(out, DOCTOR_DISK, DOCTOR_OK, "%s (%s): %s free", disk->path, disk->what,
                   size_text(disk->free_bytes, room));
}

static void judge_account(const struct doctor_case *about, const struct node_facts *facts,
                          struct doctor_findings *out)
{
    if (facts->user_problem[0] != '\0')
        doctor_say(out, DOCTOR_ACCOUNT, about->has_job ? DOCTOR_FAIL : DOCTOR_SKIP, "%s",
                   facts->user_problem);
    else if (facts->uid < 0)
        unknown(out, DOCTOR_ACCOUNT);
    else
        doctor_say(out, DOCTOR_ACCOUNT, DOCTOR_OK, "%s runs jobs here, uid %lld", facts->user,
                   (long long)facts->uid);
    if (!about->has_job)
        return;
    if (facts->job_problem[0] != '\0')
        doctor_say(out, DOCTOR_JOB, DOCTOR_FAIL, "%s", facts->job_problem);
    else
        doctor_say(out, DOCTOR_JOB, DOCTOR_OK, "its folder and program are there");
}

static void judge_gaps(const struct node_facts *facts, struct doctor_findings *out)
{
    for (uint32_t i = 0; i < facts->gaps_count; i++)
        doctor_say(out,
                   strncmp(facts->gaps[i].problem, GAP_OF_DISK, sizeof GAP_OF_DISK - 1) == 0
                       ? DOCTOR_HANGS
                       : DOCTOR_ANSWER,
                   strcmp(facts->gaps[i].part, "python") == 0 ? DOCTOR_WARN : DOCTOR_FAIL,
                   "nothing is known of its %s: %s", facts->gaps[i].part, facts->gaps[i].problem);
    if (facts->gaps_count == 0)
        doctor_say(out, DOCTOR_ANSWER, DOCTOR_OK, "all questions were answered");
}

static bool has_gap(const struct node_facts *facts, const char *part)
{
    for (uint32_t i = 0; i < facts->gaps_count; i++)
        if (strcmp(facts->gaps[i].part, part) == 0)
            return true;
    return false;
}

void doctor_judge_machine(const struct doctor_case *about, const struct doctor_node *node,
                          struct doctor_findings *out)
{
    const struct node_facts *facts = &node->facts;

    judge_gaps(facts, out);
    if (node->has_clock)
        doctor_judge_clock("its clock", node->clock_off_ms, node->clock_accuracy_ms, out);
    if (!has_gap(facts, "network")) {
        judge_own_name(about, facts, out);
        judge_interface(about, facts, out);
        judge_ports(facts, out);
    }
    if (!has_gap(facts, "machine")) {
        judge_boot(facts, out);
        judge_ntp(facts, out);
        judge_open_files(facts, out);
        judge_processes(facts, out);
        judge_memlock(facts, out);
        judge_stack(facts, out);
        judge_cgroup(facts, out);
        judge_ptrace(facts, out);
        judge_overcommit(facts, out);
        judge_huge_pages(facts, out);
        judge_governor(facts, out);
        judge_shm(facts, out);
        judge_memory(facts, out);
    }
    for (uint32_t i = 0; i < facts->disks_count; i++)
        judge_disk(&facts->disks[i], out);
    if (!has_gap(facts, "account"))
        judge_account(about, facts, out);
}
