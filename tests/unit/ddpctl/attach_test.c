#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/attach_parts.h"
#include "tests/lib/test.h"

static struct ctl ctl;
static struct attach attach;

static void begin(const struct follow_options *options)
{
    memset(&attach, 0, sizeof attach);
    ctl.screen.quiet = true;
    attach.ctl = &ctl;
    attach.options.view.prefix = VIEW_PREFIX_ALWAYS;
    causes_init(&attach.causes, attach.cause_items, ATTACH_CAUSES, "j", 7);
    follow_init(&attach.follow, options);
}

/* The server says where ranks 0 and 1 of that generation are. `second` NULL: not yet, or not on
 * this page. */
static void take_info(uint32_t generation, const char *first, const char *second)
{
    struct part_job job = {
        .job_id = 7, .nodes = 2, .nproc_per_node = 1, .generation = generation, .name = "j"};
    struct part_job_rank ranks[2] = {{.rank = 0, .node = first}, {.rank = 1, .node = second}};
    struct msg_job_info info = {.jobs = {.items = &job, .count = 1},
                                .ranks = {.items = ranks, .count = second != NULL ? 2 : 1},
                                .failed_rank = -1};

    if (first == NULL)
        info.ranks.count = 0;
    CHECK_EQ(follow_job(&attach.follow, &info, NULL), STATUS_OK);
    if (attach.ranks == NULL)
        CHECK(attach_make_ranks(&attach, &job));
    attach_make_views(&attach, &info);
}

static void turn(void)
{
    for (uint32_t i = 0; i < 2; i++)
        attach.follow.ranks[i].final = true;
    CHECK(follow_turn(&attach.follow));
    attach_show_turn(&attach);
}

static void check_view(uint32_t rank, uint32_t generation, const char *prefix, const char *node)
{
    for (int k = 0; k < 2; k++) {
        const struct view *view = &attach.ranks[rank].views[k];

        CHECK_STR(view->prefix, prefix);
        CHECK_STR(view->source.node, node);
        CHECK_EQ(view->source.generation, generation);
        CHECK_EQ(view->form, VIEW_PREFIXED);
    }
}

TEST(lines_of_an_older_generation_keep_its_nodes)
{
    begin(&(struct follow_options){.keep_on = true, .ranks_all = true, .from_generation = 1});
    take_info(1, "node-a", "node-b");
    check_view(0, 1, " 0 node-a | ", "node-a");
    take_info(2, "node-b", "node-c"); /* the rest of generation 1 is still to come */
    check_view(0, 1, " 0 node-a | ", "node-a");
    check_view(1, 1, " 1 node-b | ", "node-b");
    turn();
    check_view(0, 2, " 0 node-b | ", "node-b");
    check_view(1, 2, " 1 node-c | ", "node-c");
    take_info(3, "node-c", NULL); /* the first of two pages */
    take_info(4, "node-d", NULL);
    check_view(0, 2, " 0 node-b | ", "node-b");
    turn(); /* what ran in generation 3 is not known any more */
    check_view(0, 3, " 0        | ", "");
    turn();
    check_view(0, 4, " 0 node-d | ", "node-d");
    check_view(1, 4, " 1        | ", "");
    take_info(4, "node-d", "node-e");
    check_view(1, 4, " 1 node-e | ", "node-e");
    free(attach.ranks);
}

TEST(nodes_that_were_never_known_are_left_out)
{
    begin(&(struct follow_options){.generation = 1, .ranks_all = true});
    take_info(2, "node-b", "node-c");
    check_view(0, 1, " 0 | ", "");
    free(attach.ranks);
}

/* Between two generations the server lists no ranks. */
TEST(a_job_that_waits_to_start_again_has_prefixes)
{
    begin(&(struct follow_options){.keep_on = true, .ranks_all = true});
    take_info(1, NULL, NULL);
    check_view(1, 1, " 1 | ", "");
    free(attach.ranks);
}

TEST(colours_are_those_that_were_asked_for)
{
    static const struct {
        const char *name, *value, *option;
        bool is_colored; /* stdout is no terminal */
    } cases[] = {
        {"NO_COLOR", "1", NULL, false},      {"FORCE_COLOR", "1", NULL, true},
        {"FORCE_COLOR", "0", NULL, false},   {"FORCE_COLOR", "3", "auto", true},
        {"CLICOLOR_FORCE", "1", NULL, true}, {"CLICOLOR_FORCE", "1", "never", false},
        {"NO_COLOR", "1", "always", true},   {"CLICOLOR", "1", NULL, false},
    };
    static const char *const names[] = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"};
    struct screen screen;
    struct err err;
    int out = dup(1), null = open("/dev/null", O_WRONLY);

    CHECK(out >= 0 && null >= 0 && dup2(null, 1) == 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            (void)unsetenv(names[k]);
        (void)setenv(cases[i].name, cases[i].value, 1);
        CHECK_EQ(screen_open(&screen, false, false, cases[i].option, &err), STATUS_OK);
        CHECK_EQ(screen.color, cases[i].is_colored);
    }
    (void)setenv("NO_COLOR", "1", 1); /* wins */
    (void)setenv("FORCE_COLOR", "1", 1);
    CHECK_EQ(screen_open(&screen, false, false, NULL, &err), STATUS_OK);
    CHECK(!screen.color);
    CHECK(dup2(out, 1) == 1 && close(out) == 0 && close(null) == 0);
}

TEST_MAIN
