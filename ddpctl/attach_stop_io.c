/* How a person or a signal ends what is attached: detach, cancel, cancel at once. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/attach.h"

#define ANSWER_TIMEOUT_US 10000000u

static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP};

static void on_cancel_open(struct client *client)
{
    struct attach *attach = client->owner;
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = attach->job_word,
                                 .signal = attach->cancel_now ? SIGKILL : SIGTERM,
                                 .grace_us = attach->cancel_now ? 0 : -1}};
    struct err err = {0};

    client_expect(client, ANSWER_TIMEOUT_US);
    (void)client_send(client, &msg, &err);
}

static void on_cancel_message(struct client *client, const struct msg *msg)
{
    struct attach *attach = client->owner;

    if (msg->type == MSG_TYPE_ERROR)
        screen_error(&attach->ctl->screen, msg->error.code, msg->error.message, msg->error.hint);
    client_expect(client, 0); /* stays open, for a second one */
}

static void on_cancel_failed(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;

    attach_stop(attach, ctl_fail_server(attach->ctl, err));
}

static const struct client_handlers cancel_handlers = {
    .on_open = on_cancel_open, .on_message = on_cancel_message, .on_failed = on_cancel_failed};

void attach_cancel_if_wanted(struct attach *attach)
{
    if (!attach->cancel_wanted || attach->job_id == 0 || attach->ended || attach->done)
        return;
    if (attach->cancel_open) {
        if (attach->cancel_now && !attach->cancelled_job) {
            attach->cancelled_job = true;
            on_cancel_open(&attach->cancel_client);
        }
        return;
    }
    attach->cancel_open = true;
    attach->cancelled_job = attach->cancel_now;
    client_open(&attach->cancel_client, attach->loop, attach->options.server,
                attach->options.patience_us, &cancel_handlers, attach);
    attach->cancel_client.first_is_patient = true;
}

static void cancel(struct attach *attach, int number)
{
    if (!attach->signal_number)
        attach->signal_number = number;
    if (attach->cancel_wanted &&
        attach->cancel_now) { /* the third time: it seems that nothing helps */
        attach_stop(attach, 128 + number);
        return;
    }
    attach->cancel_now = attach->cancel_wanted;
    attach->cancel_wanted = true;
    screen_note(&attach->ctl->screen, attach->cancel_now
                                          ? "-- killing the job --"
                                          : "-- cancelling the job; once more kills it at once --");
    attach_cancel_if_wanted(attach);
}

static void detach(struct attach *attach, int exit_code)
{
    const char *server = ctl_server_shown(attach->ctl), *option = server ? " --server " : "";

    server = server ? server : "";
    screen_note(&attach->ctl->screen,
                "-- detached, the job goes on --\n"
                "  logs  ddpctl%s%s logs -f %s     stop  ddpctl%s%s cancel %s",
                option, server, attach->job_word, option, server, attach->job_word);
    attach_stop(attach, exit_code);
}

static void close_keyboard(struct attach *attach)
{
    if (attach->keyboard_open)
        uv_close((uv_handle_t *)&attach->keyboard, NULL);
    attach->keyboard_open = false;
}

static void on_keyboard(uv_poll_t *poll, int status, int events)
{
    struct attach *attach = poll->data;
    char answer[64];
    ssize_t length;

    (void)events;
    length = status < 0 ? -1 : read(STDIN_FILENO, answer, sizeof answer);
    if (length <= 0) {
        close_keyboard(attach);
        return;
    }
    if (answer[0] == 'd' || answer[0] == 'D') {
        detach(attach, CTL_OK);
    } else if (answer[0] == 'c' || answer[0] == 'C') {
        cancel(attach, SIGINT);
    } else {
        attach->interrupts = 0;
        screen_note(&attach->ctl->screen, "-- going on --");
        close_keyboard(attach);
    }
}

static bool can_ask(const struct attach *attach)
{
    return attach->options.can_detach && attach->job_id != 0 && attach->ctl->screen.err_is_tty &&
           isatty(STDIN_FILENO) == 1;
}

static void ask(struct attach *attach)
{
    screen_note(&attach->ctl->screen,
                "-- job %s runs on: d and Enter detach, c and Enter cancel it, Enter goes on; "
                "Ctrl-C cancels --",
                attach->job_word);
    if (uv_poll_init(attach->loop, &attach->keyboard, STDIN_FILENO) != 0)
        return;
    attach->keyboard.data = attach;
    attach->keyboard_open = true;
    (void)uv_poll_start(&attach->keyboard, UV_READABLE, on_keyboard);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct attach *attach = signal->data;

    if (number == SIGHUP && attach->options.can_detach && attach->job_id != 0) {
        detach(attach, 128 + SIGHUP); /* a closed laptop never kills the job */
        return;
    }
    attach->interrupts++;
    if (number == SIGINT && attach->interrupts == 1 && can_ask(attach))
        ask(attach);
    else
        cancel(attach, number);
}

void attach_signals_open(struct attach *attach)
{
    if (!attach->options.job_decides)
        return;
    for (size_t i = 0; i < sizeof signal_numbers / sizeof signal_numbers[0]; i++) {
        (void)uv_signal_init(attach->loop, &attach->signals[i]);
        attach->signals[i].data = attach;
        (void)uv_signal_start(&attach->signals[i], on_signal, signal_numbers[i]);
    }
}

void attach_signals_close(struct attach *attach)
{
    close_keyboard(attach);
    if (!attach->options.job_decides)
        return;
    for (size_t i = 0; i < sizeof signal_numbers / sizeof signal_numbers[0]; i++)
        uv_close((uv_handle_t *)&attach->signals[i], NULL);
}
