#include "ddpctl/slurm_server.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#include "ddpctl/request.h"

/* Sends the request `msg`; returns the exit code of request_run. */
static int ask(const char *dir, struct msg *msg, enum msg_type answer,
               int (*on_answer)(struct ctl *ctl, const struct msg *msg, void *context),
               void *context)
{
    char address[PATH_MAX + 32];
    struct ctl ctl = {.verb_name = "run"};
    struct request request = {
        .msg = msg, .answer = answer, .on_answer = on_answer, .context = context};
    struct err err = {0};
    int rc;

    (void)snprintf(address, sizeof address, "unix:%s/rendezvous.sock", dir);
    ctl.server.address = address;
    if (screen_open(&ctl.screen, false, true, "never", &err) != STATUS_OK)
        return CTL_FAILED;
    rc = request_run(&ctl, &request);
    screen_close(&ctl.screen);
    return rc;
}

static int on_key(struct ctl *ctl, const struct msg *msg, void *context)
{
    (void)ctl;
    (void)snprintf(context, KEY_URL_BYTES_MAX, "%s", msg->principal_key.url);
    return CTL_OK;
}

enum status slurm_server_add_key(const char *dir, const char *name, enum role role, char *url,
                                 struct err *err)
{
    struct msg msg = {.type = MSG_TYPE_PRINCIPAL_ADD,
                      .principal_add = {.name = name, .role = role}};

    if (ask(dir, &msg, MSG_TYPE_PRINCIPAL_KEY, on_key, url) == CTL_OK)
        return STATUS_OK;
    return err_set(err, STATUS_REFUSED, 0, "the server made no key for %.80s", name);
}

static int on_cancelled(struct ctl *ctl, const struct msg *msg, void *context)
{
    (void)ctl;
    (void)msg;
    (void)context;
    return CTL_OK;
}

void slurm_server_cancel(const char *dir)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "@last", .signal = SIGTERM, .grace_us = -1}};

    if (!slurm_server_is_idle(dir))
        (void)ask(dir, &msg, MSG_TYPE_JOB_INFO, on_cancelled, NULL);
}

static int on_jobs(struct ctl *ctl, const struct msg *msg, void *context)
{
    uint32_t *count = context;

    (void)ctl;
    *count = msg->jobs.jobs.count;
    return CTL_OK;
}

bool slurm_server_is_idle(const char *dir)
{
    struct msg msg = {.type = MSG_TYPE_JOB_LIST, .job_list = {.limit = 1}};
    uint32_t count = 0;

    return ask(dir, &msg, MSG_TYPE_JOBS, on_jobs, &count) != CTL_OK || count == 0;
}
