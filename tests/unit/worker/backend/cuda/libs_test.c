/* The libraries that are opened at run time: each refusal names the library, the version found, the
 * one needed and what to do. */
#include "worker/backend/cuda/libs.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/lib/test.h"

enum which { CUDNN, CUBLASLT, NCCL };

static enum status load(enum which which, const char *name, struct err *err)
{
    struct cudnn_api cudnn;
    struct cublaslt_api lt;
    struct nccl_api nccl;

    switch (which) {
    case CUDNN:
        return libs_cudnn(name, &cudnn, err);
    case CUBLASLT:
        return libs_cublaslt(name, &lt, err);
    case NCCL:
        break;
    }
    return libs_nccl(name, &nccl, err);
}

static void check_words(const struct err *err, const char *word1, const char *word2,
                        const char *word3)
{
    if (strstr(err->text, word1) == NULL || strstr(err->text, word2) == NULL ||
        strstr(err->text, word3) == NULL)
        FAIL("\"%s\" does not say \"%s\", \"%s\" and \"%s\"", err->text, word1, word2, word3);
}

static void refuse(enum which which, const char *name, enum status status, const char *word1,
                   const char *word2, const char *word3)
{
    struct err err = {.status = STATUS_OK};

    CHECK_EQ(load(which, name, &err), status);
    check_words(&err, word1, word2, word3);
}

/* By a module that was built with CUDA `cudart_version`. */
static void refuse_cublaslt(int cudart_version, const char *file, const char *word1,
                            const char *word2, const char *word3)
{
    struct cublaslt_api lt;
    struct err err = {.status = STATUS_OK};
    char path[512];

    (void)snprintf(path, sizeof path, "%s%s", FAKE_DIR, file);
    CHECK_EQ(libs_cublaslt_of(cudart_version, path, &lt, &err), STATUS_UNSUPPORTED);
    check_words(&err, word1, word2, word3);
}

TEST(missing_is_named)
{
    refuse(CUDNN, "libcudnn-nowhere.so.9", STATUS_NOT_FOUND, "cuDNN is missing",
           "libcudnn-nowhere.so.9", "install cuDNN 9");
    refuse(CUBLASLT, "libcublasLt-nowhere.so", STATUS_NOT_FOUND, "cublasLt is missing",
           "libcublasLt-nowhere.so", "install cuBLAS of CUDA 1");
    refuse(NCCL, "libnccl-nowhere.so.2", STATUS_NOT_FOUND, "NCCL is missing",
           "libnccl-nowhere.so.2", "--comm gloo");
}

TEST(too_old_names_both_versions)
{
    refuse(CUDNN, FAKE_DIR "/fake-cudnn-old.so", STATUS_UNSUPPORTED, "cuDNN is version 9.1.0",
           "9.8.0", "install cuDNN 9");
    refuse_cublaslt(12080, "/fake-cublaslt-12-6.so", "cublasLt is version 12.6.4",
                    "12.8.0 or a newer 12 is needed", "install cuBLAS of CUDA 12");
    refuse(NCCL, FAKE_DIR "/fake-nccl-old.so", STATUS_UNSUPPORTED, "NCCL is version 2.18.5",
           "2.19.1", "install NCCL 2");
}

TEST(another_major_version_is_refused)
{
    refuse(CUDNN, FAKE_DIR "/fake-cudnn-next.so", STATUS_UNSUPPORTED, "cuDNN is version 10.0.0",
           "a newer 9", "LD_LIBRARY_PATH");
}

