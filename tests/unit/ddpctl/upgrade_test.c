/* The plan of an upgrade: its order, its effect on jobs, and reasons against it. */
#include <stdio.h>
#include <string.h>

#include "ddpctl/upgrade.h"
#include "tests/lib/test.h"

static struct part_node nodes[4];
static struct upgrade_facts facts;
static struct upgrade_step steps[16];
static struct upgrade_plan plan;

static struct part_node node(const char *name, uint32_t used)
{
    return (struct part_node){.name = name,
                              .state = NODE_UP,
                              .slots = 4,
                              .slots_free = 4 - used,
                              .drain_reason = "",
                              .drained_by = "",
                              .version = "0.1.0",
                              .protocol = 2};
}

/* An upgrade to version 0.2.0 of a server and two nodes with 0.1.0. */
static void begin(void)
{
    nodes[0] = node("busy", 4);
    nodes[1] = node("idle", 0);
    facts = (struct upgrade_facts){.version = "0.2.0",
                                   .protocol = 3,
                                   .schema = 7,
                                   .server_version = "0.1.0",
                                   .server_name = "head:7400",
                                   .server_protocol = 2,
                                   .server_schema = 7,
                                   .nodes = nodes,
                                   .node_count = 2,
                                   .jobs_running = 1};
}

/* The steps, by name: "head:7400 idle busy clients". */
static const char *order(void)
{
    static char text[256];

    memset(&plan, 0, sizeof plan);
    plan.steps = steps;
    CHECK(upgrade_steps_max(&facts) <= sizeof steps / sizeof steps[0]);
    upgrade_make(&plan, &facts);
    text[0] = '\0';
    for (uint32_t i = 0; i < plan.step_count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "",
                       plan.steps[i].name);
    return text;
}

static bool has_warning(const char *words)
{
    for (uint32_t i = 0; i < plan.warning_count; i++)
        if (strstr(plan.warnings[i], words) != NULL)
            return true;
    return false;
}

TEST(the_server_first_then_idle_nodes_then_busy_ones)
{
    begin();
    CHECK_STR(order(), "head:7400 idle busy clients");
    CHECK(upgrade_is_safe(&plan) && plan.warning_count == 0);
    for (uint32_t i = 0; i < plan.step_count; i++)
        CHECK(!plan.steps[i].stops_jobs);
}

TEST(what_is_there_already_is_left_out)
{
    begin();
    facts.server_version = nodes[0].version = "0.2.0";
    facts.server_protocol = nodes[0].protocol = 3;
    CHECK_STR(order(), "idle clients");
    nodes[1].version = "0.2.0";
    nodes[1].protocol = 0; /* the server does not report it */
    CHECK_STR(order(), "");
    CHECK(upgrade_is_safe(&plan));
}

/* A node of the target version that is not up may come back as another build. */
TEST(another_build_of_the_version_is_thought_of)
{
    begin();
    facts.server_version = nodes[0].version = nodes[1].version = "0.2.0";
    facts.server_protocol = nodes[0].protocol = nodes[1].protocol = 3;
    nodes[1].state = NODE_LOST;
    CHECK_STR(order(), "");
    CHECK(has_warning("idle is lost, and was version 0.2.0: if it is of another build since"));
    CHECK_EQ(plan.warning_count, 1);
}

/* The server says so, of a node that has its version's number. */
TEST(a_refused_node_is_a_step_and_not_safe)
{
    begin();
    facts.server_version = nodes[0].version = nodes[1].version = "0.2.0";
    facts.server_protocol = nodes[0].protocol = nodes[1].protocol = 3;
    nodes[1].state = NODE_LOST;
    nodes[1].refused_ms = 1;
    nodes[1].notice = "another build: install the server's build there";
    CHECK_STR(order(), "idle clients");
    CHECK(!upgrade_is_safe(&plan) && plan.problem_count == 1 && plan.warning_count == 0);
    CHECK_STR(plan.problems[0], "idle is refused: another build: install the server's build there");
}

