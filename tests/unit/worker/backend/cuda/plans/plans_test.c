/* Plans without a GPU: every layer of the ResNets and the ConvNet on descriptions of devices, the
 * cache, and the ports. What an engine compiles at run time ends, without a driver, with exactly
 * that refusal; what is precompiled is finished. DDP_TEST_PLANS=all: every net on every device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/plans_tools.h"
#include "worker/backend/cuda/plans/cudnn_layers.h"
#include "worker/backend/cuda/plans/cudnn_plan.h"

static bool is_conv(enum plan_kind kind)
{
    return kind == PLAN_CONV_FORWARD || kind == PLAN_CONV_DGRAD || kind == PLAN_CONV_WGRAD ||
           kind == PLAN_CONV_DGRAD_ADD;
}

/* Plans of convolutions are complete; the other plans lack only a driver. */
static void check_plans(const struct plan_set *set, const struct plan_request *requests,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = cuda_plans.info(set, i);

        if (info->status == STATUS_OK || (info->needs_driver && !is_conv(requests[i].kind)))
            continue;
        FAIL("layer %s, %s, %s, n %u c %u h %u w %u k %u: %s", requests[i].name,
             plan_kind_name(requests[i].kind), plan_type_name(requests[i].type), requests[i].n,
             requests[i].c, requests[i].h, requests[i].w, requests[i].k, info->engine);
    }
}

static void build_all(struct plan_options options, int capability, struct plan_request *requests,
                      uint32_t count)
{
    struct plan_set *set = open_set(&cuda_plans, options, capability);
    struct err err = {.status = STATUS_OK};

    if (cuda_plans.build(set, requests, count, &err) != STATUS_OK)
        FAIL("build: %s", err.text);
    check_plans(set, requests, count);
    cuda_plans.close(&set);
    CHECK(set == NULL);
    free(requests);
}

static bool everything(void)
{
    const char *wish = getenv("DDP_TEST_PLANS");

    return wish != NULL && strcmp(wish, "all") == 0;
}

static void build_model(const char *arch, uint32_t side, uint32_t batch, uint32_t level,
                        enum graph_dtype half, bool fused, int capability)
{
    uint32_t count;
    struct plan_request *requests = model_requests(arch, side, batch, level, half, fused, &count);

    build_all((struct plan_options){.cache_folder = "", .tf32 = true}, capability, requests, count);
}

TEST(convnet_on_every_device)
{
    for (int capability = 80; capability <= 100; capability += 10) {
        build_model("convnet", 28, 100, 2, GRAPH_F16, false, capability);
        build_model("convnet", 28, 100, 0, GRAPH_F32, false, capability);
    }
}

TEST(resnet50_fp16_fused)
{
    build_model("resnet50", 224, 256, 2, GRAPH_F16, true, 90);
}

TEST(resnet18_by_type)
{
    build_model("resnet18", 224, 256, 1, GRAPH_F16, false, 90);
    build_model("resnet18", 224, 256, 2, GRAPH_BF16, true, 90);
    build_model("resnet18", 224, 256, 0, GRAPH_F32, true, 90);
}

TEST(every_net_on_every_device)
{
    if (!everything())
        SKIP("DDP_TEST_PLANS=all is not set");
    for (int capability = 80; capability <= 100; capability += 10)
        for (uint32_t level = 0; level <= 3; level++)
            for (int fused = 0; fused < 2; fused++) {
                build_model("resnet18", 224, 256, level, GRAPH_F16, fused == 1, capability);
                build_model("resnet50", 224, 256, level, GRAPH_F16, fused == 1, capability);
                build_model("resnet50", 224, 256, level, GRAPH_BF16, fused == 1, capability);
            }
}

/* As --opt-level O0 asks for them, where --tf32 is not given: every device has engines that stay in
 * fp32. */
TEST(fp32_without_tf32_on_every_device)
{
    for (int capability = 80; capability <= 100; capability += 10) {
        static const char *const archs[] = {"convnet", "resnet18", "resnet50"};

        for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
            const bool is_convnet = strcmp(archs[i], "convnet") == 0;
            uint32_t count;
            struct plan_request *requests =
                model_requests(archs[i], is_convnet ? 28 : 224, 100, 0, GRAPH_F32, true, &count);

            build_all((struct plan_options){.cache_folder = ""}, capability, requests, count);
        }
    }
}

