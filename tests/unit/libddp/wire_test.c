/* The library's messages are those of common/msg.h. */
#include "libddp/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/msg.h"
#include "common/msg_version.h"
#include "tests/lib/test.h"
#include "tests/unit/libddp/shim_end.h"

static enum status decode(const char *json, struct wire_message *message)
{
    struct err err = {.text = ""};
    enum status status = wire_decode(json, strlen(json), message, &err);

    CHECK((status == STATUS_OK) == (err.text[0] == '\0'));
    return status;
}

/* Reads what the library has written as the shim would. */
static void read_back(const struct buf *out, struct arena *arena, struct msg *msg)
{
    const char *payload;
    size_t payload_bytes;
    struct msg_protocols protocols = {PROTOCOL_VERSION, 1}; /* as the shim reads */
    struct err err = {.text = ""};

    CHECK_EQ(
        frame_next(out->bytes, out->byte_count, FRAME_BYTES_MAX, &payload, &payload_bytes, &err),
        STATUS_OK);
    CHECK_EQ(FRAME_HEAD_BYTES + payload_bytes, out->byte_count);
    if (msg_decode_between(payload, payload_bytes, &protocols, arena, msg, &err) != STATUS_OK)
        FAIL("%s: %.*s", err.text, (int)payload_bytes, payload);
}

TEST(a_world_is_read)
{
    struct wire_message message;

    CHECK_EQ(decode("{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"bWluZQ==\"}",
                    &message),
             STATUS_OK);
    CHECK_EQ(message.kind, WIRE_WORLD);
    CHECK_EQ(message.job_id, 9);
    CHECK_EQ(message.generation, 3);
    CHECK_EQ(message.blob_bytes, 4);
    CHECK_BYTES(message.blob, "mine", 4);
    /* in any order, with spaces, with a field of a later version that looks like one of these */
    CHECK_EQ(decode("{ \"blob\" : \"\" , \"later\":{\"blob\":[\"}\",1]}, \"generation\":7,\n"
                    "\"more\":-1.5e3,\"job_id\":\"9007199254740991\",\"type\":\"world\" }",
                    &message),
             STATUS_OK);
    CHECK_EQ(message.generation, 7);
    CHECK_EQ(message.blob_bytes, 0);
    CHECK_EQ(message.job_id, 9007199254740991u);
}

TEST(messages_of_later_versions_are_passed_over)
{
    struct wire_message message;

    CHECK_EQ(decode("{\"type\":\"tomorrow\",\"x\":[[],{}]}", &message), STATUS_OK);
    CHECK_EQ(message.kind, WIRE_OTHER);
    CHECK_EQ(decode("{\"type\":1}", &message), STATUS_OK);
    CHECK_EQ(message.kind, WIRE_OTHER);
}

TEST(what_is_no_message_is_refused)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "1",
        "{\"type\":\"world\"}",
        "{\"type\":\"world\"",
        "{\"t\\u0079pe\":\"world\"}",
        "{\"type\":\"world\",\"type\":\"world\"}",
        "{\"type\":\"world\",\"job_id\":9,\"generation\":3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"\",\"generation\":3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9007199254740992\",\"generation\":3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"99999999999999999999\",\"generation\":3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"09\",\"generation\":3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":\"3\",\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3.0,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":-3,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":1000001,\"blob\":\"\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"bWluZQ=\"}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":null}",
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"\",\"blob\":\"\"}",
    };
    struct wire_message message;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (decode(texts[i], &message) == STATUS_OK)
            FAIL("taken: %s", texts[i]);
}

TEST(a_blob_has_a_limit)
{
    char json[2048], chars[1024];
    struct wire_message message;

    memset(chars, 'A', sizeof chars);
    (void)snprintf(json, sizeof json,
                   "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"%.684s\"}",
                   chars); /* 513 bytes */
    CHECK_EQ(decode(json, &message), STATUS_BAD_INPUT);
    chars[683] = '=';
    (void)snprintf(json, sizeof json,
                   "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"%.684s\"}",
                   chars);
    CHECK_EQ(decode(json, &message), STATUS_OK);
    CHECK_EQ(message.blob_bytes, 512);
}

TEST(a_join_is_what_the_shim_reads)
{
    struct buf out = {0};
    struct arena arena = {0};
    struct msg msg;

    wire_add_join(&out, 7, 3, "\0\xff id", 5);
    read_back(&out, &arena, &msg);
    CHECK_EQ(msg.type, MSG_TYPE_WORKER_JOIN);
    CHECK_EQ(msg.worker_join.rank, 7);
    CHECK_EQ(msg.worker_join.generation, 3);
    CHECK_EQ(msg.worker_join.blob.count, 5);
    CHECK_BYTES(msg.worker_join.blob.items, "\0\xff id", 5);
    arena_reset(&arena);
    buf_free(&out);
}

