/* The judge of `ddpctl doctor`: every check with a good and a bad value, nodes against one another,
 * connections, and docs/doctor.md. */
#include "ddpctl/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/output.h"
#include "tests/lib/test.h"

/* A node with nothing wrong. */
static const char healthy[] =
    "{\"schema\":\"ddp.facts.v1\",\"kernel\":\"6.1.0\",\"up_s\":1000,\"is_root\":1,\"slots\":2,"
    "\"ntp_synchronised\":1,\"host_name\":\"gpu01\",\"host_address\":\"10.0.0.1\","
    "\"address\":\"10.0.0.1\",\"interface\":\"eth0\",\"mtu\":9000,\"is_link_up\":1,"
    "\"is_loopback\":0,\"port_first\":32768,\"port_last\":60999,\"nofile\":65536,"
    "\"nproc\":9e15,\"memlock\":9e15,\"stack\":8388608,"
    "\"has_cgroup\":1,\"has_cgroup_memory\":1,\"ptrace_scope\":1,\"overcommit\":0,"
    "\"transparent_huge_pages\":\"madvise\",\"huge_pages_bytes\":0,\"huge_pages_free_bytes\":0,"
    "\"memory_bytes\":100000000000,\"memory_available_bytes\":90000000000,\"swap_bytes\":0,"
    "\"swap_used_bytes\":0,\"shm_bytes\":50000000000,\"shm_free_bytes\":50000000000,"
    "\"governor\":\"performance\",\"gpu_files\":1,\"gpus\":1,\"driver\":\"570.1\","
    "\"driver_cuda\":12080,\"are_xids_readable\":1,\"has_peermem\":1,\"user\":\"alice\","
    "\"uid\":1000,\"python\":\"/usr/bin/python3\",\"python_version\":\"3.11.2\","
    "\"torch\":\"2.15\",\"cuda\":\"12.8\",\"nccl\":\"2.27.3\",\"cudnn\":\"91002\","
    "\"torch_sees_gpu\":1,"
    "\"disks\":[{\"what\":\"job\",\"path\":\"/data\",\"type\":\"nfs4\",\"source\":\"head:/data\","
    "\"machine\":\"m1\",\"bytes\":1000000000000,\"free_bytes\":500000000000,\"files\":1000,"
    "\"files_free\":900,\"is_writable\":1}],"
    "\"gpu\":[{\"index\":0,\"name\":\"H200\",\"ecc_uncorrected\":0,\"remap_pending\":0,"
    "\"remap_failed\":0,\"retire_pending\":0,\"has_persistence\":1,\"throttle\":1,"
    "\"pcie_width\":16,\"pcie_width_max\":16,\"links_up\":18,\"links_down\":0}],"
    "\"fabric\":[{\"device\":\"mlx5_0\",\"port\":1,\"state\":\"ACTIVE\",\"rate\":\"400 Gb/sec\","
    "\"layer\":\"InfiniBand\"}],"
    "\"names\":[{\"name\":\"gpu01\",\"address\":\"10.0.0.1\"},"
    "{\"name\":\"gpu02\",\"address\":\"10.0.0.2\"}]}";

static const struct doctor_case two_nodes_of_a_job = {.has_job = true, .nodes = 2};

static void add(struct node_facts *facts, const char *json)
{
    struct err err = {0};

    if (node_facts_read(facts, json, strlen(json), &err) != STATUS_OK)
        FAIL("%s: %s", json, err.text);
}

static struct doctor_node *make_node(const char *name, const char *change)
{
    struct doctor_node *node = calloc(1, sizeof *node);

    CHECK(node != NULL);
    (void)snprintf(node->name, sizeof node->name, "%s", name);
    node_facts_init(&node->facts);
    add(&node->facts, healthy);
    if (change != NULL)
        add(&node->facts, change);
    node->has_facts = true;
    return node;
}

static void judge(const struct doctor_case *about, const struct doctor_node *node,
                  struct doctor_findings *out)
{
    out->node = node->name;
    doctor_judge_machine(about, node, out);
    doctor_judge_gpus(about, node, out);
}