TEST(deterministic_without_tf32)
{
    uint32_t count;
    struct plan_request *requests = model_requests("resnet18", 224, 64, 0, GRAPH_F32, true, &count);

    build_all((struct plan_options){.cache_folder = "", .deterministic = true}, 90, requests,
              count);
    requests = model_requests("resnet18", 224, 64, 2, GRAPH_F16, true, &count);
    build_all((struct plan_options){.cache_folder = "", .deterministic = true}, 90, requests,
              count);
}

/* Residual gradients: every convolution of the models that adds to one has an engine for it on every
 * device. Where the shortcut has a convolution too, it is the first one of the block that adds. */
TEST(data_gradients_that_add_have_engines)
{
    static const enum graph_dtype types[] = {GRAPH_F16, GRAPH_BF16, GRAPH_F32};

    for (int capability = 80; capability <= 100; capability += 10)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            const uint32_t level = types[t] == GRAPH_F32 ? 0 : 2;
            uint32_t count, added = 0;
            struct plan_request *requests =
                model_requests("resnet50", 224, 256, level, types[t], true, &count);

            for (uint32_t i = 0; i < count; i++) {
                const size_t length = strlen(requests[i].name);

                if (requests[i].kind != PLAN_CONV_DGRAD || length < 5 ||
                    strcmp(requests[i].name + length - 5, "conv1") != 0)
                    continue;
                requests[added] = requests[i];
                requests[added++].kind = PLAN_CONV_DGRAD_ADD;
            }
            CHECK_EQ(added, 16);
            build_all((struct plan_options){.cache_folder = "", .tf32 = true}, capability, requests,
                      added);
        }
}

/* Those that add a gradient under its mask have engines that lack only the driver, since they are compiled. */
TEST(data_gradients_that_add_a_masked_one_have_engines)
{
    static const struct {
        uint32_t c, side, k;
    } blocks[] = {{256, 56, 64}, {512, 28, 128}, {1024, 14, 256}, {2048, 7, 512}};
    const struct plan_options options = {.cache_folder = ""};
    struct plan_request requests[2 * sizeof blocks / sizeof blocks[0]];
    struct plan_set *set = open_set(&cuda_plans, options, 90);
    struct err err = {.status = STATUS_OK};
    uint32_t count = 0;

    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            requests[count++] = (struct plan_request){.kind = PLAN_CONV_DGRAD_MASKED,
                                                      .name = "conv1",
                                                      .type = bf16 ? GRAPH_BF16 : GRAPH_F16,
                                                      .n = 256,
                                                      .c = blocks[b].c,
                                                      .h = blocks[b].side,
                                                      .w = blocks[b].side,
                                                      .k = blocks[b].k,
                                                      .out_h = blocks[b].side,
                                                      .out_w = blocks[b].side,
                                                      .window = {1, 1, 0}};
    if (cuda_plans.build(set, requests, count, &err) != STATUS_OK)
        FAIL("build: %s", err.text);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = cuda_plans.info(set, i);

        if (info->status != STATUS_OK && !info->needs_driver)
            FAIL("c %u %s: %s", requests[i].c, plan_type_name(requests[i].type), info->engine);
    }
    cuda_plans.close(&set);
}

/* A 3x3 convolution of the first stage, 64 channels at 56x56, or a batch norm there. */
static struct plan_request stage_one_request(enum plan_kind kind, enum graph_dtype type)
{
    struct plan_request request = {.kind = kind,
                                   .name = "layer1.0.conv2",
                                   .type = type,
                                   .n = 64,
                                   .c = 64,
                                   .h = 56,
                                   .w = 56,
                                   .k = 64,
                                   .out_h = 56,
                                   .out_w = 56,
                                   .window = {3, 1, 1},
                                   .eps = 1e-5F,
                                   .momentum = 0.1F};

    if (kind == PLAN_STATS_FINALIZE || kind == PLAN_NORM_APPLY || kind == PLAN_NORM_DX)
        request.out_h = request.out_w = 0;
    return request;
}

