/* The tutorial's ConvNet against PyTorch: initial parameters to the bit, first losses on real
 * MNIST. Needs the shared folder (golden/, data/mnist); skips without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <openssl/sha.h>

#include "tests/lib/test.h"
#include "tests/numerics/net/mnist.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

#define STEPS 100U
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
    struct net *net = mnist_convnet(NULL);
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

/* Measured when this was written: 600 losses within 2.4e-6 of PyTorch's. The whole of epoch 1 and
 * the accuracy of three epochs are compared in tests/integration/golden, through the programs. */
TEST(first_losses_equal_torch)
{
    const struct optim sgd = {.lr = 1e-4F};
    cJSON *golden = read_golden();
    const cJSON *epochs = cJSON_GetObjectItemCaseSensitive(golden, "losses");
    const cJSON *loss = cJSON_GetArrayItem(cJSON_GetArrayItem(epochs, 0), 0)->child; /* of rank 0 */
    struct net *net = mnist_convnet(NULL);
    struct mnist train;
    float losses[STEPS];

    for (size_t i = 0; i < STEPS; i++, loss = loss->next)
        losses[i] = (float)loss->valuedouble;
    mnist_read(&train, "train", MNIST_TRAIN_COUNT);
    (void)printf("# %u losses within %.2e\n", STEPS,
                 mnist_train(net, &train, &sgd, losses, 0.0F, STEPS, LOSS_TOLERANCE));
    net_free(&net);
    cJSON_Delete(golden);
    mnist_close(&train);
}

TEST_MAIN
