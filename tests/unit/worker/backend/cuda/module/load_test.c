/* The loader's refusals name the library, the version and what to do. No case needs CUDA; the last
 * one runs the real module if it was built. */
#include "worker/backend/cuda/module/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

/* Load `module` (a file of WRONG_DIR) with `driver` and expect `status`, with every word in the
 * sentence. */
static void refuse(const char *module, const char *driver, enum status status, const char *word1,
                   const char *word2)
{
    struct cuda_load_options options = {.module_path = module, .driver_name = driver};
    const struct cuda_module *loaded = NULL;
    struct cuda_device device;
    struct err err = {.status = STATUS_OK};

    CHECK_EQ(cuda_load(&options, &loaded, &device, &err), status);
    CHECK(loaded == NULL);
    if (strstr(err.text, word1) == NULL || strstr(err.text, word2) == NULL)
        FAIL("\"%s\" does not say \"%s\" and \"%s\"", err.text, word1, word2);
}

TEST(missing_module_is_named)
{
    refuse(WRONG_DIR "/nowhere.so", NULL, STATUS_NOT_FOUND, "nowhere.so", "not there");
}

TEST(build_without_cuda_says_so)
{
    CHECK_EQ(unsetenv("DDP_CUDA_MODULE"), 0);
    refuse(NULL, NULL, STATUS_NOT_FOUND, "-Dcuda=enabled", "--device cpu");
}

TEST(environment_names_the_module)
{
    CHECK_EQ(setenv("DDP_CUDA_MODULE", WRONG_DIR "/from-environment.so", 1), 0);
    refuse(NULL, NULL, STATUS_NOT_FOUND, "from-environment.so", "not there");
    CHECK_EQ(unsetenv("DDP_CUDA_MODULE"), 0);
}

TEST(module_of_another_version_is_refused)
{
    char theirs[32], ours[32];

    (void)snprintf(theirs, sizeof theirs, "interface %d", CUDA_MODULE_ABI + 1);
    (void)snprintf(ours, sizeof ours, "this program %d", CUDA_MODULE_ABI);
    refuse(WRONG_DIR "/wrong-other-abi.so", NULL, STATUS_CONFLICT, theirs, ours);
}

TEST(other_library_is_refused)
{
    refuse(WRONG_DIR "/wrong-no-entry.so", NULL, STATUS_CONFLICT, "not a ddp CUDA module",
           CUDA_MODULE_SYMBOL);
}

TEST(undefined_symbol_is_named)
{
    refuse(WRONG_DIR "/wrong-undefined.so", NULL, STATUS_CONFLICT, "undefined symbol",
           "defined_nowhere");
}

TEST(missing_driver_is_named_with_the_version)
{
    refuse(WRONG_DIR "/wrong-good.so", "libcuda-nowhere.so.1", STATUS_UNSUPPORTED,
           "libcuda-nowhere.so.1", "CUDA 13.0");
}

TEST(old_driver_is_named_with_both_versions)
{
    refuse(WRONG_DIR "/wrong-good.so", WRONG_DIR "/wrong-old-driver.so", STATUS_UNSUPPORTED,
           "serves CUDA 12.2", "needs 13.0");
}

/* Minor version compatibility: any driver of the same major version serves the module. */
TEST(a_module_of_cuda_12_takes_a_driver_of_cuda_12)
{
    refuse(WRONG_DIR "/wrong-cuda-12.so", WRONG_DIR "/wrong-old-driver.so", STATUS_UNSUPPORTED,
           "a test's module", "has no device"); /* the driver was taken */
    refuse(WRONG_DIR "/wrong-cuda-12.so", "libcuda-nowhere.so.1", STATUS_UNSUPPORTED,
           "this build (CUDA 12.8)", "driver for CUDA 12 or newer");
}

TEST(driver_without_version_is_refused)
{
    refuse(WRONG_DIR "/wrong-good.so", WRONG_DIR "/wrong-no-entry.so", STATUS_UNSUPPORTED,
           "wrong-no-entry.so", "cuDriverGetVersion");
}

TEST(real_module_without_driver_is_refused)
{
    const char *module = getenv("DDP_TEST_MODULE");

    if (module == NULL)
        SKIP("DDP_TEST_MODULE is not set: built without CUDA, or not run by meson");
    refuse(module, "libcuda-nowhere.so.1", STATUS_UNSUPPORTED, "libcuda-nowhere.so.1", "driver");
}

/* Without a GPU the real runtime says why; with one, it describes it. */
TEST(real_module_answers_on_this_machine)
{
    struct cuda_load_options options = {.module_path = getenv("DDP_TEST_MODULE")};
    const struct cuda_module *module = NULL;
    struct cuda_device device;
    struct err err = {.status = STATUS_OK};
    enum status status;

    if (options.module_path == NULL)
        SKIP("DDP_TEST_MODULE is not set: built without CUDA, or not run by meson");
    status = cuda_load(&options, &module, &device, &err);
    if (status != STATUS_OK) {
        CHECK_EQ(status, STATUS_UNSUPPORTED);
        CHECK(strlen(err.text) > 0);
        return;
    }
    CHECK_EQ(module->abi, CUDA_MODULE_ABI);
    CHECK(device.device_count > 0 && device.name[0] != '\0' && device.capability >= 80);
}

TEST_MAIN
