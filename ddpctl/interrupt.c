#include "ddpctl/interrupt.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_US 10000000u

static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP};

static void stop(struct interrupt *interrupt, int exit_code)
{
    interrupt->options.on_stop(interrupt->options.owner, exit_code);
}

static void on_cancel_open(struct client *client)
{
    struct interrupt *interrupt = client->owner;
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = interrupt->job,
                                 .signal = interrupt->kill_requested ? SIGKILL : SIGTERM,
                                 .grace_us = interrupt->kill_requested ? 0 : -1}};
    struct err err = {0};

    client_expect(client, ANSWER_TIMEOUT_US);
    (void)client_send(client, &msg, &err);
}

static void on_cancel_message(struct client *client, const struct msg *msg)
{
    struct interrupt *interrupt = client->owner;

    if (msg->type == MSG_TYPE_ERROR)
        screen_error(&interrupt->options.ctl->screen, msg->error.code, msg->error.message,
                     msg->error.hint);
    client_expect(client, 0); /* stays open, for a second one */
}

static void on_cancel_failed(struct client *client, const struct err *err)
{
    struct interrupt *interrupt = client->owner;

    stop(interrupt, ctl_fail_server(interrupt->options.ctl, err));
}

static const struct client_handlers cancel_handlers = {
    .on_open = on_cancel_open, .on_message = on_cancel_message, .on_failed = on_cancel_failed};

static void send_if_requested(struct interrupt *interrupt)
{
    if (!interrupt->cancel_requested || interrupt->job[0] == '\0' || interrupt->job_ended ||
        interrupt->is_closed)
        return;
    if (interrupt->client_open) {
        if (interrupt->kill_requested && !interrupt->kill_sent) {
            interrupt->kill_sent = true;
            on_cancel_open(&interrupt->client);
        }
        return;
    }
    interrupt->client_open = true;
    interrupt->kill_sent = interrupt->kill_requested;
    client_open(&interrupt->client, interrupt->options.loop, &interrupt->options.ctl->server,
                interrupt->options.patience_us, &cancel_handlers, interrupt);
    interrupt->client.first_is_patient = true;
}

void interrupt_job_known(struct interrupt *interrupt, uint64_t job_id)
{
    assert(job_id != 0);
    (void)snprintf(interrupt->job, sizeof interrupt->job, "%llu", (unsigned long long)job_id);
    send_if_requested(interrupt);
}

void interrupt_job_ended(struct interrupt *interrupt)
{
    interrupt->job_ended = true;
}

void interrupt_cancel(struct interrupt *interrupt)
{
    interrupt->cancel_requested = true;
    send_if_requested(interrupt);
}

static void cancel(struct interrupt *interrupt, int number)
{
    assert(number > 0);
    if (!interrupt->signal_number)
        interrupt->signal_number = number;
    if (interrupt->cancel_requested && interrupt->kill_requested) { /* the third time */
        stop(interrupt, 128 + number);
        return;
    }
    interrupt->kill_requested = interrupt->cancel_requested;
    interrupt->cancel_requested = true;
    screen_message(&interrupt->options.ctl->screen,
                   interrupt->kill_requested
                       ? "-- killing the job --"
                       : "-- cancelling the job; once more kills it at once --");
    send_if_requested(interrupt);
}

static void detach(struct interrupt *interrupt, int exit_code)
{
    const char *server = ctl_server_shown(interrupt->options.ctl),
               *option = server ? " --server " : "";

    server = server ? server : "";
    screen_message(&interrupt->options.ctl->screen,
                   "-- detached, the job goes on --\n"
                   "  logs  ddpctl%s%s logs -f %s     stop  ddpctl%s%s cancel %s",
                   option, server, interrupt->job, option, server, interrupt->job);
    stop(interrupt, exit_code);
}

static void close_keyboard(struct interrupt *interrupt)
{
    if (interrupt->keyboard_open)
        uv_close((uv_handle_t *)&interrupt->keyboard, NULL);
    interrupt->keyboard_open = false;
}

static void on_keyboard(uv_poll_t *poll, int status, int events)
{
    struct interrupt *interrupt = poll->data;
    char answer[64];
    ssize_t length;

    (void)events;
    length = status < 0 ? -1 : read(STDIN_FILENO, answer, sizeof answer);
    if (length <= 0) {
        close_keyboard(interrupt);
        return;
    }
    if (answer[0] == 'd' || answer[0] == 'D') {
        detach(interrupt, CTL_OK);
    } else if (answer[0] == 'c' || answer[0] == 'C') {
        cancel(interrupt, SIGINT);
    } else {
        interrupt->count = 0;
        screen_message(&interrupt->options.ctl->screen, "-- going on --");
        close_keyboard(interrupt);
    }
}

static bool can_ask(const struct interrupt *interrupt)
{
    return interrupt->options.can_detach && interrupt->job[0] != '\0' &&
           interrupt->options.ctl->screen.err_is_tty && isatty(STDIN_FILENO) == 1;
}

static void ask(struct interrupt *interrupt)
{
    screen_message(&interrupt->options.ctl->screen,
                   "-- job %s runs on: d and Enter detach, c and Enter cancel it, Enter goes on; "
                   "Ctrl-C cancels --",
                   interrupt->job);
    if (uv_poll_init(interrupt->options.loop, &interrupt->keyboard, STDIN_FILENO) != 0)
        return;
    interrupt->keyboard.data = interrupt;
    interrupt->keyboard_open = true;
    (void)uv_poll_start(&interrupt->keyboard, UV_READABLE, on_keyboard);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct interrupt *interrupt = signal->data;

    if (number == SIGHUP && interrupt->options.can_detach && interrupt->job[0] != '\0') {
        detach(interrupt, 128 + SIGHUP); /* a closed laptop never kills the job */
        return;
    }
    interrupt->count++;
    if (number == SIGINT && interrupt->count == 1 && can_ask(interrupt))
        ask(interrupt);
    else
        cancel(interrupt, number);
}

void interrupt_open(struct interrupt *interrupt, const struct interrupt_options *options)
{
    assert(options->on_stop != NULL);
    *interrupt = (struct interrupt){.options = *options};
    if (!options->is_on)
        return;
    for (size_t i = 0; i < sizeof signal_numbers / sizeof signal_numbers[0]; i++) {
        (void)uv_signal_init(options->loop, &interrupt->signals[i]);
        interrupt->signals[i].data = interrupt;
        (void)uv_signal_start(&interrupt->signals[i], on_signal, signal_numbers[i]);
    }
}

void interrupt_close(struct interrupt *interrupt)
{
    assert(!interrupt->is_closed);
    interrupt->is_closed = true;
    close_keyboard(interrupt);
    if (interrupt->client_open)
        client_close(&interrupt->client);
    if (!interrupt->options.is_on)
        return;
    for (size_t i = 0; i < sizeof signal_numbers / sizeof signal_numbers[0]; i++)
        uv_close((uv_handle_t *)&interrupt->signals[i], NULL);
}
