/* What a layer costs against known figures, the table of devices, and a profile of a real net: it
 * names every layer, its parts add up to the step, and it counts nothing while it is off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "tests/lib/test.h"
#include "worker/profile/cost.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/graph/pass.h"
#include "worker/profile/profile.h"
#include "worker/data/rng.h"
#include "worker/net/profile.h"

enum { BATCH = 32, PIXELS = 28, CLASSES = 10, STEPS = 8, ROUNDS = 5, TEXT_MAX = 1 << 20 };

static const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* -- costs -- */

static struct graph *resnet50(const char *level)
{
    const struct model_shape shape = {3, 224, 224, 1000};
    const struct amp_request request = {.level = level};
    struct graph *graph = NULL, *typed = NULL;
    struct err err = {.text = ""};
    struct amp amp;

    CHECK_EQ(model_build(&graph, "resnet50", &shape, &err), STATUS_OK);
    CHECK_EQ(amp_resolve(&amp, &request, &err), STATUS_OK);
    CHECK_EQ(pass_amp(graph, &amp, &typed, &err), STATUS_OK);
    graph_free(&graph);
    return typed;
}

static struct cost_layer sum_of(const struct graph *graph, const struct cost_layer *costs,
                                enum graph_op op)
{
    struct cost_layer sum = {{0.0, 0.0}, {0.0, 0.0}};

    for (uint32_t i = 0; i < graph->layer_count; i++) {
        if (graph->layers[i].op != op)
            continue;
        sum.forward.flop += costs[i].forward.flop;
        sum.forward.bytes += costs[i].forward.bytes;
        sum.backward.flop += costs[i].backward.flop;
        sum.backward.bytes += costs[i].backward.bytes;
    }
    return sum;
}

static bool is_near(double value, double wanted, double tolerance)
{
    const double off = value > wanted ? value - wanted : wanted - value;

    if (!(off <= tolerance * wanted)) {
        (void)printf("%.6g, not within %.2g of %.6g\n", value, tolerance, wanted);
        return false;
    }
    return true;
}

/* 4.089 billion multiplications with addition in forward; 24.3 GFLOP in a step without the data
 * gradient of the first layer; 129 MB that fp16 convolutions move for an image; 25.557 M
 * parameters. */
TEST(resnet50_costs_what_is_known)
{
    struct graph *graph = resnet50("O2");
    struct cost_layer *costs = calloc(graph->layer_count, sizeof *costs);
    const uint32_t images = 256;
    struct cost_layer conv, linear;
    double flop;

    CHECK(costs != NULL);
    cost_of_layers(graph, images, true, costs);
    conv = sum_of(graph, costs, GRAPH_CONV2D);
    linear = sum_of(graph, costs, GRAPH_LINEAR);
    CHECK(is_near((conv.forward.flop + linear.forward.flop) / images, 2.0 * 4.089e9, 1e-3));
    flop = conv.forward.flop + conv.backward.flop + linear.forward.flop + linear.backward.flop;
    CHECK(is_near(flop / images, 24.3e9, 2e-3));
    CHECK(is_near((conv.forward.bytes + conv.backward.bytes) / images, 129e6, 2e-2));
    /* master, momentum: read and written; gradient and copy in fp16, but for norms */
    CHECK(is_near(cost_of_update(graph, &sgd, true), 25.557e6 * (16.0 + 2.0 + 2.0), 1e-2));
    cost_of_layers(graph, images, false, costs);
    CHECK(sum_of(graph, costs, GRAPH_CONV2D).forward.bytes > 1.9 * conv.forward.bytes);
    free(costs);
    graph_free(&graph);
}

