#include "ddpctl/joint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/fnv.h"
#include "ddpctl/request.h"

#define PATIENCE_US 10000000u
#define JOBS_MAX 1000u /* of one command, that have ended and are still kept */

/* With the end of the text as a byte of its own. */
static uint64_t add_text(uint64_t hash, const char *text)
{
    return fnv_add(hash, text, strlen(text) + 1);
}

void joint_id(const struct submission *submission, const struct options *options, uint32_t nth,
              char id[REQUEST_ID_CHARS + 1])
{
    const struct msg_submit *request = &submission->request;
    uint64_t halves[2] = {FNV_START, FNV_START ^ 1};
    char numbers[64];

    (void)snprintf(numbers, sizeof numbers, "%u %u %u %u", nth, request->nodes, request->nodes_min,
                   request->nproc_per_node);
    for (int k = 0; k < 2; k++) {
        halves[k] = add_text(halves[k], numbers);
        halves[k] = add_text(halves[k], options->rdzv_id ? options->rdzv_id : "none");
        halves[k] = add_text(halves[k], options->rdzv_endpoint);
        for (uint32_t i = 0; i < request->argv.count; i++)
            halves[k] = add_text(halves[k], request->argv.items[i]);
    }
    (void)snprintf(id, REQUEST_ID_CHARS + 1, "%016" PRIx64 "%016" PRIx64, halves[0], halves[1]);
}

struct answer {
    uint64_t job_id;
    bool is_new, has_ended;
};

static int on_submitted(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct answer *answer = context;

    (void)ctl;
    answer->job_id = msg->submitted.job_id;
    answer->is_new = msg->submitted.is_new;
    return CTL_OK;
}

static int on_info(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct answer *answer = context;

    if (msg->job_info.jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    answer->has_ended = msg->job_info.jobs.items[0].ended;
    return CTL_OK;
}

static int ask(struct ctl *ctl, struct msg *msg, enum msg_type type,
               int (*on_answer)(struct ctl *, const struct msg *, void *), struct answer *answer)
{
    const struct request request = {.msg = msg,
                                    .patience_us = PATIENCE_US,
                                    .answer = type,
                                    .on_answer = on_answer,
                                    .context = answer};

    return request_run(ctl, &request);
}

int joint_submit(struct ctl *ctl, struct submission *submission, enum joint *joint)
{
    struct answer answer = {.has_ended = true};
    int rc = CTL_OK;

    *joint = JOINT_NO;
    if (ctl->options.rdzv_endpoint == NULL || submission->request.nodes < 2 ||
        ctl->options.standalone || ctl->options.slurm)
        return CTL_OK;
    for (uint32_t i = 0; rc == CTL_OK && answer.has_ended && i < JOBS_MAX; i++) {
        struct msg submit = {.type = MSG_TYPE_SUBMIT}, get = {.type = MSG_TYPE_JOB_GET};
        char number[24];

        joint_id(submission, &ctl->options, i, submission->request_id);
        submission->request.request_id = submission->request_id;
        submit.submit = submission->request;
        answer = (struct answer){.job_id = 0};
        rc = ask(ctl, &submit, MSG_TYPE_SUBMITTED, on_submitted, &answer);
        if (rc != CTL_OK || answer.is_new)
            break;
        (void)snprintf(number, sizeof number, "%" PRIu64, answer.job_id);
        get.job_get.job = number;
        rc = ask(ctl, &get, MSG_TYPE_JOB_INFO, on_info, &answer);
    }
    if (rc == CTL_OK && answer.has_ended)
        return ctl_fail(ctl, CTL_FAILED,
                        "this command was run too often to tell its jobs from one another",
                        "another --rdzv-id makes it a new one");
    *joint = answer.is_new ? JOINT_MADE : JOINT_JOINED;
    if (rc == CTL_OK && *joint == JOINT_JOINED)
        screen_message(&ctl->screen,
                       "-- the same command has made job %" PRIu64
                       " from another terminal: this one shows it, too --",
                       answer.job_id);
    return rc;
}