/* An engine that rounds to TF32 is proposed where that is allowed, and only there. */
TEST(tf32_only_where_asked)
{
    char engines[2][sizeof((struct plan_info *)NULL)->engine];

    for (int tf32 = 0; tf32 < 2; tf32++) {
        const struct plan_options options = {.cache_folder = "", .tf32 = tf32 != 0};
        struct plan_set *set = open_set(&cuda_plans, options, 90);
        const struct plan_request request = stage_one_request(PLAN_CONV_FORWARD, GRAPH_F32);
        struct err err = {.status = STATUS_OK};

        if (cuda_plans.build(set, &request, 1, &err) != STATUS_OK)
            FAIL("build: %s", err.text);
        CHECK_EQ(cuda_plans.info(set, 0)->status, STATUS_OK);
        memcpy(engines[tf32], cuda_plans.info(set, 0)->engine, sizeof engines[tf32]);
        cuda_plans.close(&set);
    }
    CHECK(strcmp(engines[0], engines[1]) != 0);
}

/* Both ResNets' pairs of convolution and batch norm: all but the stem's, and precompiled where no
 * value is only scaled and shifted. */
static void build_statistics(const char *arch, int capability, uint32_t pairs, uint32_t applied,
                             uint32_t absorbed)
{
    struct plan_set *set =
        open_set(&cuda_plans, (struct plan_options){.cache_folder = ""}, capability);
    uint32_t count, seen[PLAN_KINDS] = {0};
    struct plan_request *requests = model_statistics(arch, 224, 256, &count);
    struct err err;

    CHECK_EQ(cuda_plans.build(set, requests, count, &err), STATUS_OK);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = cuda_plans.info(set, i);
        const bool is_compiled = requests[i].kind == PLAN_NORM_APPLY ||
                                 requests[i].kind == PLAN_NORM_EVALUATE ||
                                 requests[i].kind == PLAN_NORM_DX;

        seen[requests[i].kind]++;
        if (info->status != STATUS_OK && !(is_compiled && info->needs_driver))
            FAIL("%s: %s, c %u k %u h %u: %s", requests[i].name, plan_kind_name(requests[i].kind),
                 requests[i].c, requests[i].k, requests[i].h, info->engine);
    }
    CHECK_EQ(seen[PLAN_STATS_FINALIZE], pairs);
    CHECK_EQ(seen[PLAN_CONV_STATS], pairs);
    CHECK_EQ(seen[PLAN_NORM_APPLY], applied);
    CHECK_EQ(seen[PLAN_CONV_STATS_PROLOGUE], absorbed);
    CHECK_EQ(seen[PLAN_CONV_DGRAD_NORM], absorbed);
    CHECK_EQ(seen[PLAN_CONV_WGRAD_PROLOGUE], absorbed);
    CHECK_EQ(seen[PLAN_NORM_DX], absorbed);
    cuda_plans.close(&set);
    free(requests);
}

/* ResNet-18: 8 blocks of two, 3 shortcuts; ResNet-50: 16 blocks of three, 4 shortcuts. The norms
 * inside a block are read by its next convolution alone. */
TEST(statistics_in_the_convolution)
{
    for (int capability = 80; capability <= 100; capability += 10)
        build_statistics("resnet18", capability, 19, 16, 8);
    build_statistics("resnet50", 90, 52, 48, 32);
}

/* The ports that a graph binds are those that plan_takes names, for every kind and every flag. */
TEST(ports_are_what_plan_takes_says)
{
    struct cudnn_api api;
    struct err err;

    if (libs_cudnn(NULL, &api, &err) != STATUS_OK)
        SKIP("no cuDNN on this machine");
    for (int kind = 0; kind < PLAN_KINDS; kind++)
        for (int flags = 0; flags < 8; flags++) {
            struct plan_request request = stage_one_request((enum plan_kind)kind, GRAPH_F16);
            bool bound[PLAN_PORTS + 1] = {false};
            struct cudnn_graph graph;

            if (!cudnn_serves(request.kind))
                continue;
            request.has_add = flags & 1;
            request.has_relu = flags & 2;
            request.has_bias = flags & 4;
            cudnn_graph_init(&graph, &api);
            cudnn_layer_build(&graph, &request);
            if (cudnn_graph_finish(&graph) == NULL)
                FAIL("%s, flags %d: %s", plan_kind_name(request.kind), flags, graph.text);
            for (uint32_t i = 0; i < graph.binding_count; i++)
                bound[graph.bindings[i].port] = true;
            for (int port = 0; port < PLAN_PORTS; port++)
                if (bound[port] != plan_takes(&request, (enum plan_port)port))
                    FAIL("%s, flags %d: port %s", plan_kind_name(request.kind), flags,
                         plan_port_name((enum plan_port)port));
            cudnn_graph_close(&graph);
        }
}

