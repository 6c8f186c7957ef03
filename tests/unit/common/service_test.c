/* The start of a daemon. tests/integration has the rest: ready lines, signals, a parent that
 * ends. */
#include "common/io/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"

struct settings {
    struct service_settings service;
};

static const struct option_row rows[] = {SERVICE_OPTION_ROWS(struct settings, service, "stop")};
static const struct option_table table = {
    .program = "daemon", .rows = rows, .row_count = sizeof rows / sizeof rows[0]};

static int parse(struct settings *settings, const char *argument)
{
    char *const argv[] = {(char *)(uintptr_t)("daemon"), (char *)(uintptr_t)argument, NULL};

    *settings = (struct settings){0};
    return service_parse(&table, 2, argv, settings);
}

TEST(only_options_are_accepted)
{
    struct settings settings;

    CHECK_EQ(parse(&settings, "--log-format=json"), -1);
    CHECK_EQ(settings.service.log_format, 1);
    CHECK_EQ(parse(&settings, "--exit-with-parent"), -1);
    CHECK(settings.service.exit_with_parent);
    CHECK_EQ(parse(&settings, "--help"), 0);
    CHECK_EQ(parse(&settings, "--version"), 0);
    CHECK_EQ(parse(&settings, "--log-format=xml"), SERVICE_EXIT_USAGE);
    CHECK_EQ(parse(&settings, "word"), SERVICE_EXIT_USAGE);
}

TEST(the_state_directory_follows_user_and_environment)
{
    char dir[PATH_MAX], expected[PATH_MAX];
    const char *home = getenv("HOME");

    CHECK_EQ(setenv("XDG_STATE_HOME", "/state", 1), 0);
    service_state_dir("/launcherd", dir);
    CHECK_STR(dir, geteuid() == 0 ? "/var/lib/ddp/launcherd" : "/state/ddp/launcherd");
    CHECK_EQ(setenv("XDG_STATE_HOME", "not/absolute", 1), 0);
    service_state_dir("", dir);
    (void)snprintf(expected, sizeof expected, "%s/.local/state/ddp", home ? home : "");
    CHECK_STR(dir, geteuid() == 0 ? "/var/lib/ddp" : expected);
}

TEST(a_parent_that_is_gone_is_noticed)
{
    const struct service_settings alone = {0}, bound = {.exit_with_parent = true};

    CHECK(service_begin("daemon", &alone, getpid())); /* no process is its own parent */
    CHECK(!service_begin("daemon", &bound, getpid()));
    CHECK(service_begin("daemon", &bound, getppid()));
}

static void on_signal(uv_signal_t *handle, int number)
{
    *(int *)handle->data = number;
}

TEST(signals_do_not_keep_the_loop_running)
{
    struct service_signals signals = {0};
    uv_loop_t loop;
    int seen = 0;

    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_EQ(service_signals_open(&signals, &loop, on_signal, &seen), 0);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(raise(SIGTERM), 0);
    uv_ref((uv_handle_t *)&signals.handles[0]); /* a loop without a referenced handle does not
                                                 * poll */
    (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK_EQ(seen, SIGTERM);
    service_signals_close(&signals);
    service_signals_close(&signals);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

TEST_MAIN
