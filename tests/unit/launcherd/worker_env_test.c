/* A worker's environment, on nodes with and without GPUs. */
#include "common/launch.h"
#include "launcherd/shim/worker_argv.h"
#include "launcherd/shim/worker_env.h"
#include "tests/lib/test.h"

#include <string.h>

static struct arena arena;

static const char *value_of(char *const *envp, const char *name)
{
    size_t bytes = strlen(name);
    const char *found = NULL;

    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, bytes) == 0 && (*envp)[bytes] == '=') {
            CHECK(found == NULL); /* each name is there once */
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
                              .checkpoint_step = 1200,
                              .cwd = "/"};
}

static char **build(const struct msg_start *start, uint32_t gpus, uint32_t local)
{
    const struct worker_env_facts facts = {.start = start,
                                           .master_addr = "10.0.0.1",
                                           .master_port = 4000,
                                           .node_name = "node1",
                                           .node_address = "10.0.0.2",
                                           .interface = "eth1",
                                           .gpus = gpus,
                                           .token = "t",
                                           .error_dir = "/errors",
                                           .user = "u",
                                           .home = "/home/u",
                                           .shell = "/bin/sh",
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

TEST(a_cpu_node_sets_no_gpu_variables)
{
    struct msg_start start = start_of(1, 1);
    const struct msg_pair mine[] = {{"CUDA_VISIBLE_DEVICES", "7"}};
    char **envp = build(&start, 0, 0);

    CHECK(value_of(envp, "CUDA_VISIBLE_DEVICES") == NULL);
    start.env = (struct msg_pair_list){mine, 1};
    CHECK_STR(value_of(build(&start, 0, 0), "CUDA_VISIBLE_DEVICES"),
              "7"); /* inherited, as with torchrun */
    CHECK_STR(value_of(build(&start, 8, 0), "CUDA_VISIBLE_DEVICES"), "0"); /* the job's slots win */
    arena_reset(&arena);
}

TEST(nccl_gloo_and_tensorpipe_use_the_interface_of_the_node_unless_the_job_names_one)
{
    struct msg_start start = start_of(1, 1);
    const struct msg_pair mine[] = {{"NCCL_SOCKET_IFNAME", "ib0"}};
    char **envp = build(&start, 0, 0);

    CHECK_STR(value_of(envp, "NCCL_SOCKET_IFNAME"), "=eth1");
    CHECK_STR(value_of(envp, "GLOO_SOCKET_IFNAME"), "eth1");
    CHECK_STR(value_of(envp, "TP_SOCKET_IFNAME"), "eth1");
    start.env = (struct msg_pair_list){mine, 1};
    envp = build(&start, 0, 0);
    CHECK_STR(value_of(envp, "NCCL_SOCKET_IFNAME"), "ib0");
    CHECK_STR(value_of(envp, "GLOO_SOCKET_IFNAME"), "eth1");
    arena_reset(&arena);
}

TEST(variables_of_the_user_stay_unless_they_are_ours)
{
    struct msg_start start = start_of(3, 2);
    const struct msg_pair mine[] = {{"RANK", "99"},       {"OMP_NUM_THREADS", "8"},
                                    {"PATH", "/mine"},    {"X", ""},
                                    {"DDP_SHIM_FD", "9"}, {"DDP_CHECKPOINT_STEP", "7"}};
    char **envp;

    start.env = (struct msg_pair_list){mine, 6};
    envp = build(&start, 0, 1);
    CHECK_STR(value_of(envp, "RANK"), "5");
    CHECK_STR(value_of(envp, "OMP_NUM_THREADS"), "8");
    CHECK_STR(worker_env_path(envp), "/mine");
    CHECK_STR(value_of(envp, "X"), "");
    CHECK_STR(value_of(envp, "DDP_SHIM_FD"), "3");
    CHECK_STR(value_of(envp, "DDP_CHECKPOINT_STEP"), "1200");
    CHECK_STR(value_of(envp, "DDP_METRICS"), "/errors/rank5.metrics.jsonl");
    CHECK_STR(value_of(envp, "HOME"), "/home/u");
    CHECK_STR(value_of(envp, "TORCHELASTIC_RESTART_COUNT"), "1");
    CHECK_STR(value_of(envp, "MASTER_PORT"), "4000");
    CHECK_STR(value_of(envp, "GROUP_WORLD_SIZE"), "2");
    arena_reset(&arena);
}

/* --role and --virtual-local-rank, as torchrun has them. */
TEST(a_virtual_local_rank_sees_its_own_gpu_as_the_only_one)
{
    const struct msg_pair launch[] = {{"role", "actor"}, {"virtual-local-rank", "on"}};
    struct msg_start start = start_of(0xb4, 4); /* slots 2, 4, 5 and 7 */
    char **envp;

    start.launch = (struct msg_pair_list){launch, 2};
    envp = build(&start, 8, 2);
    CHECK_STR(value_of(envp, "LOCAL_RANK"), "0");
    CHECK_STR(value_of(envp, "RANK"), "6");
    CHECK_STR(value_of(envp, "LOCAL_WORLD_SIZE"), "4");
    CHECK_STR(value_of(envp, "CUDA_VISIBLE_DEVICES"), "5");
    CHECK_STR(value_of(envp, "ROLE_NAME"), "actor");
    arena_reset(&arena);
}

TEST(other_launchers_variables_come_on_request_and_beat_inherited_ones)
{
    const struct msg_pair launch[] = {{"env-style", "slurm,horovod,mpi"}};
    const struct msg_pair mine[] = {{"SLURM_PROCID", "99"}, {"SLURM_CLUSTER_NAME", "x"}};
    struct msg_start start = start_of(3, 2);
    char **envp;

    start.name = "train";
    start.cwd = "/work";
    start.env = (struct msg_pair_list){mine, 2};
    CHECK_STR(value_of(build(&start, 0, 1), "SLURM_PROCID"), "99");
    CHECK(value_of(build(&start, 0, 1), "HOROVOD_RANK") == NULL);
    start.launch = (struct msg_pair_list){launch, 1};
    envp = build(&start, 0, 1);
    CHECK_STR(value_of(envp, "RANK"), "5");
    CHECK_STR(value_of(envp, "SLURM_PROCID"), "5");
    CHECK_STR(value_of(envp, "SLURM_LOCALID"), "1");
    CHECK_STR(value_of(envp, "SLURM_NODEID"), value_of(envp, "GROUP_RANK"));
    CHECK_STR(value_of(envp, "SLURM_NTASKS"), value_of(envp, "WORLD_SIZE"));
    CHECK_STR(value_of(envp, "SLURM_NNODES"), "2");
    CHECK_STR(value_of(envp, "SLURM_TASKS_PER_NODE"), "2(x2)");
    CHECK_STR(value_of(envp, "SLURM_JOB_NAME"), "train");
    CHECK(value_of(envp, "SLURM_JOB_NODELIST") == NULL); /* other nodes' names are not known */
    CHECK_STR(value_of(envp, "SLURM_CLUSTER_NAME"), "x");
    CHECK_STR(value_of(envp, "HOROVOD_RANK"), "5");
    CHECK_STR(value_of(envp, "HOROVOD_LOCAL_SIZE"), "2");
    CHECK_STR(value_of(envp, "HOROVOD_CROSS_SIZE"), "2");
    CHECK(value_of(envp, "HOROVOD_GLOO_RENDEZVOUS_ADDR") == NULL); /* this job has no store */
    CHECK_STR(value_of(envp, "OMPI_COMM_WORLD_RANK"), "5");
    CHECK_STR(value_of(envp, "OMPI_COMM_WORLD_LOCAL_RANK"), "1");
    CHECK_STR(value_of(envp, "PMI_SIZE"), value_of(envp, "WORLD_SIZE"));
    CHECK_STR(value_of(envp, "MV2_COMM_WORLD_LOCAL_SIZE"), "2");
    arena_reset(&arena);
}

TEST(mpi_init_of_several_ranks_is_refused_unless_the_job_says_otherwise)
{
    const struct msg_pair launch[] = {{"env-style", "mpi"}};
    const struct msg_pair mine[] = {{"PMI_PORT", "head:7"}};
    struct msg_start start = start_of(3, 2);
    char **envp = build(&start, 0, 1);

    CHECK(value_of(envp, "OMPI_MCA_schizo") == NULL);
    start.launch = (struct msg_pair_list){launch, 1};
    envp = build(&start, 0, 1);
    CHECK_STR(value_of(envp, "OMPI_MCA_schizo"), "^orte");
    CHECK_STR(value_of(envp, "PMI_PORT"), "127.0.0.1:1");
    start.env = (struct msg_pair_list){mine, 1};
    CHECK_STR(value_of(build(&start, 0, 1), "PMI_PORT"), "head:7");
    start.world = 1; /* here a world of one is correct */
    start.rank_base = 0;
    start.local_count = 1;
    envp = build(&start, 0, 0);
    CHECK(value_of(envp, "OMPI_MCA_schizo") == NULL);
    arena_reset(&arena);
}

TEST(a_job_of_an_array_knows_its_index)
{
    const struct msg_pair launch[] = {{"env-style", "slurm"}};
    struct msg_start start = start_of(3, 2);
    char **envp = build(&start, 0, 0);

    CHECK(value_of(envp, "DDP_ARRAY_INDEX") == NULL); /* of no array */
    start.array_job = 4;
    start.array_index = 0;
    start.array_count = 2;
    start.array_max = 7;
    envp = build(&start, 0, 0);
    CHECK_STR(value_of(envp, "DDP_ARRAY_JOB_ID"), "4");
    CHECK_STR(value_of(envp, "DDP_ARRAY_INDEX"), "0");
    CHECK_STR(value_of(envp, "DDP_ARRAY_COUNT"), "2");
    CHECK_STR(value_of(envp, "DDP_ARRAY_MIN"), "0");
    CHECK_STR(value_of(envp, "DDP_ARRAY_MAX"), "7");
    CHECK(value_of(envp, "SLURM_ARRAY_TASK_ID") == NULL);
    start.launch = (struct msg_pair_list){launch, 1};
    envp = build(&start, 0, 0);
    CHECK_STR(value_of(envp, "SLURM_ARRAY_JOB_ID"), "4");
    CHECK_STR(value_of(envp, "SLURM_ARRAY_TASK_ID"), "0");
    CHECK_STR(value_of(envp, "SLURM_ARRAY_TASK_COUNT"), "2");
    CHECK_STR(value_of(envp, "SLURM_ARRAY_TASK_MAX"), "7");
    arena_reset(&arena);
}

TEST(an_argument_can_say_the_local_rank)
{
    const char *const words[] = {"python3", "train.py", "--lr", "1"};
    struct msg_start start = start_of(3, 2);
    struct msg_pair launch = {"local-rank-arg", "2:local_rank"};
    char **argv;

    start.argv = (struct msg_text_list){words, 4};
    argv = worker_argv_build(&start, 1, &arena);
    for (int i = 0; i < 4; i++)
        CHECK_STR(argv[i], words[i]);
    CHECK(argv[4] == NULL);
    start.launch = (struct msg_pair_list){&launch, 1};
    argv = worker_argv_build(&start, 1, &arena);
    CHECK_STR(argv[1], "train.py");
    CHECK_STR(argv[2], "--local_rank=1");
    CHECK_STR(argv[3], "--lr");
    CHECK(argv[5] == NULL);
    launch.value = "99:local-rank";
    argv = worker_argv_build(&start, 0, &arena);
    CHECK_STR(argv[4], "--local-rank=0");
    CHECK(argv[5] == NULL);
    arena_reset(&arena);
}

TEST(launch_options_are_checked)
{
    static const struct {
        const char *name, *value;
        bool is_valid;
    } cases[] = {
        {"role", "x", true},
        {"role", "", false},
        {"role", "a\nb", false},
        {"env-style", "slurm", true},
        {"env-style", "torch,mpi", true},
        {"env-style", "slurm,", false},
        {"env-style", "slurmm", false},
        {"env-style", "", false},
        {"virtual-local-rank", "on", true},
        {"virtual-local-rank", "yes", false},
        {"local-rank-arg", "2:local_rank", true},
        {"local-rank-arg", "local_rank", false},
        {"local-rank-arg", "2:", false},
        {"local-rank-arg", "2:-x", false},
        {"local-rank-arg", "2:a b", false},
        {"streams", "one", true},
        {"streams", "two", false},
        {"rolle", "x", false},
        {"umask", "0027", true},
        {"umask", "", false},
        {"umask", "1000", false},
        {"umask", "8", false},
        {"limits", "nofile=4096,core=unlimited", true},
        {"limits", "nofile=4096,nofile=1", false},
        {"limits", "nofile", false},
        {"limits", "nofile=-1", false},
        {"limits", "nofile=1,", false},
        {"limits", "cpu=1", false},
    };
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct msg_pair pair = {cases[i].name, cases[i].value};
        const struct msg_pair_list launch = {&pair, 1};
        CHECK_EQ(launch_check_all(&launch, &err), cases[i].is_valid ? STATUS_OK : STATUS_BAD_INPUT);
        CHECK(cases[i].is_valid || strstr(err.text, cases[i].name) != NULL);
    }
}

TEST(a_job_sets_variables_but_not_ours)
{
    const struct msg_pair pairs[] = {
        {"OWN_1", "a"},   {"DDP_JOB_ID", "9"},  {"DDP_OTHER", "9"},
        {"USER", "root"}, {"LOGNAME", "root"},  {"NCCL_SOCKET_MAGIC", "9"},
        {"RANK=7", "9"},  {"PWD", "/9"},        {"", "9"},
        {"HOME", "/h"},   {"NCCL_SOCKET", "b"}, {"BASH_FUNC_x%%", "() { :;\n}"},
    };
    struct msg_start start = start_of(1, 1);
    start.env = (struct msg_pair_list){.items = pairs, .count = sizeof pairs / sizeof pairs[0]};
    char **envp = build(&start, 0, 0);

    CHECK_STR(value_of(envp, "OWN_1"), "a");
    CHECK_STR(value_of(envp, "NCCL_SOCKET"), "b");
    CHECK_STR(value_of(envp, "HOME"), "/h");
    CHECK_STR(value_of(envp, "DDP_JOB_ID"), "5");
    CHECK_STR(value_of(envp, "USER"), "u");
    CHECK_STR(value_of(envp, "LOGNAME"), "u");
    CHECK_STR(value_of(envp, "PWD"), "/");
    CHECK_STR(value_of(envp, "BASH_FUNC_x%%"), "() { :;\n}");
    CHECK_STR(value_of(envp, "SHELL"), "/bin/sh");
    CHECK_STR(value_of(envp, "LANG"), "C.UTF-8");
    CHECK_STR(value_of(envp, "PYTHONUNBUFFERED"), "1");
    for (; *envp != NULL; envp++)
        CHECK(strstr(*envp, "=9") == NULL);
    arena_reset(&arena);
}

TEST(a_node_with_chosen_gpus_gives_those)
{
    struct msg_start start = start_of(0x0e, 3); /* slots 1, 2 and 3 */
    const uint32_t devices[] = {7, 5, 6};
    struct worker_env_facts facts = {.start = &start,
                                     .master_addr = "10.0.0.1",
                                     .node_name = "node1",
                                     .node_address = "10.0.0.2",
                                     .gpus = 3,
                                     .devices = devices,
                                     .token = "t",
                                     .error_dir = "/errors",
                                     .user = "u",
                                     .home = "/",
                                     .shell = "/bin/sh"};

    arena_reset(&arena);
    CHECK_STR(value_of(worker_env_build(&facts, 0, &arena), "CUDA_VISIBLE_DEVICES"),
              "5,6"); /* slot 3 has no GPU */
    facts.gpus = 0;
    CHECK(value_of(worker_env_build(&facts, 0, &arena), "CUDA_VISIBLE_DEVICES") == NULL);
    facts.hides_gpus = true;
    CHECK_STR(value_of(worker_env_build(&facts, 0, &arena), "CUDA_VISIBLE_DEVICES"), "");
    arena_reset(&arena);
}

static const char *path_with(const char *name, const char *path, const char *dir)
{
    struct msg_start start = start_of(1, 1);
    const struct msg_pair mine[] = {{name, path}};
    const struct worker_env_facts facts = {.start = &start,
                                           .master_addr = "10.0.0.1",
                                           .node_name = "node1",
                                           .node_address = "10.0.0.2",
                                           .tools_dir = dir,
                                           .python_dir = dir,
                                           .token = "t",
                                           .error_dir = "/errors",
                                           .user = "u",
                                           .home = "/",
                                           .shell = "/bin/sh"};

    start.env = (struct msg_pair_list){mine, path != NULL};
    arena_reset(&arena);
    return value_of(worker_env_build(&facts, 0, &arena), name);
}

TEST(our_folder_is_at_the_end_of_the_path)
{
    CHECK_STR(path_with("PATH", "/a:/b", "/ours"), "/a:/b:/ours");
    CHECK_STR(path_with("PATH", "/a:/ours:/b", "/ours"), "/a:/ours:/b");
    CHECK_STR(path_with("PATH", "/a:/oursX", "/ours"), "/a:/oursX:/ours");
    CHECK_STR(path_with("PATH", "", "/ours"), "/ours");
    CHECK_STR(path_with("PATH", "/a", NULL), "/a");
    CHECK(strstr(path_with("PATH", NULL, "/ours"), ":/bin:/ours") != NULL);
    arena_reset(&arena);
}

TEST(python_finds_our_modules_after_the_job_s)
{
    CHECK_STR(path_with("PYTHONPATH", "/a:/b", "/ours"), "/a:/b:/ours");
    CHECK_STR(path_with("PYTHONPATH", NULL, "/ours"), "/ours");
    CHECK_STR(path_with("PYTHONPATH", "", "/ours"), "/ours");
    CHECK(path_with("PYTHONPATH", NULL, NULL) == NULL);
    CHECK_STR(path_with("PYTHONPATHS", "/a", "/ours"), "/a");
    arena_reset(&arena);
}

TEST_MAIN
