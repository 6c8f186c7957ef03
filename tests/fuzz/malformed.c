#include "tests/fuzz/malformed.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/limits.h"

struct walk {
    malformed_visit *visit;
    void *context;
    size_t count;
};

static void show(struct walk *walk, const char *name, const char *bytes, size_t byte_count)
{
    struct malformed malformed = {.name = name,
                                  .bytes = bytes,
                                  .byte_count = byte_count,
                                  .is_cut = strncmp(name, "cut-", 4) == 0};

    walk->visit(&malformed, walk->context);
    walk->count++;
}

static void show_payload(struct walk *walk, const char *name, const char *payload,
                         size_t byte_count)
{
    char head[FRAME_HEAD_BYTES];
    struct buf buf = {0};

    frame_head(byte_count, head);
    buf_add(&buf, head, sizeof head);
    buf_add(&buf, payload, byte_count);
    assert(!buf.failed);
    show(walk, name, buf.bytes, buf.byte_count);
    buf_free(&buf);
}

/* -- frames ------------------------------------------------------------------------------------ */

/* clang-format off */
#define RAW(label, text) {label, text, sizeof(text) - 1}
/* clang-format on */

static const struct {
    const char *name, *bytes;
    size_t byte_count;
} raw[] = {
    RAW("frame-empty", "\0\0\0\0"),
    RAW("frame-one-over-the-largest", "\0\x38\0\1"),
    RAW("frame-16-mib", "\1\0\0\0"),
    RAW("frame-2-gib", "\x7f\xff\xff\xff"),
    RAW("frame-minus-one", "\xff\xff\xff\xff"),
    RAW("frame-little-endian", "\x20\0\0\0{\"type\":\"client_hello\"}"),
    RAW("frame-text-length", "0042{}"),
    RAW("json-without-a-length", "{\"type\":\"client_hello\",\"protocol\":1}\n"),
    RAW("http-get", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    RAW("http-post", "POST /jobs HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
    RAW("http-put", "PUT /x HTTP/1.1\r\n\r\n"),
    RAW("http-head", "HEAD / HTTP/1.0\r\n\r\n"),
    RAW("http-delete", "DELETE / HTTP/1.1\r\n\r\n"),
    RAW("http-options", "OPTIONS * HTTP/1.1\r\n\r\n"),
    RAW("http-connect", "CONNECT a:443 HTTP/1.1\r\n\r\n"),
    RAW("http2-preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    RAW("tls-1.0-hello", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"),
    RAW("tls-1.2-hello", "\x16\x03\x03\x00\xa5\x01\x00\x00\xa1\x03\x03"),
    RAW("ssh-banner", "SSH-2.0-OpenSSH_9.2p1\r\n"),
    RAW("smtp-ehlo", "EHLO scanner\r\n"),
    RAW("redis-ping", "*1\r\n$4\r\nPING\r\n"),
    RAW("rdp-cookie", "\x03\x00\x00\x2f\x2a\xe0\x00\x00\x00\x00\x00"),
    RAW("newlines", "\r\n\r\n\r\n\r\n"),
    RAW("spaces", "        "),
    RAW("cut-one-byte", "\0"),
    RAW("cut-head", "\0\0\0"),
    RAW("cut-payload", "\0\0\0\x20{\"type\":"),
    RAW("cut-payload-missing", "\0\0\0\x20"),
};

/* -- JSON -------------------------------------------------------------------------------------- */

/* Around a value that would do but for what is tried here. */
#define DIGITS_OF(number) #number
#define DIGITS(number) DIGITS_OF(number)
#define PROTOCOL DIGITS(PROTOCOL_VERSION) /* a far one is read leniently, to be refused for that */
#define HELLO(rest)                                                                                \
    "{\"type\":\"client_hello\",\"protocol\":" PROTOCOL ",\"schema\":\"\",\"version\":" rest
#define HELLO_TEXT(text) HELLO("\"" text "\"}")
#define NUMBER(number)                                                                             \
    "{\"type\":\"client_hello\",\"protocol\":" number ",\"schema\":\"\",\"version\":\"\"}"

static const struct {
    const char *name, *text;
    size_t byte_count;
} json[] = {
    RAW("json-space-only", "   "),
    RAW("json-word", "hello"),
    RAW("json-null", "null"),
    RAW("json-true", "true"),
    RAW("json-number", "42"),
    RAW("json-string", "\"client_hello\""),
    RAW("json-array", "[]"),
    RAW("json-array-of-message", "[{\"type\":\"node_list\",\"all\":true}]"),
    RAW("json-empty-object", "{}"),
    RAW("json-open-object", "{"),
    RAW("json-open-array", "["),
    RAW("json-open-string", "\""),
    RAW("json-open-key", "{\"type"),
    RAW("json-no-colon", "{\"type\"}"),
    RAW("json-no-value", "{\"type\":}"),
    RAW("json-ends-at-colon", "{\"type\":"),
    RAW("json-two-colons", "{\"type\"::\"node_list\"}"),
    RAW("json-key-without-quotes", "{type:\"node_list\"}"),
    RAW("json-key-number", "{1:2}"),
    RAW("json-single-quotes", "{'type':'node_list'}"),
    RAW("json-comma-first", "{,\"type\":\"node_list\"}"),
    RAW("json-comma-last", HELLO("\"\",}")),
    RAW("json-comma-twice", "{\"type\":\"node_list\",}"),
    RAW("json-comma-missing", "{\"type\":\"node_list\" \"all\":true}"),
    RAW("json-wrong-bracket", "{\"type\":[}]"),
    RAW("json-closed-too-often", HELLO("\"\"}}")),
    RAW("json-garbage-behind", HELLO("\"\"} GARBAGE")),
    RAW("json-two-values", "{\"type\":\"node_list\",\"all\":true}{}"),
    RAW("json-nul-behind", HELLO("\"\"}\0")),
    RAW("json-nul-first", "\0{}"),
    RAW("json-comment", "/* c */{}"),
    RAW("json-comment-behind", HELLO("\"\"} // c")),
    RAW("json-bom", "\xef\xbb\xbf{\"type\":\"node_list\",\"all\":true}"),
    RAW("json-utf16", "{\0\"\0t\0y\0p\0e\0\"\0:\0"),
    RAW("json-form-feed", "{\f\"type\":\"node_list\",\"all\":true}"),
    RAW("json-no-break-space", "{\xc2\xa0\"type\":\"node_list\",\"all\":true}"),
    RAW("json-raw-newline", HELLO_TEXT("a\nb")),
    RAW("json-raw-tab", HELLO_TEXT("a\tb")),
    RAW("json-raw-nul", HELLO_TEXT("a\0b")),
    RAW("json-raw-escape", HELLO_TEXT("\x1b[2J")),
    RAW("json-escaped-nul", HELLO_TEXT("\\u0000")),
    RAW("json-escaped-nul-within", HELLO_TEXT("/bin/true\\u0000/evil")),
    RAW("json-escape-x", HELLO_TEXT("\\x41")),
    RAW("json-escape-quote", HELLO_TEXT("\\'")),
    RAW("json-escape-digit", HELLO_TEXT("\\0")),
    RAW("json-escape-upper-n", HELLO_TEXT("\\N")),
    RAW("json-escape-end", "\"\\"),
    RAW("json-escape-upper-u", HELLO_TEXT("\\U0041")),
    RAW("json-escape-three-digits", HELLO_TEXT("\\u004")),
    RAW("json-escape-not-hex", HELLO_TEXT("\\u00g0")),
    RAW("json-escape-plus", HELLO_TEXT("\\u+041")),
    RAW("json-surrogate-high-alone", HELLO_TEXT("\\ud800")),
    RAW("json-surrogate-low-alone", HELLO_TEXT("\\udc00")),
    RAW("json-surrogate-two-high", HELLO_TEXT("\\ud800\\ud800")),
    RAW("json-surrogate-swapped", HELLO_TEXT("\\udc00\\ud800")),
    RAW("json-surrogate-then-letter", HELLO_TEXT("\\ud800\\u0041")),
    RAW("json-surrogate-cut", HELLO_TEXT("\\ud800\\u")),
    RAW("utf8-lone-continuation", HELLO_TEXT("\x80")),
    RAW("utf8-cut-two", HELLO_TEXT("\xc3")),
    RAW("utf8-cut-three", HELLO_TEXT("\xe2\x82")),
    RAW("utf8-cut-four", HELLO_TEXT("\xf0\x9f\x98")),
    RAW("utf8-overlong-nul", HELLO_TEXT("\xc0\x80")),
    RAW("utf8-overlong-slash", HELLO_TEXT("\xc0\xaf")),
    RAW("utf8-overlong-two", HELLO_TEXT("\xc1\xbf")),
    RAW("utf8-overlong-three", HELLO_TEXT("\xe0\x80\xaf")),
    RAW("utf8-overlong-four", HELLO_TEXT("\xf0\x80\x80\xaf")),
    RAW("utf8-surrogate", HELLO_TEXT("\xed\xa0\x80")),
    RAW("utf8-surrogate-pair", HELLO_TEXT("\xed\xa0\xbd\xed\xb8\x80")),
    RAW("utf8-over-the-last", HELLO_TEXT("\xf4\x90\x80\x80")),
    RAW("utf8-five-bytes", HELLO_TEXT("\xf8\x88\x80\x80\x80")),
    RAW("utf8-fe", HELLO_TEXT("\xfe")),
    RAW("utf8-ff", HELLO_TEXT("\xff")),
    RAW("utf8-latin-1", HELLO_TEXT("caf\xe9!")),
    RAW("utf8-in-key", "{\"type\":\"node_list\",\"\xff\":true}"),
    RAW("number-leading-zero", NUMBER("01")),
    RAW("number-two-zeros", NUMBER("00")),
    RAW("number-minus-zero-one", NUMBER("-01")),
    RAW("number-plus", NUMBER("+1")),
    RAW("number-point-first", NUMBER(".5")),
    RAW("number-point-last", NUMBER("1.")),
    RAW("number-exponent-empty", NUMBER("1e")),
    RAW("number-exponent-sign", NUMBER("1e+")),
    RAW("number-exponent-point", NUMBER("1e1.5")),
    RAW("number-hex", NUMBER("0x1")),
    RAW("number-octal", NUMBER("0o1")),
    RAW("number-underscore", NUMBER("1_0")),
    RAW("number-minus", NUMBER("-")),
    RAW("number-minus-minus", NUMBER("--1")),
    RAW("number-nan", NUMBER("NaN")),
    RAW("number-infinity", NUMBER("Infinity")),
    RAW("number-minus-infinity", NUMBER("-Infinity")),
    RAW("number-inf", NUMBER("inf")),
    RAW("number-1e999", NUMBER("1e999")),
    RAW("number-minus-1e999", NUMBER("-1e999")),
    RAW("number-64-digits",
        NUMBER("1000000000000000000000000000000000000000000000000000000000000000")),
    RAW("number-fraction", NUMBER("1.5")),
    RAW("number-minus-one", NUMBER("-1")),
    RAW("number-over-u32", NUMBER("4294967296")),
    RAW("number-2-to-the-53-and-one", NUMBER("9007199254740993")),
    RAW("number-in-string", NUMBER("\"1\"")),
    RAW("word-upper", NUMBER("TRUE")),
    RAW("word-cut", NUMBER("tru")),
    RAW("word-longer", NUMBER("truee")),
    RAW("word-nil", NUMBER("nil")),
    RAW("word-undefined", NUMBER("undefined")),
    RAW("type-unknown", "{\"type\":\"reboot\"}"),
    RAW("type-upper", "{\"type\":\"Node_list\",\"all\":true}"),
    RAW("type-dashes", "{\"type\":\"node-list\",\"all\":true}"),
    RAW("type-empty", "{\"type\":\"\"}"),
    RAW("type-number", "{\"type\":1}"),
    RAW("type-null", "{\"type\":null}"),
    RAW("type-array", "{\"type\":[\"node_list\"],\"all\":true}"),
    RAW("type-missing", "{\"all\":true}"),
    RAW("type-not-first", "{\"all\":true,\"type\":\"node_list\"}"),
    RAW("type-key-upper", "{\"Type\":\"node_list\",\"all\":true}"),
    RAW("type-twice", "{\"type\":\"node_list\",\"type\":\"node_list\",\"all\":true}"),
    RAW("type-twice-escaped", "{\"type\":\"node_list\",\"t\\u0079pe\":\"cancel\",\"all\":true}"),
    RAW("key-of-no-field", "{\"type\":\"node_list\",\"seq\":1,\"all\":true,\"node\":\"\"}"),
};

/* -- messages: one field at a time of some that would do --------------------------------------- */

struct member {
    const char *key, *value;
};

static const struct member client_hello[] = {
    {"protocol", PROTOCOL}, {"version", "\"0.1.0\""}, {"schema", "\"\""}};
static const struct member submit[] = {{"request_id", "\"0123456789abcdef0123456789abcdef\""},
                                       {"name", "\"r50\""},
                                       {"nodes", "1"},
                                       {"nproc_per_node", "1"},
                                       {"max_restarts", "0"},
                                       {"restarts_given", "false"},
                                       {"grace_us", "\"1\""},
                                       {"time_limit_us", "\"0\""},
                                       {"priority", "0"},
                                       {"wait_for_nodes", "false"},
                                       {"nodes_min", "0"},
                                       {"spares", "0"},
                                       {"replace_stragglers", "false"},
                                       {"hang_timeout_us", "\"0\""},
                                       {"warn_us", "\"0\""},
                                       {"warn_signal", "0"},
                                       {"requeue_at_limit", "false"},
                                       {"after", "\"\""},
                                       {"array", "\"\""},
                                       {"cwd", "\"/\""},
                                       {"argv", "[\"true\"]"},
                                       {"env", "{\"A\":\"1\"}"},
                                       {"launch", "{}"}};
static const struct member job_get[] = {
    {"job", "\"1\""}, {"after_version", "\"0\""}, {"wait_us", "\"0\""}, {"first_rank", "0"}};
static const struct member cancel[] = {{"job", "\"1\""}, {"signal", "15"}, {"grace_us", "\"-1\""}};
static const struct member log_read[] = {
    {"request_id", "\"1\""}, {"job_id", "\"1\""},  {"generation", "1"},
    {"rank", "0"},           {"offset", "\"0\""},  {"tail_lines", "0"},
    {"bytes_max", "4096"},   {"wait_us", "\"0\""}, {"what", "\"output\""}};
static const struct member node_read[] = {{"request_id", "\"1\""}, {"node", "\"n\""},
                                          {"what", "\"clock\""},   {"job", "\"\""},
                                          {"peers", "[\"m\"]"},    {"args", "{}"}};
static const struct member beat[] = {
    {"sent_us", "\"1\""},
    {"shims", "[{\"job_id\":\"1\",\"generation\":1,\"phase\":\"running\",\"slot_mask\":\"1\","
              "\"unseen\":false}]"},
    {"closed", "[{\"slot\":0,\"state\":\"drained\",\"incident\":\"1\",\"reason\":\"x\"}]"}};
static const struct member world[] = {
    {"job_id", "\"1\""}, {"generation", "1"}, {"blob", "\"QUJD\""}};

/* clang-format off */
#define SAMPLE(type) {#type, type, sizeof(type) / sizeof(type)[0]}
/* clang-format on */
static const struct {
    const char *type;
    const struct member *members;
    size_t count;
} samples[] = {SAMPLE(client_hello), SAMPLE(submit),    SAMPLE(job_get), SAMPLE(cancel),
               SAMPLE(log_read),     SAMPLE(node_read), SAMPLE(beat),    SAMPLE(world)};

/* Of submit unless said otherwise: a field, a value that will not do. */
static const struct {
    const char *name, *type, *key, *value;
} values[] = {
    {"submit-nodes-0", "submit", "nodes", "0"},
    {"submit-nodes-4097", "submit", "nodes", "4097"},
    {"submit-nodes-half", "submit", "nodes", "0.5"},
    {"submit-nodes-negative", "submit", "nodes", "-1"},
    {"submit-nproc-0", "submit", "nproc_per_node", "0"},
    {"submit-nproc-65", "submit", "nproc_per_node", "65"},
    {"submit-restarts-1001", "submit", "max_restarts", "1001"},
    {"submit-id-short", "submit", "request_id", "\"0123456789abcdef0123456789abcde\""},
    {"submit-id-long", "submit", "request_id", "\"0123456789abcdef0123456789abcdef0\""},
    {"submit-id-slash", "submit", "request_id", "\"0123456789abcdef0123456789abcde/\""},
    {"submit-name-empty", "submit", "name", "\"\""},
    {"submit-name-space", "submit", "name", "\"a b\""},
    {"submit-name-slash", "submit", "name", "\"../x\""},
    {"submit-name-newline", "submit", "name", "\"a\\n\""},
    {"submit-name-accent", "submit", "name", "\"\xc3\xa9\""},
    {"submit-name-64", "submit", "name",
     "\"0123456789012345678901234567890123456789012345678901234567890123\""},
    {"submit-grace-word", "submit", "grace_us", "\"soon\""},
    {"submit-grace-number", "submit", "grace_us", "10"},
    {"submit-grace-leading-zero", "submit", "grace_us", "\"010\""},
    {"submit-grace-plus", "submit", "grace_us", "\"+10\""},
    {"submit-grace-space", "submit", "grace_us", "\" 10\""},
    {"submit-grace-space-behind", "submit", "grace_us", "\"10 \""},
    {"submit-grace-hex", "submit", "grace_us", "\"0x10\""},
    {"submit-grace-negative", "submit", "grace_us", "\"-1\""},
    {"submit-grace-empty", "submit", "grace_us", "\"\""},
    {"submit-grace-over", "submit", "grace_us", "\"31622400000001\""},
    {"submit-grace-over-u64", "submit", "grace_us", "\"18446744073709551616\""},
    {"submit-grace-30-digits", "submit", "grace_us", "\"100000000000000000000000000000\""},
    {"submit-cwd-empty", "submit", "cwd", "\"\""},
    {"submit-argv-empty", "submit", "argv", "[]"},
    {"submit-argv-string", "submit", "argv", "\"rm -rf /\""},
    {"submit-argv-number", "submit", "argv", "[\"true\",1]"},
    {"submit-argv-nested", "submit", "argv", "[[\"true\"]]"},
    {"submit-argv-object", "submit", "argv", "{\"0\":\"true\"}"},
    {"submit-argv-nul", "submit", "argv", "[\"/bin/true\\u0000/evil\"]"},
    {"submit-env-array", "submit", "env", "[\"A=1\"]"},
    {"submit-env-number", "submit", "env", "{\"A\":1}"},
    {"submit-env-empty-name", "submit", "env", "{\"\":\"1\"}"},
    {"submit-env-twice", "submit", "env", "{\"A\":\"1\",\"A\":\"2\"}"},
    {"submit-env-twice-escaped", "submit", "env", "{\"A\":\"1\",\"\\u0041\":\"2\"}"},
    {"submit-env-nested", "submit", "env", "{\"A\":{\"B\":\"1\"}}"},
    {"job_get-job-empty", "job_get", "job", "\"\""},
    {"job_get-job-newline", "job_get", "job", "\"1\\n2\""},
    {"job_get-job-escape", "job_get", "job", "\"\\u001b[2J\""},
    {"job_get-job-del", "job_get", "job", "\"\x7f\""},
    {"job_get-job-c1", "job_get", "job", "\"\\u009b2J\""},
    {"job_get-wait-over", "job_get", "wait_us", "\"60000001\""},
    {"cancel-signal-0", "cancel", "signal", "0"},
    {"cancel-signal-65", "cancel", "signal", "65"},
    {"cancel-signal-name", "cancel", "signal", "\"TERM\""},
    {"cancel-grace-minus-2", "cancel", "grace_us", "\"-2\""},
    {"cancel-grace-minus-0", "cancel", "grace_us", "\"-0\""},
    {"log_read-job-0", "log_read", "job_id", "\"0\""},
    {"log_read-job-over", "log_read", "job_id", "\"9007199254740992\""},
    {"log_read-rank-32768", "log_read", "rank", "32768"},
    {"log_read-generation-0", "log_read", "generation", "0"},
    {"log_read-what-unknown", "log_read", "what", "\"shadow\""},
    {"log_read-bytes-0", "log_read", "bytes_max", "0"},
    {"log_read-bytes-over", "log_read", "bytes_max", "32769"},
    {"log_read-offset-negative", "log_read", "offset", "\"-1\""},
    {"node_read-what-unknown", "node_read", "what", "\"shadow\""},
    {"node_read-node-slash", "node_read", "node", "\"../x\""},
    {"node_read-args-number", "node_read", "args", "{\"A\":1}"},
    {"node_read-peers-object", "node_read", "peers", "{}"},
    {"beat-closed-object", "beat", "closed", "{}"},
    {"beat-closed-state", "beat", "closed",
     "[{\"slot\":0,\"state\":\"gone\",\"incident\":\"1\",\"reason\":\"x\"}]"},
    {"beat-shims-object", "beat", "shims", "{}"},
    {"beat-shims-null-entry", "beat", "shims", "[null]"},
    {"beat-shims-empty-entry", "beat", "shims", "[{}]"},
    {"beat-phase-unknown", "beat", "shims",
     "[{\"job_id\":\"1\",\"generation\":1,\"phase\":\"dead\",\"slot_mask\":\"1\",\"unseen\":false}"
     "]"},
    {"beat-phase-upper", "beat", "shims",
     "[{\"job_id\":\"1\",\"generation\":1,\"phase\":\"Running\",\"slot_mask\":\"1\"}]"},
    {"beat-entry-extra", "beat", "shims",
     "[{\"job_id\":\"1\",\"generation\":1,\"phase\":\"ready\",\"slot_mask\":\"1\",\"x\":1}]"},
    {"beat-entry-missing", "beat", "shims",
     "[{\"job_id\":\"1\",\"generation\":1,\"phase\":\"ready\"}]"},
    {"world-blob-unpadded", "world", "blob", "\"QQ\""},
    {"world-blob-not-canonical", "world", "blob", "\"QR==\""},
    {"world-blob-padding-only", "world", "blob", "\"====\""},
    {"world-blob-padding-within", "world", "blob", "\"QQ==QUJD\""},
    {"world-blob-url-alphabet", "world", "blob", "\"__--\""},
    {"world-blob-newline", "world", "blob", "\"QUJD\\n\""},
    {"world-blob-space", "world", "blob", "\"QUJ \""},
};

enum change { CHANGE_VALUE, CHANGE_DROP, CHANGE_TWICE, CHANGE_CASE, CHANGE_EXTRA };

/* The message of sample `s` with a change at member `m`. */
static void show_changed(struct walk *walk, const char *name, size_t s, size_t m,
                         enum change change, const char *value)
{
    struct buf buf = {0};

    buf_printf(&buf, "{\"type\":\"%s\"", samples[s].type);
    for (size_t i = 0; i < samples[s].count; i++) {
        const struct member *member = &samples[s].members[i];
        bool is_it = i == m;

        if (is_it && change == CHANGE_DROP)
            continue;
        buf_printf(&buf, ",\"%c%s\":%s",
                   is_it && change == CHANGE_CASE ? member->key[0] - 'a' + 'A' : member->key[0],
                   member->key + 1, is_it && change == CHANGE_VALUE ? value : member->value);
        if (is_it && change == CHANGE_TWICE)
            buf_printf(&buf, ",\"%s\":%s", member->key, member->value);
        if (is_it && change == CHANGE_EXTRA)
            buf_printf(&buf, ",\"_%s\":%s", member->key, member->value);
    }
    buf_add_text(&buf, "}");
    assert(!buf.failed);
    show_payload(walk, name, buf.bytes, buf.byte_count);
    buf_free(&buf);
}

static void show_field(struct walk *walk, size_t s, size_t m)
{
    static const struct {
        const char *word;
        enum change change;
        const char *value;
    } changes[] = {{"missing", CHANGE_DROP, NULL},
                   {"repeated", CHANGE_TWICE, NULL},
                   {"upper", CHANGE_CASE, NULL},
                   {"extra", CHANGE_EXTRA, NULL},
                   {"is-null", CHANGE_VALUE, "null"},
                   {"is-array", CHANGE_VALUE, "[[]]"},
                   {"is-object", CHANGE_VALUE, "{\"x\":{}}"},
                   {"is-bool", CHANGE_VALUE, "true"}};
    char name[96];

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (strcmp(changes[i].word, "is-bool") == 0 &&
            strcmp(samples[s].members[m].value, "false") == 0)
            continue; /* it is one */
        (void)snprintf(name, sizeof name, "%s-%s-%s", samples[s].type, samples[s].members[m].key,
                       changes[i].word);
        show_changed(walk, name, s, m, changes[i].change, changes[i].value);
    }
}

static void show_values(struct walk *walk)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++)
            for (size_t m = 0; m < samples[s].count; m++)
                if (strcmp(samples[s].type, values[i].type) == 0 &&
                    strcmp(samples[s].members[m].key, values[i].key) == 0)
                    show_changed(walk, values[i].name, s, m, CHANGE_VALUE, values[i].value);
}

