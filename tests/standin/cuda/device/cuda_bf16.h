/* Found in place of CUDA's header of this name. */
#ifndef TESTS_STANDIN_CUDA_DEVICE_CUDA_BF16_H
#define TESTS_STANDIN_CUDA_DEVICE_CUDA_BF16_H

#include <cstdint>

#include "tests/standin/cuda/device/standin.h"

#endif
