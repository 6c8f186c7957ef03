/* The small parts: arena, buf, frame, link, base64, utf8. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/base64.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/limits.h"
#include "common/utf8.h"
#include "tests/lib/test.h"

TEST(arena_gives_zeroed_aligned_memory)
{
    struct arena arena = {0};

    for (size_t i = 0; i < 3000; i++) {
        unsigned char *bytes = arena_alloc(&arena, i % 200);

        CHECK(bytes != NULL);
        CHECK_EQ((uintptr_t)bytes % _Alignof(max_align_t), 0);
        for (size_t j = 0; j < i % 200; j++)
            CHECK_EQ(bytes[j], 0);
        memset(bytes, 0xff, i % 200);
    }
    CHECK_STR(arena_text(&arena, "abcdef", 3), "abc");
    CHECK_STR(arena_text(&arena, "", 0), "");
    arena_reset(&arena);
    CHECK_EQ(arena.byte_count, 0);
    CHECK(arena_alloc(&arena, 100000) != NULL);
    arena_reset(&arena);
}

TEST(arena_keeps_its_limit)
{
    struct arena arena = {.byte_limit = 1024};

    CHECK(arena_alloc(&arena, 1000) != NULL);
    CHECK(arena_alloc(&arena, 17) == NULL);
    CHECK(arena_alloc(&arena, 16) != NULL);
    CHECK(arena_alloc(&arena, 1) == NULL);
    CHECK(arena_alloc(&arena, SIZE_MAX) == NULL);
    CHECK(arena_alloc(&arena, SIZE_MAX - 8) == NULL);
    CHECK(arena_text(&arena, "", SIZE_MAX) == NULL);
    arena_reset(&arena);
    CHECK(arena_alloc(&arena, 1024) != NULL);
    arena_reset(&arena);
}

TEST(buf_grows_and_drops)
{
    struct buf buf = {0};
    char want[3000];

    memset(want, 'x', sizeof want);
    want[sizeof want - 1] = '\0';
    buf_add(&buf, "abc", 3);
    buf_add_text(&buf, "def");
    buf_printf(&buf, "%d-%s", 42, "g");
    CHECK_EQ(buf.byte_count, 10);
    CHECK_BYTES(buf.bytes, "abcdef42-g", 10);
    buf_drop(&buf, 6);
    CHECK_BYTES(buf.bytes, "42-g", 4);
    buf_drop(&buf, 4);
    CHECK_EQ(buf.byte_count, 0);
    buf_printf(&buf, "%s", want); /* longer than its local buffer */
    CHECK_EQ(buf.byte_count, sizeof want - 1);
    CHECK_BYTES(buf.bytes, want, sizeof want - 1);
    CHECK(!buf.failed);
    buf_free(&buf);
    CHECK(buf.bytes == NULL && buf.byte_count == 0);
}

TEST(buf_fails_at_its_limit_and_stays_failed)
{
    struct buf buf = {.limit = 8};

    buf_add(&buf, "12345678", 8);
    CHECK(!buf.failed);
    buf_add(&buf, "", 0);
    CHECK(!buf.failed);
    buf_add(&buf, "9", 1);
    CHECK(buf.failed);
    buf_drop(&buf, 8);
    buf_add(&buf, "a", 1);
    buf_printf(&buf, "%s", "b");
    CHECK_EQ(buf.byte_count, 0);
    buf_free(&buf);
    CHECK_EQ(buf.limit, 8);
    buf_add(&buf, "12345678", 8);
    CHECK_EQ(buf.byte_count, 8);
    buf_free(&buf);
}

