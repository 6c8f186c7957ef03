/* A model file of any bytes is refused with its name, or gives a list and, for digits, a graph that
 * holds together. */
#include <string.h>

#include "tests/fuzz/target.h"
#include "worker/graph/hash.h"
#include "worker/model/file.h"
#include "worker/graph/pass.h"

/* What mutations begin with: every op, every field. */
static const char *const texts[] = {
    "{\"name\":\"a\",\"channels\":3,\"classes\":10,\"init\":\"torchvision\",\"layers\":[\n"
    "{\"op\":\"conv2d\",\"name\":\"c\",\"input\":\"input\",\"out_channels\":8,\"kernel\":3,"
    "\"stride\":2,\"padding\":1,\"bias\":false},\n"
    "{\"op\":\"batch_norm\",\"name\":\"b\",\"eps\":0.001,\"momentum\":0.5},\n"
    "{\"op\":\"relu\",\"name\":\"r\"},\n"
    "{\"op\":\"max_pool\",\"name\":\"m\",\"kernel\":3,\"stride\":1,\"padding\":1},\n"
    "{\"op\":\"add\",\"name\":\"s\",\"inputs\":[\"m\",\"r\"]},\n"
    "{\"op\":\"avg_pool\",\"name\":\"p\"},{\"op\":\"flatten\",\"name\":\"f\"},\n"
    "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":\"classes\",\"bias\":true},\n"
    "{\"op\":\"cross_entropy\",\"name\":\"loss\"}]}",
    "{\"layers\":[{\"op\":\"flatten\",\"name\":\"f\"},"
    "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":99}]}",
    "{\"layers\":[{\"op\":\"flatten\",\"name\":\"a\"},{\"op\":\"relu\",\"name\":\"b\"},"
    "{\"op\":\"add\",\"name\":\"c\",\"inputs\":[\"a\",\"b\"]},"
    "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":10}]}",
    "{\"layers\":[{\"op\":\"conv2d\",\"name\":\"a\",\"out_channels\":65536,\"kernel\":255,"
    "\"padding\":255},{\"op\":\"flatten\",\"name\":\"f\"},"
    "{\"op\":\"linear\",\"name\":\"l\",\"out_features\":65536}]}",
};

/* As many as there are broken inputs, so that half of the mutations are of these. */
void fuzz_corpus(fuzz_add *add)
{
    for (size_t i = 0; i < 480; i++) {
        const char *text = texts[i % (sizeof texts / sizeof texts[0])];

        add(text, strlen(text));
    }
}

/* Whoever builds on it finds what it promises. */
static void check_graph(const struct graph *graph)
{
    struct graph *fused = NULL;
    uint8_t hash[32];

    FUZZ_CHECK(graph_check(graph, NULL) == STATUS_OK);
    for (uint32_t i = 1; i < graph->layer_count; i++)
        FUZZ_CHECK(graph->layers[i].inputs[0] < i &&
                   (graph->layers[i].inputs[1] < i || graph->layers[i].inputs[1] == GRAPH_NONE));
    graph_hash(graph, hash);
    FUZZ_CHECK(pass_fuse(graph, true, &fused, NULL) == STATUS_OK);
    FUZZ_CHECK(graph_check(fused, NULL) == STATUS_OK);
    graph_free(&fused);
}

static void build(const struct model_file *file)
{
    const struct model_shape digits = {1, 28, 28, 10};
    const struct model_shape shape = model_file_shape(file, &digits);
    struct err err = {.text = ""};
    struct graph *graph = NULL;
    enum status status = model_file_build(&graph, file, &shape, &err);
    char identity[64];

    FUZZ_CHECK((status == STATUS_OK) == (graph != NULL));
    if (status != STATUS_OK) {
        FUZZ_CHECK(strncmp(err.text, "f.json, line ", 13) == 0);
        return;
    }
    check_graph(graph);
    model_file_identity(file, graph, identity);
    FUZZ_CHECK(strlen(identity) == strlen(file->name) + 17);
    graph_free(&graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct err err = {.text = ""};
    struct model_file *file = NULL;
    enum status status = model_file_parse(&file, "f.json", (const char *)data, byte_count, &err);

    FUZZ_CHECK((status == STATUS_OK) == (file != NULL));
    if (status != STATUS_OK)
        FUZZ_CHECK(strncmp(err.text, "f.json, line ", 13) == 0 || status == STATUS_TOO_BIG);
    else
        build(file);
    model_file_free(&file);
    return 0;
}
