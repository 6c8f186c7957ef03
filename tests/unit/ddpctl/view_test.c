#include <string.h>

#include "ddpctl/escape.h"
#include "ddpctl/view.h"
#include "tests/lib/test.h"

#define SECOND_US 1000000u

static void expect(struct buf *out, const char *expected)
{
    buf_add(out, "", 1);
    CHECK(!out->failed);
    CHECK_STR(out->bytes, expected);
    buf_free(out);
    *out = (struct buf){0};
}

static void feed(struct view *view, const char *text, struct buf *out)
{
    view_bytes(view, text, strlen(text), out);
}

TEST(lines_get_a_prefix_when_they_are_whole)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, " 0 n | ");
    feed(&view, "one\ntw", &out);
    expect(&out, " 0 n | one\n");
    feed(&view, "o\r\n\nthree", &out);
    expect(&out, " 0 n | two\n 0 n | \n");
    view_end(&view, &out);
    expect(&out, " 0 n | three\n");
    view_end(&view, &out);
    CHECK_EQ(out.byte_count, 0);
    view_close(&view);
}

TEST(progress_bars_show_their_last_state)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, "");
    feed(&view, "\r10%\r20%", &out);
    view_tick(&view, 5 * SECOND_US, &out);
    expect(&out, "20%\n");
    view_tick(&view, 7 * SECOND_US, &out); /* nothing new */
    feed(&view, "\r30%\r40%", &out);
    view_tick(&view, 7 * SECOND_US, &out);
    feed(&view, "\r50%", &out);
    view_tick(&view, 7 * SECOND_US + 1000, &out); /* too soon */
    expect(&out, "40%\n");
    feed(&view, "\r100%\nnext\n", &out);
    expect(&out, "100%\nnext\n");
    feed(&view, "\r7%\r", &out);
    view_tick(&view, 20 * SECOND_US, &out);
    feed(&view, "\n", &out);
    expect(&out, "7%\n"); /* shown once */
    view_close(&view);
}

TEST(control_characters_are_escaped)
{
    struct buf out = {0};
    /* misleading on purpose: NOLINTNEXTLINE(misc-misleading-bidirectional) */
    static const char hostile[] = "a\x1b]0;x\x07\tb\x7f\xc2\x9b"
                                  "1m\xff\xc3\xa9\xe2\x80\xae\xed\xa0\x80\xf0\x9f\x98\x80\0z";

    escape_text(hostile, sizeof hostile - 1, &out);
    expect(&out, "a\\x1b]0;"
                 "x\\x07\tb\\x7f\\xc2\\x9b1m\\xff\xc3\xa9\\xe2\\x80\\xae\\xed\\xa0\\x80\xf0\x9f\x98"
                 "\x80\\x00z");
}

TEST(plain_text_waits_only_for_whole_characters)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PLAIN, "");
    feed(&view, "ab\xc3", &out);
    expect(&out, "ab");
    feed(&view, "\xa9.", &out);
    expect(&out, "\xc3\xa9.");
    feed(&view, "\n\xe2\x82", &out);
    expect(&out, "\n");
    view_end(&view, &out);
    expect(&out, "\\xe2\\x82\n");
    view_close(&view);
}

TEST(a_progress_bar_of_one_rank_stays_in_its_place)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PLAIN, "");
    view.rules = (struct sequence_rules){.has_moves = true, .has_climbs = true};
    feed(&view, "\r 10%\r 20%\x1b[A\x1b[2K\b", &out); /* as tqdm does in nested loops */
    expect(&out, "\r 10%\r 20%\x1b[A\x1b[2K\b");
    view.rules.has_climbs = false; /* a log of others */
    feed(&view, "\x1b[A\x1b[2K", &out);
    expect(&out, "\x1b[2K");
    view_tick(&view, 9 * SECOND_US, &out);
    CHECK_EQ(out.byte_count, 0);
    feed(&view, "\r100%\nnext\r\n", &out);
    expect(&out, "\r100%\nnext\r\n");
    view_end(&view, &out);
    CHECK_EQ(out.byte_count, 0);
    view_close(&view);
}