static const struct doctor_finding *find(const struct doctor_findings *findings,
                                         enum doctor_check check, enum doctor_level level,
                                         const char *part)
{
    for (uint32_t i = 0; i < findings->count; i++)
        if (findings->items[i].check == check && findings->items[i].level == level &&
            strstr(findings->items[i].text, part) != NULL)
            return &findings->items[i];
    return NULL;
}

TEST(a_healthy_node_has_findings_that_are_ok_alone)
{
    struct doctor_findings findings = {0};
    struct doctor_node *node = make_node("gpu01", NULL);

    node->has_clock = true;
    judge(&two_nodes_of_a_job, node, &findings);
    for (uint32_t i = 0; i < findings.count; i++)
        if (findings.items[i].level != DOCTOR_OK)
            FAIL("%s: %s", doctor_check_name(findings.items[i].check), findings.items[i].text);
    CHECK(findings.count >= 30);
    doctor_findings_free(&findings);
    free(node);
}

/* Changes to a healthy node, and the findings that they must give. */
static const struct {
    const char *change;
    enum doctor_check check;
    enum doctor_level level;
    const char *part;
} changes[] = {
    {"{\"up_s\":59}", DOCTOR_BOOT, DOCTOR_WARN, "started 59s ago, kernel 6.1.0"},
    {"{\"gpu_files\":2}", DOCTOR_DRIVER, DOCTOR_FAIL,
     "2 device files in /dev, but NVML sees 1 GPU"},
    {"{\"ntp_synchronised\":0}", DOCTOR_NTP, DOCTOR_WARN, "no NTP"},
    {"{\"host_address\":\"127.0.1.1\"}", DOCTOR_OWN_NAME, DOCTOR_WARN,
     "gpu01, resolves to 127.0.1.1"},
    {"{\"host_address\":\"::1\"}", DOCTOR_OWN_NAME, DOCTOR_WARN, "no other machine"},
    {"{\"is_link_up\":0}", DOCTOR_INTERFACE, DOCTOR_FAIL, "eth0 (10.0.0.1) is down"},
    {"{\"is_loopback\":1}", DOCTOR_INTERFACE, DOCTOR_WARN, "loopback"},
    {"{\"port_first\":60000}", DOCTOR_PORTS, DOCTOR_WARN, "1000 ports"},
    {"{\"nofile\":20000}", DOCTOR_OPEN_FILES, DOCTOR_WARN, "20000 files"},
    {"{\"nofile\":1024}", DOCTOR_OPEN_FILES, DOCTOR_FAIL, "1024 files"},
    {"{\"nproc\":1024}", DOCTOR_PROCESSES, DOCTOR_WARN, "1024 processes"},
    {"{\"memlock\":65536}", DOCTOR_MEMLOCK, DOCTOR_FAIL, "limit is 64 KiB"},
    {"{\"stack\":65536}", DOCTOR_STACK, DOCTOR_WARN, "64 KiB"},
    {"{\"has_cgroup\":0,\"cgroup_problem\":\"no v2\"}", DOCTOR_CGROUP, DOCTOR_WARN, "(no v2)"},
    {"{\"has_cgroup_memory\":0}", DOCTOR_CGROUP, DOCTOR_WARN, "without the memory controller"},
    {"{\"ptrace_scope\":3}", DOCTOR_PTRACE, DOCTOR_WARN, "ptrace_scope is 3:"},
    {"{\"is_root\":0}", DOCTOR_PTRACE, DOCTOR_WARN, "launcherd is not root"},
    {"{\"overcommit\":2}", DOCTOR_OVERCOMMIT, DOCTOR_WARN, "is 2"},
    {"{\"huge_pages_bytes\":60000000000,\"huge_pages_free_bytes\":60000000000}", DOCTOR_HUGE_PAGES,
     DOCTOR_WARN, "55 GiB"},
    {"{\"shm_bytes\":67108864,\"shm_free_bytes\":60000000}", DOCTOR_SHM, DOCTOR_FAIL,
     "64 MiB, 57 MiB"},
    {"{\"shm_bytes\":134217728,\"shm_free_bytes\":100000000}", DOCTOR_SHM, DOCTOR_WARN,
     "bus error"},
    {"{\"memory_available_bytes\":9000000000}", DOCTOR_MEMORY, DOCTOR_WARN, "8.4 GiB of 93 GiB"},
    {"{\"swap_used_bytes\":2147483648}", DOCTOR_SWAP, DOCTOR_WARN, "2.0 GiB swapped"},
    {"{\"governor\":\"powersave\",\"scaling_driver\":\"acpi-cpufreq\"}", DOCTOR_GOVERNOR,
     DOCTOR_WARN, "powersave"},
    {"{\"disks\":[{\"what\":\"logs\",\"path\":\"/l\",\"is_writable\":1,\"free_bytes\":5000000}]}",
     DOCTOR_DISK, DOCTOR_FAIL, "/l (logs) has only 4 MiB"},
    {"{\"disks\":[{\"what\":\"logs\",\"path\":\"/l\",\"is_writable\":1,\"free_bytes\":500000000}]}",
     DOCTOR_DISK, DOCTOR_WARN, "476 MiB"},
    {"{\"disks\":[{\"what\":\"tmp\",\"path\":\"/"
     "tmp\",\"is_writable\":0,\"free_bytes\":99999999999}]}",
     DOCTOR_DISK, DOCTOR_FAIL, "/tmp (tmp) cannot be written to"},
    {"{\"disks\":[{\"what\":\"tmp\",\"path\":\"/tmp\",\"is_writable\":1,\"free_bytes\":99999999999,"
     "\"files\":1000,\"files_free\":9}]}",
     DOCTOR_DISK, DOCTOR_WARN, "9 inodes"},
    {"{\"disks\":[{\"what\":\"logs\",\"path\":\"/l\",\"problem\":\"Stale file handle\"}]}",
     DOCTOR_DISK, DOCTOR_FAIL, "Stale"},
    {"{\"nvml_problem\":\"Driver/library version mismatch\"}", DOCTOR_DRIVER, DOCTOR_FAIL,
     "mismatch"},
    {"{\"gpu\":[{\"index\":1,\"problem\":\"GPU is lost\"}]}", DOCTOR_GPU, DOCTOR_FAIL,
     "GPU 1: GPU is lost"},
    {"{\"gpu\":[{\"index\":1,\"ecc_uncorrected\":3}]}", DOCTOR_GPU, DOCTOR_FAIL, "3 uncorrected"},
    {"{\"gpu\":[{\"index\":1,\"remap_failed\":1}]}", DOCTOR_GPU, DOCTOR_FAIL,
     "could not be remapped"},
    {"{\"gpu\":[{\"index\":1,\"remap_pending\":1}]}", DOCTOR_GPU, DOCTOR_WARN, "next reset"},
    {"{\"gpu\":[{\"index\":1,\"retire_pending\":1}]}", DOCTOR_GPU, DOCTOR_WARN, "next reset"},
    {"{\"xid\":79,\"xid_text\":\"fallen off the bus\",\"xid_remedy\":\"restart the machine\"}",
     DOCTOR_XID, DOCTOR_FAIL, "Xid 79 in this boot: fallen off the bus; restart"},
    {"{\"are_xids_readable\":0}", DOCTOR_XID, DOCTOR_SKIP, "may not read"},
    {"{\"gpu\":[{\"index\":1,\"has_persistence\":0}]}", DOCTOR_PERSISTENCE, DOCTOR_WARN, "is off"},
    {"{\"gpu\":[{\"index\":1,\"throttle\":64}]}", DOCTOR_THROTTLE, DOCTOR_WARN, "heat (hardware)"},
    {"{\"gpu\":[{\"index\":1,\"throttle\":136}]}", DOCTOR_THROTTLE, DOCTOR_WARN,
     "hardware slowdown, power brake"},
    {"{\"gpu\":[{\"index\":1,\"pcie_width\":4,\"pcie_width_max\":16}]}", DOCTOR_PCIE, DOCTOR_WARN,
     "4 of 16"},
    {"{\"gpu\":[{\"index\":1,\"links_up\":16,\"links_down\":2}]}", DOCTOR_NVLINK, DOCTOR_WARN,
     "16 of 18"},
    {"{\"fabric\":[{\"device\":\"mlx5_1\",\"port\":1,\"state\":\"DOWN\",\"rate\":\"10 Gb/sec\","
     "\"layer\":\"InfiniBand\"}]}",
     DOCTOR_FABRIC, DOCTOR_WARN, "mlx5_1 port 1 (InfiniBand) is DOWN"},
    {"{\"has_peermem\":0}", DOCTOR_PEERMEM, DOCTOR_WARN, "nvidia_peermem is not loaded"},
    {"{\"user_problem\":\"no account alice\"}", DOCTOR_ACCOUNT, DOCTOR_FAIL, "no account alice"},
    {"{\"job_problem\":\"working directory /x does not exist\"}", DOCTOR_JOB, DOCTOR_FAIL, "/x"},
    {"{\"python_problem\":\"ModuleNotFoundError: No module named 'numpy'\"}", DOCTOR_PYTHON,
     DOCTOR_WARN, "numpy"},
    {"{\"torch_sees_gpu\":0}", DOCTOR_CUDA, DOCTOR_FAIL, "sees no GPU, NVML sees 1"},
    {"{\"cuda\":\"13.0\"}", DOCTOR_CUDA, DOCTOR_FAIL,
     "for CUDA 13.0, the driver 570.1 runs CUDA up to 12.8"},
    {"{\"gaps\":[{\"part\":\"gpus\",\"problem\":\"no answer within 15 s\"}]}", DOCTOR_ANSWER,
     DOCTOR_FAIL, "its gpus: no answer"},
    {"{\"gaps\":[{\"part\":\"python\",\"problem\":\"no answer within 40 s\"}]}", DOCTOR_ANSWER,
     DOCTOR_WARN, "its python"},
    {"{\"gaps\":[{\"part\":\"account\",\"problem\":\"the disk of /nfs does not answer (15 s)\"}]}",
     DOCTOR_HANGS, DOCTOR_FAIL, "its account: the disk of /nfs does not answer"},
};

