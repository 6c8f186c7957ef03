/* ResNets on images of ImageNet's shape. */
#include "tests/bench/net_bench.h"

const struct bench_case bench_case = {
    .name = "bench_resnet",
    .arch = "resnet50",
    .channels = 3,
    .size = 224,
    .classes = 1000,
    .batch = 16,
    .rounds = 3,
    .steps = 1,
    .warm_up_steps = 1,
    .has_variants = true,
    .init = init_torchvision_resnet,
};
