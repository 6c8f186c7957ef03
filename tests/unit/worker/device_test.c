/* --device: words, what auto falls back to, and which worlds can train together. */
#include "worker/device.h"

#include <stdio.h>
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

/* -- with the stand-in's module and driver -- */

static char used[600]; /* the file that gets a line for each device that is made current */

static void use_standin(const char *devices, const char *capabilities)
{
    const char *module = getenv("DDP_TEST_STANDIN");

    if (module == NULL)
        SKIP("DDP_TEST_STANDIN is not set: not run by meson");
    (void)snprintf(used, sizeof used, "%.500s/used", test_dir());
    (void)remove(used);
    CHECK_EQ(setenv("DDP_CUDA_MODULE", module, 1), 0);
    CHECK_EQ(setenv("STANDIN_DEVICES", devices, 1), 0);
    CHECK_EQ(setenv("STANDIN_CAPABILITIES", capabilities, 1), 0);
    CHECK_EQ(setenv("STANDIN_USED", used, 1), 0);
}

/* Every device that was made current is `index`. */
static void check_used(const char *index)
{
    FILE *file = fopen(used, "re");
    char line[32];
    uint32_t lines = 0;

    CHECK(file != NULL);
    for (; fgets(line, sizeof line, file) != NULL; lines++)
        CHECK_STR(line, index);
    CHECK_EQ(fclose(file), 0);
    CHECK(lines > 0);
}

TEST(the_gpu_that_was_asked_for_is_the_only_one_that_counts)
{
    struct device device;
    struct err notice, err = {.text = ""};

    use_standin("3", "75,90,90");
    if (device_open(&device, "cuda:1", 0, &notice, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_STR(device.identity.name, "stand-in GPU, device 1");
    CHECK_EQ(device.device_count, 3);
    check_used("1\n");
    device_close(&device);
}

TEST(a_rank_touches_its_own_gpu_alone)
{
    struct device device;
    struct err notice, err = {.text = ""};

    use_standin("3", "75,90,90");
    if (device_open(&device, "auto", 5, &notice, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_STR(notice.text, "");
    CHECK_STR(device.identity.name, "stand-in GPU, device 2");
    check_used("2\n");
    device_close(&device);
}

TEST(a_gpu_that_is_too_old_is_refused_by_its_index)
{
    struct device device;
    struct err notice, err = {.text = ""};

    use_standin("2", "90,75");
    CHECK_EQ(device_open(&device, "cuda:1", 0, &notice, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "--device cuda:1: device 1 (stand-in GPU) has compute capability 7.5") !=
          NULL);
    CHECK(fopen(used, "re") == NULL); /* no device was made current */
    CHECK_EQ(device_open(&device, "cuda:2", 0, &notice, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "no CUDA device 2") != NULL);
    CHECK(fopen(used, "re") == NULL);
}

static struct device_identity gpu(uint8_t id)
{
    return (struct device_identity){"cuda", "NVIDIA H200, device 0", {id, 7}};
}

static const struct device_identity cpu = {"cpu", "CPU", {0}};

static const struct device_sharing never = {.nccl = 22809}, shared = {.is_allowed = true};

TEST(ranks_on_gpus_of_their_own)
{
    const struct device_identity identities[] = {gpu(1), gpu(2), gpu(3)};

    CHECK_EQ(device_check_identities(identities, 3, &never, NULL), STATUS_OK);
    CHECK_EQ(device_check_identities(identities, 1, &never, NULL), STATUS_OK);
}

TEST(ranks_on_cpus)
{
    const struct device_identity identities[] = {cpu, cpu};

    CHECK_EQ(device_check_identities(identities, 2, &never, NULL), STATUS_OK);
}

TEST(two_ranks_on_one_gpu)
{
    const struct device_identity identities[] = {gpu(1), gpu(2), gpu(2)};
    struct err err = {.text = ""};

    CHECK_EQ(device_check_identities(identities, 3, &never, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "ranks 1 and 2 are on one GPU (NVIDIA H200, device 0)") != NULL);
    CHECK(strstr(err.text, "--comm gloo") != NULL);
    CHECK_EQ(device_check_identities(identities, 3, &shared, &err), STATUS_OK);
}

static struct device_sharing sharing_of(uint32_t nccl, const char *asked, const char *comm)
{
    const struct device device = {.nccl_found = {.version = nccl}};

    CHECK_EQ(asked != NULL ? setenv("NCCL_MULTI_RANK_GPU_ENABLE", asked, 1)
                           : unsetenv("NCCL_MULTI_RANK_GPU_ENABLE"),
             0);
    return device_sharing(&device, comm);
}

/* The words are whole, also of long names: the remedy comes last. */
static void check_refusal(const struct device_sharing *sharing, const char *words, const char *end)
{
    struct device_identity identities[] = {gpu(2), gpu(2)};
    struct err err = {.text = ""};

    memset(identities[0].name, 'x', sizeof identities[0].name - 1);
    CHECK(!sharing->is_allowed);
    CHECK_EQ(device_check_identities(identities, 2, sharing, &err), STATUS_CONFLICT);
    if (strstr(err.text, words) == NULL || strcmp(strrchr(err.text, ' ') + 1, end) != 0)
        FAIL("%s", err.text);
}

TEST(nccl_2_30_shares_a_gpu_where_it_is_asked_for)
{
    struct device_sharing sharing = sharing_of(23000, "1", "auto");

    CHECK(sharing.is_allowed);
    CHECK(sharing_of(23203, "1", "nccl").is_allowed);
    CHECK(sharing_of(22809, NULL, "gloo").is_allowed);
    sharing = sharing_of(22997, "1", "nccl");
    check_refusal(&sharing,
                  "NCCL 2.29.97 takes one rank a GPU, and with "
                  "NCCL_MULTI_RANK_GPU_ENABLE=1 2.30 or newer takes several: name one in "
                  "DDP_NCCL",
                  "gloo");
    sharing = sharing_of(23007, "0", "auto");
    check_refusal(&sharing, "NCCL takes one rank a GPU.", "one");
    sharing = sharing_of(23007, NULL, "auto");
    check_refusal(&sharing, "or give --comm gloo", "one");
}

TEST(the_first_line_says_which_nccl)
{
    struct device device = {.identity = {.name = "NVIDIA H200, device 0"}};
    char words[512];

    device_words(&device, words, sizeof words);
    CHECK_STR(words, "training on NVIDIA H200, device 0");
    device.nccl_found = (struct nccl_found){23007, "/opt/nccl/libnccl.so.2"};
    device_words(&device, words, sizeof words);
    CHECK_STR(words, "training on NVIDIA H200, device 0, NCCL 2.30.7 of /opt/nccl/libnccl.so.2");
}

TEST(ranks_on_different_kinds)
{
    const struct device_identity identities[] = {gpu(1), cpu};
    struct err err = {.text = ""};

    CHECK_EQ(device_check_identities(identities, 2, &shared, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "rank 0 trains on NVIDIA H200, device 0, rank 1 on CPU") != NULL);
}

TEST_MAIN