/* Another launcherd asks for the name of one that is up: no step of the plan mends that. */
TEST(a_refused_twin_is_not_safe)
{
    struct buf text = {0};

    begin();
    facts.server_version = nodes[0].version = nodes[1].version = "0.2.0";
    facts.server_protocol = nodes[0].protocol = nodes[1].protocol = 3;
    nodes[1].refused_ms = 1;
    nodes[1].notice = "another build";
    CHECK_STR(order(), "");
    CHECK(!upgrade_is_safe(&plan));
    upgrade_text(&plan, &text);
    buf_add(&text, "", 1);
    CHECK_STR(
        text.bytes,
        "not safe: another launcherd of the name idle, which is up, is refused: another build\n"
        "no step mends that: the server and all nodes that are up are version 0.2.0\n");
    buf_free(&text);
}

TEST(a_new_schema_begins_with_a_backup)
{
    struct buf text = {0};

    begin();
    facts.server_schema = 6;
    CHECK_STR(order(), "store head:7400 idle busy clients");
    CHECK(upgrade_is_safe(&plan) && has_warning("from 6 to 7"));
    upgrade_text(&plan, &text);
    buf_add(&text, "", 1);
    CHECK(strstr(text.bytes, "ddpctl backup --state-dir DIR FILE ") != NULL);
    CHECK(strstr(text.bytes, "DIR is what the server has as its own") != NULL);
    buf_free(&text);
    facts.store_is_low = true;
    (void)order();
    CHECK(!upgrade_is_safe(&plan));
}

TEST(an_older_schema_is_refused)
{
    begin();
    facts.server_schema = 9;
    (void)order();
    CHECK(!upgrade_is_safe(&plan) && strstr(plan.problems[0], "restore the backup") != NULL);
}

TEST(versions_that_are_no_neighbours_are_not_safe)
{
    begin();
    nodes[1].protocol = 1;
    (void)order();
    CHECK(!upgrade_is_safe(&plan) && strstr(plan.problems[0], "idle speaks protocol 1") != NULL);
    nodes[1].protocol = 0; /* the server does not report it */
    (void)order();
    CHECK(upgrade_is_safe(&plan));
    facts.server_protocol = 5;
    (void)order();
    CHECK(!upgrade_is_safe(&plan) && strstr(plan.problems[0], "protocol 4 first") != NULL);
}

TEST(servers_on_one_etcd_stand_by_first)
{
    const struct part_server servers[] = {
        {"a:1", "a", true}, {"b:1", "b", false}, {"c:1", "c", false}};

    begin();
    facts.servers = servers;
    facts.server_count = 3;
    facts.server_name = "a:1";
    CHECK_STR(order(), "b:1 c:1 a:1 idle busy clients");
    CHECK_EQ(plan.steps[0].kind, UPGRADE_STANDBY);
    CHECK_EQ(plan.steps[2].kind, UPGRADE_SERVER);
}

TEST(what_an_operator_should_know)
{
    begin();
    nodes[0].drains_on_term = nodes[1].drains_on_term = true;
    nodes[2] = node("gone", 0);
    nodes[2].state = NODE_LOST;
    nodes[3] = node("shut", 0);
    nodes[3].slots_closed = 1;
    facts.node_count = 4;
    facts.jobs_moving = 2;
    CHECK_STR(order(), "head:7400 idle shut busy clients");
    CHECK(upgrade_is_safe(&plan));
    CHECK(plan.steps[3].stops_jobs && !plan.steps[1].stops_jobs); /* nothing runs on idle */
    CHECK(has_warning("busy runs with --drain-on-term") && has_warning("gone is lost"));
    CHECK(has_warning("shut: 1 of its slots") && has_warning("2 jobs start"));
    CHECK_EQ(plan.warning_count, 4);
}

TEST(more_notes_than_there_is_room_for)
{
    static struct part_node many[UPGRADE_NOTES_MAX + 2];
    static struct upgrade_step room[UPGRADE_NOTES_MAX + 8];

    begin();
    for (uint32_t i = 0; i < UPGRADE_NOTES_MAX + 2; i++) {
        many[i] = node("n", 0);
        many[i].protocol = 9;
    }
    facts.nodes = many;
    facts.node_count = UPGRADE_NOTES_MAX + 2;
    memset(&plan, 0, sizeof plan);
    plan.steps = room;
    upgrade_make(&plan, &facts);
    CHECK_EQ(plan.problem_count, UPGRADE_NOTES_MAX);
}

TEST_MAIN
