/* The CPU's nets convert bytes like torchvision's ToTensor and Normalize, bit for bit, in every
 * layout of an input. */
#include <stdlib.h>

#include "tests/lib/made_net.h"
#include "tests/lib/test.h"
#include "worker/data/rng.h"
#include "worker/model/model.h"
#include "worker/net/net.h"

enum { N = 3, CLASSES = 10 };

static const struct net_normal imagenet = {{0.485F, 0.456F, 0.406F, 0.0F},
                                           {0.229F, 0.224F, 0.225F, 1.0F}};

/* `floats`: the planes of floats for `bytes` [N][pixels][channels]. */
static void draw(uint8_t *bytes, float *floats, size_t pixels, size_t channels,
                 const struct net_normal *normal)
{
    struct rng rng;

    rng_seed(&rng, 7);
    for (size_t i = 0; i < N * pixels * channels; i++) {
        const size_t c = i % channels, p = i / channels % pixels, image = i / channels / pixels;
        float value;

        bytes[i] = (uint8_t)(rng_u32(&rng) >> 24);
        value = (float)bytes[i] / 255.0F;
        floats[(image * channels + c) * pixels + p] =
            normal != NULL ? (value - normal->mean[c]) / normal->std[c] : value;
    }
}

/* `image_channels`: of the images; those of the net are `channels`. */
static void check(const char *arch, uint32_t channels, uint32_t image_channels, uint32_t side,
                  const struct net_normal *normal)
{
    const struct model_shape shape = {channels, side, side, CLASSES};
    const struct amp_request request = {.level = "O0"};
    const struct amp amp = made_amp(&request);
    const struct net_options options = {
        .batch_max = N, .image_channels = image_channels, .amp = &amp};
    const size_t pixels = (size_t)side * side, count = N * pixels * image_channels;
    const int64_t labels[N] = {1, 7, 4};
    struct net *net = made_model(arch, &shape, &options, 3);
    struct net_result from_floats, from_bytes;
    struct net_images images = {.normal = normal};
    uint8_t *bytes = malloc(count);
    float *floats = malloc(count * sizeof *floats);

    CHECK(bytes != NULL && floats != NULL);
    draw(bytes, floats, pixels, image_channels, normal);
    images.bytes = bytes;
    for (uint32_t n = N; n > 0; n--) {
        CHECK_EQ(net_forward(net, floats, labels, n, false, &from_floats, NULL), STATUS_OK);
        CHECK_EQ(net_forward_images(net, &images, labels, n, false, &from_bytes, NULL), STATUS_OK);
        if (from_floats.loss_sum != from_bytes.loss_sum)
            FAIL("%s: a loss of %.17g from floats, %.17g from bytes", arch, from_floats.loss_sum,
                 from_bytes.loss_sum);
    }
    free(bytes);
    free(floats);
    net_free(&net);
}

TEST(grey_images)
{
    check("convnet", 1, 1, 28, NULL);
}

TEST(colours)
{
    check("toynet", 3, 3, 32, &imagenet);
    check("resnet18", 3, 3, 40, &imagenet);
    check("resnet18", 3, 3, 40, NULL);
}

/* mean and std are those of the net's channels. */
TEST(grey_images_for_a_net_of_colours)
{
    static const struct net_normal same = {{0.4F, 0.4F, 0.4F, 0.0F}, {0.2F, 0.2F, 0.2F, 1.0F}};

    check("resnet18", 3, 1, 40, NULL);
    check("resnet18", 3, 1, 40, &same);
}

TEST_MAIN
