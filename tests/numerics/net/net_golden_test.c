/* The seeds' ConvNet against PyTorch: initial parameters to the bit, losses of real MNIST,
 * accuracy. Needs the shared folder (golden/, data/mnist); skips without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <openssl/sha.h>

#include "tests/lib/test.h"
#include "tests/numerics/net/mnist.h"
#include "worker/net.h"
#include "worker/rng.h"

#define BATCH 100U
#define STEPS 600U
#define LOSS_TOLERANCE 1e-4

static cJSON *read_golden(void)
{
    const char *path = test_shared("golden/convnet-mnist-1rank.json");
    static char text[1 << 20];
    FILE *file;
    size_t size;

    if (path == NULL)
        SKIP("no golden/convnet-mnist-1rank.json in the shared folder");
    file = fopen(path, "rb");
    CHECK(file != NULL);
    size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    CHECK(size > 0 && size < sizeof text - 1);
    text[size] = '\0';
    return cJSON_Parse(text);
}

static void hex_of(const float *values, size_t count, char hex[65])
{
    unsigned char hash[32];

    (void)SHA256((const unsigned char *)values, count * sizeof *values, hash);
    for (int i = 0; i < 32; i++)
        (void)snprintf(hex + (ptrdiff_t)2 * i, 3, "%02x", hash[i]);
}

TEST(initial_parameters_equal_torch_to_the_bit)
{
    cJSON *golden = read_golden();
    const cJSON *init = cJSON_GetObjectItemCaseSensitive(golden, "init");
    struct net *net = mnist_convnet(BATCH, NULL);
    static float values[16000];
    char hex[65];

    CHECK_EQ(cJSON_GetArraySize(init), net_tensor_count(net));
    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        const struct net_tensor *tensor = net_tensor(net, i);
        const cJSON *item = cJSON_GetArrayItem(init, (int)i);
        const cJSON *dims = cJSON_GetObjectItemCaseSensitive(item, "shape");

        CHECK_STR(tensor->name, item->string);
        CHECK_EQ(cJSON_GetArraySize(dims), tensor->dim_count);
        for (uint32_t d = 0; d < tensor->dim_count; d++)
            CHECK_EQ(tensor->dims[d], cJSON_GetArrayItem(dims, (int)d)->valueint);
        CHECK(tensor->count <= sizeof values / sizeof values[0]);
        CHECK_EQ(net_tensor_read(net, i, values, NULL), STATUS_OK);
        hex_of(values, tensor->count, hex);
        CHECK_STR(hex, cJSON_GetObjectItemCaseSensitive(item, "sha256")->valuestring);
    }
    net_free(&net);
    cJSON_Delete(golden);
}

static void check_accuracy(struct net *net, const cJSON *val)
{
    struct mnist test;
    static float images[BATCH * MNIST_PIXELS];
    static int64_t labels[BATCH];
    struct net_result sum = {0}, result;

    mnist_read(&test, "t10k", MNIST_TEST_COUNT);
    for (size_t first = 0; first < MNIST_TEST_COUNT; first += BATCH) {
        const struct mnist part = {test.pixels + first * MNIST_PIXELS, test.labels + first};

        mnist_batch(&part, NULL, BATCH, images, labels);
        CHECK_EQ(net_forward(net, images, labels, BATCH, false, &result, NULL), STATUS_OK);
        sum.loss_sum += result.loss_sum;
        sum.top1 += result.top1;
        sum.top5 += result.top5;
    }
    (void)printf("epoch 1: acc1 %.2f acc5 %.2f loss %.6f\n", sum.top1 / 100.0, sum.top5 / 100.0,
                 sum.loss_sum / 10000);
    CHECK_NEAR(sum.top1 / 100.0, cJSON_GetObjectItemCaseSensitive(val, "acc1")->valuedouble, 0.1);
    CHECK_NEAR(sum.top5 / 100.0, cJSON_GetObjectItemCaseSensitive(val, "acc5")->valuedouble, 0.1);
    CHECK_NEAR(sum.loss_sum / 10000, cJSON_GetObjectItemCaseSensitive(val, "loss")->valuedouble,
               1e-3);
    mnist_close(&test);
}

static double train_epoch(struct net *net, const struct mnist *train, const int64_t *order,
                          const cJSON *losses)
{
    const struct optim sgd = {.lr = 1e-4F};
    static float images[BATCH * MNIST_PIXELS];
    static int64_t labels[BATCH];
    const cJSON *expected = losses->child;
    struct net_result result;
    double worst = 0.0;

    for (size_t step = 0; step < STEPS; step++, expected = expected->next) {
        double off;

        mnist_batch(train, order + step * BATCH, BATCH, images, labels);
        CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, NULL), STATUS_OK);
        CHECK_EQ(net_backward(net, 1.0F, NULL, NULL, NULL), STATUS_OK);
        net_update(net, &sgd);
        off = result.loss_sum / BATCH - expected->valuedouble;
        CHECK_NEAR(result.loss_sum / BATCH, expected->valuedouble, LOSS_TOLERANCE);
        worst = off > worst ? off : -off > worst ? -off : worst;
    }
    return worst;
}

/* Measured when this was written: 600 losses within 2.4e-6 of PyTorch's. */
TEST(losses_of_epoch_one_equal_torch)
{
    cJSON *golden = read_golden();
    struct mnist train;
    const cJSON *losses = cJSON_GetObjectItemCaseSensitive(golden, "losses");
    const cJSON *val = cJSON_GetObjectItemCaseSensitive(golden, "val");
    static int64_t order[MNIST_TRAIN_COUNT];
    struct net *net = mnist_convnet(BATCH, NULL);
    struct rng rng;
    double worst;

    mnist_read(&train, "train", MNIST_TRAIN_COUNT);
    rng_seed(&rng, 0); /* DistributedSampler: seed + epoch */
    rng_permute(&rng, order, MNIST_TRAIN_COUNT);
    worst = train_epoch(net, &train, order, losses->child->child);
    (void)printf("600 losses within %.2e\n", worst);
    check_accuracy(net, val->child);
    net_free(&net);
    cJSON_Delete(golden);
    mnist_close(&train);
}

TEST_MAIN