/* A module of CUDA 12.8 or 12.9 uses cuBLAS 12, one of CUDA 13 cuBLAS 13. */
TEST(cublaslt_is_that_of_the_build)
{
    static const struct {
        int cudart_version;
        const char *soname, *package;
        size_t needed;
    } cases[] = {{12080, "libcublasLt.so.12", "cuBLAS of CUDA 12", 120800},
                 {12090, "libcublasLt.so.12", "cuBLAS of CUDA 12", 120800},
                 {13000, "libcublasLt.so.13", "cuBLAS of CUDA 13", 130000},
                 {13020, "libcublasLt.so.13", "cuBLAS of CUDA 13", 130000},
                 {14010, "libcublasLt.so.14", "cuBLAS of CUDA 14", 140000}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct libs_cublaslt_choice choice = libs_cublaslt_choose(cases[i].cudart_version);

        CHECK_STR(choice.soname, cases[i].soname);
        CHECK(strstr(choice.remedy, cases[i].package) != NULL);
        CHECK_EQ(choice.needed, cases[i].needed);
    }
}

TEST(cublaslt_of_the_build_s_major_version_is_taken)
{
    struct cublaslt_api lt;
    struct err err = {.text = ""};

    CHECK_EQ(libs_cublaslt_of(12080, FAKE_DIR "/fake-cublaslt-12-8.so", &lt, &err), STATUS_OK);
    CHECK_EQ(libs_cublaslt_of(12090, FAKE_DIR "/fake-cublaslt-12-8.so", &lt, &err), STATUS_OK);
    CHECK_EQ(libs_cublaslt_of(13000, FAKE_DIR "/fake-cublaslt-13-0.so", &lt, &err), STATUS_OK);
    refuse_cublaslt(13000, "/fake-cublaslt-12-8.so", "cublasLt is version 12.8.3", "13.0.0",
                    "cuBLAS of CUDA 13");
    refuse_cublaslt(12090, "/fake-cublaslt-13-0.so", "cublasLt is version 13.0.2",
                    "a newer 12 is needed", "cuBLAS of CUDA 12");
}

TEST(new_enough_is_taken)
{
    struct err err = {.status = STATUS_OK};

    CHECK_EQ(load(CUDNN, FAKE_DIR "/fake-cudnn-good.so", &err), STATUS_OK);
}

TEST(another_library_is_refused)
{
    refuse(CUDNN, FAKE_DIR "/fake-nccl-old.so", STATUS_UNSUPPORTED, "cuDNN", "cudnnGetVersion",
           "fake-nccl-old.so");
}

/* -- DDP_NCCL -- */

static void ask_for(const char *file)
{
    CHECK_EQ(setenv("DDP_NCCL", file, 1), 0);
}

static void refuse_asked(const char *file, enum status status, const char *word1, const char *word2,
                         const char *word3)
{
    ask_for(file);
    refuse(NCCL, NULL, status, word1, word2, word3);
}

