/* The screens of `ddpctl top` against golden files, its keys, and that no screen is wider or higher
 * than the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/http_pages.h"
#include "ddpctl/top_json.h"
#include "ddpctl/top_view.h"
#include "tests/lib/test.h"
#include "tests/unit/ddpctl/cluster_tools.h"
#include "tests/unit/ddpctl/golden_tools.h"

static struct top_view view_of(const struct fixture *fixture, uint32_t rows, uint32_t columns)
{
    return (struct top_view){.cluster = &fixture->cluster,
                             .gauges = &fixture->gauges,
                             .server = "unix:x",
                             .lost_why = "",
                             .job_problem = "",
                             .now_us = fixture->view.now_us,
                             .now_ms = fixture->view.now_ms,
                             .rows = rows,
                             .columns = columns,
                             .is_terminal = true};
}

static const struct part_job job = {.job_id = 41,
                                    .name = "r50",
                                    .user = "ann",
                                    .state = JOB_RUNNING,
                                    .nodes = 1,
                                    .nproc_per_node = 2,
                                    .ranks_running = 1,
                                    .generation = 2,
                                    .restarts = 1,
                                    .where = "gpu01",
                                    .straggler = "",
                                    .reason = "",
                                    .step = 340,
                                    .steps = 1000,
                                    .loss = 0.4321,
                                    .samples_per_s = 5120};
static const struct part_job_rank ranks[] = {
    {.rank = 0, .node = "gpu01", .slot = 0, .pid = 4242, .state = RANK_RUNNING},
    {.rank = 1, .node = "gpu01", .slot = 2, .pid = 4243, .state = RANK_EXITED, .signal = 9},
};
static const struct msg_job_info info = {
    .jobs = {.items = &job, .count = 1}, .ranks = {.items = ranks, .count = 2}, .failed_rank = -1};

TEST(pictures)
{
    struct fixture fixture;
    struct top_state state = {0};
    struct top_view view;
    struct buf out = {0};

    fixture_open(&fixture);
    view = view_of(&fixture, 16, 120);
    top_draw(&state, &view, &out);
    check_golden("top-overview", &out);
    view.has_color = true;
    view.columns = 80;
    top_key(&state, &view, TOP_KEY_PANE);
    top_draw(&state, &view, &out);
    check_golden("top-overview-color", &out);
    view.has_color = false;
    top_key(&state, &view, TOP_KEY_OPEN);
    CHECK_EQ(state.screen, TOP_NODE);
    top_draw(&state, &view, &out);
    check_golden("top-node", &out);
    state = (struct top_state){.screen = TOP_JOB, .job = "41"};
    view.job = &info;
    view.columns = 110;
    top_draw(&state, &view, &out);
    check_golden("top-job", &out);
    top_key(&state, &view, TOP_KEY_HELP);
    top_draw(&state, &view, &out);
    check_golden("top-help", &out);
    top_key(&state, &view, TOP_KEY_DOWN);
    CHECK_EQ(state.screen, TOP_JOB);
    fixture_close(&fixture);
}

TEST(one_picture_without_a_terminal_has_all_rows_and_no_keys)
{
    struct fixture fixture;
    struct top_state state = {0};
    struct top_view view;
    struct buf out = {0};

    fixture_open(&fixture);
    view = view_of(&fixture, 5000, 120);
    view.is_terminal = false;
    top_draw(&state, &view, &out);
    check_golden("top-once", &out);
    top_json_write(&view, &out);
    check_json(&out);
    check_golden("top-json", &out);
    fixture_close(&fixture);
}

TEST(the_rate_of_an_older_generation_is_not_shown)
{
    struct fixture fixture;
    struct top_state state = {0};
    struct top_view view;
    struct buf out = {0};

    fixture_open(&fixture);
    view = view_of(&fixture, 16, 120);
    for (uint32_t old = 0; old < 2; old++) {
        struct part_job *first = &fixture.cluster.jobs[0].part;

        first->progress_generation = first->generation - old;
        top_draw(&state, &view, &out);
        buf_add(&out, "", 1);
        CHECK_EQ(strstr(out.bytes, "5.1k/s") == NULL, old == 1);
        buf_free(&out);
        http_index_write(&(struct http_index){.view = fixture.view, .server = "unix:x"}, &out);
        buf_add(&out, "", 1);
        CHECK_EQ(strstr(out.bytes, "5.1k/s") == NULL, old == 1);
        buf_free(&out);
    }
    fixture_close(&fixture);
}

TEST(a_server_that_is_gone_is_said)
{
    struct fixture fixture;
    struct top_state state = {0};
    struct top_view view;
    struct buf out = {0};

    fixture_open(&fixture);
    view = view_of(&fixture, 10, 100);
    view.lost_why = "connection\x1b[2J refused";
    top_draw(&state, &view, &out);
    buf_add(&out, "", 1);
    CHECK(strncmp(out.bytes, "the server does not answer: connection\\x1b[2J refused\n", 53) == 0);
    buf_free(&out);
    fixture_close(&fixture);
}

/* Counts columns like a terminal: an escape sequence has none, a character has one. */
static uint32_t widest(const char *text, uint32_t *lines)
{
    uint32_t most = 0, width = 0;

    *lines = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\x1b') {
            text += strcspn(text, "mK");
        } else if (*text == '\n') {
            (*lines)++;
            most = width > most ? width : most;
            width = 0;
        } else {
            width += ((unsigned char)*text & 0xc0) != 0x80;
        }
    }
    return width > most ? width : most;
}

