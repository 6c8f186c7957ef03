/* The server's core: the address that other nodes are told of a node. */
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

#define HERE "boot-of-the-server"

static void begin(void)
{
    begin_at(4, 4, HERE);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

/* `called`: the server's address; NULL: its unix socket. */
static void hello(uint64_t conn, const char *name, const char *boot, const char *address,
                  const char *called)
{
    step_hello_at(
        conn,
        (struct msg_node_hello){
            .name = name, .instance = conn, .slots = 1, .boot_id = boot, .address = address},
        called);
}

static uint64_t submit(uint32_t nodes)
{
    return step_submit((struct msg_submit){.nodes = nodes, .nproc_per_node = 1, .max_restarts = 3});
}

static void check_addresses(uint64_t id, const char *first, const char *second)
{
    struct msg_pair nodes[4];

    CHECK_EQ(rdzv_job_nodes(core, id, nodes), 2);
    CHECK_STR(nodes[0].value, first);
    CHECK_STR(nodes[1].value, second);
}

static void ready(uint64_t conn, uint64_t id, uint32_t rank)
{
    const struct part_report_rank one = {.rank = rank, .state = RANK_WAITING};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    msg.shim_report = (struct msg_shim_report){.job_id = id,
                                               .generation = 1,
                                               .revision = 1,
                                               .phase = SHIM_READY,
                                               .master_port = rank == 0 ? 4000 : 0,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = &one;
    msg.shim_report.ranks.count = 1;
    step_node(conn, &msg);
}

TEST(a_node_of_the_servers_machine_is_reached_where_the_others_call_the_server)
{
    static const char *const ways[] = {NULL, "127.0.0.1", "::1"};

    for (int i = 0; i < 3; i++) {
        uint64_t id;

        begin();
        hello(1, "far", "b2", "10.77.0.2", "10.77.0.1");
        hello(2, "head", HERE, "127.0.0.1", ways[i]);
        id = submit(2);
        check_addresses(id, "10.77.0.2", "10.77.0.1");
    }
}

TEST(go_names_an_address_that_the_others_reach)
{
    uint64_t id;

    begin();
    hello(1, "a-head", HERE, "127.0.0.1", NULL);
    hello(2, "far", "b2", "fd77::2", "fd77::1");
    id = submit(2);
    check_addresses(id, "fd77::1", "fd77::2");
    ready(1, id, 0);
    ready(2, id, 1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 2);
    CHECK_STR(find(RDZV_SEND_GO)->text, "fd77::1");
}

/* Of several interfaces of the server's machine. */
TEST(it_is_the_interface_that_the_nodes_of_the_job_have_used)
{
    uint64_t id;

    begin();
    hello(1, "a-head", HERE, "127.0.0.1", NULL);
    hello(2, "far", "b2", "10.88.0.2", "10.88.0.1");
    id = submit(2);
    check_addresses(id, "10.88.0.1", "10.88.0.2");
    hello(3, "b-head", HERE, "127.0.0.1", NULL);
    hello(4, "near", "b3", "10.77.0.2", "10.77.0.1");
    id = submit(2);
    check_addresses(id, "10.77.0.1", "10.77.0.2");
}

TEST(the_own_address_of_another_daemon_of_the_machine_does_as_well)
{
    begin();
    hello(1, "a", HERE, "127.0.0.1", NULL);
    hello(2, "b", HERE, "10.77.0.1", NULL);
    check_addresses(submit(2), "10.77.0.1", "10.77.0.1");
}

TEST(loopback_is_enough_for_one_machine)
{
    begin();
    hello(1, "a", HERE, "127.0.0.1", NULL);
    hello(2, "b", HERE, "127.0.0.1", "127.0.0.1");
    check_addresses(submit(2), "127.0.0.1", "127.0.0.1");
    begin();
    hello(1, "a", "b2", "127.0.0.1", "127.0.0.1"); /* two daemons behind one tunnel */
    hello(2, "b", "b2", "127.0.0.1", "127.0.0.1");
    check_addresses(submit(2), "127.0.0.1", "127.0.0.1");
}

static void check_refused(uint64_t id, const char *words)
{
    const struct rdzv_record *record;

    CHECK_EQ(count_of(RDZV_SEND_START), 0);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 2);
    for (uint64_t conn = 1; conn <= 2; conn++) /* "this node does not know the job" */
        step_rank_report(conn, (struct rank_report){.job_id = id,
                                                    .rank = (uint32_t)conn - 1,
                                                    .phase = SHIM_ENDED,
                                                    .is_lost = true,
                                                    .failed_class = FAILURE_NODE,
                                                    .cause = "no"});
    record = rdzv_job_record(core, id);
    CHECK_EQ(record->state, JOB_FAILED);
    CHECK_EQ(record->restarts, 0);
    CHECK(strstr(record->reason, words) != NULL);
    CHECK(strstr(record->reason, "--address") != NULL);
}

TEST(a_node_that_nobody_reaches_is_refused_at_the_start)
{
    static const struct {
        const char *address, *called;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1"},       /* through a tunnel */
        {"fe80::2", "fe80::1"},           /* of a link only */
        {"::ffff:127.0.0.1", "10.0.0.1"}, /* it says so */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin();
        hello(1, "a", "b1", "10.77.0.2", "10.77.0.1");
        hello(2, "b", "b2", cases[i].address, cases[i].called);
        check_refused(submit(2), "no other node reaches node b");
    }
    begin(); /* each behind a tunnel of its own */
    hello(1, "a", "b1", "127.0.0.1", "127.0.0.1");
    hello(2, "b", "b2", "127.0.0.1", "127.0.0.1");
    check_refused(submit(2), "no other node reaches node a");
}

TEST(such_a_node_is_used_alone_or_not_at_all)
{
    uint64_t id;

    begin();
    hello(1, "a", "b1", "127.0.0.1", "127.0.0.1");
    CHECK(submit(1) != 0);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    begin();
    hello(1, "a", "b1", "127.0.0.1", "127.0.0.1");
    hello(2, "b", "b2", "10.77.0.2", "10.77.0.1");
    hello(3, "c", "b3", "10.77.0.3", "10.77.0.1");
    id = submit(2);
    check_addresses(id, "10.77.0.2", "10.77.0.3");
}

/* For questions to nodes. */
TEST(how_one_node_reaches_another)
{
    begin();
    hello(1, "head", HERE, "127.0.0.1", NULL);
    hello(2, "far", "b2", "10.77.0.2", "10.77.0.1");
    CHECK_STR(rdzv_address_for(core, "head", "far"), "10.77.0.1");
    CHECK_STR(rdzv_address_for(core, "far", "head"), "10.77.0.2");
    CHECK_STR(rdzv_address_for(core, "head", "nobody"), "127.0.0.1");
    CHECK_STR(rdzv_address_for(core, "nobody", "head"), "");
}

TEST_MAIN