TEST(frames_are_cut_at_their_length)
{
    static const char stream[] = "\0\0\0\3abc\0\0\1\0";
    const char *payload = NULL;
    size_t payload_bytes = 0;
    char head[FRAME_HEAD_BYTES];
    struct err err;

    for (size_t i = 0; i < 7; i++)
        CHECK_EQ(frame_next(stream, i, 256, &payload, &payload_bytes, &err), STATUS_BUSY);
    CHECK_EQ(frame_next(stream, 7, 256, &payload, &payload_bytes, &err), STATUS_OK);
    CHECK(payload == stream + 4);
    CHECK_EQ(payload_bytes, 3);
    CHECK_EQ(frame_next(stream + 7, 4, 256, &payload, &payload_bytes, &err), STATUS_BUSY);
    CHECK_EQ(frame_next(stream + 7, 4, 255, &payload, &payload_bytes, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "a frame of 256 bytes, at most 255 are allowed here");
    CHECK_EQ(frame_next("\0\0\0\0", 4, 255, &payload, &payload_bytes, &err), STATUS_BAD_INPUT);
    frame_head(0x01020304, head);
    CHECK_BYTES(head, "\1\2\3\4", 4);
}

TEST(base64_of_the_rfc)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    static const char *const bad[] = {"Z",        "Zg",   "Zg=",  "Zh==",  "Zm9=", "=g==",
                                      "Zg==Zg==", "Z===", "====", "Zm9v ", "Zm-_", "Zm9vYg==\n"};
    uint8_t bytes[64];
    char chars[64];
    size_t count;

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *plain = pairs[i][0], *coded = pairs[i][1];

        CHECK_EQ(BASE64_CHARS(strlen(plain)), strlen(coded));
        base64_encode((const uint8_t *)plain, strlen(plain), chars);
        CHECK_BYTES(chars, coded, strlen(coded));
        CHECK(base64_decode(coded, strlen(coded), bytes, &count));
        CHECK_EQ(count, strlen(plain));
        CHECK_BYTES(bytes, plain, count);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (base64_decode(bad[i], strlen(bad[i]), bytes, &count))
            FAIL("\"%s\" was taken", bad[i]);
}

TEST(base64_of_every_byte)
{
    uint8_t bytes[256], back[256];
    char chars[BASE64_CHARS(256)];
    size_t count;

    for (size_t i = 0; i < 256; i++)
        bytes[i] = (uint8_t)(i * 167 + 13);
    for (size_t n = 0; n <= 256; n++) {
        base64_encode(bytes, n, chars);
        CHECK(base64_bytes_max(BASE64_CHARS(n)) >= n && base64_bytes_max(BASE64_CHARS(n)) <= 258);
        if (base64_bytes_max(BASE64_CHARS(n)) > sizeof back)
            continue;
        CHECK(base64_decode(chars, BASE64_CHARS(n), back, &count));
        CHECK_EQ(count, n);
        CHECK_BYTES(back, bytes, n);
    }
}

/* Every code point, encoded here by the table of RFC 3629, is valid; without its last byte it is
 * not. */
TEST(utf8_of_every_code_point)
{
    for (uint32_t code = 0x80; code <= 0x110000; code++) {
        bool is_valid = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        char text[4];

        text[0] = (char)((count == 2 ? 0xc0 : count == 3 ? 0xe0 : 0xf0) | code >> 6 * (count - 1));
        for (size_t i = 1; i < count; i++)
            text[i] = (char)(0x80 | (code >> 6 * (count - 1 - i) & 0x3f));
        CHECK_EQ(utf8_next(text, count), is_valid ? count : 0);
        CHECK_EQ(utf8_next(text, count - 1), 0);
        CHECK_EQ(utf8_is_control(text, count), code < 0xa0);
    }
    CHECK_EQ(utf8_next("", 0), 0);
    CHECK_EQ(utf8_next("\x80", 1), 0);
    CHECK_EQ(utf8_next("\xc0\x80", 2), 0);
    CHECK(utf8_is_valid("a\xc3\xa9z", 4) && !utf8_is_valid("a\xc3", 2));
}

__attribute__((format(printf, 2, 3))) static void print_cause(char out[REASON_BYTES_MAX],
                                                              const char *format, ...)
{
    va_list args;

    va_start(args, format);
    utf8_printable_format(out, REASON_BYTES_MAX, format, args);
    va_end(args);
}

TEST(utf8_printable_format_makes_and_cuts)
{
    char out[REASON_BYTES_MAX], text[3 * REASON_BYTES_MAX];

    print_cause(out, "rank %d: %s", 3, "\x1b[2J");
    CHECK_STR(out, "rank 3: ?[2J");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    print_cause(out, "%s", text);
    CHECK_EQ(strlen(out), REASON_BYTES_MAX - 1);
    CHECK_STR(out + REASON_BYTES_MAX - 4, "...");
}

TEST(utf8_printable_cuts_at_characters)
{
    char out[8];

    utf8_printable("a\x1b\xff\xc2\x85z", 6, out, sizeof out);
    CHECK_STR(out, "a???z");
    utf8_printable("1234567", 7, out, sizeof out);
    CHECK_STR(out, "1234567");
    utf8_printable("12345678", 8, out, sizeof out);
    CHECK_STR(out, "1234...");
    utf8_printable("123\xc3\xa9\xc3\xa9xx", 9, out, sizeof out);
    CHECK_STR(out, "123...");
    utf8_printable("", 0, out, sizeof out);
    CHECK_STR(out, "");
}

TEST_MAIN