TEST(devices_are_told_apart)
{
    const double h200 = roof_of("NVIDIA H200, device 0")->memory_gb_s;

    CHECK(is_near(h200, 4800.0, 1e-9));
    CHECK(is_near(roof_of("NVIDIA H100 80GB HBM3")->memory_gb_s, 3350.0, 1e-9));
    CHECK(is_near(roof_of("NVIDIA H100 PCIe")->half_tflops, 756.0, 1e-9));
    CHECK(is_near(roof_of("NVIDIA GH200 480GB")->memory_gb_s, 4000.0, 1e-9));
    CHECK(is_near(roof_of("NVIDIA A100-SXM4-80GB")->memory_gb_s, 2039.0, 1e-9));
    CHECK(roof_of("stand-in GPU") == NULL);
    CHECK(roof_of("CPU") == NULL);
}

TEST(a_roof_is_the_slower_of_both)
{
    const struct roof *h200 = roof_of("NVIDIA H200");

    CHECK(is_near(roof_seconds(h200, GRAPH_F16, false, 989.5e12, 1.0), 1.0, 1e-6));
    CHECK(is_near(roof_seconds(h200, GRAPH_F32, false, 66.9e12, 1.0), 1.0, 1e-6));
    CHECK(is_near(roof_seconds(h200, GRAPH_F32, true, 494.7e12, 1.0), 1.0, 1e-6));
    CHECK(is_near(roof_seconds(h200, GRAPH_F16, false, 989.5e12, 9600e9), 2.0, 1e-6));
}

/* -- a net -- */

static float images[BATCH * PIXELS * PIXELS];
static int64_t labels[BATCH];

static struct net *make_net(void)
{
    const struct model_shape shape = {1, PIXELS, PIXELS, CLASSES};
    const struct net_options options = {.batch_max = BATCH, .profile = true, .optim = &sgd};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct err err = {.text = ""};
    struct rng rng;

    rng_seed(&rng, 1);
    rng_uniform_f32(&rng, 0.0F, 1.0F, images, BATCH * PIXELS * PIXELS);
    for (uint32_t i = 0; i < BATCH; i++)
        labels[i] = i % CLASSES;
    CHECK_EQ(model_build(&graph, "convnet", &shape, &err), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, &err), STATUS_OK);
    CHECK_EQ(init_torch_default(net, graph, &rng, &err), STATUS_OK);
    graph_free(&graph);
    return net;
}

/* Milliseconds a step. */
static double run_steps(struct net *net)
{
    const double begun = now_ms();

    for (uint32_t i = 0; i < STEPS; i++) {
        struct err err = {.text = ""};
        struct net_result result;

        CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, &err), STATUS_OK);
        CHECK_EQ(net_backward(net, 1.0F, &err), STATUS_OK);
        net_update(net, &sgd);
    }
    return (now_ms() - begun) / (double)STEPS;
}

static uint64_t count_calls(const struct net *net)
{
    struct net_profile entry;
    uint64_t calls = 0;

    for (uint32_t i = 0; net_profile(net, i, &entry); i++)
        calls += entry.calls;
    return calls;
}

static struct profile_facts facts_of(double step_ms)
{
    return (struct profile_facts){.device = "CPU",
                                  .model = "conv\"net",
                                  .type = "O0",
                                  .half = "fp16",
                                  .world = 1,
                                  .steps = STEPS,
                                  .images = BATCH,
                                  .step_ms = step_ms,
                                  .profiled_step_ms = step_ms,
                                  .wait_ms = 0.25,
                                  .optim = &sgd,
                                  .stages = {{"net", 1.5}},
                                  .stage_count = 1};
}

/* A net that was measured with its profile. Of several it is the fastest: where the machine stood
 * still within a step, a part would have more than its share. */
static struct net *measure_at_rest(double *step_ms)
{
    struct net *best = NULL;

    for (int round = 0; round < ROUNDS; round++) {
        struct net *net = make_net();
        double ms;

        net_profile_set(net, false);
        (void)run_steps(net);
        CHECK_EQ(count_calls(net), 0);
        net_profile_set(net, true);
        ms = run_steps(net);
        net_profile_set(net, false);
        if (best != NULL && ms >= *step_ms) {
            net_free(&net);
            continue;
        }
        if (best != NULL)
            net_free(&best);
        best = net;
        *step_ms = ms;
    }
    return best;
}

