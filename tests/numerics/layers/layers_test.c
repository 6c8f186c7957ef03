/* Every layer kind, forward and backward, against PyTorch's values: layers.json, which
 * tests/pytorch/layers.py wrote, or the file that $DDP_LAYER_CASES names.
 *
 * PyTorch computed in double from the same f32 numbers, so the tolerances are those of f32 sums:
 * in proportion to what was added up, or to how far PyTorch's own f32 was off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/layers/layers_case.h"

#define FILE_BYTES_MAX (UINT64_C(64) << 20)
#define BATCH_MAX 64
#define LOSS_TOLERANCE 5e-6  /* relative, or absolute below 1 */
#define TERMS_TOLERANCE 5e-6 /* of the absolute values that were added up into an element */
#define NOISE_FACTOR 8.0     /* of PyTorch's f32, relative to the same, anywhere in the net */
#define OFF_FACTOR 8.0       /* PyTorch adds in pairs, which is a little better than one by one */
#define ABSOLUTE_TOLERANCE 3e-7

static double worst; /* over all comparisons, in tolerances */

static cJSON *read_cases(void)
{
    const char *path = getenv("DDP_LAYER_CASES");
    FILE *file;
    char *text = malloc(FILE_BYTES_MAX + 1);
    cJSON *cases;
    size_t size;

    if (path == NULL)
        path = test_source("tests/numerics/layers/layers.json");
    file = fopen(path, "rb");
    if (file == NULL || text == NULL)
        FAIL("cannot read %s", path);
    size = fread(text, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    text[size] = '\0';
    cases = cJSON_Parse(text);
    free(text);
    if (!cJSON_IsArray(cases) || cJSON_GetArraySize(cases) == 0)
        FAIL("%s: no array of cases", path);
    return cases;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* Says what differs; returns 1 then. */
static unsigned compare(const struct layers_case *c, const char *what, size_t index, double ours,
                        double theirs, double tolerance)
{
    const double off = fabs(ours - theirs) / tolerance;

    if (off <= 1.0) {
        worst = fmax(worst, off);
        return 0;
    }
    (void)printf("# %s: %s[%zu] is %.9g, PyTorch %.9g (tolerance %.2g)\n", c->name, what, index,
                 ours, theirs, tolerance);
    return 1;
}

/* `expected`: {"norm", "stride", "values"}. */
static unsigned compare_tensor(const struct layers_case *c, const char *what, const float *values,
                               size_t count, const cJSON *expected, double noise)
{
    const double norm = number(expected, "norm"), stride = number(expected, "stride");
    const double tolerance =
        fmax(fmax(TERMS_TOLERANCE, NOISE_FACTOR * noise) * number(expected, "terms") +
                 ABSOLUTE_TOLERANCE,
             OFF_FACTOR * number(expected, "off"));
    const cJSON *value;
    unsigned wrong = 0;
    double squares = 0.0;
    size_t at = 0;

    for (size_t i = 0; i < count; i++)
        squares += (double)values[i] * (double)values[i];
    wrong += compare(c, what, SIZE_MAX, sqrt(squares), norm, tolerance * sqrt((double)count));
    cJSON_ArrayForEach(value, cJSON_GetObjectItemCaseSensitive(expected, "values"))
    {
        if (!(stride >= 1.0) || at >= count)
            return wrong + 1;
        wrong += compare(c, what, at, (double)values[at], value->valuedouble, tolerance);
        at += (size_t)stride;
    }
    if (at < count) {
        (void)printf("# %s: %s has %zu elements, PyTorch less\n", c->name, what, count);
        wrong++;
    }
    return wrong;
}

/* oneDNN adds a convolution's bias gradient up one by one in f32: thousands of terms. */
static double noise_of(const struct layers_case *c, uint32_t index, double noise)
{
    const struct graph_tensor *tensor = &c->graph->tensors[index];
    const bool is_long_sum =
        tensor->role == GRAPH_BIAS && c->graph->layers[tensor->layer].op == GRAPH_CONV2D;

    return is_long_sum ? fmax(noise, 1e-5) : noise;
}

static unsigned compare_tensors(struct layers_case *c, const cJSON *expected, bool trainable,
                                double noise)
{
    unsigned wrong = 0;
    int seen = 0;

    for (uint32_t i = 0; i < net_tensor_count(c->net); i++) {
        const struct net_tensor *tensor = net_tensor(c->net, i);
        float *values;

        if (tensor->trainable != trainable)
            continue;
        seen++;
        values = calloc(tensor->count, sizeof *values);
        CHECK(values != NULL);
        CHECK_EQ(trainable ? net_grad_read(c->net, i, values, NULL)
                           : net_tensor_read(c->net, i, values, NULL),
                 STATUS_OK);
        wrong += compare_tensor(c, tensor->name, values, tensor->count,
                                cJSON_GetObjectItemCaseSensitive(expected, tensor->name),
                                noise_of(c, i, noise));
        free(values);
    }
    if (seen != cJSON_GetArraySize(expected)) {
        (void)printf("# %s: %d tensors here, PyTorch %d\n", c->name, seen,
                     cJSON_GetArraySize(expected));
        wrong++;
    }
    return wrong;
}

static unsigned run_batch(struct layers_case *c, const cJSON *batch)
{
    const bool training = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(batch, "training"));
    const uint32_t n = (uint32_t)number(batch, "n");
    const double loss = number(batch, "loss");
    float *images = layers_case_images(c, n);
    int64_t labels[BATCH_MAX];
    struct net_result result;
    unsigned wrong = 0;

    CHECK(images != NULL && n <= BATCH_MAX);
    layers_case_labels(c, n, labels);
    CHECK_EQ(net_forward(c->net, images, labels, n, training, &result, NULL), STATUS_OK);
    CHECK_EQ(result.images, n);
    wrong += compare(
        c, training ? "loss" : "evaluation loss", n, result.loss_sum / n, loss,
        fmax(LOSS_TOLERANCE * fmax(1.0, fabs(loss)), OFF_FACTOR * number(batch, "loss_off")));
    wrong += compare(c, "top1", n, result.top1, number(batch, "top1"), 0.5);
    wrong += compare(c, "top5", n, result.top5, number(batch, "top5"), 0.5);
    if (training) {
        CHECK_EQ(net_backward(c->net, 1.0F, NULL), STATUS_OK);
        wrong += compare_tensors(c, cJSON_GetObjectItemCaseSensitive(batch, "grads"), true,
                                 number(batch, "noise"));
    }
    free(images);
    return wrong;
}

static unsigned run_case(const cJSON *json)
{
    struct layers_case c;
    struct err err = {0};
    const cJSON *batch;
    unsigned wrong = 0;

    if (layers_case_open(&c, json, &err) != STATUS_OK) {
        (void)printf("# %s: %s\n", c.name, err.text);
        wrong = 1;
    } else {
        cJSON_ArrayForEach(batch, cJSON_GetObjectItemCaseSensitive(json, "batches")) wrong +=
            run_batch(&c, batch);
        wrong += compare_tensors(&c, cJSON_GetObjectItemCaseSensitive(json, "buffers"), false, 0.0);
    }
    layers_case_close(&c);
    return wrong;
}

TEST(layers_equal_torch)
{
    cJSON *cases = read_cases();
    const cJSON *json;
    unsigned failed = 0;

    cJSON_ArrayForEach(json, cases) failed += run_case(json) != 0;
    (void)printf("# %d cases, the worst difference is %.2f of its tolerance\n",
                 cJSON_GetArraySize(cases), worst);
    cJSON_Delete(cases);
    CHECK_EQ(failed, 0);
}

TEST_MAIN