TEST(ranks_in_a_pipe_do_not_mix_within_a_line)
{
    struct view view;
    struct buf out = {0};
    static char text[VIEW_LINE_BYTES_MAX];

    view_init(&view, VIEW_WHOLE, "");
    feed(&view, "one\x1b\ntw", &out);
    expect(&out, "one\x1b\n");
    feed(&view, "o", &out);
    CHECK_EQ(out.byte_count, 0);
    feed(&view, "\rthree\r", &out);
    expect(&out, "two\rthree\r");
    feed(&view, "end", &out);
    view_end(&view, &out);
    expect(&out, "end"); /* as it was written: no line feed */
    memset(text, 'x', sizeof text);
    view_bytes(&view, text, 7, &out);
    view_bytes(&view, text, sizeof text, &out);
    CHECK_EQ(out.byte_count, sizeof text + 7); /* a line that is too long to wait for, uncut */
    buf_free(&out);
    view_close(&view);
}

TEST(a_line_has_the_time_of_its_first_byte)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, "p ");
    view.has_times = true;
    view.at_ms = 1700000000123;
    feed(&view, "a", &out);
    view.at_ms += 60000;
    feed(&view, "b\nc\n", &out);
    expect(&out, "2023-11-14T22:13:20.123Z p ab\n2023-11-14T22:14:20.123Z p c\n");
    view.at_ms = 0;
    feed(&view, "d\n", &out);
    expect(&out, "- p d\n");
    view_close(&view);
}

TEST(where_and_how_a_stream_is_shown)
{
    struct view_options options = {0}, bad = {0};
    const struct view_target pipe_one = {0}, pipe_many = {.has_ranks = true},
                             tty_one = {.is_terminal = true},
                             tty_many = {.is_terminal = true, .has_ranks = true};
    struct err err;

    CHECK_EQ(view_options_parse("sometimes", NULL, &bad, &err), STATUS_BAD_INPUT);
    CHECK_EQ(view_options_parse(NULL, "both", &bad, &err), STATUS_BAD_INPUT);
    CHECK_EQ(view_options_parse(NULL, "err", &options, &err), STATUS_OK);
    CHECK(options.hides_out && !options.hides_error);
    CHECK_EQ(view_options_parse("auto", "out", &options, &err), STATUS_OK);
    CHECK(!options.hides_out && options.hides_error);
    CHECK_EQ(view_choose(&options, &pipe_many), VIEW_PREFIXED); /* logs */
    options.splits = true;                                      /* run */
    CHECK_EQ(view_choose(&options, &pipe_one), VIEW_EXACT);
    CHECK_EQ(view_choose(&options, &pipe_many), VIEW_WHOLE);
    CHECK_EQ(view_choose(&options, &tty_one), VIEW_PLAIN);
    CHECK_EQ(view_choose(&options, &tty_many), VIEW_PREFIXED);
    CHECK(view_has_prefix(&options, &tty_many) && !view_has_prefix(&options, &pipe_many));
    CHECK_EQ(view_options_parse("never", NULL, &options, &err), STATUS_OK);
    CHECK_EQ(view_choose(&options, &tty_many), VIEW_PREFIXED); /* whole lines, no prefix */
    CHECK(!view_has_prefix(&options, &tty_many));
    CHECK_EQ(view_options_parse("always", NULL, &options, &err), STATUS_OK);
    CHECK_EQ(view_choose(&options, &pipe_one), VIEW_PREFIXED);
    options.is_raw = true;
    CHECK_EQ(view_choose(&options, &tty_many), VIEW_EXACT);
}

TEST(exact_is_exact)
{
    struct view view;
    struct buf out = {0};
    static const char bytes[] = {'a', 0, '\r', 'b', '\x1b', '\n', '\xff'};

    view_init(&view, VIEW_EXACT, "x");
    view_bytes(&view, bytes, sizeof bytes, &out);
    view_end(&view, &out);
    CHECK_EQ(out.byte_count, sizeof bytes);
    CHECK_BYTES(out.bytes, bytes, sizeof bytes);
    buf_free(&out);
    view_close(&view);
}

