/* Found in place of CUDA's header of this name. */
#ifndef TESTS_LIB_CUDA_STANDIN_CUDA_FP16_H
#define TESTS_LIB_CUDA_STANDIN_CUDA_FP16_H

#include <cstdint>

#include "tests/lib/cuda_standin/standin.h"

#endif
