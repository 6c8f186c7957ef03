/* The reader of model files: every error with its line and layer, and graphs equal to built-in
 * ones. */
#include "worker/model/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/graph/hash.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

static const struct model_shape digits = {1, 28, 28, 10};

/* Reads and builds; "" is success, as `model@hash` is in the graph's place. */
static enum status try(const char *text, const struct model_shape *data, struct err *err)
{
    struct model_file *file = NULL;
    struct graph *graph = NULL;
    enum status status = model_file_parse(&file, "net.json", text, strlen(text), err);

    CHECK((status == STATUS_OK) == (file != NULL));
    if (status == STATUS_OK) {
        const struct model_shape shape = model_file_shape(file, data);

        status = model_file_build(&graph, file, &shape, err);
        CHECK((status == STATUS_OK) == (graph != NULL));
    }
    graph_free(&graph);
    model_file_free(&file);
    return status;
}

static void expect(const char *text, const char *error)
{
    struct err err = {.text = ""};

    if (try(text, &digits, &err) == STATUS_OK)
        FAIL("was taken: %s", text);
    CHECK_STR(err.text, error);
}

/* One layer among sound ones: in line 3, between a flatten and the last linear layer. */
static void expect_layer(const char *layer, const char *error)
{
    char text[1024], whole[320];

    (void)snprintf(text, sizeof text,
                   "{\"layers\": [\n{\"op\": \"conv2d\", \"name\": \"first\", "
                   "\"out_channels\": 1, \"kernel\": 3, \"padding\": 1},\n%s,\n"
                   "{\"op\": \"flatten\", \"name\": \"flat\"},\n"
                   "{\"op\": \"linear\", \"name\": \"fc\", \"out_features\": \"classes\"}]}",
                   layer);
    (void)snprintf(whole, sizeof whole, "net.json, line 3, layer %s", error);
    expect(text, whole);
}

TEST(the_text_must_be_json)
{
    expect("", "net.json, line 1: JSON at byte 0: the text ends where a value was expected");
    expect("{\n\"layers\": [\n{\"op\": relu}\n]}",
           "net.json, line 3: JSON at byte 21: a value was expected");
    expect("{\"layers\": [\n]}\n\n}",
           "net.json, line 4: JSON at byte 17: more text after the value");
    expect("[[[[[[[[[1]]]]]]]]]", "net.json, line 1: JSON at byte 8: nested deeper than 8");
    expect("\n[]", "net.json, line 2: a model is an object: {\"layers\": [...]}");
}

TEST(fields_of_the_file)
{
    expect("{}", "net.json, line 1: \"layers\" is missing: the list of layers");
    expect("{\"name\":\n\"x\",\n\"layer\": []}",
           "net.json, line 3: no such field: \"layer\"; there are: name, channels, classes, init "
           "and layers");
    expect("{\"classes\": 1,\n\"classes\": 1}", "net.json, line 2: \"classes\" is there twice");
    expect("{\"layers\": {}}", "net.json, line 1: \"layers\" must be a list of at least one layer");
    expect("{\"layers\": []}", "net.json, line 1: \"layers\" must be a list of at least one layer");
    expect("{\n\"channels\": 0}",
           "net.json, line 2: \"channels\" must be a whole number from 1 to 4");
    expect("{\n\"channels\": 5}",
           "net.json, line 2: \"channels\" must be a whole number from 1 to 4");
    expect("{\"classes\": 2.5}",
           "net.json, line 1: \"classes\" must be a whole number from 1 to 65536");
    expect("{\"init\": \"he\"}", "net.json, line 1: \"init\" must be \"torch\" or \"torchvision\"");
    expect("{\"name\": \"a b\"}", "net.json, line 1: \"name\" must be a text of 1 to 40 letters, "
                                  "digits, \"_\", \"-\" and \".\"");
}

