/* ddpctl server: which server leads, and which ones are standbys. */
#include "ddpctl/output.h"
#include "ddpctl/verbs.h"

static int on_info(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct buf out = {0};

    (void)context;
    if (ctl->screen.json)
        output_server_json(&msg->server_info, &out);
    else
        output_server(&msg->server_info, &out);
    return verb_done(ctl, &out);
}

int verb_server(struct ctl *ctl)
{
    struct msg msg = {.type = MSG_TYPE_SERVER_GET, .server_get = {.request_id = 1}};
    int rc = verb_too_many(ctl, 0);

    if (ctl->options.keys_checked)
        msg = (struct msg){.type = MSG_TYPE_KEYS_CHECKED, .keys_checked = {.request_id = 1}};
    return rc == CTL_OK ? verb_ask(ctl, &msg, MSG_TYPE_SERVER_INFO, on_info, NULL) : rc;
}