/* A norm's shift of 16 bits would be off by 2^-11 of mean / deviation. */
TEST(a_norm_is_applied_in_fp32)
{
    const struct plan_request apply = {.kind = PLAN_NORM_APPLY, .type = GRAPH_F16, .c = 64};

    CHECK(!plan_takes(&apply, PLAN_PORT_EQ_SCALE) && !plan_takes(&apply, PLAN_PORT_EQ_SHIFT));
    CHECK(plan_takes(&apply, PLAN_PORT_MEAN) && plan_takes(&apply, PLAN_PORT_SHIFT));
    CHECK_EQ(plan_port_bytes(&apply, PLAN_PORT_MEAN), 64 * sizeof(float));
    CHECK_EQ(plan_port_bytes(&apply, PLAN_PORT_SHIFT), 64 * sizeof(float));
}

TEST(port_bytes_by_hand)
{
    struct plan_request request = {.kind = PLAN_CONV_FORWARD,
                                   .type = GRAPH_F16,
                                   .n = 2,
                                   .c = 8,
                                   .h = 6,
                                   .w = 5,
                                   .k = 16,
                                   .out_h = 3,
                                   .out_w = 3,
                                   .window = {3, 2, 1}};

    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_X), 2 * 8 * 6 * 5 * 2);
    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_Y), 2 * 16 * 3 * 3 * 2);
    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_W), 16 * 3 * 3 * 8 * 2);
    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_BIAS), 16 * 2);
    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_MASK), 2 * 8 * 6 * 5 / 8); /* bits */
    CHECK_EQ(plan_port_bytes(&request, PLAN_PORT_SUM), 16 * 4);
    CHECK_EQ(plan_stored_channels(3), 8);
    CHECK_EQ(plan_stored_channels(64), 64);
}

/* Of the images: 8 in bf16, for which cuDNN has no fast engine of 4; 4 in every other type. */
TEST(stored_channels_of_the_images)
{
    static const struct {
        uint32_t level;
        enum graph_dtype half;
        uint32_t stored;
    } cases[] = {{0, GRAPH_F32, 4},  {1, GRAPH_F16, 4},  {2, GRAPH_F16, 4},  {3, GRAPH_F16, 4},
                 {0, GRAPH_BF16, 4}, {1, GRAPH_BF16, 8}, {2, GRAPH_BF16, 8}, {3, GRAPH_BF16, 8}};
    static const char *const archs[] = {"convnet", "resnet18", "resnet50"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
            const uint32_t kernel = a == 0 ? 5 : 7;
            uint32_t count;
            struct plan_request *requests = model_requests(
                archs[a], a == 0 ? 28 : 224, 16, cases[i].level, cases[i].half, true, &count);

            CHECK_EQ(requests[0].kind, PLAN_CONV_FORWARD);
            CHECK_EQ(requests[1].kind, PLAN_CONV_WGRAD);
            CHECK_EQ(requests[0].c, cases[i].stored);
            CHECK_EQ(requests[1].c, cases[i].stored);
            CHECK_EQ(plan_port_bytes(&requests[1], PLAN_PORT_DW),
                     (size_t)requests[1].k * kernel * kernel * cases[i].stored *
                         (cases[i].level == 0 ? 4 : 2));
            for (uint32_t k = 2; k < count; k++)
                CHECK_EQ(requests[k].c % 8, 0);
            free(requests);
        }
}

/* The images are stored as the engines want them: none that is proposed first makes a padded copy of them in its
 * workspace, as all for bf16 do of 4 channels. */
