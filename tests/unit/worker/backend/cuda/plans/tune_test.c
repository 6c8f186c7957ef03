/* How candidates are timed (plan_tune.c), over a CUDA runtime of this file that follows CUDA's
 * documentation: one stream, whose time is counted in microseconds. The host needs LAUNCH_US for
 * each launch, a graph needs them once; kernels take twice as long until the device has worked for
 * RISE_US. So times of single launches, or of the first ones, choose wrongly here as on a GPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/io/mono.h"
#include "kernels/values.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/plans/internal.h"

enum { LAUNCH_US = 5, RISE_US = 150000, CANDIDATES = 3 };

struct CUevent_st {
    double at_us;
};
struct CUgraph_st {
    double work_us;
};
struct CUgraphExec_st {
    double work_us;
};

/* What the next plan is like. */
static struct {
    double kernel_us[CANDIDATES];
    bool fails[CANDIDATES], refuses_capture[CANDIDATES];
} like;

static struct {
    double us;         /* the stream's time */
    uint64_t begun_us; /* of the first kernel, by the real clock; 0: there was none */
    bool is_capturing, is_void;
    double captured_us;
    size_t blocks, streams, events, graphs;
    bool no_memory;
} device;

static int a_stream;

static double risen(double kernel_us)
{
    if (device.begun_us == 0)
        device.begun_us = mono_us();
    return mono_us() - device.begun_us < RISE_US ? 2 * kernel_us : kernel_us;
}

static double slower(double host_us, double kernel_us)
{
    return host_us > kernel_us ? host_us : kernel_us;
}

/* -- what a plan reads -- */

static bool is_random(const struct plan_request *request, const void *x)
{
    const size_t count = plan_port_bytes(request, PLAN_PORT_X) / 2;
    uint32_t differ = 0;

    for (size_t i = 1; i < count; i++) {
        const float value = values_get(x, (enum kernel_type)request->type, i);

        CHECK(isfinite(value) && fabsf(value) <= 1.0F);
        differ += value != values_get(x, (enum kernel_type)request->type, i - 1);
    }
    return differ > count / 2;
}

enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err)
{
    (void)set;
    CHECK(stream != NULL && workspace != NULL && err == NULL);
    CHECK(index < plan->candidate_count);
    if (device.begun_us == 0)
        CHECK(is_random(&plan->request, pointers[PLAN_PORT_X]));
    if (device.is_capturing && like.refuses_capture[index])
        device.is_void = true;
    if (like.fails[index] || device.is_void)
        return STATUS_LIBRARY;
    if (device.is_capturing)
        device.captured_us += like.kernel_us[index];
    else
        device.us += slower(LAUNCH_US, risen(like.kernel_us[index]));
    return STATUS_OK;
}

/* -- the runtime -- */

cudaError_t cudaSetDevice(int index)
{
    (void)index;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
    (void)prop;
    (void)index;
    return cudaErrorNoDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "an error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "cudaErrorUnknown";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    CHECK_EQ(flags, cudaStreamNonBlocking);
    *stream = (cudaStream_t)&a_stream;
    device.streams++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    device.streams--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    CHECK(!device.is_capturing);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof **event);
    device.events++;
    return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    device.events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    CHECK(!device.is_capturing);
    event->at_us = device.us;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((to->at_us - from->at_us) / 1000);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = device.no_memory ? NULL : malloc(bytes);
    if (*memory == NULL)
        return cudaErrorMemoryAllocation;
    memset(*memory, 0xff, bytes);
    device.blocks++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    device.blocks -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    (void)risen(0);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    CHECK_EQ(mode, cudaStreamCaptureModeThreadLocal);
    CHECK(!device.is_capturing);
    device.is_capturing = true;
    device.is_void = false;
    device.captured_us = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    CHECK(device.is_capturing);
    device.is_capturing = false;
    *graph = NULL;
    if (device.is_void) {
        device.is_void = false;
        return cudaErrorStreamCaptureInvalidated;
    }
    *graph = calloc(1, sizeof **graph);
    CHECK(*graph != NULL);
    (*graph)->work_us = device.captured_us;
    device.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *exec = calloc(1, sizeof **exec);
    CHECK(*exec != NULL);
    (*exec)->work_us = graph->work_us;
    device.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free(graph);
    device.graphs--;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    free(exec);
    device.graphs--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)stream;
    device.us += slower(LAUNCH_US, risen(exec->work_us));
    return cudaSuccess;
}

