/* Runs a fuzz target without libFuzzer, with any compiler: a corpus made from the declarations of
 * the messages and from the broken inputs, then mutations of it. Input N of a seed is always the
 * same: a failure names both, and PROGRAM --only N --seed S runs that one again. */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/options.h"
#include "tests/fuzz/malformed.h"
#include "tests/fuzz/msg_random.h"
#include "tests/fuzz/target.h"

#define CORPUS_MAX 2048u
#define INPUT_BYTES_MAX 8192u /* larger ones of the corpus run as they are, but are not mutated */
#define ROUNDS 8u             /* random messages of each type */

struct input {
    uint8_t *bytes;
    size_t byte_count;
};
static struct input corpus[CORPUS_MAX];
static size_t corpus_count;
static uint64_t seed = 1, current;

/* -- the corpus -------------------------------------------------------------------------------- */

static void add_input(const char *bytes, size_t byte_count)
{
    struct input *input = &corpus[corpus_count++];

    FUZZ_CHECK(corpus_count < CORPUS_MAX);
    input->bytes = malloc(byte_count + 1);
    FUZZ_CHECK(input->bytes != NULL);
    memcpy(input->bytes, bytes, byte_count);
    input->byte_count = byte_count;
}

/* A frame: whole for fuzz_frame, its payload for the others. */
static void add_frame(const char *frame, size_t byte_count)
{
    struct buf buf = {0};

#ifdef FUZZ_WHOLE_FRAMES
    buf_add(&buf, "\x15", 1); /* a cap of 2 MiB */
    buf_add(&buf, frame, byte_count);
#else
    if (byte_count > FRAME_HEAD_BYTES)
        buf_add(&buf, frame + FRAME_HEAD_BYTES, byte_count - FRAME_HEAD_BYTES);
#endif
    if (buf.byte_count > 0)
        add_input(buf.bytes, buf.byte_count);
    buf_free(&buf);
}

static void add_malformed(const struct malformed *malformed, void *context)
{
    (void)context;
    add_frame(malformed->bytes, malformed->byte_count);
}

static void make_messages(void)
{
    struct random random = {.state = seed};

    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++)
        for (uint32_t i = 0; i < ROUNDS; i++) {
            struct arena arena = {0};
            struct buf buf = {0};
            struct msg msg;

            msg_random(&random, &arena, (enum msg_type)type, &msg);
            FUZZ_CHECK(msg_encode(&msg, &buf, NULL) == STATUS_OK);
            add_frame(buf.bytes, buf.byte_count);
            buf_free(&buf);
            arena_reset(&arena);
        }
}

static void make_corpus(void)
{
    if (fuzz_corpus != NULL)
        fuzz_corpus(add_input);
    else
        make_messages();
    (void)malformed_each(add_malformed, NULL);
}

static void free_corpus(void)
{
    while (corpus_count > 0)
        free(corpus[--corpus_count].bytes);
}

/* -- mutations --------------------------------------------------------------------------------- */

static const char *const words[] = {"\"",        "\\",        "{",       "}",
                                    "[",         "]",         ",",       ":",
                                    "null",      "true",      "-1",      "0",
                                    "1e5",       "1.0",       "-0",      "18446744073709551615",
                                    "\\u00",     "\\ud8",     "\\u0000", "\xc3\xa9",
                                    "\xf0\x9f",  "\"type\":", "\"\":",   "9007199254740993",
                                    "\n",        " ",         "=",       "4294967295",
                                    "{\"a\":0}", "[0,0]",     "\x7f",    "\xff\xff\xff\xff"};

static void insert(struct input *input, size_t at, const void *bytes, size_t byte_count)
{
    if (input->byte_count + byte_count > INPUT_BYTES_MAX)
        return;
    memmove(input->bytes + at + byte_count, input->bytes + at, input->byte_count - at);
    memcpy(input->bytes + at, bytes, byte_count);
    input->byte_count += byte_count;
}

static void drop(struct input *input, size_t at, size_t byte_count)
{
    if (byte_count > input->byte_count - at)
        byte_count = input->byte_count - at;
    memmove(input->bytes + at, input->bytes + at + byte_count, input->byte_count - at - byte_count);
    input->byte_count -= byte_count;
}

/* A piece of another input. */
static void splice(struct random *random, struct input *input, size_t at)
{
    const struct input *other = &corpus[random_below(random, corpus_count)];
    size_t from = random_below(random, other->byte_count);
    size_t count = 1 + random_below(random, 64);

    if (count > other->byte_count - from)
        count = other->byte_count - from;
    insert(input, at, other->bytes + from, count);
}

/* A digit for a digit, a letter for a letter: most of these are still JSON, and many still a
 * message. */
static void tweak(struct random *random, struct input *input, size_t at)
{
    for (; at < input->byte_count; at++) {
        uint8_t *byte = &input->bytes[at];

        if (*byte >= '0' && *byte <= '9') {
            *byte = (uint8_t)('0' + random_below(random, 10));
            return;
        }
        if (*byte >= 'a' && *byte <= 'z' && random_below(random, 8) == 0) {
            *byte = (uint8_t)('a' + random_below(random, 26));
            return;
        }
    }
}

