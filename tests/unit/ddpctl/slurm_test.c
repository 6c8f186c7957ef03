/* Parsing of Slurm's variables, the lines between `run --slurm` and its tasks, and the addresses in them. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/slurm_env.h"
#include "ddpctl/slurm_reach.h"
#include "ddpctl/slurm_talk.h"
#include "tests/lib/test.h"

static struct err err;
static struct slurm_env env;

#define READ(...) slurm_env_read((char *[]){__VA_ARGS__, NULL}, &env, &err)
#define ID "SLURM_JOB_ID=12", "SLURM_JOB_NUM_NODES=3"

TEST(an_allocation_is_needed)
{
    CHECK_EQ(READ("PATH=/bin", "SLURM_JOB_IDS=1"), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "SLURM_JOB_ID is not set") != NULL);
    CHECK_EQ(READ("SLURM_JOB_ID="), STATUS_NOT_FOUND);
    CHECK_EQ(READ("SLURM_JOB_ID=../7", "SLURM_NNODES=1"), STATUS_BAD_INPUT);
    CHECK_EQ(READ("SLURM_JOB_ID=7"), STATUS_NOT_FOUND);
    CHECK_EQ(READ("SLURM_JOB_ID=7", "SLURM_NNODES=4"), STATUS_OK);
    CHECK_EQ(env.nodes, 4);
    CHECK_STR(env.job_id, "7");
    CHECK_EQ(
        READ("SLURM_JOB_ID=7", "SLURM_NNODES=1", "SLURM_JOB_NUM_NODES=2", "SLURM_RESTART_COUNT=5"),
        STATUS_OK); /* the first variable is for the step */
    CHECK_EQ(env.nodes, 2);
    CHECK_EQ(env.restart_count, 5);
    CHECK_EQ(READ("SLURM_JOB_ID=7", "SLURM_NNODES=99999999999"), STATUS_BAD_INPUT);
}

TEST(what_would_run_the_job_wrongly_is_refused)
{
    CHECK_EQ(READ(ID, "SLURM_HET_SIZE=2"), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "job 12 is heterogeneous") != NULL);
    CHECK_EQ(READ("SLURM_JOB_ID=7", "SLURM_HET_SIZE=2"), STATUS_BAD_INPUT); /* it has no size */
    CHECK_EQ(READ(ID, "SLURM_STEP_NUM_TASKS=2"), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "leave out srun") != NULL);
    CHECK_EQ(READ(ID, "SLURM_STEP_NUM_TASKS=1"), STATUS_OK); /* an interactive step */
}

static void expect_nproc(const char *word, uint32_t wanted)
{
    uint32_t nproc = 0;

    CHECK_EQ(slurm_env_nproc(&env, word, &nproc, &err), wanted > 0 ? STATUS_OK : STATUS_NOT_FOUND);
    if (wanted > 0)
        CHECK_EQ(nproc, wanted);
}

TEST(ranks_are_tasks_then_gpus_then_one)
{
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=1(x3)", "SLURM_JOB_CPUS_PER_NODE=16(x3)"), STATUS_OK);
    expect_nproc(NULL, 1);
    expect_nproc("cpu", 16);
    expect_nproc("auto", 16);
    expect_nproc("gpu", 0);
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=1(x3)", "SLURM_GPUS_PER_NODE=8",
                  "SLURM_JOB_CPUS_PER_NODE=16(x2),12"),
             STATUS_OK);
    expect_nproc(NULL, 8);
    expect_nproc("gpu", 8);
    expect_nproc("auto", 8);
    expect_nproc("cpu", 0);
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=4(x3)", "SLURM_GPUS_PER_NODE=8"), STATUS_OK);
    expect_nproc(NULL, 4);
    expect_nproc("gpu", 8);
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=4(x2),3"), STATUS_OK);
    expect_nproc(NULL, 0);
    CHECK(strstr(err.text, "--ntasks-per-node") != NULL);
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=4,4(x2)"), STATUS_OK);
    expect_nproc(NULL, 4);
}

TEST(gpus_are_counted_with_and_without_a_type)
{
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=a100:4"), STATUS_OK);
    CHECK_EQ(env.gpus, 4);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=a100:2,v100:1"), STATUS_OK);
    CHECK_EQ(env.gpus, 3);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=4", "SLURM_GPUS_ON_NODE=2"), STATUS_OK);
    CHECK_EQ(env.gpus, 2);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=a100:"), STATUS_BAD_INPUT);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=a100"), STATUS_BAD_INPUT);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=4,"), STATUS_BAD_INPUT);
    CHECK_EQ(READ(ID, "SLURM_GPUS_PER_NODE=4000000000"), STATUS_BAD_INPUT);
}