TEST(parts_add_up_to_the_step)
{
    struct profile *profile = NULL;
    struct err err = {.text = ""};
    struct profile_facts facts;
    struct net *net;
    double step_ms = 0.0;

    net = measure_at_rest(&step_ms);
    facts = facts_of(step_ms + 0.25);
    CHECK_EQ(profile_new(&profile, net, &facts, &err), STATUS_OK);
    (void)printf("a step %.3f ms, its parts %.3f ms\n", facts.step_ms, profile->sum_ms);
    CHECK(profile->sum_ms > 0.8 * facts.step_ms && profile->sum_ms < 1.001 * facts.step_ms);
    CHECK(is_near(profile->sum_ms + profile->rest_ms, facts.step_ms, 1e-3));
    CHECK(profile->group_ms[PROFILE_CONVOLUTION] > 0.2 * step_ms);
    CHECK(profile->group_ms[PROFILE_BATCH_NORM] > 0.0);
    CHECK(profile->group_ms[PROFILE_OPTIMIZER] > 0.0);
    CHECK(is_near(profile->group_ms[PROFILE_DATA_WAIT], 0.25, 1e-9));
    for (uint32_t i = 0; i < net_graph(net)->layer_count; i++)
        CHECK_STR(profile->lines[i].name, net_graph(net)->layers[i].name);
    profile_free(&profile);
    net_free(&net);
}

/* -- what is written -- */

static char text[TEXT_MAX];

static size_t read_back(FILE *file)
{
    size_t n;

    CHECK_EQ(fseek(file, 0, SEEK_SET), 0);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    return n;
}

TEST(tables_and_json_are_complete)
{
    char path[] = "/tmp/ddp-profile-XXXXXX";
    const int fd = mkstemp(path);
    struct net *net = make_net();
    FILE *table = tmpfile(), *file;
    struct profile_facts facts;
    struct profile *profile = NULL;
    struct err err = {.text = ""};
    cJSON *json = NULL;
    size_t bytes;

    CHECK(fd >= 0 && table != NULL);
    facts = facts_of(run_steps(net));
    facts.roof = roof_of("NVIDIA H200");
    CHECK_EQ(profile_new(&profile, net, &facts, &err), STATUS_OK);
    profile_print(table, profile);
    (void)read_back(table);
    for (uint32_t i = 0; i < net_graph(net)->layer_count; i++)
        CHECK(strstr(text, net_graph(net)->layers[i].name) != NULL);
    CHECK(strstr(text, "\nconvolution ") != NULL && strstr(text, "\nrest of the step") != NULL);
    CHECK(strstr(text, "roof of H200: 990 TFLOP/s at 16 bits") != NULL);
    CHECK_EQ(profile_write(path, profile, &err), STATUS_OK);
    file = fdopen(fd, "r");
    CHECK(file != NULL);
    bytes = read_back(file);
    CHECK_EQ(json_strict_parse(text, bytes, NULL, &json, &err), STATUS_OK);
    CHECK_EQ(cJSON_GetArraySize(json_member(json, "layers")), profile->line_count);
    CHECK_STR(json_member(json, "model")->valuestring, "conv\"net");
    CHECK(is_near(json_member(json, "sum_ms")->valuedouble, profile->sum_ms, 1e-3));
    cJSON_Delete(json);
    CHECK_EQ(profile_write("/nonexistent/profile.json", profile, &err), STATUS_IO);
    CHECK(strstr(err.text, "/nonexistent/profile.json") != NULL);
    profile_free(&profile);
    net_free(&net);
    (void)fclose(table);
    (void)fclose(file);
    (void)unlink(path);
}

TEST_MAIN
