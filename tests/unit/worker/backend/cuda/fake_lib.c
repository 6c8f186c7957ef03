/* Stands in for cuDNN, cublasLt or NCCL: it has every entry point, and reports the build's VERSION.
 * No other function is called. */
#include <stddef.h>

#include "worker/backend/cuda/libs.h"

/* The symbol has the library's name and the C function one of ours, so that the real declarations
 * stay out of the way. */
#if defined(FAKE_NCCL)
#define FAKE_ENTRY(name)                                                                           \
    __attribute__((visibility("default"))) int fake_##name(int *version) __asm__("nccl" #name);    \
    int fake_##name(int *version)                                                                  \
    {                                                                                              \
        *version = VERSION;                                                                        \
        return 0;                                                                                  \
    }
LIBS_NCCL_TABLE(FAKE_ENTRY)
#else
#if defined(FAKE_CUDNN)
#define TABLE LIBS_CUDNN_TABLE
#define NAME(name) "cudnn" #name
#else
#define TABLE LIBS_CUBLASLT_TABLE
#define NAME(name) "cublasLt" #name
#endif
#define FAKE_ENTRY(name)                                                                           \
    __attribute__((visibility("default"))) size_t fake_##name(void) __asm__(NAME(name));           \
    size_t fake_##name(void)                                                                       \
    {                                                                                              \
        return VERSION;                                                                            \
    }
TABLE(FAKE_ENTRY)
#endif
