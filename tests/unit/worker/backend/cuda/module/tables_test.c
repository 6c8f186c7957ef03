/* The real module and the stand-in one, as the worker resolves them: every kernel by its name,
 * every slot of every table, every kind of plan. Needs neither a GPU nor a driver. */
#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/plans_tools.h"
#include "worker/backend/cuda/exec/kernels.h"
#include "worker/backend/cuda/module/load.h"

static const struct cuda_module *load(const char *variable)
{
    const struct cuda_module *module = NULL;
    const char *path = getenv(variable);
    struct err err = {.text = ""};

    if (path == NULL)
        SKIP("DDP_TEST_MODULE is not set: built without CUDA, or not run by meson");
    if (cuda_load_module(path, &module, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return module;
}

static const struct cuda_module *load_real(void)
{
    const struct cuda_module *module = load("DDP_TEST_MODULE");

    if (module->plans == NULL)
        SKIP("built without the headers of cuDNN, cuBLAS or NCCL");
    return module;
}

static void resolve(const struct cuda_module *module)
{
    struct cuda_kernels kernels;
    struct err err = {.text = ""};

    if (cuda_module_resolve(module, &kernels, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

TEST(the_real_module_has_all_that_the_worker_asks_for)
{
    resolve(load_real());
}

TEST(the_stand_in_has_it_too)
{
    resolve(load("DDP_TEST_STANDIN"));
}

/* Slots of the module's own table, from device_count on: filled in one as in the other. */
static uint64_t filled(const struct cuda_module *module)
{
    enum { FIRST = offsetof(struct cuda_module, device_count) };
    const size_t count = (sizeof *module - FIRST) / sizeof(void *);
    uint64_t bits = 0;

    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) {
        void *slot;

        memcpy(&slot, (const char *)module + FIRST + i * sizeof slot, sizeof slot);
        bits |= (uint64_t)(slot != NULL) << i;
    }
    return bits;
}

TEST(both_have_the_same_slots_and_kernels)
{
    const struct cuda_module *real = load_real(), *standin = load("DDP_TEST_STANDIN");

    CHECK_EQ(filled(real), filled(standin));
    CHECK(filled(real) != 0);
    CHECK(real->kernel("no_such_kernel") == NULL && standin->kernel("no_such_kernel") == NULL);
    CHECK(real->kernel("columns_bytes") == NULL && standin->kernel("columns_bytes") == NULL);
}

/* Kernels that a header declares ("int kernel_NAME(") and the module does not have. */
static void check_header(const struct cuda_module *module, const char *path, uint32_t *found)
{
    FILE *file = fopen(path, "re");
    char line[512], name[64];

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "int kernel_%63[a-z0-9_](", name) != 1)
            continue;
        if (module->kernel(name) == NULL)
            FAIL("%s declares kernel_%s, which is not in KERNEL_TABLE", path, name);
        (*found)++;
    }
    CHECK_EQ(fclose(file), 0);
}

TEST(every_kernel_of_the_headers_is_in_the_module)
{
    const struct cuda_module *real = load_real();
    uint32_t found = 0;
    glob_t headers;

    CHECK_EQ(glob(test_source("kernels/*.h"), 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++)
        check_header(real, headers.gl_pathv[i], &found);
    globfree(&headers);
    CHECK(found > 20);
}

static const char *lost_kernel;
static kernel_function (*find_all)(const char *name);

static kernel_function find_all_but_one(const char *name)
{
    return strcmp(name, lost_kernel) == 0 ? NULL : find_all(name);
}

static void refuse(const struct cuda_module *module, enum status status, const char *words)
{
    struct cuda_kernels kernels;
    struct err err = {.text = ""};

    CHECK_EQ(cuda_module_resolve(module, &kernels, &err), status);
    if (strstr(err.text, words) == NULL)
        FAIL("\"%s\" does not say \"%s\"", err.text, words);
}

TEST(what_is_missing_is_named)
{
    struct cuda_module broken = *load("DDP_TEST_STANDIN");
    struct cuda_nccl nccl = *broken.nccl;

    find_all = broken.kernel;
    lost_kernel = "lookahead_before";
    broken.kernel = find_all_but_one;
    refuse(&broken, STATUS_CONFLICT, "no kernel lookahead_before");
    lost_kernel = "";
    broken.nccl = &nccl;
    nccl.close = NULL;
    refuse(&broken, STATUS_CONFLICT, "of its NCCL table is empty");
    broken.plans = NULL;
    refuse(&broken, STATUS_UNSUPPORTED, "without cuDNN");
}

/* Of a net that has all kinds of layers, on a described GPU: built by the module's own table. */
TEST(the_real_module_builds_plans)
{
    const struct cuda_module *real = load_real();
    const struct plan_options options = {.device_file = describe_device(90), .cache_folder = ""};
    struct plan_set *set = NULL;
    struct err err = {.text = ""};
    uint32_t count, built = 0;
    struct plan_request *requests = model_requests("convnet", 28, 8, 2, GRAPH_F16, true, &count);
    enum status status = real->plans->open(&set, &options, &err);

    if (status == STATUS_NOT_FOUND)
        SKIP("no cuDNN or cublasLt on this machine");
    if (status != STATUS_OK || real->plans->build(set, requests, count, &err) != STATUS_OK)
        FAIL("%s", err.text);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = real->plans->info(set, i);

        built += info->status == STATUS_OK;
        if (info->status != STATUS_OK && !info->needs_driver)
            FAIL("%s: %s", plan_kind_name(requests[i].kind), info->engine);
    }
    CHECK(built > 0);
    real->plans->close(&set);
    CHECK(set == NULL);
    free(requests);
}

TEST_MAIN
