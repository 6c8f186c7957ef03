#include "ddpctl/interrupt.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/units.h"

#define ANSWER_TIMEOUT_US 10000000u

static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static void stop(struct interrupt *interrupt, int exit_code)
{
    interrupt->options.on_stop(interrupt->options.owner, exit_code);
}

static void send_cancel(struct client *client)
{
    struct interrupt *interrupt = client->owner;
    const uint32_t signals[] = {[INTERRUPT_FIRST] = interrupt->first_signal,
                                [INTERRUPT_TERM] = SIGTERM,
                                [INTERRUPT_KILL] = SIGKILL};
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = interrupt->job,
                                 .signal = signals[interrupt->requested],
                                 .grace_us = interrupt->requested == INTERRUPT_KILL ? 0 : -1}};
    struct err err = {0};

    if (interrupt->sent != interrupt->requested)
        interrupt->refused_at_us = 0;
    interrupt->sent = interrupt->requested;
    client_expect(client, ANSWER_TIMEOUT_US);
    (void)client_send(client, &msg, &err);
}

/* A server that is full says so and closes, and the cancel is sent again on the next connection. The
 * words come once, and patience ends as for a server that cannot be reached. */
static void on_refused(struct interrupt *interrupt, const struct msg_error *error)
{
    const uint64_t now_us = clock_boot_us();
    struct ctl *ctl = interrupt->options.ctl;

    if (interrupt->refused_at_us == 0) {
        interrupt->refused_at_us = now_us;
        screen_error(&ctl->screen, error->code, error->message, error->hint);
    } else if (now_us - interrupt->refused_at_us >= interrupt->options.patience_us) {
        stop(interrupt, ctl_fail_answer(ctl, error));
    }
}

static void on_cancel_message(struct client *client, const struct msg *msg)
{
    struct interrupt *interrupt = client->owner;

    if (msg->type == MSG_TYPE_ERROR)
        on_refused(interrupt, &msg->error);
    client_expect(client, 0); /* the connection stays open for a second cancel */
}

static void on_cancel_failed(struct client *client, const struct err *err)
{
    struct interrupt *interrupt = client->owner;

    stop(interrupt, ctl_fail_server(interrupt->options.ctl, err));
}

static const struct client_handlers cancel_handlers = {
    .on_open = send_cancel, .on_message = on_cancel_message, .on_failed = on_cancel_failed};

static void send_if_requested(struct interrupt *interrupt)
{
    if (interrupt->requested == interrupt->sent || interrupt->job[0] == '\0' ||
        interrupt->job_ended || interrupt->is_closed)
        return;
    if (interrupt->client_open) {
        if (interrupt->sent != INTERRUPT_NONE)
            send_cancel(&interrupt->client);
        return; /* if not connected yet, send_cancel runs when it is */
    }
    interrupt->client_open = true;
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
    if (interrupt->requested < INTERRUPT_TERM)
        interrupt->requested = INTERRUPT_TERM;
    send_if_requested(interrupt);
}

static enum interrupt_step next_step(const struct interrupt *interrupt, int number)
{
    if (interrupt->requested != INTERRUPT_NONE)
        return interrupt->requested + 1;
    if ((number != SIGINT && number != SIGQUIT) || interrupt->first_signal == SIGTERM)
        return INTERRUPT_TERM;
    return interrupt->first_signal == SIGKILL ? INTERRUPT_KILL : INTERRUPT_FIRST;
}

/* Says what happens now, and what the next signal will do. */
static void announce(struct interrupt *interrupt)
{
    struct screen *screen = &interrupt->options.ctl->screen;
    char name[TEXT_BYTES];

    signal_text(interrupt->requested == INTERRUPT_FIRST ? interrupt->first_signal : SIGTERM, name);
    if (interrupt->requested == INTERRUPT_KILL)
        screen_message(screen, "-- killing the job; Ctrl-C again ends ddpctl without waiting --");
    else
        screen_message(
            screen, "-- %s to every rank: the job has its grace to end; Ctrl-C again %s --", name,
            interrupt->requested == INTERRUPT_FIRST ? "sends SIGTERM" : "kills it");
}

static void cancel(struct interrupt *interrupt, int number)
{
    assert(number > 0);
    if (!interrupt->signal_number)
        interrupt->signal_number = number;
    if (interrupt->requested == INTERRUPT_KILL) {
        stop(interrupt, 128 + number);
        return;
    }
    if (number == SIGQUIT && interrupt->requested == INTERRUPT_NONE)
        interrupt->first_signal = SIGQUIT;
    interrupt->requested = next_step(interrupt, number);
    announce(interrupt);
    send_if_requested(interrupt);
}

void interrupt_term(struct interrupt *interrupt)
{
    if (interrupt->requested >= INTERRUPT_TERM || interrupt->is_closed)
        return;
    if (!interrupt->signal_number)
        interrupt->signal_number = SIGTERM;
    interrupt->requested = INTERRUPT_TERM;
    announce(interrupt);
    send_if_requested(interrupt);
}

void interrupt_key(struct interrupt *interrupt)
{
    if (!interrupt->is_closed)
        cancel(interrupt, SIGINT);
}

void interrupt_with(struct interrupt *interrupt, int number)
{
    if (interrupt->is_closed)
        return;
    if (interrupt->requested != INTERRUPT_NONE) {
        cancel(interrupt, number);
        return;
    }
    interrupt->signal_number = number;
    interrupt->first_signal = (uint32_t)number;
    interrupt->requested = INTERRUPT_FIRST;
    announce(interrupt);
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
        /* The job may take a while to end, and what is typed then is not for us. */
        close_keyboard(interrupt);
        cancel(interrupt, SIGINT);
    } else {
        interrupt->count = 0;
        screen_message(&interrupt->options.ctl->screen, "-- going on --");
        close_keyboard(interrupt);
    }
}

static bool can_ask(const struct interrupt *interrupt)
{
    return interrupt->options.can_detach && !interrupt->options.keyboard_is_used &&
           interrupt->job[0] != '\0' && interrupt->options.ctl->screen.err_is_tty &&
           isatty(STDIN_FILENO) == 1;
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
        detach(interrupt, 128 + SIGHUP); /* closing a laptop never kills the job */
        return;
    }
    if (number == SIGTERM && interrupt->options.term_is_final) {
        interrupt_term(interrupt);
        return;
    }
    interrupt->count++;
    if ((number == SIGINT || number == SIGQUIT) && interrupt->count == 1 &&
        interrupt->requested == INTERRUPT_NONE && can_ask(interrupt))
        ask(interrupt);
    else
        cancel(interrupt, number);
}

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void interrupt_open(struct interrupt *interrupt, const struct interrupt_options *options)
{
    assert(options->on_stop != NULL);
    *interrupt = (struct interrupt){.options = *options};
    interrupt->first_signal = options->first_signal != 0 ? options->first_signal : SIGINT;
    if (!options->is_on)
        return;
    for (size_t i = 0; i < sizeof signal_numbers / sizeof signal_numbers[0]; i++) {
        interrupt->is_watched[i] = (signal_numbers[i] != SIGHUP && signal_numbers[i] != SIGQUIT) ||
                                   !is_ignored(signal_numbers[i]);
        if (!interrupt->is_watched[i])
            continue;
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
        if (interrupt->is_watched[i])
            uv_close((uv_handle_t *)&interrupt->signals[i], NULL);
}
