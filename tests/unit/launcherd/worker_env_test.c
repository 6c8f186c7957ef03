/* A worker's environment, on nodes with and without GPUs. */
#include "launcherd/worker_env.h"
#include "tests/lib/test.h"

#include <string.h>

static struct arena arena;

static const char *value_of(char *const *envp, const char *name)
{
    size_t bytes = strlen(name);
    const char *found = NULL;

    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, bytes) == 0 && (*envp)[bytes] == '=') {
            CHECK(found == NULL); /* a name stands once */
            found = *envp + bytes + 1;
        }
    return found;
}

static struct msg_start start_of(uint64_t slot_mask, uint32_t local_count)
{
    return (struct msg_start){.cluster = "c",
                              .job_id = 5,
                              .generation = 2,
                              .name = "j",
                              .user = "u",
                              .node_rank = 1,
                              .node_count = 2,
                              .rank_base = 4,
                              .local_count = local_count,
                              .world = 8,
                              .slot_mask = slot_mask,
                              .restart_count = 1,
                              .max_restarts = 3,
                              .cwd = "/"};
}

static char **build(const struct msg_start *start, uint32_t gpus, uint32_t local)
{
    const struct worker_env_facts facts = {.start = start,
                                           .master_addr = "10.0.0.1",
                                           .master_port = 4000,
                                           .node_name = "node1",
                                           .node_address = "10.0.0.2",
                                           .gpus = gpus,
                                           .token = "t",
                                           .error_dir = "/errors",
                                           .home = "/home/u",
                                           .shim_fd = 3};
    char **envp;

    arena_reset(&arena);
    envp = worker_env_build(&facts, local, &arena);
    CHECK(envp != NULL);
    return envp;
}

TEST(a_job_sees_its_own_gpus_and_local_rank_counts_them)
{
    struct msg_start start = start_of(0xb4, 4); /* slots 2, 4, 5 and 7 */
    char **envp = build(&start, 8, 2);

    CHECK_STR(value_of(envp, "CUDA_VISIBLE_DEVICES"), "2,4,5,7");
    CHECK_STR(value_of(envp, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    CHECK_STR(value_of(envp, "LOCAL_RANK"), "2");
    CHECK_STR(value_of(envp, "RANK"), "6");
    CHECK_EQ(worker_env_slot(start.slot_mask, 2), 5);
    arena_reset(&arena);
}

TEST(a_cpu_node_says_nothing_of_gpus)
{
    struct msg_start start = start_of(1, 1);
    const struct msg_pair mine[] = {{"CUDA_VISIBLE_DEVICES", "7"}};
    char **envp = build(&start, 0, 0);

    CHECK(value_of(envp, "CUDA_VISIBLE_DEVICES") == NULL);
    start.env = (struct msg_pair_list){mine, 1};
    CHECK_STR(value_of(build(&start, 0, 0), "CUDA_VISIBLE_DEVICES"),
              "7"); /* as torchrun: inherited */
    CHECK_STR(value_of(build(&start, 8, 0), "CUDA_VISIBLE_DEVICES"), "0"); /* the job's slots win */
    arena_reset(&arena);
}

TEST(what_the_user_brings_stays_unless_it_is_ours)
{
    struct msg_start start = start_of(3, 2);
    const struct msg_pair mine[] = {{"RANK", "99"},
                                    {"OMP_NUM_THREADS", "8"},
                                    {"PATH", "/mine"},
                                    {"X", ""},
                                    {"DDP_SHIM_FD", "9"}};
    char **envp;

    start.env = (struct msg_pair_list){mine, 5};
    envp = build(&start, 0, 1);
    CHECK_STR(value_of(envp, "RANK"), "5");
    CHECK_STR(value_of(envp, "OMP_NUM_THREADS"), "8");
    CHECK_STR(worker_env_path(envp), "/mine");
    CHECK_STR(value_of(envp, "X"), "");
    CHECK_STR(value_of(envp, "DDP_SHIM_FD"), "3");
    CHECK_STR(value_of(envp, "HOME"), "/home/u");
    CHECK_STR(value_of(envp, "TORCHELASTIC_RESTART_COUNT"), "1");
    CHECK_STR(value_of(envp, "MASTER_PORT"), "4000");
    CHECK_STR(value_of(envp, "GROUP_WORLD_SIZE"), "2");
    arena_reset(&arena);
}

TEST_MAIN