/* -- tests -- */

static char noted[256];

static void note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(noted, sizeof noted, "%s", text);
}

static enum status fitted; /* of the last plan */

/* The plan after plan_time, with what `like` says of its candidates. */
static struct plan tuned(void)
{
    struct plan plan = {.request = {.kind = PLAN_CONV_FORWARD,
                                    .type = GRAPH_F16,
                                    .n = 2,
                                    .c = 64,
                                    .h = 64,
                                    .w = 128,
                                    .k = 64,
                                    .out_h = 64,
                                    .out_w = 128,
                                    .window = {3, 1, 1}},
                        .candidate_count = CANDIDATES};
    struct plan_set set = {
        .plans = &plan, .count = 1, .candidates = CANDIDATES, .has_device = true, .note = note};
    struct plan_watch *watch = NULL;
    struct err err = {.text = ""};

    set.owner = &set;
    device.us = 0;
    device.begun_us = 0;
    CHECK_EQ(plan_watch_open(&watch, &err), STATUS_OK);
    fitted = plan_watch_fit(watch, &set, &plan, &err);
    if (fitted == STATUS_OK)
        CHECK_EQ(plan_time(watch, &set, &plan, &err), STATUS_OK);
    plan_watch_close(&watch, &set);
    CHECK_EQ(device.blocks + device.streams + device.events + device.graphs, 0);
    return plan;
}

TEST(the_fastest_kernel_is_chosen_not_the_host_s_rate)
{
    struct plan plan;

    memset(&like, 0, sizeof like);
    memcpy(like.kernel_us, (double[]){4, 2, 3}, sizeof like.kernel_us); /* less than a launch */
    plan = tuned();
    CHECK_EQ(plan.chosen, 1);
    CHECK_NEAR(plan.info.time_us, 2, 0.01); /* nor twice that, as before the clock rose */
}

TEST(one_that_cannot_be_captured_is_the_last_resort)
{
    struct plan plan;

    memset(&like, 0, sizeof like);
    memcpy(like.kernel_us, (double[]){40, 20, 30}, sizeof like.kernel_us);
    like.refuses_capture[1] = true;
    plan = tuned();
    CHECK_EQ(plan.chosen, 2);
    CHECK_NEAR(plan.info.time_us, 30, 0.01);
    like.refuses_capture[0] = like.refuses_capture[2] = true;
    plan = tuned();
    CHECK_EQ(plan.chosen, 1);
    CHECK_NEAR(plan.info.time_us, 20, 0.01);
}

TEST(where_none_runs_there_is_no_plan)
{
    struct plan plan;

    memset(&like, 0, sizeof like);
    like.fails[0] = like.fails[1] = like.fails[2] = true;
    plan = tuned();
    CHECK_EQ(plan.info.status, STATUS_UNSUPPORTED);
    CHECK_STR(plan.info.engine, "no candidate could run");
}

TEST(without_memory_the_first_is_taken)
{
    struct plan plan;

    memset(&like, 0, sizeof like);
    device.no_memory = true;
    plan = tuned();
    device.no_memory = false;
    CHECK_EQ(fitted, STATUS_MEMORY);
    CHECK_EQ(plan.chosen, 0);
    CHECK_EQ(plan.info.status, STATUS_OK);
    CHECK(plan.info.time_us <= 0); /* so a later start times it, see keep_test.c */
    CHECK(strstr(noted, "cuDNN's first proposals are taken") != NULL);
    noted[0] = '\0';
    device.no_memory = true;
    (void)tuned(); /* the set of another batch size */
    device.no_memory = false;
    CHECK_STR(noted, "");
}

TEST_MAIN