TEST(json_lines_are_valid_text)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_JSON, "");
    view.source = (struct view_source){.job_id = 41, .generation = 2, .rank = 9, .node = "gpu02"};
    view_bytes(&view, "\"q\"\xff\0\x1b\n", 7, &out);
    expect(&out, "{\"schema\":\"ddp.v1\",\"type\":\"log\",\"job_id\":41,\"generation\":2,\"rank\":"
                 "9,\"node\":\"gpu02\",\"stream\":\"stdout\",\"time\":null,"
                 "\"text\":\"\\\"q\\\"\xef\xbf\xbd\xef\xbf\xbd\\u001b\"}\n");
    view_close(&view);
}

TEST(long_lines_come_in_pieces)
{
    struct view view;
    struct buf out = {0};
    static char text[VIEW_LINE_BYTES_MAX + 10];

    memset(text, 'x', sizeof text);
    view_init(&view, VIEW_PREFIXED, "p ");
    view_bytes(&view, text, sizeof text, &out);
    static const char mark[] = " [... this line is longer than 256 KiB and goes on ...]\n";
    CHECK_EQ(out.byte_count, sizeof text + 2 + sizeof mark - 1);
    CHECK_BYTES(out.bytes + 2 + sizeof text, mark, sizeof mark - 1);
    view_close(&view);
    buf_free(&out);
}

TEST(prefixes_line_up)
{
    char prefix[VIEW_PREFIX_BYTES];

    view_prefix(9, "gpu02", 2, 6, false, prefix);
    CHECK_STR(prefix, " 9 gpu02  | ");
    view_prefix(0, "n", 2, 1, true, prefix);
    CHECK_STR(prefix, "\x1b[36m 0 n |\x1b[0m ");
    view_prefix(3, "", 2, 5, false, prefix); /* this rank's node is not known */
    CHECK_STR(prefix, " 3       | ");
    view_prefix(3, "", 2, 0, false, prefix); /* no rank's */
    CHECK_STR(prefix, " 3 | ");
    view_prefix(0, "", 2, 0, true, prefix);
    CHECK_STR(prefix, "\x1b[36m 0 |\x1b[0m ");
}

TEST(colours_pass_and_end_with_the_line)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, "p ");
    view.rules.has_styles = true;
    feed(&view, "\x1b[34mblue\x1b[0m\n\x1b[1;31mtwo\nlines\x1b[39m.\x1b[m\n", &out);
    expect(&out, "p \x1b[34mblue\x1b[0m\n"
                 "p \x1b[1;31mtwo\x1b[0m\n"
                 "p \x1b[0;1;31mlines\x1b[39m.\x1b[m\n");
    feed(&view, "\r\x1b[38;5;17;4m10%\r20%\n", &out); /* what was drawn over counts, too */
    view_end(&view, &out);
    expect(&out, "p \x1b[0;4;38;5;17m20%\x1b[0m\n");
    view.rules.has_styles = false; /* NO_COLOR, or no terminal */
    feed(&view, "\x1b[34mblue\x1b[0m\n", &out);
    expect(&out, "p blue\n");
    view_close(&view);
    view_init(&view, VIEW_PLAIN, "");
    view.rules.has_styles = true;
    feed(&view, "a\x1b[3", &out); /* the sequence comes in two pieces */
    expect(&out, "a");
    feed(&view, "1mb\nc", &out); /* what others write behind a piece is not red */
    expect(&out, "\x1b[31mb\x1b[0m\n\x1b[0;31mc\x1b[0m");
    feed(&view, "\x1b[0md\n", &out);
    expect(&out, "\x1b[0;31m\x1b[0md\n");
    view_close(&view);
}

