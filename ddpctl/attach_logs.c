#include "ddpctl/attach_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* How long a node may wait before it answers, plus a margin; the server answers for a silent node after 10 s. */
#define LOG_TIMEOUT_US 30000000u
#define LOG_ONCE_TIMEOUT_US 15000000u /* where the node need not wait for output */

static uint64_t log_timeout_us(const struct attach *attach)
{
    return attach->follow.options.keep_on ? LOG_TIMEOUT_US : LOG_ONCE_TIMEOUT_US;
}

static void hand_over(struct attach *attach, const struct msg_log_data *data, enum follow_data what,
                      uint32_t rank, uint32_t skip, bool is_final)
{
    const bool has_bytes = what == FOLLOW_SHOW || what == FOLLOW_GAP;
    const struct attach_piece piece = {.generation = attach->follow.generation,
                                       .rank = rank,
                                       .bytes = data->bytes.items + (has_bytes ? skip : 0),
                                       .byte_count = has_bytes ? data->bytes.count - skip : 0,
                                       .is_final = is_final,
                                       .problem = what == FOLLOW_PROBLEM ? data->problem : ""};

    if ((has_bytes || is_final) && !attach->options.on_log(attach, &piece))
        attach_stop(attach, CTL_OK);
}

/* A rank that was not started has no log, and why it was not is said elsewhere. Of a job that we have submitted
 * the logs are new, so one that is missing is no old one that was removed. A log that is there and cannot be read (not
 * final: it may be, later) is of a rank that ran, even if we have not seen it run. */
static bool was_not_started(const struct attach *attach, uint32_t rank,
                            const struct msg_log_data *data)
{
    const uint32_t generation = attach->follow.generation;

    return data->is_final && attach->options.submit != NULL &&
           attach->running_generation != generation &&
           attach->ranks[rank].started_generation != generation;
}

static void take_log(struct client *client, const struct msg_log_data *data)
{
    struct attach *attach = client->owner;
    uint32_t rank = 0, skip = 0;
    bool is_final = false;
    enum follow_data what =
        follow_take(&attach->follow, data, clock_boot_us(), &rank, &skip, &is_final);

    if (what == FOLLOW_UNASKED) {
        client_was_unasked(client);
        return;
    }
    attach->log_wait_said = false;
    client_expect(client, log_timeout_us(attach));
    if (what == FOLLOW_PROBLEM && attach->options.on_log == NULL &&
        !was_not_started(attach, rank, data)) {
        (void)snprintf(attach->log_problem, sizeof attach->log_problem, "%s", data->problem);
        screen_message(&attach->ctl->screen, "-- rank %u: %s --", rank, data->problem);
    }
    if (what == FOLLOW_SHOW || what == FOLLOW_GAP)
        attach->has_shown_log = attach->has_shown_log || data->bytes.count > skip;
    if (what == FOLLOW_GAP)
        screen_message(&attach->ctl->screen, "-- rank %u: some of its log is missing here --",
                       rank);
    if (attach->options.on_log != NULL) {
        hand_over(attach, data, what, rank, skip, is_final);
        return;
    }
    attach_show_log(attach, rank, data,
                    what == FOLLOW_SHOW || what == FOLLOW_GAP ? skip : data->bytes.count, is_final);
}

static void on_log_message(struct client *client, const struct msg *msg)
{
    struct attach *attach = client->owner;

    if (msg->type == MSG_TYPE_ERROR) {
        attach_stop(attach, ctl_fail_answer(attach->ctl, &msg->error));
        return;
    }
    if (msg->type != MSG_TYPE_LOG_DATA) {
        client_was_unasked(client);
        return;
    }
    take_log(client, &msg->log_data);
    if (!attach->done)
        attach_pump_logs(attach);
}

static void on_log_open(struct client *client)
{
    struct attach *attach = client->owner;

    follow_lost(&attach->follow, (uint32_t)(client - attach->log_clients),
                attach->log_client_count);
    attach_pump_logs(attach);
}

/* The connection about the job says itself that it is lost. */
static void on_log_waiting(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;

    if (attach->log_wait_said || !attach->job_client.open)
        return;
    attach->log_wait_said = true;
    screen_message(&attach->ctl->screen,
                   "-- the server does not answer for the logs (%s); still trying --", err->text);
}

static void on_log_failed(struct client *client, const struct err *err)
{
    struct attach *attach = client->owner;

    attach_stop(attach, ctl_fail_server(attach->ctl, err));
}

static const struct client_handlers log_handlers = {.on_open = on_log_open,
                                                    .on_message = on_log_message,
                                                    .on_waiting = on_log_waiting,
                                                    .on_failed = on_log_failed};

void attach_open_logs(struct attach *attach)
{
    uint32_t most = attach->world < FOLLOW_RANKS_MAX ? attach->world : FOLLOW_RANKS_MAX;
    uint32_t count = (most + ATTACH_RANKS_PER_CONN - 1) / ATTACH_RANKS_PER_CONN;

    attach->log_clients = calloc(count, sizeof *attach->log_clients);
    if (!attach->log_clients) {
        attach_stop(attach, ctl_fail(attach->ctl, CTL_FAILED, "out of memory", ""));
        return;
    }
    attach->log_client_count = count;
    for (uint32_t i = 0; i < count; i++) {
        client_open(&attach->log_clients[i], attach->loop, &attach->ctl->server,
                    attach->options.patience_us, &log_handlers, attach);
        attach->log_clients[i].first_is_patient = true; /* the server has just answered on the other
                                                         * connection */
    }
}

/* Requests all logs that can be requested now, once the nodes of all ranks are known. Advances to
 * the next generation when this one has been read. */
void attach_pump_logs(struct attach *attach)
{
    struct msg msg = {.type = MSG_TYPE_LOG_READ};
    uint64_t now_us = clock_boot_us(), ask_at_us = UINT64_MAX;

    while (attach->log_client_count > 0 && attach->next_rank == 0 && !attach->done) {
        struct client *client;
        struct err err = {0};

        while (!attach->causes_wanted && follow_turn(&attach->follow))
            attach_show_turn(attach);
        if (attach->done || !follow_next(&attach->follow, now_us, &msg.log_read, &ask_at_us))
            break;
        client = &attach->log_clients[attach->follow.ranks[msg.log_read.rank].ordinal %
                                      attach->log_client_count];
        client_expect(client, log_timeout_us(attach));
        if (client_send(client, &msg, &err) != STATUS_OK && err.status != STATUS_CLOSED)
            attach_stop(attach, ctl_fail_err(attach->ctl, CTL_FAILED, &err, ""));
    }
    attach_finish_if_done(attach);
}