TEST(a_layer_and_its_op)
{
    expect_layer("7", "2: a layer is an object: {\"op\": ..., \"name\": ...}");
    expect_layer("{\"name\": \"x\"}", "x: \"op\" is missing");
    expect_layer("{\"op\": \"relu\"}", "2: \"name\" is missing");
    expect_layer("{\"op\": \"dropout\", \"name\": \"x\"}",
                 "x: no such op: \"dropout\"; there are: conv2d, batch_norm, relu, max_pool, "
                 "avg_pool, flatten, linear, add and cross_entropy");
    expect_layer("{\"op\": \"cast\", \"name\": \"x\"}",
                 "x: no such op: \"cast\"; there are: conv2d, batch_norm, relu, max_pool, "
                 "avg_pool, flatten, linear, add and cross_entropy");
    expect_layer("{\"op\": \"cross_entropy\", \"name\": \"x\"}",
                 "x: the loss must be the last layer");
}

TEST(names)
{
    expect_layer("{\"op\": \"relu\", \"name\": \"first\"}",
                 "first: the name is used twice, first in line 2");
    expect_layer("{\"op\": \"relu\", \"name\": \"a..b\"}",
                 "a..b: \"name\" must be 1 to 63 letters, digits, \"_\", \"-\" and single dots "
                 "within");
    expect_layer("{\"op\": \"relu\", \"name\": \"a\\nb\"}",
                 "a?b: \"name\" must be 1 to 63 letters, digits, \"_\", \"-\" and single dots "
                 "within");
    expect_layer("{\"op\": \"relu\", \"name\": 5}",
                 "2: \"name\" must be 1 to 63 letters, digits, \"_\", \"-\" and single dots "
                 "within");
    expect_layer("{\"op\": \"relu\", \"name\": \"optimizer.x\"}",
                 "optimizer.x: the name is taken: \"input\" is the images, \"optimizer.\" is for "
                 "checkpoints");
    expect_layer("{\"op\": \"relu\", \"name\": \"loss\"}",
                 "loss: the name \"loss\" is for cross_entropy");
}

TEST(fields_of_a_layer)
{
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"inplace\": true}",
                 "x: relu has no field \"inplace\"; it has: op, name, input");
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"name\": \"x\"}",
                 "x: \"name\" is there twice");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"kernel\": 3}",
                 "x: \"out_channels\" is missing");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"out_channels\": 8}",
                 "x: \"kernel\" is missing");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"kernel\": [3, 3]}",
                 "x: \"kernel\" must be a whole number from 1 to 255");
    expect_layer("{\"op\": \"max_pool\", \"name\": \"x\", \"kernel\": 16}",
                 "x: \"kernel\" must be a whole number from 1 to 15");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"stride\": 0}",
                 "x: \"stride\" must be a whole number from 1 to 255");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"padding\": -1}",
                 "x: \"padding\" must be a whole number from 0 to 255");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"bias\": 1}",
                 "x: \"bias\" must be true or false");
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"out_channels\": \"class\"}",
                 "x: \"out_channels\" must be a whole number from 1 to 65536 or \"classes\"");
    expect_layer("{\"op\": \"linear\", \"name\": \"x\", \"out_features\": 1e9}",
                 "x: \"out_features\" must be a whole number from 1 to 65536 or \"classes\"");
    expect_layer("{\"op\": \"batch_norm\", \"name\": \"x\", \"eps\": 0}",
                 "x: \"eps\" must be a number above 0, at most 1");
}