static void check_first_plans(enum graph_dtype type, int capability)
{
    const struct plan_options options = {.cache_folder = ""};
    struct plan_set *set = open_set(&cuda_plans, options, capability);
    uint32_t count;
    struct plan_request *requests = model_requests("resnet50", 224, 256, 2, type, true, &count);
    struct err err = {.status = STATUS_OK};

    if (cuda_plans.build(set, requests, 2, &err) != STATUS_OK)
        FAIL("build: %s", err.text);
    for (uint32_t i = 0; i < 2; i++) {
        const struct plan_info *info = cuda_plans.info(set, i);

        CHECK_EQ(info->status, STATUS_OK);
        if (info->workspace_bytes >= plan_port_bytes(&requests[i], PLAN_PORT_X))
            FAIL("%s of %s, sm_%d: %zu bytes of workspace", plan_kind_name(requests[i].kind),
                 plan_type_name(type), capability, info->workspace_bytes);
    }
    cuda_plans.close(&set);
    free(requests);
}

TEST(engines_take_the_images_as_they_are)
{
    for (int capability = 80; capability <= 100; capability += 10) {
        check_first_plans(GRAPH_F16, capability);
        check_first_plans(GRAPH_BF16, capability);
    }
}

/* A model's list by hand: the ConvNet's, whose second convolution reads 16 channels. */
TEST(list_of_the_convnet)
{
    static const enum plan_kind kinds[] = {
        PLAN_CONV_FORWARD,  PLAN_CONV_WGRAD,     PLAN_NORM_FORWARD, PLAN_NORM_BACKWARD,
        PLAN_CONV_FORWARD,  PLAN_CONV_WGRAD,     PLAN_CONV_DGRAD,   PLAN_NORM_FORWARD,
        PLAN_NORM_BACKWARD, PLAN_LINEAR_FORWARD, PLAN_LINEAR_WGRAD, PLAN_LINEAR_DGRAD};
    uint32_t count;
    struct plan_request *requests = model_requests("convnet", 28, 100, 2, GRAPH_F16, false, &count);

    CHECK_EQ(count, sizeof kinds / sizeof kinds[0]);
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(requests[i].kind, kinds[i]);
    CHECK_EQ(requests[0].c, 4);
    CHECK_EQ(requests[0].k, 16);
    CHECK_EQ(requests[0].out_h, 28);
    CHECK(requests[0].has_bias && !requests[1].has_bias);
    CHECK_EQ(requests[4].c, 16);
    CHECK_EQ(requests[2].h, 28);
    CHECK(requests[2].has_relu && !requests[2].has_add);
    CHECK_EQ(requests[9].c, 7 * 7 * 32);
    CHECK_EQ(requests[9].k, 16); /* 10 classes */
    CHECK(requests[10].has_bias && !requests[11].has_bias);
    CHECK_EQ(requests[9].type, GRAPH_F16);
    free(requests);
}

/* Opens cuDNN and the description of an H200. */
static void open_described(struct cudnn_target *target, struct cudnn_api *api)
{
    char json[16384];
    struct err err;
    FILE *file;

    if (libs_cudnn(NULL, api, &err) != STATUS_OK)
        SKIP("no cuDNN on this machine");
    file = fopen(describe_device(90), "r");
    CHECK(file != NULL);
    json[fread(json, 1, sizeof json - 1, file)] = '\0';
    CHECK_EQ(fclose(file), 0);
    target->api = api;
    CHECK_EQ(cudnn_device_open(api, 0, json, &target->device, &err), STATUS_OK);
}

/* cuDNN accepts the request for fewer multiprocessors: a batch norm fails only for lack of a
 * driver. */
TEST(batch_norms_that_leave_multiprocessors)
{
    static const enum plan_kind kinds[] = {PLAN_NORM_FORWARD, PLAN_NORM_BACKWARD};
    struct cudnn_target target = {.workspace_limit = (size_t)1 << 30, .sm_target = 100};
    struct cudnn_plan plans[CUDNN_CANDIDATES_MAX];
    struct cudnn_api api;

    open_described(&target, &api);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct plan_request request = stage_one_request(kinds[i], GRAPH_F16);
        struct cudnn_refusal refusal;
        struct cudnn_graph graph;
        uint32_t count;

        request.out_h = request.out_w = 0;
        cudnn_graph_init(&graph, &api);
        cudnn_layer_build(&graph, &request);
        count = cudnn_plan_propose(&target, cudnn_graph_finish(&graph), request.type, plans, 2,
                                   &refusal);
        cudnn_graph_close(&graph);
        if (count == 0 && !cudnn_needs_driver(refusal.code))
            FAIL("%s: %s", plan_kind_name(request.kind), refusal.text);
        for (uint32_t k = 0; k < count; k++)
            cudnn_plan_close(&api, &plans[k]);
    }
    (void)api.BackendDestroyDescriptor(target.device);
}

