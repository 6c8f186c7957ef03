/* The output of log_line, read back from a pipe that replaces stderr. */
#include "common/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "tests/lib/test.h"

static char line[8192];
static int saved, fds[2];

static void begin(void)
{
    CHECK_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    saved = dup(STDERR_FILENO);
    CHECK(dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
}

static const char *end(void)
{
    ssize_t count = read(fds[0], line, sizeof line - 1);

    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(fds[0]);
    (void)close(fds[1]);
    line[count > 0 ? count : 0] = '\0';
    return line;
}

/* "2026-11-21T01:02:03.456Z " */
static const char *behind_time(const char *text)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";

    CHECK(strlen(text) > sizeof form);
    for (size_t i = 0; i < sizeof form - 1; i++)
        CHECK(form[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == form[i]);
    CHECK(strncmp(text, "2026", 4) >= 0);
    CHECK_EQ(text[24], ' ');
    return text + 25;
}

TEST(text_lines)
{
    struct log_about about = {.node = "node0", .job_id = 5, .generation = 2, .rank = 3};

    begin();
    log_open("rendezvous", LOG_INFO, false);
    log_line(LOG_INFO, about, "rank %d is gone", 3);
    CHECK_STR(behind_time(end()), "info rendezvous node0 job 5 g2 rank 3: rank 3 is gone\n");
    begin();
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "x");
    CHECK_STR(behind_time(end()), "error rendezvous: x\n");
    begin();
    log_line(LOG_DEBUG, LOG_ABOUT_NONE, "below the level");
    CHECK_STR(end(), "");
}

TEST(control_characters_never_reach_the_terminal)
{
    struct log_about about = {.node = "a\nb", .rank = -1};

    begin();
    log_open("m", LOG_INFO, false);
    log_line(LOG_WARNING, about, "%s", "one\ntwo\r\t\x1b[2J\x7f\xc2\x9b \xff\xc3\xa9 \\");
    CHECK_STR(behind_time(end()),
              "warning m a\\nb: one\\ntwo\\r\\t\\x1b[2J\\x7f\\u009b \\xff\xc3\xa9 \\\n");
}

TEST(json_lines_are_json)
{
    struct log_about about = {.node = "n\"0", .job_id = 5, .generation = 2, .rank = 0};
    struct err err = {.text = ""};
    cJSON *root = NULL;

    begin();
    log_open("launcherd", LOG_DEBUG, true);
    log_line(LOG_DEBUG, about, "%s", "quote \" slash \\ esc \x1b nl \n c1 \xc2\x85 bad \xff");
    (void)end();
    CHECK_EQ(line[strlen(line) - 1], '\n');
    if (json_strict_parse(line, strlen(line), NULL, &root, &err) != STATUS_OK)
        FAIL("%s: %s", err.text, line);
    CHECK_STR(json_member(root, "level")->valuestring, "debug");
    CHECK_STR(json_member(root, "module")->valuestring, "launcherd");
    CHECK_STR(json_member(root, "node")->valuestring, "n\"0");
    CHECK_NEAR(json_member(root, "job")->valuedouble, 5, 0);
    CHECK_NEAR(json_member(root, "rank")->valuedouble, 0, 0);
    CHECK_STR(json_member(root, "text")->valuestring,
              "quote \" slash \\ esc \x1b nl \n c1 \xc2\x85 bad \xef\xbf\xbd");
    cJSON_Delete(root);
}

TEST(long_lines_are_cut_and_stay_well_formed)
{
    static char text[10000];
    struct err err = {.text = ""};
    cJSON *root = NULL;

    for (int as_json = 0; as_json < 2; as_json++) {
        memset(text, as_json ? '\x01' : 'x', sizeof text - 1);
        begin();
        log_open("m", LOG_INFO, as_json == 1);
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s", text);
        (void)end();
        CHECK(strlen(line) > 2000 && strlen(line) <= 4096);
        CHECK_EQ(line[strlen(line) - 1], '\n');
    }
    CHECK_EQ(json_strict_parse(line, strlen(line), NULL, &root, &err), STATUS_OK);
    cJSON_Delete(root);
}

TEST(the_environment_sets_level_and_form)
{
    CHECK_EQ(setenv("DDP_LOG_LEVEL", "error", 1), 0);
    CHECK_EQ(setenv("DDP_LOG_FORMAT", "json", 1), 0);
    begin();
    log_open("m", LOG_DEBUG, false);
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "not shown");
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "shown");
    CHECK(strstr(end(), "\"text\":\"shown\"}\n") != NULL);
    CHECK(strstr(line, "not shown") == NULL);
    CHECK_EQ(setenv("DDP_LOG_LEVEL", "loud", 1), 0);
    CHECK_EQ(setenv("DDP_LOG_FORMAT", "text", 1), 0);
    begin();
    log_open("m", LOG_INFO, false);
    CHECK(strstr(end(), "DDP_LOG_LEVEL is \"loud\", expected debug, info") != NULL);
    CHECK_EQ(unsetenv("DDP_LOG_LEVEL"), 0);
    CHECK_EQ(unsetenv("DDP_LOG_FORMAT"), 0);
}

/* The pipe is in blocking mode, like an inherited one. */
TEST(lines_that_nobody_reads_are_dropped_and_counted)
{
    static char filler[1 << 16];
    ssize_t count;

    begin();
    log_open("m", LOG_INFO, false);
    while (write(fds[1], filler, sizeof filler) > 0)
        continue;
    while (write(fds[1], filler, 1) > 0)
        continue;
    CHECK_EQ(fcntl(fds[1], F_SETFL, 0), 0);
    log_never_wait();
    (void)alarm(30); /* if a line blocks, SIGALRM ends the program */
    for (int i = 0; i < 3; i++)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "nobody reads this");
    (void)alarm(0);
    do
        count = read(fds[0], filler, sizeof filler);
    while (count > 0);
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "somebody reads this");
    CHECK(strstr(end(), "m: 3 lines were lost before this one: nobody read them\n") != NULL);
    CHECK(strstr(line, "m: somebody reads this\n") != NULL);
    CHECK(strstr(line, "nobody reads this") == NULL);
}

TEST_MAIN
