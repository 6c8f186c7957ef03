/* The ConvNet on images of MNIST's shape. */
#include "tests/bench/net_bench.h"

const struct bench_case bench_case = {
    .name = "bench_convnet",
    .arch = "convnet",
    .channels = 1,
    .size = 28,
    .classes = 10,
    .batch = 100,
    .rounds = 5,
    .steps = 50,
    .warm_up_steps = 5,
    .init = init_torch_default,
};
