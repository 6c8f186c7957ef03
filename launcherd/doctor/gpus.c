/* Facts about GPUs, from NVML and the kernel's log, and about InfiniBand and RoCE devices. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/core/fault.h"
#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/gpu/nvml.h"

static int64_t device_files(void)
{
    glob_t found;
    int64_t count = 0;

    if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) != 0)
        return 0;
    count = (int64_t)found.gl_pathc;
    globfree(&found);
    return count;
}

static void look(const struct nvml *nvml, unsigned index, struct gpu_health *gpu)
{
    struct nvml_health health;
    struct gpu_facts state = {0};
    struct gpu_gauges gauges = {0};

    gpu->index = index;
    nvml_look(nvml, index, UINT64_MAX, &state);
    nvml_gauges(nvml, index, 1, &gauges);
    (void)snprintf(gpu->name, sizeof gpu->name, "%s", gauges.name);
    if (state.error != 0) {
        (void)snprintf(gpu->problem, sizeof gpu->problem, "%s", state.error_text);
        return;
    }
    if (state.has_mig)
        return;
    gpu->ecc_uncorrected = state.has_ecc ? (int64_t)state.ecc_uncorrected : FACT_UNKNOWN;
    gpu->remap_pending = state.remap_pending;
    gpu->remap_failed = state.remap_failed;
    nvml_health(nvml, index, &health);
    gpu->retire_pending = health.retire_pending;
    gpu->has_persistence = health.has_persistence;
    gpu->throttle = health.throttle;
    gpu->pcie_width = health.pcie_width;
    gpu->pcie_width_max = health.pcie_width_max;
    gpu->links_up = health.links_up;
    gpu->links_down = health.links_down;
}

static void ask_nvml(struct node_facts *facts)
{
    struct nvml nvml;
    struct err err = {0};
    unsigned count = 0;
    int code;

    if (nvml_load(&nvml, &err) != STATUS_OK) {
        (void)snprintf(facts->nvml_problem, sizeof facts->nvml_problem, "%.155s", err.text);
        return;
    }
    code = nvml.init();
    if (code == NVML_SUCCESS)
        code = nvml.get_count(&count);
    if (code != NVML_SUCCESS) {
        (void)snprintf(facts->nvml_problem, sizeof facts->nvml_problem, "NVML: %.140s",
                       nvml_error_text(&nvml, code));
        return;
    }
    facts->gpus = count;
    facts->driver_cuda = nvml_driver(&nvml, facts->driver, sizeof facts->driver);
    for (unsigned i = 0; i < count; i++) {
        struct gpu_health *gpu = node_facts_add_gpu(facts);

        if (gpu != NULL)
            look(&nvml, i, gpu);
    }
}

/* "4,1234,5678,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus." */
void doctor_kernel_record(const char *record, struct node_facts *facts)
{
    const char *at = strstr(record, "NVRM: Xid ("), *number;
    const struct fault *fault;
    char *end;
    unsigned long xid;

    number = at != NULL ? strstr(at, "): ") : NULL;
    if (number == NULL)
        return;
    xid = strtoul(number + 3, &end, 10);
    if (end == number + 3 || xid > 100000)
        return;
    fault = fault_of_xid((uint32_t)xid);
    if (!fault_drains(fault->action))
        return;
    facts->xid = (int64_t)xid;
    (void)snprintf(facts->xid_text, sizeof facts->xid_text, "%.100s, GPU %.*s", fault->text,
                   (int)(number - at - 11), at + 11);
    (void)snprintf(facts->xid_remedy, sizeof facts->xid_remedy, "%s", fault_remedy(fault->action));
}

/* Reads the kernel's log. Records that are overwritten during the read (EPIPE) are skipped. */
static void read_kernel_log(struct node_facts *facts)
{
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char record[8192];

    facts->are_xids_readable = fd >= 0;
    while (fd >= 0) {
        ssize_t got = read(fd, record, sizeof record - 1);

        if (got < 0 && (errno == EPIPE || errno == EINTR))
            continue;
        if (got <= 0)
            break;
        record[got] = '\0';
        doctor_kernel_record(record, facts);
    }
    if (fd >= 0)
        (void)close(fd);
}

/* Reads one file of a port, without the number in front: "4: ACTIVE". */
static void read_port(const char *port_dir, const char *name, char *out, size_t out_bytes)
{
    char path[600];
    const char *line;

    (void)snprintf(path, sizeof path, "%.500s/%s", port_dir, name);
    line = doctor_read_line(path);
    if (line == NULL)
        return;
    if (strstr(line, ": ") != NULL)
        line = strstr(line, ": ") + 2;
    (void)snprintf(out, out_bytes, "%.*s", (int)out_bytes - 1, line);
}

void doctor_fabric(const char *root, struct node_facts *facts)
{
    char pattern[256];
    glob_t found;

    (void)snprintf(pattern, sizeof pattern, "%.200s/*/ports/*", root);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct fabric_facts *port = node_facts_add_fabric(facts);
        const char *dir = found.gl_pathv[i], *device = dir + strlen(root) + 1;

        if (port == NULL)
            break;
        (void)snprintf(port->device, sizeof port->device, "%.*s",
                       (int)(strcspn(device, "/") < 31 ? strcspn(device, "/") : 31), device);
        port->port = strtol(strrchr(dir, '/') + 1, NULL, 10);
        read_port(dir, "state", port->state, sizeof port->state);
        read_port(dir, "rate", port->rate, sizeof port->rate);
        read_port(dir, "link_layer", port->layer, sizeof port->layer);
    }
    globfree(&found);
}

void doctor_gpus(const struct doctor *doctor, struct node_facts *facts)
{
    facts->gpu_files = device_files();
    if (doctor->gpus > 0 || facts->gpu_files > 0) {
        ask_nvml(facts);
        read_kernel_log(facts);
    }
    doctor_fabric("/sys/class/infiniband", facts);
}
