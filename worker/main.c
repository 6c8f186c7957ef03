/* ddp-worker: one rank of a training. */
#include <stdio.h>
#include <string.h>

#include "common/io/standard_open.h"
#include "common/log.h"
#include "common/utf8.h"
#include "worker/agent.h"
#include "worker/data/fetch/fetch.h"
#include "worker/device.h"
#include "worker/options.h"
#include "worker/pth/export.h"
#include "worker/signals.h"
#include "worker/train/train.h"
#include "worker/warm.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* A text may quote a file, which can have any bytes: none of them may command a terminal. */
static void print_error(const struct err *err)
{
    char text[sizeof err->text];

    utf8_printable(err->text, strlen(err->text), text, sizeof text);
    (void)fprintf(stderr, "ddp-worker: %s\n", text);
}

static int fail(struct agent *agent, const struct err *err)
{
    if (err->status == STATUS_CLOSED) /* stopped on request: no error to report */
        return signals_exit_code(EXIT_FAILED);
    print_error(err);
    agent_fail(agent, err->text);
    return EXIT_FAILED;
}

/* One rank of a node reports which device it is. */
static enum status open_device(struct device *device, const struct options *options,
                               const struct agent_place *place, struct err *err)
{
    struct err notice;
    char words[512];
    enum status status = device_open(device, options->device, place->local_rank, &notice, err);

    if (status == STATUS_OK && device_takes_nccl(device, options->comm, place->world))
        status = device_find_nccl(device, err);
    if (status != STATUS_OK || place->local_rank != 0)
        return status;
    device_words(device, words, sizeof words);
    if (notice.text[0] != '\0' || device->runtime != NULL)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s", notice.text[0] != '\0' ? notice.text : words);
    return STATUS_OK;
}

static int run(const struct options *options, const struct agent_place *place)
{
    struct device device = {.backend = NULL};
    struct train_setup setup = {options, place, &device, NULL};
    struct train *train = NULL;
    struct err err = {0};
    int code = 0;
    enum status status = agent_open(&setup.agent, place, &err);

    signals_begin_run();
    if (status == STATUS_OK)
        status = open_device(&device, options, place, &err);
    if (status == STATUS_OK)
        status = train_new(&train, &setup, &err);
    if (status == STATUS_OK) {
        signals_catch_stop();
        status = train_run(train, signals_of_training(), &err);
    }
    if (status != STATUS_OK)
        code = fail(setup.agent, &err);
    if (train != NULL) {
        signals_of_training()->writes = true;
        train_end_writing(train);
        signals_limit_end(code); /* freeing the GPU may hang */
    }
    train_free(&train);
    device_close(&device);
    agent_close(&setup.agent);
    return code;
}

/* Without a training: what `act` does with model, data and device. */
static int run_alone(const struct options *options, const struct agent_place *place,
                     enum status (*act)(const struct train_setup *setup, struct err *err))
{
    struct device device = {.backend = NULL};
    const struct train_setup setup = {options, place, &device, NULL};
    struct err err = {0};
    enum status status = open_device(&device, options, place, &err);

    if (status == STATUS_OK)
        status = act(&setup, &err);
    device_close(&device);
    if (status == STATUS_OK)
        return 0;
    print_error(&err);
    return EXIT_FAILED;
}

static int fetch(const struct options *options)
{
    const struct fetch_options fetching = {.what = options->fetch,
                                           .dir = options->data,
                                           .mirror = options->mirror,
                                           .timeout_s = options->fetch_timeout_s};
    struct err err = {0};

    if (fetch_run(&fetching, &err) == STATUS_OK)
        return 0;
    print_error(&err);
    return EXIT_FAILED;
}

/* `ddp-worker export ...`: needs no data, no device and no other rank. */
static int export_weights(int argc, char **argv)
{
    struct export_request request;
    struct buf out = {0};
    struct err err = {0}, said = {.text = ""};
    char text[sizeof said.text];
    int code;

    if (!export_read(&request, argc, argv, &out, &code, &err)) {
        if (code != 0)
            print_error(&err);
        (void)fwrite(out.bytes, 1, out.byte_count, stdout);
        buf_free(&out);
        return code;
    }
    if (export_run(&request, &said, &err) != STATUS_OK) {
        print_error(&err);
        return EXIT_FAILED;
    }
    utf8_printable(said.text, strlen(said.text), text, sizeof text);
    (void)printf("%s\n", text);
    return 0;
}

static enum status wait_warm(const struct options *options, struct err *err)
{
    struct device device;
    const enum status status = warm_up(&device, options->device, err);

    if (status != STATUS_OK)
        return status;
    train_load_nccl(&device);
    return warm_wait(err);
}

int main(int argc, char **argv)
{
    struct options options;
    struct agent_place place;
    struct err err = {0};

    standard_open();
    if (signals_open(&err) != STATUS_OK) { /* first: without it SIGUSR1 ends a process */
        print_error(&err);
        return EXIT_FAILED;
    }
    if (argc > 1 && strcmp(argv[1], "export") == 0)
        return export_weights(argc - 1, argv + 1);
    if (options_print_docs(stdout, argc, argv))
        return 0;
    log_open("ddp-worker", LOG_INFO, false);
    if (options_read(&options, argc, argv, &err) != STATUS_OK) {
        print_error(&err);
        return EXIT_USAGE;
    }
    if (options.help || options.version) {
        if (options.help)
            options_print_help(stdout);
        else
            (void)printf("ddp-worker %s\n", DDP_VERSION);
        return 0;
    }
    if (options.fetch != NULL)
        return fetch(&options);
    if (warm_is_wanted() && !options.print_graph && !options.tune &&
        wait_warm(&options, &err) != STATUS_OK) {
        if (err.status != STATUS_CLOSED)
            print_error(&err);
        return EXIT_FAILED;
    }
    if (agent_read_place(&place, &err) != STATUS_OK ||
        options_take_world(&options, place.world, &err) != STATUS_OK) {
        print_error(&err);
        return EXIT_FAILED;
    }
    if (options.print_graph)
        return run_alone(&options, &place, train_print_graph);
    return options.tune ? run_alone(&options, &place, train_tune) : run(&options, &place);
}
