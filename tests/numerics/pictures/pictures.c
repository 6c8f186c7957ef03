/* What worker/data/picture makes of files, for comparisons and for the benchmark.
 *
 *     pictures decode|reduced|train|eval|cropped [ROUNDS] < names > bytes
 *
 * Names of files come in as lines. Line i is read as sample i of epoch 1 with seed 7. For each, the
 * output has its result: width and height as 32-bit numbers, then the pixels; 0, 0 and a line of text
 * where it cannot be read. `reduced` is `train` with DCT scaling, `cropped` is `train` on the whole
 * decoded picture. With ROUNDS, nothing is written but the best time of each file, in seconds. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/data/picture/picture.h"

enum { FILES_MAX = 20000, SIZE = 224, SEED = 7, EPOCH = 1 };

struct input {
    char *name;
    uint8_t *bytes;
    size_t byte_count;
    double best; /* seconds */
};

static struct input inputs[FILES_MAX];
static uint8_t image[SIZE * SIZE * 3];

static bool read_input(struct input *input, char *name)
{
    FILE *file;
    long end;

    name[strcspn(name, "\n")] = '\0';
    input->name = strdup(name);
    file = fopen(name, "rbe");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) < 0) {
        perror(name);
        return false;
    }
    rewind(file);
    input->byte_count = (size_t)end;
    input->bytes = malloc(input->byte_count + 1);
    if (input->bytes == NULL ||
        fread(input->bytes, 1, input->byte_count, file) != input->byte_count) {
        perror(name);
        return false;
    }
    return fclose(file) == 0;
}

static void put(uint32_t width, uint32_t height, const void *pixels)
{
    uint32_t head[2] = {width, height};

    (void)fwrite(head, sizeof head, 1, stdout);
    (void)fwrite(pixels, 3, (size_t)width * height, stdout);
}

/* Reads one file in the way that `mode` says; writes the result where `is_shown`. */
static void run(struct picture_reader *reader, const char *mode, const struct input *input,
                uint64_t index, bool is_shown)
{
    struct picture whole = {0, 0, NULL};
    struct picture_rules rules;
    struct err err = {.text = ""};
    enum status status;
    bool is_decoded = strcmp(mode, "decode") == 0 || strcmp(mode, "cropped") == 0;

    picture_rules_set(&rules, SIZE, strcmp(mode, "eval") != 0);
    rules.dct_scaling = strcmp(mode, "reduced") == 0;
    if (is_decoded)
        status = picture_decode(reader, input->bytes, input->byte_count, input->name, &whole, &err);
    else
        status = picture_read(reader, input->bytes, input->byte_count, input->name, &rules, SEED,
                              EPOCH, index, image, &err);
    if (status == STATUS_OK && strcmp(mode, "cropped") == 0)
        status = picture_crop(reader, &whole, &rules, SEED, EPOCH, index, image, &err);
    if (!is_shown)
        return;
    if (status != STATUS_OK) {
        put(0, 0, "");
        (void)printf("%s %s\n", status_name(status), err.text);
    } else if (strcmp(mode, "decode") == 0) {
        put(whole.width, whole.height, whole.pixels);
    } else {
        put(SIZE, SIZE, image);
    }
}

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"decode", "reduced", "train", "eval", "cropped"};
    struct picture_reader *reader;
    struct err err = {.text = ""};
    char name[4096];
    size_t count = 0;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    bool is_known = false;

    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && argc > 1; i++)
        is_known = is_known || strcmp(argv[1], modes[i]) == 0;
    if (!is_known) {
        (void)fprintf(stderr,
                      "usage: pictures decode|reduced|train|eval|cropped [ROUNDS] < names\n");
        return 2;
    }
    while (count < FILES_MAX && fgets(name, sizeof name, stdin) != NULL)
        if (!read_input(&inputs[count++], name))
            return 1;
    if (picture_reader_new(&reader, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (long round = 0; round < rounds || round == 0; round++)
        for (size_t i = 0; i < count; i++) {
            double begin = now();

            run(reader, argv[1], &inputs[i], i, rounds == 0);
            begin = now() - begin;
            if (round == 0 || begin < inputs[i].best)
                inputs[i].best = begin;
        }
    for (size_t i = 0; i < count && rounds > 0; i++)
        (void)printf("%.7f\n", inputs[i].best);
    picture_reader_free(&reader);
    return fflush(stdout) == 0 ? 0 : 1;
}
