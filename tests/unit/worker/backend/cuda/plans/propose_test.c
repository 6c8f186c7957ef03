/* cuDNN may report more elements than the caller asked for: only the configurations and notes that
 * fit may be read. Uses a fake cuDNN in this file that counts this way. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/plans/cudnn_plan.h"

enum { LIVE_MAX = 4096, MORE = 100 };

static int live[LIVE_MAX];   /* 1: a descriptor that was made and not destroyed */
static uint32_t made, stray; /* calls with an invalid descriptor */
static bool fails_engines;   /* they are all random, so none is allowed */

static size_t GetVersion(void)
{
    return LIBS_CUDNN_NEEDED;
}

static const char *GetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}

static void GetLastErrorString(char *text, size_t bytes)
{
    (void)bytes;
    text[0] = '\0';
}

static bool is_live(cudnnBackendDescriptor_t descriptor)
{
    for (uint32_t i = 0; i < made; i++)
        if ((void *)&live[i] == descriptor)
            return live[i] == 1;
    return false;
}

static cudnnStatus_t create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor)
{
    (void)type;
    CHECK(made < LIVE_MAX);
    live[made] = 1;
    *descriptor = &live[made++];
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnBackendDescriptor_t descriptor)
{
    if (!is_live(descriptor)) {
        stray++;
        return CUDNN_STATUS_BAD_PARAM;
    }
    *(int *)descriptor = 0;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    (void)name;
    (void)type;
    (void)count;
    (void)values;
    stray += !is_live(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    stray += !is_live(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t asked, int64_t *count,
                         void *values)
{
    (void)type;
    stray += !is_live(descriptor);
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) {
        *count = MORE;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *count = MORE;
        for (int64_t i = 0; i < asked; i++)
            ((cudnnBackendNumericalNote_t *)values)[i] =
                fails_engines ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_FFT;
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX ||
               name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE ||
               name == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
        *(int64_t *)values = 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

static uint32_t propose(bool deterministic)
{
    const struct cudnn_api api = {.GetVersion = GetVersion,
                                  .GetErrorString = GetErrorString,
                                  .GetLastErrorString = GetLastErrorString,
                                  .BackendCreateDescriptor = create,
                                  .BackendDestroyDescriptor = destroy,
                                  .BackendSetAttribute = set,
                                  .BackendGetAttribute = get,
                                  .BackendFinalize = finalize};
    struct cudnn_target target = {
        .api = &api, .deterministic = deterministic, .workspace_limit = 1};
    struct cudnn_plan plans[CUDNN_CANDIDATES_MAX];
    cudnnBackendDescriptor_t graph;
    struct cudnn_refusal refusal;
    uint32_t count;

    memset(plans, 0, sizeof plans);
    (void)create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &target.device);
    (void)create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph);
    count = cudnn_plan_propose(&target, graph, GRAPH_F16, plans, CUDNN_CANDIDATES_MAX, &refusal);
    for (uint32_t i = 0; i < count; i++)
        cudnn_plan_close(&api, &plans[i]);
    (void)destroy(graph);
    (void)destroy(target.device);
    CHECK_EQ(stray, 0);
    for (uint32_t i = 0; i < made; i++)
        CHECK_EQ(live[i], 0);
    made = 0;
    return count;
}

TEST(all_that_fit_are_taken)
{
    fails_engines = false;
    CHECK_EQ(propose(false), CUDNN_CANDIDATES_MAX);
}

TEST(none_is_read_behind_the_last_one)
{
    fails_engines = true;
    CHECK_EQ(propose(true), 0);
    fails_engines = false; /* a note behind the last one is none either */
    CHECK_EQ(propose(true), CUDNN_CANDIDATES_MAX);
}

TEST_MAIN