static void mutate(struct random *random, struct input *input)
{
    size_t at = random_below(random, input->byte_count + 1);
    const char *word = words[random_below(random, sizeof words / sizeof words[0])];
    uint8_t byte = (uint8_t)random_next(random), piece[32];

    switch (random_below(random, 16)) {
    case 0:
        if (at < input->byte_count)
            input->bytes[at] ^= (uint8_t)(1u << (byte & 7));
        return;
    case 1:
        if (at < input->byte_count)
            input->bytes[at] = byte;
        return;
    case 2:
        insert(input, at, &byte, 1);
        return;
    case 3:
        drop(input, at, 1 + random_below(random, 8));
        return;
    case 4: /* twice the same */
        if (input->byte_count - at >= sizeof piece) {
            memcpy(piece, input->bytes + at, sizeof piece);
            insert(input, at, piece, sizeof piece);
        }
        return;
    case 5:
        splice(random, input, at);
        return;
    case 6: /* a word in the place of as many bytes */
        drop(input, at, strlen(word));
        insert(input, at < input->byte_count ? at : input->byte_count, word, strlen(word));
        return;
    case 7:
        insert(input, at, word, strlen(word));
        return;
    default:
        tweak(random, input, at);
        return;
    }
}

/* -- running ----------------------------------------------------------------------------------- */

/* On its own piece of heap, so that a sanitizer sees a read beyond its end. */
static void run_bytes(const uint8_t *bytes, size_t byte_count)
{
    uint8_t *copy = malloc(byte_count > 0 ? byte_count : 1);

    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, byte_count);
    (void)LLVMFuzzerTestOneInput(copy, byte_count);
    free(copy);
}

static void run_mutated(uint64_t number)
{
    struct random random = {.state = seed * UINT64_C(0x100000001b3) + number};
    uint8_t bytes[INPUT_BYTES_MAX];
    struct input input = {.bytes = bytes};
    const struct input *from;

    do
        from = &corpus[random_below(&random, corpus_count)];
    while (from->byte_count > INPUT_BYTES_MAX);
    memcpy(bytes, from->bytes, from->byte_count);
    input.byte_count = from->byte_count;
    for (uint64_t i = 1 + random_below(&random, 4); i > 0; i--)
        mutate(&random, &input);
    run_bytes(input.bytes, input.byte_count);
}

static void run_one(uint64_t number)
{
    current = number;
    if (number < corpus_count)
        run_bytes(corpus[number].bytes, corpus[number].byte_count);
    else
        run_mutated(number);
}

/* Which input it was; called when the program dies. */
static void tell(void)
{
    (void)dprintf(STDERR_FILENO, "input %llu of seed %llu: again with --only %llu --seed %llu\n",
                  (unsigned long long)current, (unsigned long long)seed,
                  (unsigned long long)current, (unsigned long long)seed);
}

static void on_crash(int signal_number)
{
    tell();
    (void)raise(signal_number);
}

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void watch_crashes(void)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_crash,
                               .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(tell);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (i == 0 || __sanitizer_set_death_callback == NULL)
            (void)sigaction(signals[i], &action, NULL);
}

struct settings {
    uint64_t runs, seed, only;
};

static enum status read_options(int argc, char **argv, struct settings *settings,
                                struct option_result *result)
{
    static const struct option_row rows[] = {
        {.name = "runs", .kind = OPTION_U64, OPTION_INTO(struct settings, runs), .help = "inputs"},
        {.name = "seed", .kind = OPTION_U64, OPTION_INTO(struct settings, seed), .help = "of all"},
        {.name = "only", .kind = OPTION_U64, OPTION_INTO(struct settings, only), .help = "one"}};
    static const struct option_table table = {.program = "fuzz",
                                              .usage = "[options]",
                                              .rows = rows,
                                              .row_count = sizeof rows / sizeof rows[0]};
    struct err err = {.text = ""};
    enum status status = options_parse(&table, argc, argv, NULL, settings, result, &err);
    struct buf help = {0};

    if (status != STATUS_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    if (status == STATUS_OK && result->wants_help) {
        options_help(&table, &help);
        (void)fwrite(help.bytes, 1, help.byte_count, stdout);
        buf_free(&help);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct settings settings = {.runs = 10000, .seed = 1, .only = UINT64_MAX};
    struct option_result result;

    if (read_options(argc, argv, &settings, &result) != STATUS_OK)
        return 2;
    if (result.wants_help || result.wants_version)
        return 0;
    seed = settings.seed;
    watch_crashes();
    make_corpus();
    if (settings.only != UINT64_MAX)
        run_one(settings.only);
    for (uint64_t i = 0; settings.only == UINT64_MAX && i < corpus_count + settings.runs; i++)
        run_one(i);
    (void)printf("%zu inputs of the corpus and %llu mutations, seed %llu\n", corpus_count,
                 (unsigned long long)settings.runs, (unsigned long long)seed);
    free_corpus();
    return 0;
}
