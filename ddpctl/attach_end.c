#include "ddpctl/attach_parts.h"

#include <stdlib.h>

void attach_stop(struct attach *attach, int exit_code)
{
    if (attach->done)
        return;
    attach->done = true;
    attach->exit_code = exit_code;
    client_close(&attach->job_client);
    for (uint32_t i = 0; i < attach->log_client_count; i++)
        client_close(&attach->log_clients[i]);
    uv_close((uv_handle_t *)&attach->tick, NULL);
    interrupt_close(&attach->interrupt);
    more_signals_close(&attach->more_signals);
    stdin_feed_close(&attach->stdin_feed);
    screen_line(&attach->ctl->screen, NULL);
    attach->options.on_done(attach);
}

void attach_term(struct attach *attach)
{
    if (!attach->done)
        interrupt_term(&attach->interrupt);
}

void attach_free(struct attach *attach)
{
    for (uint32_t i = 0; i < attach->world; i++)
        for (int k = 0; k < 2; k++)
            view_close(&attach->ranks[i].views[k]);
    free(attach->ranks);
    free(attach->log_clients);
    buf_free(&attach->end_json);
    buf_free(&attach->end_text);
}

/* Logs that were asked for, and of which none could be read, are a failure. */
static int end_code(const struct attach *attach)
{
    if (attach->options.job_decides)
        return attach->exit_code;
    if (attach->log_problem[0] == '\0' || attach->has_shown_log)
        return CTL_OK;
    return ctl_fail(attach->ctl, CTL_FAILED, "no log could be read", attach->log_problem);
}

void attach_finish_if_done(struct attach *attach)
{
    if (attach->done || attach->version == 0)
        return;
    if (attach->follow.options.keep_on && !attach->follow.only_one && !attach->ended)
        return;
    if (attach->options.show_logs && !follow_done(&attach->follow))
        return;
    attach_stop(attach, end_code(attach));
}
