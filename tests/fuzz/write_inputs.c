/* Writes inputs as files, NAME each, for other programs: malformed_inputs DIR, or malformed_inputs
 * --valid DIR for random valid frames (--payloads: without their length). */
#include <stdio.h>
#include <string.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/options.h"
#include "tests/fuzz/malformed.h"
#include "tests/fuzz/msg_random.h"

struct settings {
    bool valid, payloads;
    const char *dir;
    size_t failed_count;
};

static void write_file(struct settings *settings, const char *name, const char *bytes,
                       size_t byte_count)
{
    size_t skipped = settings->payloads ? FRAME_HEAD_BYTES : 0;
    char path[4096];
    FILE *file;

    if (byte_count < skipped)
        return;
    (void)snprintf(path, sizeof path, "%s/%s", settings->dir, name);
    file = fopen(path, "we");
    if (file == NULL ||
        fwrite(bytes + skipped, 1, byte_count - skipped, file) != byte_count - skipped) {
        perror(path);
        settings->failed_count++;
    }
    if (file != NULL && fclose(file) != 0) {
        perror(path);
        settings->failed_count++;
    }
}

static void write_malformed(const struct malformed *malformed, void *context)
{
    write_file(context, malformed->name, malformed->bytes, malformed->byte_count);
}

static size_t write_valid(struct settings *settings)
{
    struct random random = {.state = 1};
    char name[80];

    for (uint32_t i = 0; i < 10 * MSG_TYPE_COUNT; i++) {
        enum msg_type type = (enum msg_type)(i % MSG_TYPE_COUNT);
        struct arena arena = {0};
        struct buf buf = {0};
        struct msg msg;

        msg_random(&random, &arena, type, &msg);
        if (msg_encode(&msg, &buf, NULL) == STATUS_OK) {
            (void)snprintf(name, sizeof name, "%s-%u", msg_type_name(type), i / MSG_TYPE_COUNT);
            write_file(settings, name, buf.bytes, buf.byte_count);
        }
        buf_free(&buf);
        arena_reset(&arena);
    }
    return 10 * MSG_TYPE_COUNT;
}

int main(int argc, char **argv)
{
    static const struct option_row rows[] = {{.name = "valid",
                                              .kind = OPTION_FLAG,
                                              OPTION_INTO(struct settings, valid),
                                              .help = "random valid messages instead"},
                                             {.name = "payloads",
                                              .kind = OPTION_FLAG,
                                              OPTION_INTO(struct settings, payloads),
                                              .help = "without the length before each"}};
    static const struct option_table table = {.program = "malformed_inputs",
                                              .usage = "[--valid] [--payloads] DIR",
                                              .rows = rows,
                                              .row_count = sizeof rows / sizeof rows[0]};
    struct settings settings = {.dir = NULL};
    struct option_result result;
    struct err err = {.text = ""};
    size_t count;

    if (options_parse(&table, argc, argv, NULL, &settings, &result, &err) != STATUS_OK ||
        result.positional_count != 1) {
        (void)fprintf(stderr, "%s\nusage: malformed_inputs [--valid] [--payloads] DIR\n", err.text);
        return 2;
    }
    settings.dir = result.positionals[0];
    count = settings.valid ? write_valid(&settings) : malformed_each(write_malformed, &settings);
    (void)printf("%zu inputs in %s\n", count, settings.dir);
    return settings.failed_count > 0 ? 1 : 0;
}
