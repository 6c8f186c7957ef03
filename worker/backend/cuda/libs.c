#include "worker/backend/cuda/libs.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

struct entry {
    const char *symbol;
    size_t offset; /* in the api struct */
};

struct version {
    int major, minor, patch;
};

struct library {
    const char *name;   /* "cuDNN" */
    const char *soname; /* the library to open if no name is given */
    const char *remedy;
    size_t needed; /* the lowest version, in the encoding of GetVersion */
    const struct entry *entries;
    uint32_t entry_count;
};
#define LIBS_ENTRIES(table) .entries = (table), .entry_count = sizeof(table) / sizeof(table)[0]

static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};

/* NULL: not found; `why` is the first sentence of the dynamic linker's error. */
static void *open_library(const struct library *library, const char *name, char *why,
                          size_t why_bytes)
{
    const size_t folder_count = name == NULL ? sizeof folders / sizeof folders[0] : 1;

    for (size_t i = 0; i < folder_count; i++) {
        char path[256];
        const char *text;
        void *opened;

        (void)snprintf(path, sizeof path, "%s%s", name == NULL ? folders[i] : "",
                       name == NULL ? library->soname : name);
        opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (opened != NULL)
            return opened;
        text = dlerror();
        if (i == 0)
            (void)snprintf(why, why_bytes, "%.150s", text != NULL ? text : path);
    }
    return NULL;
}

static enum status load(const struct library *library, const char *name, void *api, struct err *err)
{
    char why[160];
    void *opened = open_library(library, name, why, sizeof why);

    if (opened == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "%s is missing (%s): %s", library->name, why,
                       library->remedy);
    for (uint32_t i = 0; i < library->entry_count; i++) {
        void *symbol = dlsym(opened, library->entries[i].symbol);

        if (symbol == NULL) {
            (void)dlclose(opened);
            return err_set(err, STATUS_UNSUPPORTED, 0, "%s: %s has no %s, it is too old: %s",
                           library->name, name != NULL ? name : library->soname,
                           library->entries[i].symbol, library->remedy);
        }
        memcpy((char *)api + library->entries[i].offset, &symbol, sizeof symbol);
    }
    return STATUS_OK;
}

/* All three libraries encode a version as major * 10000 + minor * 100 + patch. */
static struct version split(size_t number)
{
    return (struct version){(int)(number / 10000), (int)(number / 100 % 100), (int)(number % 100)};
}

static enum status check_version(const struct library *library, const char *name, size_t number,
                                 struct err *err)
{
    const struct version found = split(number), needed = split(library->needed);
    const bool is_older =
        found.minor < needed.minor || (found.minor == needed.minor && found.patch < needed.patch);

    if (found.major == needed.major && !is_older)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "%s is version %d.%d.%d (%s), %d.%d.%d or a newer %d is needed: %s",
                   library->name, found.major, found.minor, found.patch,
                   name != NULL ? name : library->soname, needed.major, needed.minor, needed.patch,
                   needed.major, library->remedy);
}

static const struct entry cudnn_entries[] = {
#define LIBS_ENTRY(name) {"cudnn" #name, offsetof(struct cudnn_api, name)},
    LIBS_CUDNN_TABLE(LIBS_ENTRY)
#undef LIBS_ENTRY
};
static const struct library cudnn = {
    .name = "cuDNN",
    .soname = "libcudnn.so.9",
    .remedy = "install cuDNN 9 or put its folder into LD_LIBRARY_PATH, or use --device cpu",
    .needed = LIBS_CUDNN_NEEDED,
    LIBS_ENTRIES(cudnn_entries)};

static const struct entry cublaslt_entries[] = {
#define LIBS_ENTRY(name) {"cublasLt" #name, offsetof(struct cublaslt_api, name)},
    LIBS_CUBLASLT_TABLE(LIBS_ENTRY)
#undef LIBS_ENTRY
};
_Static_assert(CUBLAS_VER_MAJOR == CUDART_VERSION / 1000,
               "the headers of cuBLAS are of another CUDA than those of the runtime");

static const struct entry nccl_entries[] = {
#define LIBS_ENTRY(name) {"nccl" #name, offsetof(struct nccl_api, name)},
    LIBS_NCCL_TABLE(LIBS_ENTRY)
#undef LIBS_ENTRY
};
static const struct library nccl = {
    .name = "NCCL",
    .soname = "libnccl.so.2",
    .remedy = "install NCCL 2 or put its folder into LD_LIBRARY_PATH, or use --comm gloo",
    .needed = LIBS_NCCL_NEEDED,
    LIBS_ENTRIES(nccl_entries)};

enum status libs_cudnn(const char *name, struct cudnn_api *api, struct err *err)
{
    const enum status status = load(&cudnn, name, api, err);

    return status != STATUS_OK ? status : check_version(&cudnn, name, api->GetVersion(), err);
}

struct libs_cublaslt_choice libs_cublaslt_choose(int cudart_version)
{
    const unsigned major = (unsigned)cudart_version / 1000;
    struct libs_cublaslt_choice choice = {.needed = major == 12 ? 120800 : major * (size_t)10000};

    (void)snprintf(choice.soname, sizeof choice.soname, "libcublasLt.so.%u", major);
    (void)snprintf(choice.remedy, sizeof choice.remedy,
                   "install cuBLAS of CUDA %u or put its folder into LD_LIBRARY_PATH, or use "
                   "--device cpu",
                   major);
    return choice;
}

enum status libs_cublaslt_of(int cudart_version, const char *name, struct cublaslt_api *api,
                             struct err *err)
{
    const struct libs_cublaslt_choice choice = libs_cublaslt_choose(cudart_version);
    const struct library cublaslt = {.name = "cublasLt",
                                     .soname = choice.soname,
                                     .remedy = choice.remedy,
                                     .needed = choice.needed,
                                     LIBS_ENTRIES(cublaslt_entries)};
    const enum status status = load(&cublaslt, name, api, err);

    return status != STATUS_OK ? status : check_version(&cublaslt, name, api->GetVersion(), err);
}

enum status libs_cublaslt(const char *name, struct cublaslt_api *api, struct err *err)
{
    return libs_cublaslt_of(CUDART_VERSION, name, api, err);
}

enum status libs_nccl(const char *name, struct nccl_api *api, struct err *err)
{
    const enum status status = load(&nccl, name, api, err);
    int number = 0;

    if (status != STATUS_OK)
        return status;
    if (api->GetVersion(&number) != ncclSuccess)
        return err_set(err, STATUS_UNSUPPORTED, 0, "NCCL does not tell its version: %s",
                       nccl.remedy);
    return check_version(&nccl, name, (size_t)number, err);
}
