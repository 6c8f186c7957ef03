#include "ddpctl/submit_only.h"

#include <string.h>

#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

struct sending {
    const struct submission *submission;
    bool is_full, is_told;
};

int submit_dry(struct ctl *ctl, const struct submission *submission)
{
    struct buf out = {0};

    output_submit_json(&submission->request, &out);
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

bool submit_is_full(const struct msg_error *error)
{
    return strcmp(error->code, "full") == 0;
}

void submit_tell_full(struct ctl *ctl, const struct msg_error *error, bool *is_told)
{
    if (!*is_told)
        screen_message(&ctl->screen, "-- waits for room: %s --", error->message);
    *is_told = true;
}

static int on_submitted(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct sending *sending = context;
    const struct msg_submit *request = &sending->submission->request;
    struct buf out = {0}, words = {0};

    if (ctl->screen.json)
        output_submitted_json(request, msg->submitted.job_id, msg->submitted.is_new, &out);
    else
        buf_printf(&out, "%llu\n", (unsigned long long)msg->submitted.job_id);
    if (screen_out(&ctl->screen, &out) != STATUS_OK)
        return CTL_FAILED;
    output_submitted(request, msg->submitted.job_id, true, ctl_server_shown(ctl), &words);
    buf_add(&words, "", 1);
    if (!words.failed)
        screen_message(&ctl->screen, "%s", words.bytes);
    buf_free(&words);
    return CTL_OK;
}

static int on_refused(struct ctl *ctl, const struct msg_error *error, void *context)
{
    struct sending *sending = context;
    struct msg_error shown = *error;

    sending->is_full = submit_is_full(error) && ctl->options.wait_for_room;
    if (sending->is_full) {
        submit_tell_full(ctl, error, &sending->is_told);
        return CTL_FAILED;
    }
    if (submit_is_full(error) && error->hint[0] == '\0')
        shown.hint = SUBMIT_ROOM_HINT;
    return ctl_fail_answer(ctl, &shown);
}

int submit_only(struct ctl *ctl, struct submission *submission)
{
    struct sending sending = {.submission = submission};
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    struct request request = {.msg = &msg,
                              .patience_us = 10000000,
                              .answer = MSG_TYPE_SUBMITTED,
                              .on_answer = on_submitted,
                              .on_refused = on_refused,
                              .context = &sending};
    int code;

    for (;;) {
        msg.submit = submission->request; /* the same request id: it makes one job */
        sending.is_full = false;
        code = request_run(ctl, &request);
        if (!sending.is_full)
            return code;
        request.first_is_patient = true;
        verb_pause_ms(SUBMIT_ROOM_MS);
    }
}