/* Each change gives its finding, and no other check reports a problem. */
TEST(every_bad_value_is_one_finding)
{
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct doctor_findings findings = {0};
        struct doctor_node *node = make_node("gpu01", changes[i].change);

        judge(&two_nodes_of_a_job, node, &findings);
        if (find(&findings, changes[i].check, changes[i].level, changes[i].part) == NULL)
            FAIL("%s: no such finding", changes[i].change);
        for (uint32_t k = 0; k < findings.count; k++)
            if (findings.items[k].level != DOCTOR_OK && findings.items[k].check != changes[i].check)
                FAIL("%s: also %s: %s", changes[i].change,
                     doctor_check_name(findings.items[k].check), findings.items[k].text);
        doctor_findings_free(&findings);
        free(node);
    }
}

/* A single node, without a job, without devices. */
TEST(what_does_not_matter_is_no_warning)
{
    static const struct doctor_case one_node = {.nodes = 1};
    struct doctor_node *node = calloc(1, sizeof *node);
    struct doctor_findings findings = {0};

    CHECK(node != NULL);
    node_facts_init(&node->facts);
    add(&node->facts,
        "{\"is_loopback\":1,\"interface\":\"lo\",\"host_name\":\"a\",\"memlock\":65536,"
        "\"host_address\":\"127.0.1.1\",\"gpu_files\":0,\"shm_bytes\":1000000000,"
        "\"shm_free_bytes\":1000000000,\"user_problem\":\"runs no jobs of root\","
        "\"python_problem\":\"No module named 'torch'\",\"ptrace_scope\":2,\"is_root\":1,"
        "\"governor\":\"powersave\",\"scaling_driver\":\"intel_pstate\"}");
    judge(&one_node, node, &findings);
    for (uint32_t i = 0; i < findings.count; i++)
        if (findings.items[i].level > DOCTOR_SKIP)
            FAIL("%s: %s", doctor_check_name(findings.items[i].check), findings.items[i].text);
    CHECK(find(&findings, DOCTOR_MEMLOCK, DOCTOR_SKIP, "no InfiniBand") != NULL);
    CHECK(find(&findings, DOCTOR_DRIVER, DOCTOR_SKIP, "no NVIDIA") != NULL);
    doctor_findings_free(&findings);
    add(&node->facts, "{\"host_address\":\"\",\"host_problem\":\"Name or service not known\","
                      "\"interface\":\"\",\"address\":\"10.9.9.9\"}");
    node->facts.host_address[0] = node->facts.interface[0] = '\0';
    judge(&one_node, node, &findings);
    CHECK(find(&findings, DOCTOR_OWN_NAME, DOCTOR_WARN, "has no address: Name or") != NULL);
    CHECK(find(&findings, DOCTOR_INTERFACE, DOCTOR_FAIL, "no interface has the address 10.9.9.9") !=
          NULL);
    doctor_findings_free(&findings);
    free(node);
}