TEST(every_size_is_kept)
{
    static const enum top_screen screens[] = {TOP_OVERVIEW, TOP_JOB, TOP_NODE, TOP_HELP};
    struct fixture fixture;

    fixture_open(&fixture);
    add_many_nodes(&fixture.cluster, 300);
    CHECK(gauges_table_fit(&fixture.gauges, &fixture.cluster));
    for (uint32_t rows = 1; rows < 60; rows += 3)
        for (uint32_t columns = 1; columns < 200; columns += 7)
            for (size_t i = 0; i < sizeof screens / sizeof screens[0]; i++) {
                struct top_state state = {.screen = screens[i], .node = "gpu01", .job = "41"};
                struct top_view view = view_of(&fixture, rows, columns);
                struct buf out = {0};
                uint32_t lines;

                view.has_color = (rows & 1) != 0;
                view.job = &info;
                top_draw(&state, &view, &out);
                buf_add(&out, "", 1);
                CHECK(!out.failed);
                CHECK(widest(out.bytes, &lines) <= columns || columns < 1);
                CHECK(lines <= rows);
                if (rows >= TOP_ROWS_MIN && columns >= TOP_COLUMNS_MIN)
                    CHECK_EQ(lines, rows);
                buf_free(&out);
            }
    fixture_close(&fixture);
}

struct asked {
    uint32_t count;
    char first[NODE_NAME_BYTES_MAX], last[NODE_NAME_BYTES_MAX];
};

static bool ask(void *owner, const char *node)
{
    struct asked *asked = owner;

    if (asked->count++ == 0)
        (void)snprintf(asked->first, sizeof asked->first, "%s", node);
    (void)snprintf(asked->last, sizeof asked->last, "%s", node);
    return true;
}

/* Of four thousand nodes only those on the screen are asked. */
TEST(nodes_that_are_not_visible_are_not_asked)
{
    struct fixture fixture = {.view = {.now_us = 1}};
    struct top_state state = {.pane = TOP_NODES};
    struct asked asked = {0};
    struct top_view view;
    struct buf out = {0};

    fixture.cluster.taken_us = 1;
    add_many_nodes(&fixture.cluster, 4096);
    CHECK(gauges_table_fit(&fixture.gauges, &fixture.cluster));
    view = view_of(&fixture, 40, 120);
    top_draw(&state, &view, &out);
    top_wanted(&state, &view, ask, &asked);
    CHECK_EQ(asked.count,
             35); /* without the head, a sentence about jobs, two headings and the keys */
    CHECK_STR(asked.first, "node0000");
    top_key(&state, &view, TOP_KEY_LAST);
    top_draw(&state, &view, &out);
    asked = (struct asked){0};
    top_wanted(&state, &view, ask, &asked);
    CHECK_EQ(asked.count, 35);
    CHECK_STR(asked.last, "node4095");
    top_key(&state, &view, TOP_KEY_PAGE_UP);
    top_key(&state, &view, TOP_KEY_OPEN);
    CHECK_STR(state.node, "node4061");
    asked = (struct asked){0};
    top_wanted(&state, &view, ask, &asked);
    CHECK_EQ(asked.count, 1);
    CHECK_STR(asked.first, "node4061");
    buf_free(&out);
    fixture_close(&fixture);
}

