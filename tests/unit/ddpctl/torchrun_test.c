/* torchrun's options and variables in run and submit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/torchrun.h"
#include "tests/lib/test.h"

static struct view_options view;
static struct err err;

static enum status take(const char *redirects, const char *tee, const char *filter)
{
    struct options options;

    options_init(&options);
    options.redirects = redirects;
    options.tee = tee;
    options.local_ranks_filter = filter;
    memset(&view, 0, sizeof view);
    return torchrun_take(&options, 4, &view.hidden, &err);
}

/* "oe": both streams are shown; "-e": only stderr; for ranks 0 to 7 of two nodes. */
static void expect(const char *shown)
{
    for (uint32_t rank = 0; rank < 8; rank++) {
        CHECK_EQ(view_hides(&view, rank, false), shown[rank % 4 * 2] == '-');
        CHECK_EQ(view_hides(&view, rank, true), shown[rank % 4 * 2 + 1] == '-');
    }
}

TEST(streams_are_hidden_by_local_rank)
{
    CHECK_EQ(take(NULL, NULL, NULL), STATUS_OK);
    expect("oeoeoeoe");
    CHECK_EQ(take("3", NULL, NULL), STATUS_OK);
    expect("--------");
    CHECK_EQ(take("1", NULL, NULL), STATUS_OK);
    expect("-e-e-e-e");
    CHECK_EQ(take("0:1,1:2,3:3", NULL, NULL), STATUS_OK);
    expect("-eo-oe--");
    CHECK_EQ(take("3", "0:3,2:1", NULL), STATUS_OK);
    expect("oe--o---");
    CHECK_EQ(take(NULL, "3", "1,3"), STATUS_OK);
    expect("--oe--oe");
    CHECK_EQ(take("1", NULL, "0"), STATUS_OK);
    expect("-e------");
}

static void expect_prefix(const char *template, const char *expected)
{
    const struct torchrun_line line = {
        .role = "trainer", .host = "gpu01", .rank = 5, .local_rank = 1};
    char prefix[VIEW_PREFIX_BYTES];

    torchrun_prefix(template, &line, prefix);
    CHECK_STR(prefix, expected);
}

/* As string.Template's safe_substitute has it. */
TEST(prefixes_of_lines)
{
    char longest[4 * VIEW_PREFIX_BYTES], cut[VIEW_PREFIX_BYTES];

    expect_prefix(NULL, "[trainer1]:");
    expect_prefix("${hostname}:${rank}: ", "gpu01:5: ");
    expect_prefix("$role_name/$local_rank $$${rank}", "trainer/1 $5");
    expect_prefix("${x} $y ${rank $ {rank} $", "${x} $y ${rank $ {rank} $");
    expect_prefix("", "");
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    memcpy(cut, longest, sizeof cut);
    cut[sizeof cut - 1] = '\0';
    expect_prefix(longest, cut);
}

TEST(streams_that_are_teed)
{
    CHECK_EQ(take("3", "0:1,2:3", NULL), STATUS_OK);
    CHECK_EQ(view.hidden.teed[0], VIEW_OUT);
    CHECK_EQ(view.hidden.teed[1], 0);
    CHECK_EQ(view.hidden.teed[2], VIEW_OUT | VIEW_ERROR);
}

static uint64_t signals(const char *text)
{
    uint64_t more = UINT64_MAX;

    CHECK_EQ(torchrun_signals(text, &more, &err), STATUS_OK);
    return more;
}

TEST(signals_to_handle)
{
    static const char *const wrong[] = {"SIGFOO",
                                        "SIGTERM,,SIGUSR1",
                                        "KILL",
                                        "SIGSTOP",
                                        "SIGCHLD",
                                        "0",
                                        "SIGUSR1SIGUSR1SIGUSR1SIGUSR1"};
    uint64_t more;

    CHECK_EQ(signals("SIGTERM,SIGINT,SIGHUP,SIGQUIT"), 0); /* these are handled in any case */
    CHECK_EQ(signals("SIGUSR1"), 1u << SIGUSR1);
    CHECK_EQ(signals("SIGTERM,USR1,SIGUSR2"), 1u << SIGUSR1 | 1u << SIGUSR2);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(torchrun_signals(wrong[i], &more, &err), STATUS_BAD_INPUT);
        CHECK(strstr(err.text, "--signals-to-handle: ") != NULL);
    }
}

TEST(wrong_values_are_named)
{
    static const char *const streams[] = {"4",    "",        "x",    "0:4",  "0:1,",
                                          "64:1", "0:1;1:1", "-1:1", "0:11", "33"};
    static const char *const ranks[] = {"4", "", "x", "0,", "0-2", "-1", "99999999999999999999"};

    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        CHECK_EQ(take(streams[i], NULL, NULL), STATUS_BAD_INPUT);
        CHECK(strstr(err.text, "--redirects") != NULL);
        CHECK_EQ(take("3", streams[i], NULL), STATUS_BAD_INPUT);
        CHECK(strstr(err.text, "--tee") != NULL);
    }
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        CHECK_EQ(take(NULL, NULL, ranks[i]), STATUS_BAD_INPUT);
        CHECK(strstr(err.text, "--local-ranks-filter") != NULL);
    }
}

/* If typed on every node, as with torchrun, the command would submit one job per node. */
TEST(a_second_node_s_command_line_is_refused)
{
    struct options options;

    options_init(&options);
    options.node_rank = "0";
    CHECK_EQ(torchrun_take(&options, 1, &view.hidden, &err), STATUS_OK);
    options.node_rank = "1";
    CHECK_EQ(torchrun_take(&options, 1, &view.hidden, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "run it once") != NULL);
}

TEST(pet_variables_stand_for_options)
{
    CHECK(torchrun_variable("DDP_NODES") == NULL);
    CHECK_EQ(setenv("PET_NNODES", "3", 1), 0);
    CHECK_STR(torchrun_variable("DDP_NODES"), "3");
    CHECK_EQ(setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7", 1), 0);
    CHECK_STR(torchrun_variable("DDP_GRACE"), "7");
    CHECK_EQ(setenv("PET_SHUTDOWN_TIMEOUT", "8", 1), 0);
    CHECK_STR(torchrun_variable("DDP_GRACE"), "8");
    CHECK(torchrun_variable("DDP_NAME") == NULL);
}

/* For every option without effect, ddpctl says what to use instead. */
TEST(what_has_no_effect_is_explained)
{
    uint32_t count = 0;

    for (size_t i = 0; i < options_row_count; i++)
        if (options_rows[i].kind == OPTION_IGNORED) {
            CHECK(strcmp(torchrun_instead(options_rows[i].name), torchrun_instead("?")) != 0);
            count++;
        }
    CHECK_EQ(count, 10);
}

TEST_MAIN
