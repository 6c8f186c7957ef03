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
    feed(&view, "\r 10%\r 20%\x1b[A", &out);
    expect(&out, "\r 10%\r 20%\\x1b[A");
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

TEST_MAIN