TEST(what_a_log_may_not_do_to_a_terminal_is_left_out)
{
    struct sequence_rules rules = {true, true, true};
    struct style style = {0};
    struct buf out = {0};
    static const char hostile[] = "a\x1b]0;title\x07"
                                  "b\x1b]52;c;cm0=\x1b\\c\x1b[2Jd\x1b[6ne\x1b[?1049hf\x1b(Bg\x1b"
                                  "ch\x1bP1$r\x1b\\i\x1b[1;1Hj";
    char long_one[SEQUENCE_BYTES_MAX + 8] = "\x1b]";

    sequence_write(&rules, &style, hostile, sizeof hostile - 1, &out);
    expect(&out, "abcdefghij");
    sequence_write(&rules, &style, "x\x1b[3\x07y\x1b\xff", 8, &out); /* no sequences */
    expect(&out, "x\\x1b[3\\x07y\\x1b\\xff");
    memset(long_one + 2, 'x', sizeof long_one - 3);
    long_one[sizeof long_one - 2] = '\a';
    sequence_write(&rules, &style, long_one, sizeof long_one - 1, &out);
    CHECK_BYTES(out.bytes, "\\x1b]xxx", 8);
    buf_free(&out);
}

TEST(a_line_that_rests_is_shown_without_its_end)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, "p ");
    view.shows_parts = true;
    feed(&view, "name? ", &out);
    view_tick(&view, 1, &out);
    CHECK_EQ(out.byte_count, 0); /* it may be going on */
    view_tick(&view, 2, &out);
    expect(&out, "p name? ");
    CHECK(view.is_open);
    feed(&view, "bob\nhe", &out);
    expect(&out, "bob\n");
    feed(&view, "llo", &out);
    view_tick(&view, 3, &out);
    view_tick(&view, 4, &out);
    expect(&out, "p hello");
    view_cut(&view); /* another rank has written */
    feed(&view, "\n", &out);
    CHECK_EQ(out.byte_count, 0);
    view.is_typed = true;
    feed(&view, "ab", &out);
    expect(&out, "p ab");
    feed(&view, "\b \b", &out); /* the backspace key */
    expect(&out, "\b \b");
    view_cut(&view);
    feed(&view, "c\n", &out);
    expect(&out, "p c\n");
    feed(&view, "50%", &out);
    expect(&out, "p 50%");
    feed(&view, "\r60%\n", &out);
    view_end(&view, &out);
    expect(&out, "\np 60%\n");
    view_close(&view);
}

/* As tqdm draws the bars of a loop in a loop: each draws its own line and goes back. */
TEST(bars_of_nested_loops_show_their_last_states)
{
    struct view view;
    struct buf out = {0};

    view_init(&view, VIEW_PREFIXED, "");
    feed(&view, "\router 0%\n\rinner 0%\x1b[A\n\rinner 1%\x1b", &out);
    feed(&view, "[A", &out);
    CHECK_EQ(out.byte_count, 0);
    view_tick(&view, 5 * SECOND_US, &out);
    expect(&out, "outer 0%\ninner 1%\n");
    feed(&view, "\n\rinner 2%\x1b[A\n\rinner 3%\x1b[A", &out);
    view_tick(&view, 5 * SECOND_US + 1000, &out);
    CHECK_EQ(out.byte_count, 0); /* too soon */
    view_tick(&view, 7 * SECOND_US, &out);
    expect(&out, "inner 3%\n");
    feed(&view, "\n\r        \x1b[A\router 100%\n", &out); /* the inner one is wiped */
    view_settle(&view, &out);                              /* "done" is printed to stdout */
    expect(&out, "outer 100%\n");
    feed(&view, "\rnext 0%\n\n\rthird\x1b[A\x1b[A\rnext 9%\n\n\nend\n", &out);
    expect(&out, "next 9%\nthird\nend\n");
    feed(&view, "\x1b[2Kone 0%\ntwo 0%", &out); /* as rich does */
    for (int i = 0; i < 3; i++)
        feed(&view, "\r\x1b[2K\x1b[1A\x1b[2Kone 1%\ntwo 1%", &out);
    feed(&view, "\nend\n", &out);
    expect(&out, "one 1%\ntwo 1%\nend\n");
    for (int i = 0; i < 20; i++)
        feed(&view, "\rx\n", &out); /* more than are kept */
    view_end(&view, &out);
    CHECK_EQ(out.byte_count, 40);
    buf_free(&out);
    out = (struct buf){0};
    view_close(&view);
}

TEST_MAIN
