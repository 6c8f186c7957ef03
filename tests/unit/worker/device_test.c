/* --device: words, what auto falls back to, and which worlds can train together. */
#include "worker/device.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

TEST(words)
{
    static const char *const good[] = {"auto", "cpu", "cuda", "cuda:0", "cuda:12"};
    static const char *const bad[] = {"",        "gpu",   "cuda:",   "cuda:x",
                                      "cuda:1x", "cuda1", "cuda:-1", "cuda:99999999999999999999"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK(device_is_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!device_is_valid(bad[i]));
}

TEST(auto_takes_the_cpu_and_says_why)
{
    struct device device;
    struct err notice, err = {.text = ""};

    CHECK_EQ(setenv("DDP_CUDA_MODULE", "/nonexistent/ddp_cuda.so", 1), 0);
    CHECK_EQ(device_open(&device, "auto", 0, &notice, &err), STATUS_OK);
    CHECK(device.backend == &backend_cpu);
    CHECK_STR(device.identity.backend, "cpu");
    CHECK_STR(notice.text,
              "training on the CPU: CUDA module /nonexistent/ddp_cuda.so is not there");
    device_close(&device);
    CHECK_EQ(device_open(&device, "cpu", 0, &notice, &err), STATUS_OK);
    CHECK(device.backend == &backend_cpu && notice.text[0] == '\0');
}

TEST(cuda_fails_with_the_reason)
{
    struct device device;
    struct err notice, err = {.text = ""};

    CHECK_EQ(setenv("DDP_CUDA_MODULE", "/nonexistent/ddp_cuda.so", 1), 0);
    CHECK_EQ(device_open(&device, "cuda:3", 0, &notice, &err), STATUS_NOT_FOUND);
    CHECK_STR(err.text, "--device cuda:3: CUDA module /nonexistent/ddp_cuda.so is not there");
    CHECK_EQ(device_open(&device, "gpu", 0, &notice, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "expected auto, cpu, cuda or cuda:N") != NULL);
}

static struct device_identity gpu(uint8_t id)
{
    return (struct device_identity){"cuda", "NVIDIA H200, device 0", {id, 7}};
}

static const struct device_identity cpu = {"cpu", "CPU", {0}};

TEST(ranks_on_gpus_of_their_own)
{
    const struct device_identity identities[] = {gpu(1), gpu(2), gpu(3)};

    CHECK_EQ(device_check_identities(identities, 3, false, NULL), STATUS_OK);
    CHECK_EQ(device_check_identities(identities, 1, false, NULL), STATUS_OK);
}

TEST(ranks_on_cpus)
{
    const struct device_identity identities[] = {cpu, cpu};

    CHECK_EQ(device_check_identities(identities, 2, false, NULL), STATUS_OK);
}

TEST(two_ranks_on_one_gpu)
{
    const struct device_identity identities[] = {gpu(1), gpu(2), gpu(2)};
    struct err err = {.text = ""};

    CHECK_EQ(device_check_identities(identities, 3, false, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "ranks 1 and 2 are on one GPU (NVIDIA H200, device 0)") != NULL);
    CHECK(strstr(err.text, "--comm gloo") != NULL);
    CHECK_EQ(device_check_identities(identities, 3, true, &err), STATUS_OK);
}

TEST(ranks_on_different_kinds)
{
    const struct device_identity identities[] = {gpu(1), cpu};
    struct err err = {.text = ""};

    CHECK_EQ(device_check_identities(identities, 2, true, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "rank 0 trains on NVIDIA H200, device 0, rank 1 on CPU") != NULL);
}

TEST_MAIN
