/* Engines that are compiled at run time, as far as a machine without a GPU goes: the toolkit's
 * stand-in driver lets cuDNN generate and compile the kernel, and refuses to load it. A graph that
 * no engine takes is refused before that. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/plans_tools.h"
#include "worker/backend/cuda/plans/cudnn_layers.h"
#include "worker/backend/cuda/plans/cudnn_plan.h"

static struct cudnn_api api;
static struct cudnn_target target = {
    .api = &api, .workspace_limit = (size_t)1 << 30, .skips_heuristics = true};

static void open_target(void)
{
    char json[4096];
    struct err err;
    FILE *file;

    if (libs_cudnn(NULL, &api, &err) != STATUS_OK)
        SKIP("no cuDNN on this machine");
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL)
        SKIP("a driver is loaded");
    /* By its soname this is libcuda.so.1 from now on. */
    if (dlopen(STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL) == NULL)
        SKIP("the toolkit has no stand-in driver");
    file = fopen(describe_device(90), "r");
    CHECK(file != NULL);
    json[fread(json, 1, sizeof json - 1, file)] = '\0';
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(cudnn_device_open(&api, 0, json, &target.device, &err), STATUS_OK);
}

/* What becomes of the request: whether an engine got as far as loading its kernel. */
static bool compiles(const struct plan_request *request, struct cudnn_refusal *refusal)
{
    struct cudnn_plan plans[CUDNN_CANDIDATES_MAX];
    cudnnBackendDescriptor_t whole;
    struct cudnn_graph graph;
    uint32_t count;

    cudnn_graph_init(&graph, &api);
    cudnn_layer_build(&graph, request);
    whole = cudnn_graph_finish(&graph);
    if (whole == NULL)
        FAIL("%s: %s", plan_kind_name(request->kind), graph.text);
    count = cudnn_plan_propose(&target, whole, request->type, plans, 1, refusal);
    cudnn_graph_close(&graph);
    CHECK_EQ(count, 0);
    return refusal->code == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER &&
           strstr(refusal->text, "cuLibraryLoadData") != NULL;
}

TEST(batch_norms_compile_to_the_load)
{
    static const enum plan_kind kinds[] = {PLAN_NORM_FORWARD, PLAN_NORM_BACKWARD,
                                           PLAN_NORM_EVALUATE, PLAN_NORM_APPLY, PLAN_NORM_DX};

    open_target();
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (int form = 0; form < 3; form++) {
            struct plan_request request = {.kind = kinds[kind],
                                           .type = form == 2 ? GRAPH_BF16 : GRAPH_F16,
                                           .n = 256,
                                           .c = 64,
                                           .h = 56,
                                           .w = 56,
                                           .k = 64,
                                           .eps = 1e-5F,
                                           .momentum = 0.1F,
                                           .has_add = form == 1,
                                           .has_relu = form != 0};
            struct cudnn_refusal refusal;

            if (!compiles(&request, &refusal))
                FAIL("%s, form %d: %d, %s", plan_kind_name(request.kind), form, (int)refusal.code,
                     refusal.text);
        }
}

/* A data gradient that adds a gradient under its mask: the first convolutions of ResNet-50's blocks. */
TEST(masked_data_gradients_compile_to_the_load)
{
    open_target();
    for (int form = 0; form < 2; form++) {
        const struct plan_request request = {.kind = PLAN_CONV_DGRAD_MASKED,
                                             .type = form == 0 ? GRAPH_F16 : GRAPH_BF16,
                                             .n = 256,
                                             .c = form == 0 ? 256 : 1024,
                                             .h = form == 0 ? 56 : 14,
                                             .w = form == 0 ? 56 : 14,
                                             .k = form == 0 ? 64 : 256,
                                             .out_h = form == 0 ? 56 : 14,
                                             .out_w = form == 0 ? 56 : 14,
                                             .window = {1, 1, 0}};
        struct cudnn_refusal refusal;

        if (!compiles(&request, &refusal))
            FAIL("form %d: %d, %s", form, (int)refusal.code, refusal.text);
    }
}

TEST_MAIN
