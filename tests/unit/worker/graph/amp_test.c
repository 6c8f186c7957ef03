/* Opt levels as Apex resolves and prints them, and what the pass makes of a graph. */
#include "worker/graph/amp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/model/model.h"
#include "worker/graph/pass.h"

static struct amp resolve(const struct amp_request *request)
{
    struct amp amp;
    struct err err;

    if (amp_resolve(&amp, request, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return amp;
}

TEST(refusals_have_apex_words)
{
    static const struct {
        struct amp_request request;
        const char *text;
    } cases[] = {
        {{.level = "02"},
         "Unexpected optimization level 02. Options are 'O0', 'O1', 'O2', 'O3'.  Note that in "
         "`O0`, `O1`, etc., the prefix O is the letter O, not the number zero."},
        {{.level = "O1", .keep_batchnorm_fp32 = "False"},
         "With opt_level O1, batchnorm functions are automatically patched to run in FP32, so "
         "keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was False"},
        {{.level = "O2", .keep_batchnorm_fp32 = "yes"},
         "keep_batchnorm_fp32 must be a boolean, the string 'True' or 'False', or None, found "
         "keep_batchnorm_fp32=yes"},
        {{.level = "O2", .loss_scale = "-1"},
         "--loss-scale -1: expected dynamic or a number above 0"},
        {{.level = "O2", .loss_scale = "nan"},
         "--loss-scale nan: expected dynamic or a number above 0"},
        {{.level = "O2", .min_scale = 1e9F, .max_scale = 1e10F},
         "--min-loss-scale 1e+09 is above the scale to begin with, 65536"},
    };
    struct amp amp;
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(amp_resolve(&amp, &cases[i].request, &err), STATUS_BAD_INPUT);
        CHECK_STR(err.text, cases[i].text);
    }
}

TEST(defaults_and_overrides)
{
    struct amp amp = resolve(&(struct amp_request){.level = "O2"});

    CHECK(amp.scaler.is_dynamic && amp.scaler.init == 65536.0F && amp.scaler.max == 0x1p24F);
    CHECK(amp.half == GRAPH_F16 && amp.norm_is_fp32 && amp.has_masters);
    amp = resolve(&(struct amp_request){.level = "O3"});
    CHECK(!amp.scaler.is_dynamic && amp.scaler.init == 1.0F && !amp.norm_is_fp32);
    amp = resolve(&(struct amp_request){.level = "O2", .half_type = "bf16"});
    CHECK(!amp.scaler.is_dynamic && amp.half == GRAPH_BF16);
    amp = resolve(&(struct amp_request){.level = "O3", .keep_batchnorm_fp32 = "True"});
    CHECK(amp.norm_is_fp32);
    amp = resolve(&(struct amp_request){.level = "O1", .loss_scale = "128"});
    CHECK(!amp.scaler.is_dynamic && amp.scaler.init == 128.0F);
    amp = resolve(&(struct amp_request){.level = "O1", .max_scale = 1024.0F});
    CHECK(amp.scaler.init == 1024.0F);
}

TEST(banner_is_apex_s)
{
    const struct amp_request request = {
        .level = "O2", .keep_batchnorm_fp32 = "False", .loss_scale = "128"};
    const struct amp amp = resolve(&request);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    CHECK(out != NULL);
    amp_print_banner(&request, &amp, out);
    CHECK_EQ(fclose(out), 0);
    CHECK_STR(text, "Selected optimization level O2:  FP16 training with FP32 batchnorm and FP32 "
                    "master weights.\n\n"
                    "Defaults for this optimization level are:\n"
                    "enabled                : True\n"
                    "opt_level              : O2\n"
                    "cast_model_type        : torch.float16\n"
                    "patch_torch_functions  : False\n"
                    "keep_batchnorm_fp32    : True\n"
                    "master_weights         : True\n"
                    "loss_scale             : dynamic\n"
                    "Processing user overrides (additional kwargs that are not None)...\n"
                    "After processing overrides, optimization options are:\n"
                    "enabled                : True\n"
                    "opt_level              : O2\n"
                    "cast_model_type        : torch.float16\n"
                    "patch_torch_functions  : False\n"
                    "keep_batchnorm_fp32    : False\n"
                    "master_weights         : True\n"
                    "loss_scale             : 128.0\n");
    free(text);
}

/* -- the pass -- */

/* One letter a layer: its operation and type, "c16" is a conv2d in fp16. */
static void describe_layers(const struct graph *graph, char *text, size_t byte_limit)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        size_t at = strlen(text);

        (void)snprintf(text + at, byte_limit - at, "%s%s:%s", i == 0 ? "" : " ",
                       graph->layers[i].name, graph_dtype_name(graph->layers[i].out.dtype));
    }
}

/* "weight bias" of a layer: what it computes with, m for a master, and the gradient's type. */
static void describe_tensor(const struct graph *graph, const char *name, char text[32])
{
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &graph->tensors[i];

        if (strcmp(tensor->name, name) != 0)
            continue;
        (void)snprintf(text, 32, "%s%s %s", graph_dtype_name(tensor->dtype),
                       tensor->has_master ? "+master" : "", graph_dtype_name(tensor->grad_dtype));
        return;
    }
    FAIL("no tensor %s", name);
}