TEST(inputs)
{
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"input\": \"nobody\"}",
                 "x: it reads \"nobody\", and there is no such layer");
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"input\": \"flat\"}",
                 "x: it reads \"flat\", which comes later, in line 4");
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"input\": \"x\"}",
                 "x: it cannot read itself");
    expect_layer("{\"op\": \"relu\", \"name\": \"x\", \"input\": 1}",
                 "x: an input must be the name of a layer above, or \"input\"");
    expect_layer("{\"op\": \"add\", \"name\": \"x\"}", "x: \"inputs\" is missing");
    expect_layer("{\"op\": \"add\", \"name\": \"x\", \"inputs\": [\"first\"]}",
                 "x: \"inputs\" must be two names: [\"a\", \"b\"]");
    expect_layer("{\"op\": \"add\", \"name\": \"x\", \"inputs\": [\"first\", \"first\"]}",
                 "x: its two inputs are the same");
    expect_layer("{\"op\": \"add\", \"name\": \"x\", \"input\": \"first\"}",
                 "x: add has no field \"input\"; it has: op, name, inputs");
}

TEST(shapes)
{
    expect_layer("{\"op\": \"conv2d\", \"name\": \"x\", \"kernel\": 29, \"out_channels\": 1}",
                 "x: a kernel of 29 does not fit into 28x28 with padding 0");
    expect_layer("{\"op\": \"linear\", \"name\": \"x\", \"out_features\": 1}",
                 "x: linear reads [features]; put a flatten before it");
    expect_layer("{\"op\": \"relu\", \"name\": \"x\"},\n"
                 "{\"op\": \"relu\", \"name\": \"y\", \"input\": \"first\"}",
                 "x: no other layer reads it");
    expect_layer("{\"op\": \"max_pool\", \"name\": \"p\", \"kernel\": 2}, "
                 "{\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"p\", \"first\"]}",
                 "sum: adds p and first, whose shapes differ");
    expect("{\"layers\": [{\"op\": \"flatten\", \"name\": \"f\"},\n"
           "{\"op\": \"linear\", \"name\": \"fc\", \"out_features\": 9}]}",
           "net.json, line 2, layer fc: the loss gets 9 scores from fc, for 10 classes; "
           "\"out_features\": \"classes\" is always as many as there are");
    expect("{\"classes\": 12, \"layers\": [{\"op\": \"flatten\", \"name\": \"f\"},\n"
           "{\"op\": \"linear\", \"name\": \"fc\", \"out_features\": 10}]}",
           "net.json, line 2, layer fc: the loss gets 10 scores from fc, for 12 classes; "
           "\"out_features\": \"classes\" is always as many as there are");
}

/* One rule for all backends: the CPU and CUDA each take some of these, and not the same. */
TEST(what_a_layer_may_read)
{
    static const char *const ops[] = {"relu", "batch_norm", "avg_pool"};
    char text[256], error[256];

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        (void)snprintf(text, sizeof text, "{\"op\": \"%s\", \"name\": \"x\", \"input\": \"input\"}",
                       ops[i]);
        (void)snprintf(error, sizeof error,
                       "x: %s cannot read the images: conv2d and flatten can; put one of them "
                       "first",
                       ops[i]);
        expect_layer(text, error);
    }
    expect_layer("{\"op\": \"add\", \"name\": \"x\", \"inputs\": [\"first\", \"input\"]}",
                 "x: add cannot read the images: conv2d and flatten can; put one of them first");
    expect_layer("{\"op\": \"flatten\", \"name\": \"f\"}, {\"op\": \"relu\", \"name\": \"r\"}, "
                 "{\"op\": \"batch_norm\", \"name\": \"x\"}",
                 "x: batch_norm cannot read a flattened image: put it before the flatten, or after "
                 "a linear layer");
    expect_layer("{\"op\": \"flatten\", \"name\": \"f\"}, "
                 "{\"op\": \"linear\", \"name\": \"l\", \"out_features\": 784}, "
                 "{\"op\": \"add\", \"name\": \"x\", \"inputs\": [\"l\", \"f\"]}",
                 "x: add cannot read a flattened image beside what a linear layer makes");
}

