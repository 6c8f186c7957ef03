/* One node: its GPUs, its fabric, and the versions of its Python. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/doctor.h"

/* Bits of nvmlClocksThrottleReasons (NVML's reference) for heat or power limits. Bits for limits
 * that somebody set on purpose are left out. */
static const struct {
    int64_t bit;
    const char *text;
} slow_reasons[] = {
    {0x08, "hardware slowdown"},
    {0x20, "heat (software)"},
    {0x40, "heat (hardware)"},
    {0x80, "power brake"},
};

static void judge_driver(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->gpu_files == 0 && facts->gpu_count == 0)
        doctor_say(out, DOCTOR_DRIVER, DOCTOR_SKIP, "no NVIDIA GPU here");
    else if (facts->nvml_problem[0] != '\0')
        doctor_say(out, DOCTOR_DRIVER, DOCTOR_FAIL, "%lld device file%s in /dev, but: %s",
                   (long long)facts->gpu_files, facts->gpu_files == 1 ? "" : "s",
                   facts->nvml_problem);
    else if (facts->gpus >= 0 && facts->gpus < facts->gpu_files)
        doctor_say(
            out, DOCTOR_DRIVER, DOCTOR_FAIL, "%lld device files in /dev, but NVML sees %lld GPU%s",
            (long long)facts->gpu_files, (long long)facts->gpus, facts->gpus == 1 ? "" : "s");
    else if (facts->driver_cuda >= 0)
        doctor_say(out, DOCTOR_DRIVER, DOCTOR_OK, "driver %s, for CUDA up to %lld.%lld, %u GPU%s",
                   facts->driver, (long long)(facts->driver_cuda / 1000),
                   (long long)(facts->driver_cuda % 1000 / 10), facts->gpu_count,
                   facts->gpu_count == 1 ? "" : "s");
    else
        doctor_say(out, DOCTOR_DRIVER, DOCTOR_OK, "driver %s, %u GPU%s", facts->driver,
                   facts->gpu_count, facts->gpu_count == 1 ? "" : "s");
}

static void judge_health(const struct gpu_health *gpu, struct doctor_findings *out)
{
    const long long index = gpu->index;

    if (gpu->problem[0] != '\0')
        doctor_say(out, DOCTOR_GPU, DOCTOR_FAIL, "GPU %lld: %s", index, gpu->problem);
    else if (gpu->ecc_uncorrected > 0)
        doctor_say(out, DOCTOR_GPU, DOCTOR_FAIL,
                   "GPU %lld: %lld uncorrected memory errors since the driver was loaded", index,
                   (long long)gpu->ecc_uncorrected);
    else if (gpu->remap_failed > 0)
        doctor_say(out, DOCTOR_GPU, DOCTOR_FAIL,
                   "GPU %lld: a row of its memory could not be remapped", index);
    else if (gpu->remap_pending > 0 || gpu->retire_pending > 0)
        doctor_say(out, DOCTOR_GPU, DOCTOR_WARN,
                   "GPU %lld: a part of its memory is replaced at its next reset", index);
    else
        doctor_say(out, DOCTOR_GPU, DOCTOR_OK, "GPU %lld: %s", index, gpu->name);
}

static void judge_throttle(const struct gpu_health *gpu, struct doctor_findings *out)
{
    char reasons[120] = "";

    if (gpu->throttle < 0)
        return;
    for (size_t i = 0; i < sizeof slow_reasons / sizeof slow_reasons[0]; i++)
        if ((gpu->throttle & slow_reasons[i].bit) != 0) {
            size_t used = strlen(reasons);

            (void)snprintf(reasons + used, sizeof reasons - used, "%s%s", used > 0 ? ", " : "",
                           slow_reasons[i].text);
        }
    if (reasons[0] != '\0')
        doctor_say(out, DOCTOR_THROTTLE, DOCTOR_WARN, "GPU %lld is slowed down: %s",
                   (long long)gpu->index, reasons);
    else
        doctor_say(out, DOCTOR_THROTTLE, DOCTOR_OK, "GPU %lld at full speed",
                   (long long)gpu->index);
}

static void judge_bus(const struct gpu_health *gpu, struct doctor_findings *out)
{
    const long long links = (long long)gpu->links_up + gpu->links_down;

    if (gpu->pcie_width > 0 && gpu->pcie_width_max > 0)
        doctor_say(out, DOCTOR_PCIE,
                   gpu->pcie_width < gpu->pcie_width_max ? DOCTOR_WARN : DOCTOR_OK,
                   "GPU %lld: %lld of %lld PCIe lanes", (long long)gpu->index,
                   (long long)gpu->pcie_width, (long long)gpu->pcie_width_max);
    if (gpu->links_up < 0 || links == 0)
        return;
    doctor_say(out, DOCTOR_NVLINK,
               gpu->links_up > 0 && gpu->links_down > 0 ? DOCTOR_WARN : DOCTOR_OK,
               "GPU %lld: %lld of %lld NVLinks are up", (long long)gpu->index,
               (long long)gpu->links_up, links);
}

