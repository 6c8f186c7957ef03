/* ResNet-50 with raw weights: our fp32 is as near to PyTorch's float64 as PyTorch's own fp32 is,
 * within a factor of 2, in the loss and in every gradient. Distances are root mean squares over
 * several batches, since a single batch may be near or far by chance. raw_values.py made the
 * values and explains them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "tests/lib/test.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define FILE_BYTES_MAX (1 << 20)
#define SIGNS 8
#define BATCH_MAX 16
#define PARAMETERS_MAX 256
#define FACTOR 2.0

/* Sums over the batches of squares of relative distances. */
struct distances {
    double loss;
    double grads[PARAMETERS_MAX];
};

static cJSON *read_values(void)
{
    const char *path = test_source("tests/numerics/models/raw_values.json");
    char *text = calloc(FILE_BYTES_MAX + 1, 1);
    FILE *file = fopen(path, "rb");
    cJSON *values;

    if (text == NULL || file == NULL)
        FAIL("cannot read %s", path);
    (void)fread(text, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    values = cJSON_Parse(text);
    free(text);
    if (!cJSON_IsObject(values))
        FAIL("%s: no object", path);
    return values;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* One training step's gradients; the mean loss. */
static double step(struct net *net, struct rng *rng, uint32_t batch, size_t image_values)
{
    float *images = malloc(batch * image_values * sizeof *images);
    int64_t labels[BATCH_MAX];
    struct net_result result;
    struct err err = {.text = ""};

    CHECK(images != NULL && batch <= BATCH_MAX);
    rng_uniform_f32(rng, 0.0F, 1.0F, images, batch * image_values);
    for (uint32_t i = 0; i < batch; i++)
        labels[i] = i;
    if (net_forward(net, images, labels, batch, true, &result, &err) != STATUS_OK ||
        net_backward(net, 1.0F, &err) != STATUS_OK)
        FAIL("%s", err.text);
    free(images);
    return result.loss_sum / batch;
}

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* The square of the norm of the difference, from its products with vectors of signs. */
static double distance_squared(uint32_t index, const float *values, size_t count,
                               const cJSON *product)
{
    double sums[SIGNS] = {0}, squares = 0.0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t word = mix((uint64_t)index << 32 | i);

        for (int k = 0; k < SIGNS; k++)
            sums[k] += (word >> k & 1) != 0 ? (double)values[i] : -(double)values[i];
    }
    for (int k = 0; k < SIGNS; k++, product = product->next) {
        CHECK(cJSON_IsNumber(product));
        squares += (sums[k] - product->valuedouble) * (sums[k] - product->valuedouble);
    }
    return squares / SIGNS;
}

static void add_gradients(struct distances *sums, struct net *net, int round, const cJSON *entry)
{
    uint32_t index = 0;

    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        const struct net_tensor *tensor = net_tensor(net, i);
        const cJSON *norms, *products;
        float *values;
        double norm;

        if (!tensor->trainable)
            continue;
        values = malloc(tensor->count * sizeof *values);
        CHECK(values != NULL && entry != NULL && index < PARAMETERS_MAX);
        CHECK_STR(tensor->name, cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring);
        CHECK_EQ(net_grad_read(net, i, values, NULL), STATUS_OK);
        norms = cJSON_GetObjectItemCaseSensitive(entry, "norms");
        products = cJSON_GetObjectItemCaseSensitive(entry, "products");
        norm = cJSON_GetArrayItem(norms, round)->valuedouble;
        sums->grads[index] += distance_squared(index, values, tensor->count,
                                               cJSON_GetArrayItem(products, round * SIGNS)) /
                              (norm * norm);
        free(values);
        entry = entry->next;
        index++;
    }
    CHECK(entry == NULL && index > 0);
}

static void check(const struct distances *sums, int rounds, const cJSON *values)
{
    const double loss = sqrt(sums->loss / rounds), loss_own = number(values, "own");
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(values, "parameters")->child;
    const char *worst_name = "";
    double worst = 0.0, sum = 0.0;
    int count = 0;

    for (; entry != NULL; entry = entry->next, count++) {
        const double times = sqrt(sums->grads[count] / rounds) / number(entry, "own");

        sum += times;
        if (!(times <= worst)) {
            worst = times;
            worst_name = cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring;
        }
    }
    (void)printf("# off float64, by PyTorch's fp32: loss %.2f, gradients %.2f, at worst %.2f: %s\n",
                 loss / loss_own, sum / count, worst, worst_name);
    if (!(loss <= FACTOR * loss_own))
        FAIL("the loss is %.3g off float64, PyTorch's fp32 is %.3g", loss, loss_own);
    if (!(worst <= FACTOR) || isnan(sum))
        FAIL("the gradient of %s: %.3g times as far off float64 as PyTorch's fp32 is", worst_name,
             worst);
}

static struct net *make_net(const cJSON *values, struct rng *rng)
{
    const uint32_t size = (uint32_t)number(values, "size");
    const struct model_shape shape = {3, size, size, 1000};
    const struct net_options options = {.batch_max = (uint32_t)number(values, "batch")};
    const char *arch = cJSON_GetObjectItemCaseSensitive(values, "arch")->valuestring;
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct err err = {.text = ""};

    if (model_build(&graph, arch, &shape, &err) != STATUS_OK ||
        net_new(&net, graph, &options, &err) != STATUS_OK ||
        init_torchvision_resnet(net, graph, rng, &err) != STATUS_OK)
        FAIL("%s: %s", arch, err.text);
    graph_free(&graph);
    return net;
}

TEST(raw_weights_are_as_near_to_float64_as_torch)
{
    cJSON *values = read_values();
    const uint32_t size = (uint32_t)number(values, "size");
    const uint32_t batch = (uint32_t)number(values, "batch");
    const cJSON *expected;
    struct distances sums = {.loss = 0.0};
    struct net *net;
    struct rng rng;
    int rounds = 0;

    rng_seed(&rng, 0);
    net = make_net(values, &rng);
    cJSON_ArrayForEach(expected, cJSON_GetObjectItemCaseSensitive(values, "losses"))
    {
        const double loss = step(net, &rng, batch, (size_t)3 * size * size);
        const double off = loss / expected->valuedouble - 1.0;

        sums.loss += off * off;
        add_gradients(&sums, net, rounds++,
                      cJSON_GetObjectItemCaseSensitive(values, "parameters")->child);
    }
    CHECK(rounds > 0);
    check(&sums, rounds, values);
    net_free(&net);
    cJSON_Delete(values);
}

TEST_MAIN