static struct graph *typed(const struct amp_request *request)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct amp amp = resolve(request);
    struct graph *graph = NULL, *out = NULL;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(pass_amp(graph, &amp, &out, NULL), STATUS_OK);
    graph_free(&graph);
    return out;
}

#define HALF_LAYERS                                                                                \
    "input:fp32 input.fp16:fp16 layer1.0:fp16 layer1.1:fp16 layer1.2:fp16 layer1.3:fp16 "          \
    "layer2.0:fp16 layer2.1:fp16 layer2.2:fp16 layer2.3:fp16 flatten:fp16 fc:fp16 fc.fp32:fp32 "   \
    "loss:fp32"

TEST(types_of_every_level)
{
    static const struct {
        struct amp_request request;
        const char *layers, *weight, *norm, *statistics;
    } cases[] = {
        {{.level = "O0"},
         "input:fp32 layer1.0:fp32 layer1.1:fp32 layer1.2:fp32 layer1.3:fp32 layer2.0:fp32 "
         "layer2.1:fp32 layer2.2:fp32 layer2.3:fp32 flatten:fp32 fc:fp32 loss:fp32",
         "fp32 fp32",
         "fp32 fp32",
         "fp32 fp32"},
        {{.level = "O1"}, HALF_LAYERS, "fp16+master fp32", "fp32 fp32", "fp32 fp32"},
        {{.level = "O2"}, HALF_LAYERS, "fp16+master fp16", "fp32 fp32", "fp32 fp32"},
        {{.level = "O2", .keep_batchnorm_fp32 = "False"},
         HALF_LAYERS,
         "fp16+master fp16",
         "fp16+master fp16",
         "fp16 fp16"},
        {{.level = "O3"}, HALF_LAYERS, "fp16 fp16", "fp16 fp16", "fp16 fp16"},
        {{.level = "O3", .keep_batchnorm_fp32 = "True"},
         HALF_LAYERS,
         "fp16 fp16",
         "fp32 fp32",
         "fp32 fp32"},
    };
    char text[1024], tensor[32];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph *graph = typed(&cases[i].request);

        describe_layers(graph, text, sizeof text);
        CHECK_STR(text, cases[i].layers);
        describe_tensor(graph, "layer2.0.weight", tensor);
        CHECK_STR(tensor, cases[i].weight);
        describe_tensor(graph, "fc.bias", tensor);
        CHECK_STR(tensor, cases[i].weight);
        describe_tensor(graph, "layer1.1.weight", tensor);
        CHECK_STR(tensor, cases[i].norm);
        describe_tensor(graph, "layer1.1.running_var", tensor);
        CHECK_STR(tensor, cases[i].statistics);
        graph_free(&graph);
    }
}

/* A value that a convolution and an add read: one cast for both convolutions, fp32 for the add
 * under O1, since its other input is fp32. */
TEST(a_value_is_cast_once_and_add_takes_the_widest)
{
    const struct graph_window same = {.kernel = 1, .stride = 1, .pad = 0};
    const struct amp amp = resolve(&(struct amp_request){.level = "O1"});
    struct graph *graph = graph_new(), *out = NULL;
    char text[512];
    uint32_t x = graph_input(graph, 4, 8, 8), a, b;

    a = graph_conv2d(graph, "a", x, 4, same, false);
    b = graph_conv2d(graph, "b", x, 4, same, false);
    a = graph_add(graph, "low", a, b);
    a = graph_add(graph, "wide", a, x);
    a = graph_flatten(graph, "flat", a);
    (void)graph_cross_entropy(graph, "loss", graph_linear(graph, "fc", a, 3, true));
    CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
    CHECK_EQ(pass_amp(graph, &amp, &out, NULL), STATUS_OK);
    describe_layers(out, text, sizeof text);
    CHECK_STR(text, "input:fp32 input.fp16:fp16 a:fp16 b:fp16 low:fp16 low.fp32:fp32 wide:fp32 "
                    "flat:fp32 flat.fp16:fp16 fc:fp16 fc.fp32:fp32 loss:fp32");
    graph_free(&graph);
    graph_free(&out);
}

TEST(buckets_hold_one_type_each)
{
    struct graph *graph = typed(&(struct amp_request){.level = "O2"}), *out = NULL;
    uint32_t seen = 0, times[32] = {0};

    CHECK_EQ(pass_buckets(graph, 64, 512, &out, NULL), STATUS_OK);
    for (uint32_t b = 0; b < out->bucket_count; b++) {
        const struct graph_bucket *bucket = &out->buckets[b];

        CHECK_EQ(bucket->order_first, seen);
        seen += bucket->order_count;
        for (uint32_t i = bucket->order_first; i < seen; i++)
            CHECK_EQ(out->tensors[out->grad_order[i]].grad_dtype, bucket->dtype);
        for (uint32_t i = bucket->order_first; i < seen; i++)
            times[out->grad_order[i]]++;
    }
    CHECK_EQ(seen, 10);
    CHECK(out->bucket_count > 2 && out->tensor_count <= 32);
    for (uint32_t i = 0; i < out->tensor_count; i++)
        CHECK_EQ(times[i], out->tensors[i].trainable);
    graph_free(&graph);
    graph_free(&out);
}

TEST_MAIN
