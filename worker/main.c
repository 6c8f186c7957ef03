/* ddp-worker: one rank of a training. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"
#include "worker/agent.h"
#include "worker/data/fetch/fetch.h"
#include "worker/device.h"
#include "worker/options.h"
#include "worker/pth/export.h"
#include "worker/train/train.h"
#include "worker/warm.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, STOP_TIMEOUT_S = 8, SIGNAL_STACK_BYTES = 65536 };

static struct train_signals signals;
static volatile sig_atomic_t stop_code =
    128 + SIGTERM; /* the exit code when stopped by a signal, */
static volatile sig_atomic_t late_code = 128 + SIGTERM; /* and when ending takes too long */

static void on_alarm(int signal_number)
{
    (void)signal_number;
    _exit(late_code);
}

/* SIGTERM or SIGINT. The step is finished first, within a bound: a peer may be gone. A second Ctrl-C at a
 * terminal does not wait for that. */
static void on_stop(int signal_number)
{
    if (signals.stop && signal_number == SIGINT)
        _exit(128 + SIGINT);
    signals.stop = true;
    stop_code = late_code = 128 + signal_number;
    (void)alarm(STOP_TIMEOUT_S);
}

/* SIGUSR1, as `ddpctl submit --warn` and Slurm's --signal send it: a checkpoint, and training goes on. */
static void on_save(int signal_number)
{
    (void)signal_number;
    signals.save = true;
}

/* A pipe has lost its reader. Where that is our output, we end as any program would; where it is a file
 * of --metrics and its kin, the write fails and is told, and training goes on. */
static void on_pipe(int signal_number)
{
    struct pollfd outputs[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
    const int saved = errno;

    if (poll(outputs, 2, 0) > 0 && ((outputs[0].revents | outputs[1].revents) & POLLERR) != 0)
        _exit(128 + signal_number);
    errno = saved;
}

/* A file that is mapped, as that of --cache, has become shorter than what was read of it. */
static void on_bus_error(int signal_number)
{
    static const char text[] =
        "ddp-worker: a file was cut off while it was read (SIGBUS): is another program writing to "
        "the file of --cache?\n";

    (void)signal_number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_FAILED);
}

/* Handlers of this thread run on a stack of their own: the kernels that oneDNN generates use the stack pointer as
 * one more register, so what the kernel writes below it for a handler would be written into the heap. */
static void open_signal_stack(void)
{
    static char bytes[SIGNAL_STACK_BYTES];
    const stack_t stack = {.ss_sp = bytes, .ss_size = sizeof bytes};

    (void)sigaltstack(&stack, NULL);
}

static void catch_signal(int signal_number, void (*handler)(int signal_number))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};

    (void)sigaction(signal_number, &action, NULL);
}

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
        return signals.stop ? (int)stop_code : EXIT_FAILED;
    print_error(err);
    agent_fail(agent, err->text);
    return EXIT_FAILED;
}

/* One rank of a node reports which device it is. */
static enum status open_device(struct device *device, const struct options *options,
                               const struct agent_place *place, struct err *err)
{
    struct err notice;
    enum status status = device_open(device, options->device, place->local_rank, &notice, err);

    if (status != STATUS_OK || place->local_rank != 0)
        return status;
    if (notice.text[0] != '\0')
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s", notice.text);
    else if (device->runtime != NULL)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "training on %s", device->identity.name);
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

    catch_signal(SIGALRM, on_alarm);
    catch_signal(SIGPIPE, on_pipe);
    catch_signal(SIGBUS, on_bus_error);
    if (status == STATUS_OK)
        status = open_device(&device, options, place, &err);
    if (status == STATUS_OK)
        status = train_new(&train, &setup, &err);
    if (status == STATUS_OK) {
        catch_signal(SIGTERM, on_stop);
        catch_signal(SIGINT, on_stop);
        status = train_run(train, &signals, &err);
    }
    if (status != STATUS_OK)
        code = fail(setup.agent, &err);
    late_code = code; /* freeing the GPU is bounded by the alarm */
    if (train != NULL)
        (void)alarm(STOP_TIMEOUT_S);
    train_free(&train);
    device_close(&device);
    agent_close(&setup.agent);
    return code;
}

static int print_graph(const struct options *options, const struct agent_place *place)
{
    struct device device = {.backend = NULL};
    const struct train_setup setup = {options, place, &device, NULL};
    struct err err = {0};
    enum status status = open_device(&device, options, place, &err);

    if (status == STATUS_OK)
        status = train_print_graph(&setup, &err);
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

    open_signal_stack();
    catch_signal(SIGUSR1, on_save); /* first: without it that signal ends a process */
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
    if (warm_is_wanted() && !options.print_graph && wait_warm(&options, &err) != STATUS_OK) {
        if (err.status != STATUS_CLOSED)
            print_error(&err);
        return EXIT_FAILED;
    }
    if (agent_read_place(&place, &err) != STATUS_OK) {
        print_error(&err);
        return EXIT_FAILED;
    }
    return options.print_graph ? print_graph(&options, &place) : run(&options, &place);
}