static void check_progress(const struct ddp_progress *progress, double loss, double rate)
{
    const struct ddp_place place = {.rank = 1, .job_id = 9, .generation = 3};
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    struct buf out = {0};
    struct arena arena = {0};
    struct msg msg;

    wire_add_progress(&out, &place, progress, NULL, UINT64_MAX, c_locale);
    read_back(&out, &arena, &msg);
    CHECK_EQ(msg.type, MSG_TYPE_PROGRESS);
    CHECK_EQ(msg.progress.rank, 1);
    CHECK_EQ(msg.progress.job_id, 9);
    CHECK_EQ(msg.progress.generation, 3);
    CHECK_EQ(msg.progress.step, progress->step);
    CHECK_EQ(msg.progress.checkpoint_step, JOB_ID_MAX);
    CHECK(msg.progress.loss == loss && msg.progress.samples_per_s == rate);
    arena_reset(&arena);
    buf_free(&out);
    freelocale(c_locale);
}

TEST(progress_is_what_the_shim_reads)
{
    check_progress(&(struct ddp_progress){.step = 5, .loss = 0.1, .samples_per_s = 1e6}, 0.1, 1e6);
    check_progress(&(struct ddp_progress){.loss = -2.5e-300, .samples_per_s = -1}, -2.5e-300, 0);
    check_progress(&(struct ddp_progress){.loss = (double)NAN, .samples_per_s = (double)INFINITY},
                   1e300, 0);
    check_progress(&(struct ddp_progress){.loss = -1e308, .samples_per_s = (double)NAN}, 1e300, 0);
}

/* Values that do not fit are made to fit; `doing` is a line of 63 bytes at most. */
TEST(later_fields_are_what_the_shim_reads)
{
    const struct ddp_place place = {.rank = 1, .job_id = 9, .generation = 3};
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    struct ddp_progress progress = {.phase = DDP_SAVING,
                                    .collectives = 88,
                                    .in_collective = 1,
                                    .again_s = 2.5,
                                    .doing = "all_reduce \"a\\b\"\n\x1b\xc3\xa4\xff"};
    const struct wire_times times = {10, 1000, 200, UINT64_MAX, 40, 50};
    char longer[200];
    struct buf out = {0};
    struct arena arena = {0};
    struct msg msg;

    wire_add_progress(&out, &place, &progress, &times, 0, c_locale);
    read_back(&out, &arena, &msg);
    CHECK_EQ(msg.progress.phase, PROGRESS_SAVING);
    CHECK_EQ(msg.progress.collectives, 88);
    CHECK(msg.progress.in_collective);
    CHECK_EQ(msg.progress.again_us, 2500000);
    CHECK_EQ(msg.progress.timed_steps, 10);
    CHECK_EQ(msg.progress.step_us, 1000);
    CHECK_EQ(msg.progress.compute_us, TIME_US_MAX);
    CHECK_EQ(msg.progress.wait_us, 50);
    CHECK(strncmp(msg.progress.doing, "all_reduce \"a\\b\"", 16) == 0);
    out.byte_count = 0;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    progress = (struct ddp_progress){.phase = 77, .again_s = (double)NAN, .doing = longer};
    wire_add_progress(&out, &place, &progress, &times, 0, c_locale);
    read_back(&out, &arena, &msg);
    CHECK_EQ(msg.progress.phase, PROGRESS_STEPS);
    CHECK_EQ(msg.progress.again_us, 0);
    CHECK_EQ(strlen(msg.progress.doing), DOING_BYTES_MAX - 1);
    arena_reset(&arena);
    buf_free(&out);
    freelocale(c_locale);
}

static void check_error(const char *text, const char *expected)
{
    struct buf out = {0};
    struct arena arena = {0};
    struct msg msg;

    wire_add_error(&out, text);
    read_back(&out, &arena, &msg);
    CHECK_EQ(msg.type, MSG_TYPE_WORKER_ERROR);
    CHECK_STR(msg.worker_error.text, expected);
    arena_reset(&arena);
    buf_free(&out);
}

TEST(an_error_is_any_text)
{
    char text[3000], expected[3000];

    check_error("a \"quote\", a \\, a\nline and a \x01", "a \"quote\", a \\, a\nline and a \x01");
    check_error("gr\xc3\xbc\xc3\x9f\x65 \xff\xc3", "gr\xc3\xbc\xc3\x9f\x65 ??");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    memcpy(text + 2046, "\xc3\xbc", 2); /* the limit is in its middle */
    (void)snprintf(expected, sizeof expected, "%.2046s", text);
    check_error(text, expected);
}

TEST_MAIN
