#include "worker/backend/cuda/libs.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    const char *absent; /* "cuDNN is missing": it could not be opened */
    const char *soname; /* the library to open if no name is given */
    const char *remedy;
    size_t needed; /* the lowest version, in the encoding of GetVersion */
    const struct entry *entries;
    uint32_t entry_count;
};
enum { SHOWN_MAX = 96 }; /* characters of a path in a message */

#define LIBS_ENTRIES(table) .entries = (table), .entry_count = sizeof(table) / sizeof(table)[0]

static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};

/* The dynamic linker's last error, without the name of the file that it may begin with. */
static const char *linker_words(const char *path)
{
    const char *text = dlerror();
    const size_t length = strlen(path);

    if (text == NULL)
        return "no reason given";
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0
               ? text + length + 2
               : text;
}

/* As much of a path as a message has room for: its end. */
static const char *path_end(const char *path)
{
    const size_t length = strlen(path);

    return length > SHOWN_MAX ? path + (length - SHOWN_MAX) : path;
}

/* NULL: not found; `why` says for the first try what is wrong. */
static void *open_library(const struct library *library, const char *name, char *why,
                          size_t why_bytes)
{
    const size_t folder_count = name == NULL ? sizeof folders / sizeof folders[0] : 1;

    for (size_t i = 0; i < folder_count; i++) {
        char path[128];
        const char *wanted = name != NULL ? name : path;
        void *opened;

        (void)snprintf(path, sizeof path, "%s%s", folders[i], library->soname);
        opened = dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
        if (opened != NULL)
            return opened;
        if (i == 0)
            (void)snprintf(why, why_bytes, "%s: %.80s", path_end(wanted), linker_words(wanted));
    }
    return NULL;
}

static enum status load(const struct library *library, const char *name, void *api, struct err *err)
{
    char why[SHOWN_MAX + 90];
    void *opened = open_library(library, name, why, sizeof why);

    if (opened == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "%s (%s): %s", library->absent, why,
                       library->remedy);
    for (uint32_t i = 0; i < library->entry_count; i++) {
        void *symbol = dlsym(opened, library->entries[i].symbol);

        if (symbol == NULL) {
            (void)dlclose(opened);
            return err_set(err, STATUS_UNSUPPORTED, 0, "%s: %s has no %s, it is too old: %s",
                           library->name, path_end(name != NULL ? name : library->soname),
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
                   path_end(name != NULL ? name : library->soname), needed.major, needed.minor,
                   needed.patch, needed.major, library->remedy);
}

static const struct entry cudnn_entries[] = {
#define LIBS_ENTRY(name) {"cudnn" #name, offsetof(struct cudnn_api, name)},
    LIBS_CUDNN_TABLE(LIBS_ENTRY)
#undef LIBS_ENTRY
};
static const struct library cudnn = {
    .name = "cuDNN",
    .absent = "cuDNN is missing",
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
    .absent = "NCCL is missing",
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
                                     .absent = "cublasLt is missing",
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

static enum status load_nccl(const struct library *library, const char *name, struct nccl_api *api,
                             struct err *err)
{
    const enum status status = load(library, name, api, err);
    int number = 0;

    if (status != STATUS_OK)
        return status;
    if (api->GetVersion(&number) != ncclSuccess)
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s does not tell its version: %s",
                       library->name, library->remedy);
    return check_version(library, name, (size_t)number, err);
}

/* The file that LIBS_NCCL_VARIABLE names. Nothing else is tried: it was asked for. */
static enum status load_asked(const char *file, struct nccl_api *api, struct err *err)
{
    static const struct library asked = {
        .name = "NCCL of " LIBS_NCCL_VARIABLE,
        .absent = "NCCL of " LIBS_NCCL_VARIABLE " cannot be opened",
        .remedy = "name another file, or unset " LIBS_NCCL_VARIABLE,
        .needed = LIBS_NCCL_NEEDED,
        LIBS_ENTRIES(nccl_entries)};
    char path[PATH_MAX + 2];
    struct stat info;
    const char *why = NULL;

    /* without a slash the dynamic linker would search its own folders for the name */
    (void)snprintf(path, sizeof path, "%s%s", strchr(file, '/') == NULL ? "./" : "", file);
    if (stat(path, &info) != 0)
        why = strerror(errno);
    else if (!S_ISREG(info.st_mode))
        why = "no regular file";
    if (why != NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "%s (%s: %s): %s", asked.absent, path_end(file),
                       why, asked.remedy);
    return load_nccl(&asked, path, api, err);
}

enum status libs_nccl(const char *name, struct nccl_api *api, struct err *err)
{
    const char *file = name == NULL ? getenv(LIBS_NCCL_VARIABLE) : NULL;

    return file != NULL && file[0] != '\0' ? load_asked(file, api, err)
                                           : load_nccl(&nccl, name, api, err);
}

void libs_nccl_path(const struct nccl_api *api, char *path, size_t path_bytes)
{
    Dl_info info = {.dli_fname = NULL};
    void *symbol;

    memcpy(&symbol, &api->GetVersion, sizeof symbol);
    if (dladdr(symbol, &info) == 0 || info.dli_fname == NULL)
        info.dli_fname = nccl.soname;
    (void)snprintf(path, path_bytes, "%s", info.dli_fname);
}