TEST(lists_of_nodes_are_strict)
{
    static const char *const bad[] = {"",       "x",  "4(", "4(x",  "4(x2",
                                      "4(x2)3", "4,", ",4", "4(x)", "-1"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];

        (void)snprintf(text, sizeof text, "SLURM_TASKS_PER_NODE=%s", bad[i]);
        CHECK_EQ(READ(ID, text), STATUS_BAD_INPUT);
    }
    CHECK_EQ(READ(ID, "SLURM_TASKS_PER_NODE=65(x3)"), STATUS_OK);
    uint32_t nproc;
    CHECK_EQ(slurm_env_nproc(&env, NULL, &nproc, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "has 65 tasks on a node") != NULL);
    CHECK_EQ(READ(ID, "SLURM_GPUS_ON_NODE=65"), STATUS_OK);
    CHECK_EQ(slurm_env_nproc(&env, NULL, &nproc, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "has 65 GPUs on a node") != NULL);
}

static void expect_nodes(uint32_t wanted, uint32_t least, uint32_t spares, uint32_t nodes)
{
    uint32_t count = wanted;

    CHECK_EQ(slurm_env_nodes(&env, least, spares, &count, &err),
             nodes > 0 ? STATUS_OK : STATUS_TOO_BIG);
    if (nodes > 0)
        CHECK_EQ(count, nodes);
}

TEST(nodes_fit_in_the_allocation)
{
    CHECK_EQ(READ(ID), STATUS_OK);
    expect_nodes(0, 0, 0, 3);
    expect_nodes(2, 0, 0, 2);
    expect_nodes(3, 0, 0, 3);
    expect_nodes(4, 0, 0, 0);
    expect_nodes(0, 0, 1, 2); /* the other one is the spare */
    expect_nodes(3, 0, 1, 0);
    expect_nodes(0, 0, 3, 0);
    expect_nodes(8, 2, 0, 3); /* --nodes 2:8 */
    expect_nodes(8, 4, 0, 0);
}

TEST(variables_of_a_task_go_to_nobody)
{
    CHECK(slurm_env_is_of_task("SLURM_PROCID=0"));
    CHECK(slurm_env_is_of_task("SLURM_STEP_ID=0"));
    CHECK(slurm_env_is_of_task("PMIX_RANK=0"));
    CHECK(!slurm_env_is_of_task("SLURM_PROCIDS=0"));
    CHECK(!slurm_env_is_of_task("SLURM_JOB_ID=0"));
    CHECK(!slurm_env_is_of_task("CUDA_VISIBLE_DEVICES=0"));
    CHECK(slurm_env_is_of_srun("SLURM_NTASKS_PER_NODE=8"));
    CHECK(slurm_env_is_of_srun("SLURM_CPUS_PER_TASK=8"));
    CHECK(slurm_env_is_of_srun("SLURM_HOSTFILE=nodes"));
    CHECK(!slurm_env_is_of_srun("SLURM_JOB_ID=1"));
    CHECK(!slurm_env_is_of_srun("SLURM_GPUS_PER_NODE=1"));
}

/* -- lines ------------------------------------------------------------------------------------- */

TEST(a_line_is_read_as_it_was_written)
{
    struct buf out = {0};
    struct slurm_line line;

    for (enum slurm_word word = SLURM_HERE; word <= SLURM_STOP; word++) {
        out.byte_count = 0;
        slurm_line_add(&out, word, 4095, "ddp://h:1/n#s with words\nand an end\r");
        CHECK_EQ(out.bytes[out.byte_count - 1], '\n');
        out.bytes[out.byte_count - 1] = '\0';
        CHECK(strchr(out.bytes, '\n') == NULL);
        CHECK(slurm_line_parse(out.bytes, &line));
        CHECK_EQ(line.word, word);
        CHECK_EQ(line.node, 4095);
        CHECK_STR(line.text, "ddp://h:1/n#s with words and an end ");
    }
    buf_free(&out);
}

TEST(other_lines_are_none_of_ours)
{
    static const char *const bad[] = {"",
                                      "hello",
                                      "ddp-slurm:",
                                      "ddp-slurm: ",
                                      "ddp-slurm: here",
                                      "ddp-slurm: here ",
                                      "ddp-slurm: here 1",
                                      "ddp-slurm: here x n0",
                                      "ddp-slurm: here 123456789 n0",
                                      "ddp-slurm: her 1 n0",
                                      "ddp-slurm: heree 1 n0",
                                      " ddp-slurm: here 1 n0"};
    struct slurm_line line;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!slurm_line_parse(bad[i], &line));
}

