#include "ddpctl/request.h"

#include <assert.h>

#include "ddpctl/client.h"

#define ANSWER_TIMEOUT_US 10000000u

struct asking {
    struct ctl *ctl;
    const struct request *request;
    struct client client;
    bool is_sent;
    int exit_code;
};

static void on_open(struct client *client)
{
    struct asking *asking = client->owner;
    struct err err = {0};

    if (client_send(client, asking->request->msg, &err) != STATUS_OK) {
        asking->exit_code = ctl_fail_err(asking->ctl, CTL_USAGE, &err, "");
        client_close(client);
        return;
    }
    asking->is_sent = true;
    client_expect(client, asking->request->server_wait_us + ANSWER_TIMEOUT_US);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct asking *asking = client->owner;

    asking->ctl->was_answered = true;
    if (msg->type == asking->request->answer)
        asking->exit_code = asking->request->on_answer(asking->ctl, msg, asking->request->context);
    else if (msg->type == MSG_TYPE_ERROR && asking->request->on_refused != NULL)
        asking->exit_code =
            asking->request->on_refused(asking->ctl, &msg->error, asking->request->context);
    else if (msg->type == MSG_TYPE_ERROR)
        asking->exit_code = ctl_fail_answer(asking->ctl, &msg->error);
    else
        asking->exit_code = ctl_fail_unexpected(asking->ctl, msg);
    client_close(client);
}

static void on_waiting(struct client *client, const struct err *err)
{
    struct asking *asking = client->owner;

    screen_message(&asking->ctl->screen, "-- the server does not answer (%s); still trying --",
                   err->text);
}

static void on_failed(struct client *client, const struct err *err)
{
    struct asking *asking = client->owner;

    asking->exit_code = ctl_fail_server(asking->ctl, err);
    if (asking->is_sent && asking->request->msg->type == MSG_TYPE_SUBMIT)
        screen_message(
            &asking->ctl->screen,
            "-- the job may have been taken all the same: look with ddpctl ps before you "
            "submit it again --");
}

static const struct client_handlers handlers = {
    .on_open = on_open,
    .on_message = on_message,
    .on_waiting = on_waiting,
    .on_failed = on_failed,
};

int request_run(struct ctl *ctl, const struct request *request)
{
    struct asking asking = {.ctl = ctl, .request = request, .exit_code = CTL_FAILED};
    uv_loop_t loop;
    int rc;

    assert(request->msg != NULL && request->on_answer != NULL);
    assert(request->answer != MSG_TYPE_ERROR); /* errors are handled here */
    if (uv_loop_init(&loop) != 0)
        return ctl_fail(ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    client_open(&asking.client, &loop, &ctl->server, request->patience_us, &handlers, &asking);
    asking.client.first_is_patient = request->first_is_patient;
    asking.client.awaits_welcome = request->msg->type == MSG_TYPE_SUBMIT;
    asking.client.is_once = request->msg->type == MSG_TYPE_PRINCIPAL_ADD ||
                            request->msg->type == MSG_TYPE_PRINCIPAL_ROTATE;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&loop);
    assert(rc == 0); /* fails where a handle is still open */
    (void)rc;
    return asking.exit_code;
}