/* avg_pool and flatten make no scores. */
TEST(scores_come_from_a_linear_layer)
{
    static const char *const ends[] = {"{\"op\": \"avg_pool\", \"name\": \"x\"}",
                                       ("{\"op\": \"avg_pool\", \"name\": \"p\"}, "
                                        "{\"op\": \"flatten\", \"name\": \"x\"}"),
                                       ("{\"op\": \"flatten\", \"name\": \"f\"}, "
                                        "{\"op\": \"relu\", \"name\": \"x\"}"),
                                       ("{\"op\": \"flatten\", \"name\": \"f\"}, "
                                        "{\"op\": \"cross_entropy\", \"name\": \"x\"}")};
    char text[512];

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"layers\": [{\"op\": \"conv2d\", \"name\": \"c\", \"kernel\": 3, "
                       "\"out_channels\": \"classes\"},\n%s]}",
                       ends[i]);
        expect(text, "net.json, line 2, layer x: the class scores come from a linear layer: put "
                     "{\"op\": \"linear\", \"name\": ..., \"out_features\": \"classes\"} at the "
                     "end, after a flatten");
    }
}

TEST(sizes)
{
    char *text = malloc(MODEL_FILE_BYTES_MAX + 2);
    struct err err = {.text = ""};
    size_t used;

    CHECK(text != NULL);
    memset(text, ' ', MODEL_FILE_BYTES_MAX + 1);
    text[MODEL_FILE_BYTES_MAX + 1] = '\0';
    CHECK_EQ(try(text, &digits, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "net.json: more than 1048576 bytes");
    used = (size_t)sprintf(text, "{\"layers\":[");
    for (int i = 0; i < 1023; i++)
        used += (size_t)sprintf(text + used, "%s{\"op\":\"relu\",\"name\":\"r%d\"}",
                                i == 0 ? "" : ",", i);
    (void)sprintf(text + used, "]}");
    CHECK_EQ(try(text, &digits, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "net.json, line 1: 1023 layers, at most 1022");
    free(text);
    expect("{\"layers\": [{\"op\": \"flatten\", \"name\": \"f\"},\n"
           "{\"op\": \"linear\", \"name\": \"a\", \"out_features\": 65536},\n"
           "{\"op\": \"linear\", \"name\": \"b\", \"out_features\": 65536}]}",
           "net.json, line 3, layer b: with it the model has 4346478592 weights, at most "
           "1073741824");
    expect("{\"layers\": [{\"op\": \"conv2d\", \"name\": \"a\", \"kernel\": 1, \"padding\": 255,\n"
           "\"out_channels\": 65536}]}",
           "net.json, line 1, layer a: more than 268435456 values for one image");
}

/* -- what is taken -- */

static struct graph *read_source(const char *name, struct model_file **file,
                                 const struct model_shape *data)
{
    char text[16384];
    struct err err = {.text = ""};
    struct model_shape shape;
    struct graph *graph = NULL;
    FILE *in = fopen(test_source(name), "re");
    size_t count;

    CHECK(in != NULL);
    count = fread(text, 1, sizeof text, in);
    (void)fclose(in);
    if (model_file_parse(file, name, text, count, &err) != STATUS_OK)
        FAIL("%s", err.text);
    shape = model_file_shape(*file, data);
    if (model_file_build(&graph, *file, &shape, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return graph;
}

TEST(a_file_can_be_the_convnet)
{
    struct model_file *file = NULL;
    struct graph *graph = read_source("docs/examples/convnet.json", &file, &digits), *built = NULL;
    uint8_t hash[32], built_hash[32];
    char identity[64];

    CHECK_EQ(model_build(&built, "convnet", &digits, NULL), STATUS_OK);
    graph_hash(graph, hash);
    graph_hash(built, built_hash);
    CHECK_BYTES(hash, built_hash, sizeof hash);
    model_file_identity(file, graph, identity);
    CHECK_EQ(strlen(identity), strlen("convnet@") + 16);
    CHECK_EQ(strncmp(identity, "convnet@", 8), 0);
    graph_free(&built);
    graph_free(&graph);
    model_file_free(&file);
}

/* A built graph written as a file. */
static size_t write_layer(const struct graph *graph, uint32_t i, char *text, size_t room)
{
    const struct graph_layer *layer = &graph->layers[i];
    const char *op = graph_op_name(layer->op), *first = graph->layers[layer->inputs[0]].name;
    const uint32_t *dims = layer->out.dims;
    size_t used = (size_t)snprintf(text, room, "%s{\"op\": \"%s\", \"name\": \"%s\"",
                                   i == 1 ? "" : ",\n", op, layer->name);

    if (layer->op == GRAPH_ADD)
        used += (size_t)snprintf(text + used, room - used, ", \"inputs\": [\"%s\", \"%s\"]", first,
                                 graph->layers[layer->inputs[1]].name);
    else
        used += (size_t)snprintf(text + used, room - used, ", \"input\": \"%s\"", first);
    if (layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR)
        used += (size_t)snprintf(text + used, room - used, ", \"%s\": %u, \"bias\": %s",
                                 layer->op == GRAPH_LINEAR ? "out_features" : "out_channels",
                                 dims[0], layer->has_bias ? "true" : "false");
    if (layer->window.kernel > 0)
        used += (size_t)snprintf(text + used, room - used,
                                 ", \"kernel\": %u, \"stride\": %u, \"padding\": %u",
                                 layer->window.kernel, layer->window.stride, layer->window.pad);
    return used + (size_t)snprintf(text + used, room - used, "}");
}

TEST(every_built_in_model_can_be_a_file)
{
    static const char *const archs[] = {"toynet", "resnet18", "resnet50", "resnet152"};
    static const struct model_shape shape = {3, 64, 64, 10};
    enum { ROOM = 1 << 17 };
    char *text = malloc(ROOM);

    CHECK(text != NULL);
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        struct graph *built = NULL, *graph = NULL;
        struct model_file *file = NULL;
        struct err err = {.text = ""};
        uint8_t hash[32], built_hash[32];
        size_t used = (size_t)snprintf(text, ROOM, "{\"layers\": [");

        CHECK_EQ(model_build(&built, archs[a], &shape, NULL), STATUS_OK);
        for (uint32_t i = 1; i < built->layer_count; i++)
            used += write_layer(built, i, text + used, ROOM - used);
        used += (size_t)snprintf(text + used, ROOM - used, "]}");
        if (model_file_parse(&file, "x.json", text, used, &err) != STATUS_OK ||
            model_file_build(&graph, file, &shape, &err) != STATUS_OK)
            FAIL("%s: %s", archs[a], err.text);
        graph_hash(graph, hash);
        graph_hash(built, built_hash);
        CHECK_BYTES(hash, built_hash, sizeof hash);
        CHECK_EQ(graph->tensor_count, built->tensor_count);
        graph_free(&graph);
        graph_free(&built);
        model_file_free(&file);
    }
    free(text);
}

TEST(the_example_follows_its_data)
{
    const struct model_shape letters = {1, 32, 32, 26};
    struct model_file *file = NULL;
    struct graph *graph = read_source("docs/examples/small-resnet.json", &file, &letters);
    const struct graph_layer *loss = &graph->layers[graph->layer_count - 1];

    CHECK_EQ(loss->op, GRAPH_CROSS_ENTROPY);
    CHECK_EQ(loss->out.dims[0], 26);
    CHECK(file->init_torchvision);
    CHECK_STR(file->name, "small-resnet");
    graph_free(&graph);
    model_file_free(&file);
}

TEST(every_optional_field)
{
    static const char text[] =
        "{\"channels\": 3, \"classes\": 12, \"layers\": [\n"
        "{\"op\": \"conv2d\", \"name\": \"c\", \"input\": \"input\", \"out_channels\": \"classes\","
        " \"kernel\": 3, \"stride\": 2, \"padding\": 1, \"bias\": false},\n"
        "{\"op\": \"batch_norm\", \"name\": \"b\", \"eps\": 1e-3, \"momentum\": 0.5},\n"
        "{\"op\": \"max_pool\", \"name\": \"m\", \"kernel\": 3},\n"
        "{\"op\": \"avg_pool\", \"name\": \"a\"}, {\"op\": \"flatten\", \"name\": \"f\"},\n"
        "{\"op\": \"linear\", \"name\": \"l\", \"out_features\": \"classes\", \"bias\": false},\n"
        "{\"op\": \"cross_entropy\", \"name\": \"ce\"}]}";
    struct model_file *file = NULL;
    struct graph *graph = NULL;
    struct model_shape shape;

    CHECK_EQ(model_file_parse(&file, "a/b.json", text, sizeof text - 1, NULL), STATUS_OK);
    CHECK_STR(file->name, "b");
    shape = model_file_shape(file, &digits);
    CHECK_EQ(model_file_build(&graph, file, &shape, NULL), STATUS_OK);
    CHECK_EQ(graph->layers[0].out.dims[0], 3);
    CHECK_EQ(graph->layers[1].out.dims[0], 12);
    CHECK_EQ(graph->layers[1].out.dims[1], 14);
    CHECK_EQ(graph->tensor_count, 6); /* no bias */
    CHECK(graph->layers[2].eps == 1e-3F && graph->layers[2].momentum == 0.5F);
    CHECK_EQ(graph->layers[3].out.dims[1], 4); /* stride 3 */
    CHECK_STR(graph->layers[7].name, "ce");
    graph_free(&graph);
    model_file_free(&file);
}

/* Shapes and parameters alike, and still not the same net. */
TEST(the_hash_sees_what_shapes_do_not)
{
    static const char *const texts[] = {
        "{\"layers\":[{\"op\":\"flatten\",\"name\":\"a\"},{\"op\":\"relu\",\"name\":\"b\"},"
        "{\"op\":\"add\",\"name\":\"c\",\"inputs\":[\"a\",\"b\"]},"
        "{\"op\":\"flatten\",\"name\":\"f\"},"
        "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":10}]}",
        "{\"layers\":[{\"op\":\"flatten\",\"name\":\"a\"},{\"op\":\"relu\",\"name\":\"b\"},"
        "{\"op\":\"add\",\"name\":\"c\",\"inputs\":[\"b\",\"a\"]},"
        "{\"op\":\"flatten\",\"name\":\"f\"},"
        "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":10}]}",
        "{\"layers\":[{\"op\":\"flatten\",\"name\":\"a\"},{\"op\":\"relu\",\"name\":\"b\"},\n"
        "{\"inputs\":[\"a\",\"b\"],\"op\":\"add\",\"name\":\"c\"},"
        "{\"op\":\"flatten\",\"name\":\"f\"},"
        "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":10}]}"};
    const struct net_options options = {.batch_max = 1};
    char identities[3][64];
    uint8_t hashes[3][32];

    for (int i = 0; i < 3; i++) {
        struct model_file *file = NULL;
        struct graph *graph = NULL;
        struct net *net = NULL;

        CHECK_EQ(model_file_parse(&file, "x.json", texts[i], strlen(texts[i]), NULL), STATUS_OK);
        CHECK_EQ(model_file_build(&graph, file, &digits, NULL), STATUS_OK);
        model_file_identity(file, graph, identities[i]);
        CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
        net_hash(net, UINT32_MAX, hashes[i]); /* what ranks compare */
        net_free(&net);
        graph_free(&graph);
        model_file_free(&file);
    }
    CHECK(strcmp(identities[0], identities[1]) != 0);
    CHECK(memcmp(hashes[0], hashes[1], sizeof hashes[0]) != 0);
    CHECK_BYTES(hashes[2], hashes[0], sizeof hashes[0]);
    CHECK_STR(identities[2], identities[0]); /* how it is written does not count */
}

TEST_MAIN
