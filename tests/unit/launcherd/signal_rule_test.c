/* Which processes of a rank get a signal of a stop first, late, and when the ranks have ended. */
#include <string.h>

#include "launcherd/process/signal_rule.h"
#include "tests/lib/test.h"

#define SHELL                                                                                      \
    {                                                                                              \
        .parent = SIGNAL_ROOT, .is_shell = true                                                    \
    }

static struct signal_process *list;
static uint32_t count;

/* The chosen ones, as digits. */
static const char *chosen(enum signal_wave wave)
{
    static char text[16];
    char *at = text;

    signal_rule(list, count, wave);
    for (uint32_t i = 0; i < count; i++)
        if (list[i].is_chosen)
            *at++ = (char)('0' + i);
    *at = '\0';
    return text;
}

static const char *again(enum signal_wave wave)
{
    for (uint32_t i = 0; i < count; i++)
        list[i].has_it = list[i].has_it || list[i].is_chosen;
    return chosen(wave);
}

/* `writer` is one more than the index here; 0: none. */
#define LIST(...)                                                                                  \
    struct signal_process items[] = {__VA_ARGS__};                                                 \
    list = items;                                                                                  \
    count = sizeof items / sizeof items[0];                                                        \
    for (uint32_t i = 0; i < count; i++)                                                           \
    items[i].writer--

/* A script with a handler, its DataLoader's workers, which have one, too, and a decoder that one of them runs. */
TEST(a_loader_of_a_script_with_a_handler_is_spared)
{
    LIST({.parent = SIGNAL_ROOT, .answers = true}, {.parent = 0, .answers = true, .is_copy = true},
         {.parent = 0, .answers = true, .is_copy = true}, {.parent = 2});
    CHECK_STR(chosen(SIGNAL_FIRST), "0");
    CHECK_STR(again(SIGNAL_FIRST), "");
    CHECK_STR(again(SIGNAL_LATE), ""); /* copies save nothing, and end a rank that does */
}

TEST(without_a_handler_all_get_it)
{
    LIST({.parent = SIGNAL_ROOT}, {.parent = 0, .answers = true, .is_copy = true},
         {.parent = 0, .is_copy = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "012");
}

/* bash job.sh: python train.py, which has a loader */
TEST(the_program_of_a_shell_gets_it_and_its_loader_does_not)
{
    LIST(SHELL, {.parent = 0, .answers = true}, {.parent = 1, .answers = true, .is_copy = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
    CHECK_STR(again(SIGNAL_LATE), "");
    items[1].parent = SIGNAL_ROOT; /* the shell has died */
    items[0].is_chosen = false;
    CHECK_STR(again(SIGNAL_FIRST), "");
}

/* trap 'save; exit' TERM; python train.py: the shell runs the trap when its program has ended */
TEST(a_shell_with_a_trap_is_passed_once)
{
    LIST(SHELL, {.parent = 0, .answers = true}, {.parent = 0});
    items[0].answers = true;
    count = 2;
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
    count = 3; /* what the trap runs */
    CHECK_STR(again(SIGNAL_FIRST), "");
}

/* trap 'kill -TERM $pid' TERM; python train.py & pid=$!; wait $pid */
TEST(a_trap_of_a_shell_that_waits_hands_it_on_itself)
{
    LIST(SHELL, {.parent = 0, .answers = true, .is_background = true});
    items[0].answers = true;
    CHECK_STR(chosen(SIGNAL_FIRST), "0");
    items[0].answers = false; /* without a trap it dies */
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
}

/* python train.py 2>&1 | tee log, and | while read line; do ...; done */
TEST(what_reads_the_output_of_a_script_ends_with_it)
{
    LIST(SHELL, {.parent = 0, .answers = true}, {.parent = 0, .reads_others = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
    CHECK_STR(again(SIGNAL_LATE), "");
    items[2].is_shell = true;
    memset(&items[0].has_it, 0, sizeof items[0].has_it);
    items[1].has_it = false;
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
}

/* cat list | while read name; do python train.py $name; done */
TEST(a_script_that_reads_a_pipe_gets_it)
{
    LIST(SHELL, {.parent = 0}, {.parent = 0, .is_shell = true, .reads_others = true},
         {.parent = 2, .answers = true, .reads_others = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "0123");
}

/* python train.py 2>&1 | tee >(gzip > log.gz): gzip has a handler, too, and no output to save before the script has ended. */
TEST(what_reads_the_output_of_a_script_through_others_ends_with_it)
{
    LIST(SHELL, {.parent = 0, .answers = true}, {.parent = 0, .reads_others = true, .writer = 2},
         {.parent = 2, .answers = true, .reads_others = true, .writer = 3});
    CHECK_STR(chosen(SIGNAL_FIRST), "01");
    CHECK_STR(again(SIGNAL_LATE), "");
    count = 1; /* the script has ended, and left the reader */
    items[0] = items[3];
    items[0].parent = items[0].writer = SIGNAL_ROOT;
    items[0].reads_others = false;
    items[0].lost_writer = true;
    CHECK_STR(chosen(SIGNAL_FIRST), "");
    items[0].lost_writer = false;
    CHECK_STR(chosen(SIGNAL_FIRST), "0");
}

TEST(two_that_read_from_each_other)
{
    LIST(SHELL, {.parent = 0, .reads_others = true, .writer = 3},
         {.parent = 0, .reads_others = true, .writer = 2});
    CHECK_STR(chosen(SIGNAL_FIRST), "0");
}

/* timeout 1h python train.py, which has a loader */
TEST(timeout_gets_none_and_its_program_does)
{
    LIST({.parent = SIGNAL_ROOT, .answers = true, .is_relay = true}, {.parent = 0, .answers = true},
         {.parent = 1, .answers = true, .is_copy = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "1");
    CHECK_STR(again(SIGNAL_LATE), "");
}

/* A wrapper with a handler that keeps the signal to itself. */
TEST(a_program_of_a_wrapper_gets_it_late)
{
    LIST({.parent = SIGNAL_ROOT, .answers = true}, {.parent = 0, .answers = true},
         {.parent = 1, .answers = true, .is_copy = true}, {.parent = 2, .answers = true},
         {.parent = 0}, {.parent = 4, .answers = true});
    CHECK_STR(chosen(SIGNAL_FIRST), "0");
    CHECK_STR(again(SIGNAL_LATE), "15");
    CHECK_STR(again(SIGNAL_LATE), "");
}

TEST(a_warning_goes_to_those_that_have_a_handler)
{
    LIST(SHELL, {.parent = 0, .answers = true}, {.parent = 1, .answers = true}, {.parent = 0},
         {.parent = SIGNAL_ROOT}, {.parent = 4});
    CHECK_STR(chosen(SIGNAL_WARN), "14"); /* 4: nothing there has one */
    items[0].answers = true;
    CHECK_STR(chosen(SIGNAL_WARN), "014");
}

TEST_MAIN