TEST(ddp_nccl_is_taken_and_told)
{
    static const char *const file = FAKE_DIR "/fake-nccl-new.so";
    struct nccl_api nccl;
    struct err err = {.text = ""};
    char path[512];
    int version = 0;

    ask_for(file);
    if (libs_nccl(NULL, &nccl, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(nccl.GetVersion(&version), 0);
    CHECK_EQ(version, 23007);
    libs_nccl_path(&nccl, path, sizeof path);
    CHECK_STR(path, file);
    libs_nccl_path(&nccl, path, 6);
    CHECK(strlen(path) == 5 && strncmp(path, file, 5) == 0);
    /* a name that the caller gives goes first, and the other libraries do not care */
    refuse(NCCL, FAKE_DIR "/fake-nccl-old.so", STATUS_UNSUPPORTED, "NCCL is version 2.18.5",
           "2.19.1", "install NCCL 2");
    CHECK_EQ(load(CUDNN, FAKE_DIR "/fake-cudnn-good.so", &err), STATUS_OK);
}

TEST(an_unusable_ddp_nccl_is_no_other_nccl)
{
    char file[600], folder[PATH_MAX + 100];
    FILE *text;

    refuse_asked("/nowhere/libnccl.so.2", STATUS_NOT_FOUND,
                 "NCCL of DDP_NCCL cannot be opened (/nowhere/libnccl.so.2: No such file or "
                 "directory)",
                 "name another file, or unset DDP_NCCL", "");
    refuse_asked(FAKE_DIR "/fake-nccl-old.so", STATUS_UNSUPPORTED,
                 "NCCL of DDP_NCCL is version 2.18.5", "fake-nccl-old.so), 2.19.1",
                 "unset DDP_NCCL");
    refuse_asked(FAKE_DIR "/fake-cudnn-good.so", STATUS_UNSUPPORTED, "NCCL of DDP_NCCL",
                 "fake-cudnn-good.so has no nccl", "it is too old");
    refuse_asked(FAKE_DIR, STATUS_NOT_FOUND, "no regular file", "cannot be opened", "");
    /* a file of the folder, not what the dynamic linker finds by that name */
    refuse_asked("libc.so.6", STATUS_NOT_FOUND, "libc.so.6: No such file", "DDP_NCCL", "");
    (void)snprintf(file, sizeof file, "%s/text", test_dir());
    text = fopen(file, "we");
    CHECK(text != NULL && fputs("no library", text) >= 0 && fclose(text) == 0);
    refuse_asked(file, STATUS_NOT_FOUND, "text: file too short", "cannot be opened", "");
    /* the reason fits, however long the path is */
    memset(folder, 'x', sizeof folder - 1);
    folder[0] = '/';
    folder[sizeof folder - 1] = '\0';
    refuse_asked(folder, STATUS_NOT_FOUND, "xxx: File name too long", "unset DDP_NCCL", "");
}

TEST(an_empty_ddp_nccl_names_nothing)
{
    struct err with = {.text = ""}, without = {.text = ""};
    enum status status;

    ask_for("");
    status = load(NCCL, NULL, &with);
    CHECK_EQ(unsetenv("DDP_NCCL"), 0);
    CHECK_EQ(load(NCCL, NULL, &without), status);
    CHECK_STR(with.text, without.text);
}

/* -- fakes beside the real libraries, which load without a driver -- */

static void *open_real(enum which which, const char *name)
{
    struct err err = {.text = ""};
    enum status status = load(which, NULL, &err);
    void *library;

    if (status == STATUS_NOT_FOUND)
        SKIP("not on this machine");
    if (status != STATUS_OK) /* every entry point of its table, and its version */
        FAIL("%s", err.text);
    library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        char path[128];

        (void)snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    CHECK(library != NULL);
    return library;
}

TEST(the_real_libraries_have_every_entry_point)
{
    (void)open_real(CUDNN, "libcudnn.so.9");
    (void)open_real(CUBLASLT, libs_cublaslt_choose(CUDART_VERSION).soname);
    (void)open_real(NCCL, "libnccl.so.2");
}

static const char *error_text(void *library, int code)
{
    const char *(*text)(ncclResult_t code);

    *(void **)&text = dlsym(library, "ncclGetErrorString");
    CHECK(text != NULL);
    return text((ncclResult_t)code);
}

/* Of every code that nccl.h has: tests look for these words. */
TEST(the_fake_nccl_has_nccl_s_words)
{
    void *real = open_real(NCCL, "libnccl.so.2");
    void *fake = dlopen(getenv("DDP_TEST_NCCL"), RTLD_NOW | RTLD_LOCAL);

    CHECK(fake != NULL);
    for (int code = 0; code < ncclNumResults; code++)
        CHECK_STR(error_text(fake, code), error_text(real, code));
}

/* The toolkit's stub has the driver's interface: so ours may have no other function. */
TEST(the_fake_driver_has_the_driver_s_functions)
{
    void *stub = dlopen(STUB_DRIVER, RTLD_NOW | RTLD_LOCAL);
    void *fake = dlopen(getenv("DDP_TEST_DRIVER"), RTLD_NOW | RTLD_LOCAL);

    if (stub == NULL)
        SKIP("the toolkit has no stub of the driver");
    CHECK(fake != NULL);
    CHECK(dlsym(stub, "cuDriverGetVersion") != NULL);
    CHECK(dlsym(fake, "cuDriverGetVersion") != NULL);
}

TEST_MAIN