/* JSON and back: the same plan, the same JSON. */
TEST(written_plans_are_read_back)
{
    struct plan_request request = stage_one_request(PLAN_CONV_WGRAD, GRAPH_F16);
    struct cudnn_target target = {.tf32 = true, .workspace_limit = (size_t)1 << 30};
    struct cudnn_plan plans[CUDNN_CANDIDATES_MAX], copy;
    struct cudnn_refusal refusal;
    struct cudnn_graph graph;
    struct cudnn_api api;
    char *first, *second;
    size_t first_bytes = 0, second_bytes = 0;
    uint32_t count;

    open_described(&target, &api);
    cudnn_graph_init(&graph, &api);
    cudnn_layer_build(&graph, &request);
    count =
        cudnn_plan_propose(&target, cudnn_graph_finish(&graph), request.type, plans, 5, &refusal);
    cudnn_graph_close(&graph);
    CHECK_EQ(count, 5);
    for (uint32_t i = 0; i < count; i++) {
        first = cudnn_plan_write(&api, &plans[i], &first_bytes);
        CHECK(first != NULL);
        CHECK(cudnn_plan_read(&target, first, first_bytes, &copy, &refusal));
        second = cudnn_plan_write(&api, &copy, &second_bytes);
        CHECK(second != NULL);
        CHECK_EQ(first_bytes, second_bytes);
        CHECK_STR(first, second);
        CHECK_EQ(copy.workspace_bytes, plans[i].workspace_bytes);
        CHECK(!cudnn_plan_read(&target, first + 1, first_bytes - 1, &(struct cudnn_plan){0},
                               &refusal));
        free(first);
        free(second);
        cudnn_plan_close(&api, &copy);
        cudnn_plan_close(&api, &plans[i]);
    }
    CHECK_EQ(api.BackendDestroyDescriptor(target.device), CUDNN_STATUS_SUCCESS);
}

/* Without a GPU the refusal says so; with a GPU a set is returned. */
TEST(device_or_a_clear_refusal)
{
    struct plan_options options = {.cache_folder = ""};
    struct plan_set *set = NULL;
    struct err err = {.status = STATUS_OK};
    const enum status status = cuda_plans.open(&set, &options, &err);

    if (status == STATUS_NOT_FOUND)
        SKIP("no cuDNN or cublasLt on this machine");
    if (status == STATUS_OK) {
        cuda_plans.close(&set);
        return;
    }
    CHECK_EQ(status, STATUS_UNSUPPORTED);
    CHECK(set == NULL);
    CHECK(strstr(err.text, "CUDA device 0: ") != NULL);
}

TEST(missing_library_is_named)
{
    struct plan_options options = {.cache_folder = "", .cudnn_name = "libcudnn-nowhere.so.9"};
    struct plan_set *set = NULL;
    struct err err = {.status = STATUS_OK};

    CHECK_EQ(cuda_plans.open(&set, &options, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "libcudnn-nowhere.so.9") != NULL && set == NULL);
    options.cudnn_name = NULL;
    options.cublaslt_name = "libcublasLt-nowhere.so";
    CHECK_EQ(cuda_plans.open(&set, &options, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "is missing") != NULL && set == NULL);
}

TEST(bad_description_is_refused)
{
    struct plan_options options = {.cache_folder = ""};
    struct plan_set *set = NULL;
    struct err err = {.status = STATUS_OK};
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%.480s/empty.json", test_dir());
    options.device_file = path;
    CHECK(cuda_plans.open(&set, &options, &err) != STATUS_OK);
    if (err.status == STATUS_NOT_FOUND && strstr(err.text, "missing") != NULL)
        SKIP("no cuDNN or cublasLt on this machine");
    CHECK_EQ(err.status, STATUS_NOT_FOUND);
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("{}", file) >= 0);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(cuda_plans.open(&set, &options, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "maxGridSize") != NULL); /* cuDNN says what is missing */
    CHECK(set == NULL);
}

TEST_MAIN
