/* The NVIDIA libraries that are opened at run time: one struct of entry points each. Types come
 * from their headers but nothing is linked, so the module also loads if they are missing and can
 * report that. A library stays loaded until the process ends. */
#ifndef WORKER_BACKEND_CUDA_LIBS_H
#define WORKER_BACKEND_CUDA_LIBS_H

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <nccl.h>

#include "common/status.h"

/* cuDNN 9.8 is the first version that builds plans from a description of a device. NCCL 2.19 is the
 * first with ncclMemAlloc and ncclCommRegister. NCCL's configuration struct grows with versions: it
 * contains its own size, and an older library reads only the part that it knows (init.cc,
 * parseCommConfig). */
#define LIBS_CUDNN_NEEDED 90800
#define LIBS_NCCL_NEEDED NCCL_VERSION(2, 19, 1)
#define LIBS_NCCL_VARIABLE "DDP_NCCL" /* a file that is taken for libnccl.so.2 */

/* X(entry point without the library's prefix) */
#define LIBS_CUDNN_TABLE(X)                                                                        \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(GetLastErrorString)                                                                          \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

#define LIBS_CUBLASLT_TABLE(X)                                                                     \
    X(GetVersion)                                                                                  \
    X(GetStatusString)                                                                             \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(Matmul)                                                                                      \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)

#define LIBS_NCCL_TABLE(X)                                                                         \
    X(GetVersion)                                                                                  \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(CommRegister)                                                                                \
    X(CommDeregister)                                                                              \
    X(MemAlloc)                                                                                    \
    X(MemFree)                                                                                     \
    X(AllReduce)

struct cudnn_api {
#define LIBS_FIELD(name) __typeof__(cudnn##name) *name;
    LIBS_CUDNN_TABLE(LIBS_FIELD)
#undef LIBS_FIELD
};

struct cublaslt_api {
#define LIBS_FIELD(name) __typeof__(cublasLt##name) *name;
    LIBS_CUBLASLT_TABLE(LIBS_FIELD)
#undef LIBS_FIELD
};

struct nccl_api {
#define LIBS_FIELD(name) __typeof__(nccl##name) *name;
    LIBS_NCCL_TABLE(LIBS_FIELD)
#undef LIBS_FIELD
};

/* The cublasLt for a module that was built with this CUDA (CUDART_VERSION, 12080 for 12.8): that of
 * the same major version. Of CUDA 12 it is 12.8 or newer, the first for Blackwell (sm_100). */
struct libs_cublaslt_choice {
    char soname[32]; /* "libcublasLt.so.12" */
    char remedy[128];
    size_t needed; /* the lowest version, as cublasLtGetVersion tells it */
};
struct libs_cublaslt_choice libs_cublaslt_choose(int cudart_version);

/* Each opens `name` (NULL: libcudnn.so.9, libcublasLt.so of the build's CUDA, libnccl.so.2, then the
 * same in /usr/local/cuda), finds every entry point and compares versions. `err` names the library, the
 * version found, the one needed and what to do. Errors: STATUS_NOT_FOUND (no such library),
 * STATUS_UNSUPPORTED (too old, of another major version, or not that library). */
enum status libs_cudnn(const char *name, struct cudnn_api *api, struct err *err);
enum status libs_cublaslt(const char *name, struct cublaslt_api *api, struct err *err);
/* libs_cublaslt of a build with another CUDA. */
enum status libs_cublaslt_of(int cudart_version, const char *name, struct cublaslt_api *api,
                             struct err *err);
/* With `name` NULL and DDP_NCCL=FILE in the environment (not empty) that file is opened and no
 * other: if it cannot be used, `err` names it and says why. */
enum status libs_nccl(const char *name, struct nccl_api *api, struct err *err);
/* The file that libs_nccl opened, as the dynamic linker found it; cut if it is longer. */
void libs_nccl_path(const struct nccl_api *api, char *path, size_t path_bytes);

#endif
