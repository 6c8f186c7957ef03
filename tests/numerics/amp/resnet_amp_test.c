/* ResNet-18 in mixed precision against PyTorch with explicit rounding: losses of the first steps
 * and the first gradients, at O1, O2 and O3 with both half types. resnet_amp_values.py wrote
 * the values, and how much they change when sums are taken in another order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/lib/test.h"
#include "worker/graph/amp.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define FILE_BYTES_MAX (1 << 20)
#define BATCH_MAX 16
#define NOISE_FACTOR 3.0
#define LOSS_FLOOR_FP16 1e-3 /* absolute; the losses are around 2 */
#define LOSS_FLOOR_BF16 8e-3

struct subject {
    const cJSON *head, *c;
    bool is_bf16;
    struct net *net;
    float *images;
    int64_t labels[BATCH_MAX];
    uint32_t batch;
    float scale;
};

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name)->valuestring;
}

static cJSON *read_values(void)
{
    FILE *file = fopen(test_source("tests/numerics/amp/resnet_amp_values.json"), "rb");
    char *text = calloc(FILE_BYTES_MAX + 1, 1);
    cJSON *head;

    CHECK(file != NULL && text != NULL);
    (void)fread(text, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    head = cJSON_Parse(text);
    free(text);
    CHECK(cJSON_IsObject(head));
    return head;
}

static void set_gamma(struct net *net, float gamma)
{
    float values[512];

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = gamma;
    for (uint32_t i = 0; i < net_tensor_count(net); i++)
        if (strstr(net_tensor(net, i)->name, ".bn2.weight") != NULL)
            CHECK_EQ(net_tensor_write(net, i, values, NULL), STATUS_OK);
}

static void subject_open(struct subject *s)
{
    const uint32_t size = (uint32_t)number(s->head, "size");
    const struct model_shape shape = {3, size, size, (uint32_t)number(s->head, "classes")};
    const char *level = text_of(s->c, "level");
    char scale[32];
    struct amp_request request = {.level = level, .half_type = text_of(s->c, "low")};
    struct net_options options = {.batch_max = s->batch};
    struct graph *graph = NULL;
    struct amp amp;
    struct rng rng;
    struct err err = {0};

    (void)snprintf(scale, sizeof scale, "%g", (double)s->scale);
    request.loss_scale = scale;
    if (amp_resolve(&amp, &request, &err) != STATUS_OK)
        FAIL("%s", err.text);
    options.amp = &amp;
    rng_seed(&rng, 0);
    if (model_build(&graph, "resnet18", &shape, &err) != STATUS_OK ||
        net_new(&s->net, graph, &options, &err) != STATUS_OK ||
        init_torchvision_resnet(s->net, graph, &rng, &err) != STATUS_OK)
        FAIL("%s", err.text);
    set_gamma(s->net, (float)number(s->head, "gamma"));
    s->images = calloc((size_t)s->batch * 3 * size * size, sizeof *s->images);
    CHECK(s->images != NULL);
    rng_uniform_f32(&rng, 0.0F, 1.0F, s->images, (size_t)s->batch * 3 * size * size);
    for (uint32_t i = 0; i < s->batch; i++)
        s->labels[i] = i;
    graph_free(&graph);
}

/* Norm and entries of each; returns the worst in tolerances. The gradient's entries share the noise
 * of the whole, any of them may have a part of it that is larger than its own size. */
static double compare_gradients(struct subject *s)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(s->c, "grads")->child;
    double worst = 0.0;

    for (uint32_t i = 0; i < net_tensor_count(s->net); i++) {
        const struct net_tensor *tensor = net_tensor(s->net, i);
        const size_t last = tensor->count - 1, places[] = {0, last / 3, 2 * last / 3, last};
        const cJSON *grad;
        double norm = 0.0, off;
        float *values;

        if (!tensor->trainable)
            continue;
        CHECK(entry != NULL);
        CHECK_STR(tensor->name, text_of(entry, "name"));
        grad = cJSON_GetObjectItemCaseSensitive(entry, "grad");
        values = malloc(tensor->count * sizeof *values);
        CHECK(values != NULL);
        CHECK_EQ(net_grad_read(s->net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < tensor->count; k++)
            norm += pow((double)values[k] / (double)s->scale, 2.0);
        off = fabs(sqrt(norm) - cJSON_GetArrayItem(grad, 0)->valuedouble);
        for (int k = 0; k < 4; k++)
            off = fmax(off, fabs((double)values[places[k]] / (double)s->scale -
                                 cJSON_GetArrayItem(grad, k + 1)->valuedouble));
        off /= NOISE_FACTOR * number(entry, "noise");
        if (!(off <= 1.0))
            FAIL("%s %s: the gradient of %s is off by %.2f tolerances", text_of(s->c, "level"),
                 text_of(s->c, "low"), tensor->name, off);
        worst = fmax(worst, off);
        free(values);
        entry = entry->next;
    }
    CHECK(entry == NULL);
    return worst;
}

static void run_steps(struct subject *s)
{
    const struct optim sgd = {.kind = OPTIM_SGD,
                              .lr = (float)number(s->head, "lr"),
                              .momentum = (float)number(s->head, "momentum")};
    const cJSON *losses = cJSON_GetObjectItemCaseSensitive(s->c, "losses");
    const cJSON *noise = cJSON_GetObjectItemCaseSensitive(s->c, "loss_noise");
    double worst = 0.0, grads = 0.0;

    for (int step = 0; step < cJSON_GetArraySize(losses); step++) {
        const double theirs = cJSON_GetArrayItem(losses, step)->valuedouble;
        const double tolerance = fmax(s->is_bf16 ? LOSS_FLOOR_BF16 : LOSS_FLOOR_FP16,
                                      NOISE_FACTOR * cJSON_GetArrayItem(noise, step)->valuedouble);
        struct net_result result;

        CHECK_EQ(net_forward(s->net, s->images, s->labels, s->batch, true, &result, NULL),
                 STATUS_OK);
        CHECK_EQ(net_backward(s->net, 1.0F, NULL), STATUS_OK);
        if (step == 0)
            grads = compare_gradients(s);
        net_update(s->net, &sgd);
        if (!(fabs(result.loss_sum / s->batch - theirs) <= tolerance))
            FAIL("%s %s, step %d: loss %.6f, torch has %.6f (tolerance %.2g)",
                 text_of(s->c, "level"), text_of(s->c, "low"), step + 1, result.loss_sum / s->batch,
                 theirs, tolerance);
        worst = fmax(worst, fabs(result.loss_sum / s->batch - theirs) / tolerance);
    }
    (void)printf("# %s %s: losses within %.2f, gradients within %.2f of the tolerance\n",
                 text_of(s->c, "level"), text_of(s->c, "low"), worst, grads);
}

TEST(resnet18_equals_torch_with_rounding)
{
    cJSON *head = read_values();
    const cJSON *c;
    int cases = 0;

    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(head, "cases"))
    {
        struct subject s = {.head = head,
                            .c = c,
                            .is_bf16 = strcmp(text_of(c, "low"), "bf16") == 0,
                            .batch = (uint32_t)number(head, "batch")};

        CHECK(s.batch <= BATCH_MAX);
        s.scale = strcmp(text_of(c, "level"), "O3") == 0 ? 1.0F : (float)number(head, "scale");
        subject_open(&s);
        run_steps(&s);
        net_free(&s.net);
        free(s.images);
        cases++;
    }
    CHECK_EQ(cases, 6);
    cJSON_Delete(head);
}

TEST_MAIN