static void judge_gpu(const struct gpu_health *gpu, struct doctor_findings *out)
{
    judge_health(gpu, out);
    if (gpu->has_persistence >= 0)
        doctor_say(out, DOCTOR_PERSISTENCE, gpu->has_persistence == 0 ? DOCTOR_WARN : DOCTOR_OK,
                   "GPU %lld: persistence mode is %s", (long long)gpu->index,
                   gpu->has_persistence == 0 ? "off" : "on");
    judge_throttle(gpu, out);
    judge_bus(gpu, out);
}

static void judge_xid(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->gpu_count == 0 && facts->xid < 0)
        return;
    if (facts->are_xids_readable <= 0)
        doctor_say(out, DOCTOR_XID, DOCTOR_SKIP, "launcherd may not read the kernel's log");
    else if (facts->xid >= 0)
        doctor_say(out, DOCTOR_XID, DOCTOR_FAIL, "Xid %lld in this boot: %s%s%s",
                   (long long)facts->xid, facts->xid_text, facts->xid_remedy[0] != '\0' ? "; " : "",
                   facts->xid_remedy);
    else
        doctor_say(out, DOCTOR_XID, DOCTOR_OK, "no Xid in the kernel's log that closes a GPU");
}

static void judge_fabric(const struct node_facts *facts, struct doctor_findings *out)
{
    if (facts->fabric_count == 0) {
        doctor_say(out, DOCTOR_FABRIC, DOCTOR_SKIP, "no InfiniBand or RoCE device here");
        return;
    }
    for (uint32_t i = 0; i < facts->fabric_count; i++) {
        const struct fabric_facts *port = &facts->fabric[i];

        doctor_say(out, DOCTOR_FABRIC, strcmp(port->state, "ACTIVE") == 0 ? DOCTOR_OK : DOCTOR_WARN,
                   "%s port %lld (%s) is %s, %s", port->device, (long long)port->port, port->layer,
                   port->state, port->rate);
    }
    if (facts->gpu_count == 0 || facts->has_peermem < 0)
        return;
    doctor_say(out, DOCTOR_PEERMEM, facts->has_peermem == 0 ? DOCTOR_WARN : DOCTOR_OK,
               facts->has_peermem == 0
                   ? "the module nvidia_peermem is not loaded: without it, or DMA-BUF of a newer "
                     "kernel and driver, data goes through the host's memory"
                   : "nvidia_peermem is loaded");
}

static void judge_python(const struct doctor_case *about, const struct node_facts *facts,
                         struct doctor_findings *out)
{
    if (facts->python[0] == '\0' && facts->python_problem[0] == '\0')
        doctor_say(out, DOCTOR_PYTHON, DOCTOR_SKIP,
                   about->has_job ? "the job runs no Python" : "no account to run one as");
    else if (facts->torch[0] != '\0' && facts->python_problem[0] == '\0')
        doctor_say(out, DOCTOR_PYTHON, DOCTOR_OK, "%s %s with torch %s", facts->python,
                   facts->python_version, facts->torch);
    else if (about->has_job)
        doctor_say(out, DOCTOR_PYTHON, DOCTOR_WARN, "%s: %s", facts->python, facts->python_problem);
    else
        doctor_say(out, DOCTOR_PYTHON, DOCTOR_SKIP, "%s: %s", facts->python, facts->python_problem);
}

static void judge_cuda(const struct node_facts *facts, struct doctor_findings *out)
{
    const int64_t torch_major = strtol(facts->cuda, NULL, 10);

    if (facts->gpu_count == 0 || facts->torch[0] == '\0')
        return;
    if (facts->cuda[0] == '\0')
        doctor_say(out, DOCTOR_CUDA, DOCTOR_WARN, "torch %s is built without CUDA", facts->torch);
    else if (facts->driver_cuda >= 0 && torch_major > facts->driver_cuda / 1000)
        doctor_say(out, DOCTOR_CUDA, DOCTOR_FAIL,
                   "torch %s is for CUDA %s, the driver %s runs CUDA up to %lld.%lld", facts->torch,
                   facts->cuda, facts->driver, (long long)(facts->driver_cuda / 1000),
                   (long long)(facts->driver_cuda % 1000 / 10));
    else if (facts->torch_sees_gpu == 0)
        doctor_say(out, DOCTOR_CUDA, DOCTOR_FAIL, "torch %s sees no GPU, NVML sees %u",
                   facts->torch, facts->gpu_count);
    else
        doctor_say(out, DOCTOR_CUDA, DOCTOR_OK, "torch %s, CUDA %s, NCCL %s, cuDNN %s",
                   facts->torch, facts->cuda, facts->nccl, facts->cudnn);
}

void doctor_judge_gpus(const struct doctor_case *about, const struct doctor_node *node,
                       struct doctor_findings *out)
{
    const struct node_facts *facts = &node->facts;

    judge_driver(facts, out);
    for (uint32_t i = 0; i < facts->gpu_count; i++)
        judge_gpu(&facts->gpu[i], out);
    judge_xid(facts, out);
    judge_fabric(facts, out);
    judge_python(about, facts, out);
    judge_cuda(facts, out);
}