/* -- sizes ------------------------------------------------------------------------------------- */

static void show_repeated(struct walk *walk, const char *name, const char *begin,
                          const char *repeated, size_t times, const char *end)
{
    struct buf buf = {0};

    buf_add_text(&buf, begin);
    for (size_t i = 0; i < times; i++)
        buf_add_text(&buf, repeated);
    buf_add_text(&buf, end);
    assert(!buf.failed);
    show_payload(walk, name, buf.bytes, buf.byte_count);
    buf_free(&buf);
}

static void show_sizes(struct walk *walk)
{
    show_repeated(walk, "deep-arrays", "", "[", 10000, "");
    show_repeated(walk, "deep-objects", "", "{\"a\":", 10000, "");
    show_repeated(walk, "deep-by-one", "", "[", JSON_DEPTH_MAX + 1, "");
    show_repeated(walk, "tokens-by-one", "[0", ",0", JSON_TOKENS_MAX, "]");
    show_repeated(walk, "tokens-empty-arrays", "[[]", ",[]", 60000, "]");
    show_repeated(walk, "spaces-64-kib", "{\"type\":\"node_list\",\"all\":true", " ",
                  FRAME_BYTES_MAX, "}");
    show_repeated(walk, "version-32-bytes", HELLO("\""), "v", 32, "\"}");
    show_repeated(walk, "version-60-kb", HELLO("\""), "v", 60000, "\"}");
    show_repeated(walk, "keys-20000", "{\"type\":\"node_list\",\"all\":true", ",\"k\":1", 10000,
                  "}");
    show_repeated(walk, "beat-129-shims", "{\"type\":\"beat\",\"sent_us\":\"1\",\"shims\":[1", ",1",
                  SHIMS_PER_NODE_MAX, "]}");
}

size_t malformed_each(malformed_visit *visit, void *context)
{
    struct walk walk = {.visit = visit, .context = context};

    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++)
        show(&walk, raw[i].name, raw[i].bytes, raw[i].byte_count);
    for (size_t i = 0; i < sizeof json / sizeof json[0]; i++)
        show_payload(&walk, json[i].name, json[i].text, json[i].byte_count);
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++)
        for (size_t m = 0; m < samples[s].count; m++)
            show_field(&walk, s, m);
    show_values(&walk);
    show_sizes(&walk);
    return walk.count;
}
