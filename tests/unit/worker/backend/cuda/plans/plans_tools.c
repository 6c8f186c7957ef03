#include "tests/unit/worker/backend/cuda/plans/plans_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/model/model.h"
#include "worker/graph/pass.h"

/* What the data sheets say of A100, H200 and B200. */
static const struct {
    int capability, processors, shared_bytes;
    const char *name;
} devices[] = {{80, 108, 166912, "NVIDIA A100-SXM4-80GB"},
               {90, 132, 232448, "NVIDIA H200"},
               {100, 148, 232448, "NVIDIA B200"}};

const char *describe_device(int capability)
{
    static char path[512];
    FILE *file;
    size_t i = 0;

    while (devices[i].capability != capability)
        i++;
    (void)snprintf(path, sizeof path, "%.480s/sm_%d.json", test_dir(), capability);
    file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fprintf(file,
                  "{\"version\":1,\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
                  "\"pciDeviceId\":0,\"multiProcessorCount\":%d,\"warpSize\":32,"
                  "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
                  "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,"
                  "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
                  "\"reservedSharedMemoryPerBlock\":1024,\"maxCtasPerSM\":32,"
                  "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
                  "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
                  "\"l2CacheSize\":62914560,\"totalGlobalMem\":80000000000,\"deviceName\":\"%s\"}",
                  capability * 10, devices[i].processors, devices[i].shared_bytes,
                  devices[i].name) > 0);
    CHECK_EQ(fclose(file), 0);
    return path;
}

struct plan_set *open_set(const struct cuda_plans *plans, struct plan_options options,
                          int capability)
{
    struct plan_set *set = NULL;
    struct err err = {.status = STATUS_OK};
    enum status status;

    options.device_file = describe_device(capability);
    status = plans->open(&set, &options, &err);
    if (status == STATUS_NOT_FOUND)
        SKIP("no cuDNN or cublasLt on this machine");
    if (status != STATUS_OK)
        FAIL("open: %s", err.text);
    return set;
}

static struct graph *pass(const struct graph *graph, const struct amp *amp, bool adds_half)
{
    struct graph *one = NULL, *two = NULL;
    struct err err;

    CHECK_EQ(pass_amp(graph, amp, &one, &err), STATUS_OK);
    CHECK_EQ(pass_fuse(one, adds_half, &two, &err), STATUS_OK);
    graph_free(&one);
    return two;
}

/* A model's graph behind the passes. */
static struct graph *model_graph(const char *arch, uint32_t side, uint32_t level,
                                 enum graph_dtype half, bool fused)
{
    const bool is_small = side < 64;
    const struct model_shape shape = {is_small ? 1 : 3, side, side, is_small ? 10 : 1000};
    const struct amp amp = {.level = level, .half = half, .norm_is_fp32 = level < 3};
    struct graph *graph = NULL, *passed;
    struct err err = {.status = STATUS_OK};

    if (model_build(&graph, arch, &shape, &err) != STATUS_OK)
        FAIL("%s: %s", arch, err.text);
    passed = pass(graph, &amp, fused);
    graph_free(&graph);
    return passed;
}

struct plan_request *model_requests(const char *arch, uint32_t side, uint32_t batch, uint32_t level,
                                    enum graph_dtype half, bool fused, uint32_t *count)
{
    struct graph *graph = model_graph(arch, side, level, half, fused);
    struct plan_request *requests;

    *count = plan_list(graph, batch, false, NULL);
    requests = calloc(*count, sizeof *requests);
    CHECK(requests != NULL);
    CHECK_EQ(plan_list(graph, batch, false, requests), *count);
    graph_free(&graph);
    return requests;
}

struct plan_request *model_statistics(const char *arch, uint32_t side, uint32_t batch,
                                      uint32_t *count)
{
    struct graph *graph = model_graph(arch, side, 2, GRAPH_F16, true);
    struct plan_request *requests;

    *count = plan_list_statistics(graph, batch, true, NULL);
    requests = calloc(*count, sizeof *requests);
    CHECK(requests != NULL);
    CHECK_EQ(plan_list_statistics(graph, batch, true, requests), *count);
    graph_free(&graph);
    return requests;
}