TEST(our_line_is_found_behind_other_bytes)
{
    static const char glued[] = "Loading modules... ddp-slurm: here 1 n0";

    CHECK_STR(slurm_line_find(glued), "ddp-slurm: here 1 n0");
    CHECK_STR(slurm_line_find("ddp-slurm: here 1 n0"), "ddp-slurm: here 1 n0");
    CHECK(slurm_line_find("ddp-slurm") == NULL);
}

struct taken {
    uint32_t count;
    char text[64];
    size_t byte_count;
};

static void take(void *owner, const char *line)
{
    struct taken *taken = owner;

    taken->count++;
    taken->byte_count += strlen(line);
    (void)snprintf(taken->text, sizeof taken->text, "%s", line);
}

TEST(lines_come_whole_however_the_stream_is_cut)
{
    static const char text[] = "one\ntwo\n\nthree";

    for (size_t cut = 0; cut <= sizeof text - 1; cut++) {
        struct slurm_lines lines = {.byte_count = 0};
        struct taken taken = {.count = 0};

        slurm_lines_add(&lines, text, cut, take, &taken);
        slurm_lines_add(&lines, text + cut, sizeof text - 1 - cut, take, &taken);
        CHECK_EQ(taken.count, 3);
        slurm_lines_add(&lines, "\n", 1, take, &taken);
        CHECK_EQ(taken.count, 4);
        CHECK_STR(taken.text, "three");
    }
}

TEST(a_line_without_an_end_comes_in_pieces)
{
    struct slurm_lines lines = {.byte_count = 0};
    struct taken taken = {.count = 0};

    for (uint32_t i = 0; i < 2 * SLURM_LINE_BYTES_MAX; i++)
        slurm_lines_add(&lines, i == 7 ? "" : "x", 1, take, &taken); /* and a NUL */
    CHECK_EQ(taken.count, 2);
    CHECK_EQ(taken.byte_count, 2 * (SLURM_LINE_BYTES_MAX - 1));
}

TEST(addresses_are_taken_from_a_list)
{
    char address[16];

    CHECK(slurm_address("a:1,b:2,c:3", 0, address, sizeof address));
    CHECK_STR(address, "a:1");
    CHECK(slurm_address("a:1,b:2,c:3", 2, address, sizeof address));
    CHECK_STR(address, "c:3");
    CHECK(!slurm_address("a:1,b:2,c:3", 3, address, sizeof address));
    CHECK(!slurm_address("", 0, address, sizeof address));
    CHECK(!slurm_address("0123456789abcdef", 0, address, sizeof address));
}

struct own {
    struct ifaddrs list[8];
    struct sockaddr_storage addresses[8];
    uint32_t count;
};

static void add_own(struct own *own, const char *host)
{
    const uint32_t i = own->count++;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&own->addresses[i];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&own->addresses[i];

    v4->sin_family = AF_INET;
    if (inet_pton(AF_INET, host, &v4->sin_addr) != 1) {
        v6->sin6_family = AF_INET6;
        CHECK_EQ(inet_pton(AF_INET6, host, &v6->sin6_addr), 1);
    }
    own->list[i] = (struct ifaddrs){.ifa_addr = (struct sockaddr *)v4, .ifa_flags = IFF_UP};
    if (i > 0)
        own->list[i - 1].ifa_next = &own->list[i];
}

TEST(nodes_with_ipv6_alone)
{
    char list[SLURM_LINE_BYTES_MAX];
    struct own own = {0};

    add_own(&own, "127.0.0.1");
    add_own(&own, "::1");
    add_own(&own, "fe80::1");
    CHECK_STR(slurm_reach_any(own.list), "0.0.0.0");
    slurm_reach_list(own.list, NULL, 7, list);
    CHECK_STR(list, "127.0.0.1:7");
    add_own(&own, "fd77::1");
    add_own(&own, "fd88::1");
    CHECK_STR(slurm_reach_any(own.list), "[::]");
    slurm_reach_list(own.list, "fd88::1", 7, list);
    CHECK_STR(list, "[fd88::1]:7,[fd77::1]:7,127.0.0.1:7,[::1]:7");
    add_own(&own, "10.0.0.1");
    CHECK_STR(slurm_reach_any(own.list), "0.0.0.0");
    slurm_reach_list(own.list, NULL, 7, list);
    CHECK_STR(list, "10.0.0.1:7,127.0.0.1:7");
}

TEST_MAIN