TEST(clocks_are_as_far_apart_as_is_sure)
{
    struct doctor_findings findings = {0};

    doctor_judge_clock("its clock", 1500, 600, &findings);
    doctor_judge_clock("its clock", -1500, 400, &findings);
    doctor_judge_clock("its clock", 70000, 20, &findings);
    CHECK_EQ(findings.items[0].level, DOCTOR_OK);
    CHECK_EQ(findings.items[1].level, DOCTOR_WARN);
    CHECK_STR(findings.items[1].text, "its clock is 1.5 s behind the server's");
    CHECK_EQ(findings.items[2].level, DOCTOR_FAIL);
    CHECK_STR(findings.items[2].text, "its clock is 70.0 s ahead of the server's");
    doctor_findings_free(&findings);
}

/* -- two nodes -- */

static const struct {
    const char *change; /* of the second one */
    enum doctor_check check;
    enum doctor_level level;
    const char *part;
} differences[] = {
    {"{\"mtu\":1500}", DOCTOR_MTU, DOCTOR_WARN, "MTU: 1500 here, 9000 on gpu01"},
    {"{\"gpu\":[{\"index\":1,\"name\":\"H200\"}]}", DOCTOR_GPU_MODELS, DOCTOR_WARN,
     "2 x H200 here, 1 x H200"},
    {"{\"fabric\":[{\"device\":\"b\",\"state\":\"ACTIVE\",\"rate\":\"100 Gb/sec\"}]}",
     DOCTOR_FABRIC, DOCTOR_WARN, "400 Gb/sec, 100 Gb/sec here"},
    {"{\"kernel\":\"5.15.0\"}", DOCTOR_VERSIONS, DOCTOR_WARN,
     "kernel: 5.15.0 here, 6.1.0 on gpu01"},
    {"{\"driver\":\"550.9\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "driver: 550.9 here, 570.1 on gpu01"},
    {"{\"python_version\":\"3.12.1\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "Python: 3.12.1"},
    {"{\"torch\":\"2.14\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "torch: 2.14 here, 2.15 on gpu01"},
    {"{\"cuda\":\"12.6\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "CUDA of torch: 12.6"},
    {"{\"nccl\":\"2.26.2\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "NCCL: 2.26.2"},
    {"{\"cudnn\":\"90000\"}", DOCTOR_VERSIONS, DOCTOR_WARN, "cuDNN: 90000"},
    {"{\"uid\":1001}", DOCTOR_ACCOUNT, DOCTOR_WARN, "uid: 1001 here, 1000 on gpu01"},
};

TEST(nodes_that_differ_are_named_with_both_values)
{
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        struct doctor_node *one = make_node("gpu01", NULL);
        struct doctor_node *two = make_node("gpu02", differences[i].change);
        struct doctor_node *both = calloc(2, sizeof *both);
        struct doctor_findings findings = {0};
        const struct doctor_finding *found;
        uint32_t bad = 0;

        CHECK(both != NULL);
        both[0] = *one;
        both[1] = *two;
        doctor_compare(&two_nodes_of_a_job, both, 2, &findings);
        found = find(&findings, differences[i].check, differences[i].level, differences[i].part);
        if (found == NULL)
            FAIL("%s: no such finding", differences[i].change);
        CHECK_STR(found->node, "gpu02");
        for (uint32_t k = 0; k < findings.count; k++)
            bad += findings.items[k].level > DOCTOR_SKIP;
        CHECK_EQ(bad, 1);
        doctor_findings_free(&findings);
        free(one);
        free(two);
        free(both);
    }
}

TEST(names_and_folders_that_differ)
{
    struct doctor_node *both = calloc(2, sizeof *both);
    struct doctor_findings findings = {0};

    CHECK(both != NULL);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(both[i].name, sizeof both[i].name, "gpu0%d", i + 1);
        node_facts_init(&both[i].facts);
        both[i].has_facts = true;
    }
    add(&both[0].facts,
        "{\"names\":[{\"name\":\"gpu01\",\"address\":\"10.0.0.1\"}],\"disks\":[{\"what\":"
        "\"job\",\"type\":\"ext4\",\"source\":\"/dev/sda1\",\"machine\":\"m1\"}]}");
    add(&both[1].facts,
        "{\"names\":[{\"name\":\"gpu01\",\"address\":\"10.9.0.1\"}],\"disks\":[{\"what\":"
        "\"job\",\"type\":\"ext4\",\"source\":\"/dev/sda1\",\"machine\":\"m2\"}]}");
    doctor_compare(&two_nodes_of_a_job, both, 2, &findings);
    CHECK(find(&findings, DOCTOR_PEER_NAMES, DOCTOR_WARN,
               "gpu01 is 10.9.0.1 here, 10.0.0.1 on gpu01") != NULL);
    CHECK(find(&findings, DOCTOR_SHARED_FOLDER, DOCTOR_WARN, "of machine m2 here") != NULL);
    doctor_findings_free(&findings);
    both[1].has_facts = false; /* a node that did not answer is not compared */
    doctor_compare(&two_nodes_of_a_job, both, 2, &findings);
    for (uint32_t i = 0; i < findings.count; i++)
        CHECK_EQ(findings.items[i].level, DOCTOR_OK);
    doctor_findings_free(&findings);
    free(both);
}

/* -- connections -- */

static void judge_tries(const char *json, struct doctor_findings *findings)
{
    struct doctor_try tries[8];
    struct err err = {0};
    uint32_t count;

    if (doctor_read_tries(json, strlen(json), tries, 8, &count, &err) != STATUS_OK)
        FAIL("%s", err.text);
    doctor_judge_tries("gpu01", tries, count, findings);
}

TEST(connections_are_judged_peer_by_peer)
{
    static const struct {
        const char *result;
        enum doctor_check check;
        const char *part;
    } rows[] = {
        {"refused", DOCTOR_CONNECT, "to gpu02: 1 of 2 ports: refused"},
        {"timeout", DOCTOR_CONNECT, "firewall that drops (Why) (port 7002)"},
        {"no-route", DOCTOR_CONNECT, "no route"},
        {"silent", DOCTOR_CONNECT, "nothing comes back"},
        {"broken", DOCTOR_CONNECT, "cut off"},
        {"large", DOCTOR_PACKETS, "to gpu02: connects, but 64 KiB do not get through"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct doctor_findings findings = {0};
        char json[512];

        (void)snprintf(
            json, sizeof json,
            "{\"tries\":[{\"peer\":\"gpu02\",\"port\":7001,\"result\":\"ok\",\"us\":250},"
            "{\"peer\":\"gpu02\",\"port\":7002,\"result\":\"%s\",\"error\":\"Why\"},"
            "{\"peer\":\"gpu03\",\"port\":7003,\"result\":\"ok\",\"us\":120}]}",
            rows[i].result);
        judge_tries(json, &findings);
        CHECK(find(&findings, rows[i].check, DOCTOR_FAIL, rows[i].part) != NULL);
        CHECK(find(&findings, DOCTOR_CONNECT, DOCTOR_OK, "to gpu03: 1 ports, 0.12 ms") != NULL);
        CHECK(find(&findings, DOCTOR_CONNECT, DOCTOR_FAIL, "gpu03") == NULL);
        CHECK_STR(findings.items[0].node, "gpu01");
        doctor_findings_free(&findings);
    }
}

TEST(bad_answers_about_connections)
{
    struct doctor_try tries[2];
    struct err err = {0};
    uint32_t count;
    const char *many =
        "{\"tries\":[{\"peer\":\"a\",\"result\":\"ok\"},{\"peer\":\"a\",\"result\":\"ok\"},"
        "{\"peer\":\"a\",\"result\":\"ok\"}]}";
    const char *odd =
        "{\"tries\":[{\"peer\":\"a\\u001b[2J\",\"result\":\"ok\",\"port\":99999,\"us\":-1},7]}";

    CHECK(doctor_read_tries("{", 1, tries, 2, &count, &err) != STATUS_OK);
    CHECK_EQ(doctor_read_tries(many, strlen(many), tries, 2, &count, &err), STATUS_OK);
    CHECK_EQ(count, 2);
    CHECK_EQ(doctor_read_tries(odd, strlen(odd), tries, 2, &count, &err), STATUS_OK);
    CHECK_EQ(count, 1);
    CHECK_STR(tries[0].peer, "a?[2J");
    CHECK_EQ(tries[0].port, 0);
}

TEST(peers_of_few_nodes_are_all_and_of_many_a_ring_and_others)
{
    for (uint32_t nodes = 1; nodes <= 200; nodes++) {
        for (uint32_t i = 0; i < nodes; i++) {
            bool is_peer[200] = {false};
            uint32_t count = 0;

            for (uint32_t k = 0; k < 20; k++) {
                uint32_t peer = doctor_peer(nodes, i, k, 7);

                if (peer == UINT32_MAX)
                    continue;
                CHECK(peer < nodes && peer != i && !is_peer[peer]);
                is_peer[peer] = true;
                count++;
            }
            if (nodes <= DOCTOR_ALL_PAIRS)
                CHECK_EQ(count, nodes - 1);
            else
                CHECK(is_peer[(i + 1) % nodes] && is_peer[(i + nodes - 1) % nodes] && count >= 6);
        }
    }
}

/* -- facts as JSON -- */

TEST(facts_that_are_written_are_read_again)
{
    struct node_facts *facts = calloc(2, sizeof *facts);
    struct buf first = {0}, second = {0};

    CHECK(facts != NULL);
    node_facts_init(&facts[0]);
    add(&facts[0], healthy);
    node_facts_write(&facts[0], &first);
    node_facts_init(&facts[1]);
    CHECK_EQ(node_facts_read(&facts[1], first.bytes, first.byte_count, NULL), STATUS_OK);
    CHECK_BYTES(&facts[0], &facts[1], sizeof *facts);
    node_facts_write(&facts[1], &second);
    CHECK_EQ(first.byte_count, second.byte_count);
    CHECK_EQ(facts[1].memlock, FACT_UNLIMITED);
    buf_free(&first);
    buf_free(&second);
    free(facts);
}

TEST(hostile_facts_are_bounded)
{
    struct node_facts *facts = calloc(1, sizeof *facts);
    struct buf json = {0};
    struct err err = {0};

    CHECK(facts != NULL);
    node_facts_init(facts);
    buf_printf(&json,
               "{\"host_name\":\"a\\u001b]0;x\\u0007\",\"mtu\":-5,\"slots\":1e300,\"nofile\":\"7\","
               "\"kernel\":5,\"other\":[{}],\"disks\":7,\"names\":[3,null],\"driver\":\"");
    for (int i = 0; i < 1000; i++)
        buf_add_text(&json, "x");
    buf_printf(&json, "\",\"gpu\":[{}");
    for (int i = 0; i < 200; i++)
        buf_printf(&json, ",{\"index\":%d}", i);
    buf_printf(&json, "]}");
    CHECK_EQ(node_facts_read(facts, json.bytes, json.byte_count, &err), STATUS_OK);
    CHECK_STR(facts->host_name, "a?]0;x?");
    CHECK_EQ(facts->mtu, FACT_UNKNOWN);
    CHECK_EQ(facts->slots, FACT_UNKNOWN);
    CHECK_EQ(facts->nofile, FACT_UNKNOWN);
    CHECK_EQ(facts->gpu_count, 64);
    CHECK_EQ(facts->disks_count, 0);
    CHECK(strlen(facts->driver) < sizeof facts->driver);
    CHECK(node_facts_read(facts, "[", 1, &err) != STATUS_OK);
    buf_free(&json);
    free(facts);
}

/* -- what is shown -- */

TEST(shown_as_text_and_as_json)
{
    struct doctor_findings findings = {0};
    const struct output_style style = {0};
    struct buf out = {0};

    findings.node = "gpu01";
    doctor_say(&findings, DOCTOR_MEMLOCK, DOCTOR_FAIL, "the limit is %s", "64 KiB");
    doctor_say(&findings, DOCTOR_STACK, DOCTOR_OK, "8 MiB");
    findings.node = "gpu02";
    doctor_say(&findings, DOCTOR_MEMLOCK, DOCTOR_FAIL, "the limit is %s", "64 KiB");
    doctor_say(&findings, DOCTOR_STACK, DOCTOR_OK, "9 MiB");
    findings.node = NULL;
    doctor_say(&findings, DOCTOR_KEY, DOCTOR_SKIP, "no key");
    doctor_show(&findings, 2, &style, &out);
    buf_add(&out, "", 1);
    CHECK_STR(
        out.bytes,
        "ok    stack: 2 times, as gpu01: 8 MiB\n"
        "skip  key: no key\n"
        "FAIL  memlock: gpu01, gpu02: the limit is 64 KiB\n"
        "      fix: LimitMEMLOCK=infinity in the unit of launcherd (systemctl edit launcherd), "
        "then restart it\n"
        "2 failed, 0 warnings, 2 ok, 1 skipped, on 2 nodes\n");
    buf_drop(&out, out.byte_count);
    doctor_show_json(&findings, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes,
                 "{\"schema\":\"ddp.v1\",\"failed\":2,\"warnings\":0,\"findings\":[{\"check\":"
                 "\"memlock\",\"level\":\"fail\",\"node\":\"gpu01\",\"text\":\"the limit is 64 "
                 "KiB\",\"remedy\":\"LimitMEMLOCK") == out.bytes);
    CHECK(strstr(out.bytes,
                 "{\"check\":\"key\",\"level\":\"skip\",\"node\":null,\"text\":\"no key\","
                 "\"remedy\":null}") != NULL);
    buf_free(&out);
    doctor_findings_free(&findings);
}

/* docs/doctor.md has a row for each check, in this order, with these words, and no other row. */
TEST(the_document_has_every_check)
{
    FILE *file = fopen(test_source("docs/doctor.md"), "r");
    uint32_t check = 0;
    char line[1024];

    if (file == NULL)
        FAIL("there is no docs/doctor.md");
    while (fgets(line, sizeof line, file) != NULL) {
        char wanted[1024];

        if (strncmp(line, "| `", 3) != 0)
            continue;
        if (check == DOCTOR_CHECK_COUNT)
            FAIL("a row too many: %s", line);
        (void)snprintf(wanted, sizeof wanted, "| `%s` | %s | %s |\n",
                       doctor_check_name((enum doctor_check)check),
                       doctor_check_about((enum doctor_check)check),
                       doctor_check_remedy((enum doctor_check)check));
        CHECK_STR(line, wanted);
        check++;
    }
    (void)fclose(file);
    CHECK_EQ(check, DOCTOR_CHECK_COUNT);
}

TEST_MAIN