TEST(keys_move_sort_open_and_quit)
{
    struct fixture fixture;
    struct top_state state = {0};
    struct top_view view;

    fixture_open(&fixture);
    view = view_of(&fixture, 24, 100);
    top_key(&state, &view, TOP_KEY_UP);
    CHECK_EQ(state.lists[TOP_JOBS].at, 0);
    top_key(&state, &view, TOP_KEY_DOWN);
    top_key(&state, &view, TOP_KEY_DOWN);
    top_key(&state, &view, TOP_KEY_DOWN);
    CHECK_EQ(state.lists[TOP_JOBS].at, 2); /* the last of three: the waiting job */
    top_key(&state, &view, TOP_KEY_OPEN);
    CHECK_EQ(state.screen, TOP_JOB);
    CHECK_STR(state.job, "42");
    top_key(&state, &view, TOP_KEY_BACK);
    CHECK_EQ(state.screen, TOP_OVERVIEW);
    top_key(&state, &view, TOP_KEY_SORT);
    CHECK_EQ(state.sorts[TOP_JOBS], TOP_BY_PROGRESS);
    for (int i = 1; i < TOP_SORTS_OF_JOBS; i++)
        top_key(&state, &view, TOP_KEY_SORT);
    CHECK_EQ(state.sorts[TOP_JOBS], TOP_BY_QUEUE);
    top_key(&state, &view, TOP_KEY_PANE);
    top_key(&state, &view, TOP_KEY_SORT);
    top_key(&state, &view, TOP_KEY_SORT);
    top_key(&state, &view, TOP_KEY_OPEN);
    CHECK_STR(state.node, "gpu02"); /* sorted by trouble: the lost node first */
    top_key(&state, &view, TOP_KEY_QUIT);
    CHECK(state.is_over);
    state = (struct top_state){.screen = TOP_JOB, .job = "41", .job_is_fixed = true};
    top_key(&state, &view, TOP_KEY_BACK);
    CHECK_EQ(state.screen, TOP_JOB); /* nothing else was asked for */
    fixture_close(&fixture);
}

/* The list became shorter than the chosen row. */
TEST(a_row_that_is_gone_chooses_the_last)
{
    struct fixture fixture;
    struct top_state state = {.pane = TOP_NODES, .lists = {{0, 0}, {.at = 900, .first = 890}}};
    struct top_view view;
    struct buf out = {0};

    fixture_open(&fixture);
    view = view_of(&fixture, 20, 100);
    top_draw(&state, &view, &out);
    CHECK_EQ(state.lists[TOP_NODES].at, 1);
    CHECK_EQ(state.lists[TOP_NODES].first, 0);
    buf_free(&out);
    fixture_close(&fixture);
}

TEST(keys_of_terminals)
{
    static const struct {
        const char *bytes;
        enum top_key key;
        size_t used;
    } all[] = {
        {"\x1b[A", TOP_KEY_UP, 3},       {"\x1bOB", TOP_KEY_DOWN, 3},
        {"\x1b[5~", TOP_KEY_PAGE_UP, 4}, {"q", TOP_KEY_QUIT, 1},
        {"\r", TOP_KEY_OPEN, 1},         {"\x1b", TOP_KEY_BACK, 1},
        {"\x1b[1;5C", TOP_KEY_NONE, 6},  {"\x1b[", TOP_KEY_NONE, 2},
        {"\x1b[200", TOP_KEY_NONE, 5},   {"z", TOP_KEY_NONE, 1},
        {"\xc3\xa9", TOP_KEY_NONE, 1},   {"\x1bq", TOP_KEY_BACK, 1},
    };
    size_t used;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CHECK_EQ(top_key_read(all[i].bytes, strlen(all[i].bytes), &used), all[i].key);
        CHECK_EQ(used, all[i].used);
    }
}

TEST_MAIN
