/* The summary of a rank's stack for the server: a few lines, and whether the rank waits for
 * others. */
#include "launcherd/inspect/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define HEAD                                                                                       \
    "{\"state\":\"S\",\"wchan\":\"futex_do_wait\",\"kernel_stack\":[\"futex_do_wait\",\"futex_"    \
    "wait\"],"

static struct summary summary;

static void make(const char *json)
{
    summary_make(json, strlen(json), &summary);
}

TEST(a_program_without_python)
{
    make("{\"state\":\"D\",\"wchan\":\"io_schedule\",\"kernel_stack\":[],\"python\":\"\","
         "\"python_problem\":\"neither Python nor a program with Python in it\"}");
    CHECK_STR(summary.state, "D");
    CHECK_STR(summary.where, "io_schedule");
    CHECK_STR(summary.stack, "state D, in io_schedule\n");
    CHECK_EQ(summary.place, LOOK_UNKNOWN);
}

TEST(the_main_thread_alone_the_innermost_frame_first)
{
    make(HEAD "\"python\":\"Process 7: python train.py\\nPython v3.13\\n\\n"
              "Thread 8 (idle): \\\"Thread-1\\\"\\n"
              "    all_reduce (torch/distributed/distributed_c10d.py:4181)\\n"
              "Thread 7 (idle): \\\"MainThread\\\"\\n"
              "    load (train.py:5)\\n"
              "    <module> (train.py:9)\\n\"}");
    CHECK_STR(summary.stack, "state S, in futex_do_wait\n"
                             "kernel: futex_do_wait < futex_wait\n"
                             "  load (train.py:5)\n"
                             "  <module> (train.py:9)\n");
    CHECK_STR(summary.where, "load (train.py:5)");
    CHECK_EQ(summary.place, LOOK_ELSEWHERE); /* other threads do not count */
}

/* The frame that waits for other ranks is named, wherever it is in the stack. */
TEST(a_rank_in_a_collective)
{
    static const char *const frames[] = {
        "all_reduce (torch/distributed/distributed_c10d.py:4181)",
        "_engine_run_backward (torch/autograd/graph.py:865)",
        "synchronize (torch/cuda/__init__.py:1083)",
    };
    char json[1024];

    for (uint32_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        (void)snprintf(json, sizeof json,
                       HEAD
                       "\"python\":\"Thread 7 (idle): \\\"MainThread\\\"\\n"
                       "    wrapper (helpers.py:83)\\n    %s\\n    <module> (train.py:9)\\n\"}",
                       frames[i]);
        make(json);
        CHECK_EQ(summary.place, LOOK_COLLECTIVE);
        CHECK_STR(summary.where, frames[i]);
    }
}

TEST(why_there_are_no_python_frames)
{
    make(HEAD "\"python\":\"\",\"python_problem\":\"py-spy is not installed on this node\"}");
    CHECK(strstr(summary.stack, "no Python frames: py-spy is not installed on this node\n") !=
          NULL);
    CHECK_EQ(summary.place, LOOK_UNKNOWN);
    summary_of_problem("the disk does not answer", &summary);
    CHECK_STR(summary.stack, "the disk does not answer\n");
    CHECK_EQ(summary.place, LOOK_UNKNOWN);
}

TEST(what_is_no_stack)
{
    static const char *const texts[] = {"", "{", "7", "[\"state\"]"};

    for (uint32_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        make(texts[i]);
        CHECK_STR(summary.stack, "its stack is not readable\n");
    }
    make("{\"state\":7,\"wchan\":[],\"kernel_stack\":{\"a\":1},\"python\":null}");
    CHECK_STR(summary.stack, "state \n");
    CHECK_STR(summary.state, "");
}

TEST(twelve_frames_are_enough)
{
    char json[2048] = HEAD "\"python\":\"Thread 7 (idle): \\\"MainThread\\\"\\n";
    size_t used = strlen(json);
    uint32_t shown = 0;

    for (uint32_t i = 0; i < 30; i++)
        used += (size_t)snprintf(json + used, sizeof json - used, "    f (x.py:%u)\\n", i);
    (void)snprintf(json + used, sizeof json - used, "\"}");
    make(json);
    for (const char *at = summary.stack; (at = strstr(at, "f (x.py:")) != NULL; at++)
        shown++;
    CHECK_EQ(shown, 12);
    CHECK_STR(summary.where, "f (x.py:0)");
}

/* Deep stacks and long names: as many whole lines as fit, and no control characters. */
TEST(it_is_bounded_and_printable)
{
    const size_t room = 200000;
    char *json = malloc(room);
    size_t used;
    uint32_t lines = 0;

    CHECK(json != NULL);
    if (json == NULL)
        return;
    used = (size_t)snprintf(json, room, HEAD "\"python\":\"Thread 7 (idle): \\\"MainThread\\\"\\n");
    for (uint32_t i = 0; i < 200; i++)
        used +=
            (size_t)snprintf(json + used, room - used, "    f\\u001b[2J%0600u (x.py:%u)\\n", i, i);
    (void)snprintf(json + used, room - used, "\"}");
    make(json);
    free(json);
    CHECK(strlen(summary.stack) < LOOK_STACK_BYTES_MAX);
    CHECK_EQ(summary.stack[strlen(summary.stack) - 1], '\n');
    CHECK(strchr(summary.stack, 0x1b) == NULL && strchr(summary.where, 0x1b) == NULL);
    for (const char *at = summary.stack; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    CHECK(lines > 2 && lines <= 14);
    CHECK(strlen(summary.where) < LOOK_WHERE_BYTES_MAX);
}

TEST_MAIN
