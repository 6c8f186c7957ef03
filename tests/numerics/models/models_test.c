/* ResNets against torchvision: names, initial parameters from the same seed, loss and every
 * gradient on fixed images. models_values.py wrote the values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/lib/test.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define FILE_BYTES_MAX (4 << 20)
#define BATCH_MAX 16
#define INIT_TOLERANCE 2e-6 /* of the norm's mean square: torch's vector logarithm and sine */
#define LOSS_TOLERANCE 1e-5
#define GRAD_TOLERANCE 1e-4
#define POINTS 5 /* norm, then four entries */

static double worst;

static cJSON *read_cases(void)
{
    const char *path = test_source("tests/numerics/models/models_values.json");
    char *text = calloc(FILE_BYTES_MAX + 1, 1);
    FILE *file = fopen(path, "rb");
    cJSON *cases;

    if (text == NULL || file == NULL)
        FAIL("cannot read %s", path);
    (void)fread(text, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    cases = cJSON_Parse(text);
    free(text);
    if (!cJSON_IsArray(cases))
        FAIL("%s: no array", path);
    return cases;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* The norm relative to itself, entries relative to the root mean square of all. */
static void compare(const char *name, const char *what, const float *ours, size_t count,
                    const cJSON *theirs, double tolerance)
{
    const size_t last = count - 1, places[POINTS] = {0, 0, last / 3, 2 * last / 3, last};
    double norm = 0.0, rms;

    for (size_t i = 0; i < count; i++)
        norm += (double)ours[i] * (double)ours[i];
    norm = sqrt(norm);
    for (int k = 0; k < POINTS; k++) {
        const double want = cJSON_GetArrayItem(theirs, k)->valuedouble;
        const double have = k == 0 ? norm : (double)ours[places[k]];
        double off;

        rms = k == 0 ? want : cJSON_GetArrayItem(theirs, 0)->valuedouble / sqrt((double)count);
        off = fabs(have - want) / (fmax(rms, fabs(want)) + 1e-9);
        if (!(off <= tolerance))
            FAIL("%s, %s %d: %.9g, torch has %.9g", name, what, k, have, want);
        worst = fmax(worst, off / tolerance);
    }
}

struct subject {
    struct graph *graph;
    struct net *net;
    struct rng rng;
};

static void open_subject(struct subject *s, const cJSON *c)
{
    const uint32_t size = (uint32_t)number(c, "size");
    const struct model_shape shape = {3, size, size, 1000};
    const struct net_options options = {.batch_max = (uint32_t)number(c, "batch")};
    const char *arch = cJSON_GetObjectItemCaseSensitive(c, "arch")->valuestring;
    struct err err = {.text = ""};

    if (model_build(&s->graph, arch, &shape, &err) != STATUS_OK ||
        net_new(&s->net, s->graph, &options, &err) != STATUS_OK)
        FAIL("%s: %s", arch, err.text);
    rng_seed(&s->rng, 0);
    if (init_torchvision_resnet(s->net, s->graph, &s->rng, &err) != STATUS_OK)
        FAIL("%s: %s", arch, err.text);
}

static void set_gamma(struct subject *s, float gamma)
{
    float values[2048];
    struct err err = {.text = ""};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = gamma;
    for (uint32_t i = 0; i < net_tensor_count(s->net); i++)
        if (strstr(net_tensor(s->net, i)->name, ".bn3.weight") != NULL)
            CHECK_EQ(net_tensor_write(s->net, i, values, &err), STATUS_OK);
}

static void step(struct subject *s, const cJSON *c)
{
    const uint32_t batch = (uint32_t)number(c, "batch");
    const size_t count = batch * graph_value_count(&s->graph->layers[0].out);
    float *images = malloc(count * sizeof *images);
    int64_t labels[BATCH_MAX];
    struct net_result result;
    struct err err = {.text = ""};
    double loss;

    CHECK(images != NULL && batch <= BATCH_MAX);
    rng_uniform_f32(&s->rng, 0.0F, 1.0F, images, count);
    for (uint32_t i = 0; i < batch; i++)
        labels[i] = i;
    if (net_forward(s->net, images, labels, batch, true, &result, &err) != STATUS_OK ||
        net_backward(s->net, 1.0F, &err) != STATUS_OK)
        FAIL("%s", err.text);
    free(images);
    loss = result.loss_sum / batch;
    if (!(fabs(loss - number(c, "loss")) <= LOSS_TOLERANCE * fabs(number(c, "loss"))))
        FAIL("loss %.9g, torch has %.9g", loss, number(c, "loss"));
}

/* torch's state_dict has a num_batches_tracked after every norm's other entries. */
static void compare_names(struct net *net, const cJSON *state)
{
    uint32_t index = 0;
    const cJSON *name;

    cJSON_ArrayForEach(name, state)
    {
        const size_t length = strlen(name->valuestring);

        if (length > 19 && strcmp(name->valuestring + length - 19, "num_batches_tracked") == 0)
            continue;
        CHECK(index < net_tensor_count(net));
        CHECK_STR(net_tensor(net, index)->name, name->valuestring);
        index++;
    }
    CHECK_EQ(index, net_tensor_count(net));
}

static void compare_parameters(struct subject *s, const cJSON *c, bool grads)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(c, "parameters")->child;
    struct err err = {.text = ""};

    for (uint32_t i = 0; i < net_tensor_count(s->net); i++) {
        const struct net_tensor *tensor = net_tensor(s->net, i);
        float *values;
        enum status status;

        if (!tensor->trainable)
            continue;
        values = malloc(tensor->count * sizeof *values);
        CHECK(values != NULL && entry != NULL);
        CHECK_STR(tensor->name, cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring);
        status = grads ? net_grad_read(s->net, i, values, &err)
                       : net_tensor_read(s->net, i, values, &err);
        CHECK_EQ(status, STATUS_OK);
        compare(tensor->name, grads ? "gradient" : "value", values, tensor->count,
                cJSON_GetObjectItemCaseSensitive(entry, grads ? "grad" : "value"),
                grads ? GRAD_TOLERANCE : INIT_TOLERANCE);
        free(values);
        entry = entry->next;
    }
    CHECK(entry == NULL);
}

TEST(resnets_equal_torchvision)
{
    cJSON *cases = read_cases();
    const cJSON *c;

    cJSON_ArrayForEach(c, cases)
    {
        struct subject s = {0};

        worst = 0.0;
        open_subject(&s, c);
        compare_names(s.net, cJSON_GetObjectItemCaseSensitive(c, "state"));
        compare_parameters(&s, c, false);
        set_gamma(&s, (float)number(c, "gamma"));
        step(&s, c);
        compare_parameters(&s, c, true);
        (void)printf("# %s: the worst is %.2f of the tolerance\n",
                     cJSON_GetObjectItemCaseSensitive(c, "arch")->valuestring, worst);
        net_free(&s.net);
        graph_free(&s.graph);
    }
    cJSON_Delete(cases);
}

TEST_MAIN
