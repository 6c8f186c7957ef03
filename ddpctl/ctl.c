#include "ddpctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *code_word(enum ctl_exit code)
{
    switch (code) {
    case CTL_OK:
        return "ok";
    case CTL_FAILED:
        return "failed";
    case CTL_USAGE:
        return "usage";
    case CTL_NOT_FOUND:
        return "not_found";
    case CTL_DENIED:
        return "refused";
    case CTL_UNREACHABLE:
        return "unreachable";
    case CTL_TIMEOUT:
        return "timeout";
    case CTL_OURS:
        return "internal";
    }
    return "internal";
}

int ctl_fail(struct ctl *ctl, enum ctl_exit code, const char *message, const char *hint)
{
    screen_error(&ctl->screen, code_word(code), message, hint);
    return ctl->is_attached && code != CTL_TIMEOUT ? CTL_OURS : (int)code;
}

int ctl_fail_err(struct ctl *ctl, enum ctl_exit code, const struct err *err, const char *hint)
{
    return ctl_fail(ctl, code, err->text, hint);
}

int ctl_fail_answer(struct ctl *ctl, const struct msg_error *error)
{
    static const struct {
        const char *word;
        enum ctl_exit code;
    } codes[] = {
        {"bad_request", CTL_USAGE}, {"not_found", CTL_NOT_FOUND},     {"refused", CTL_DENIED},
        {"full", CTL_FAILED},       {"unreachable", CTL_UNREACHABLE}, {"internal", CTL_FAILED},
    };
    enum ctl_exit code = CTL_FAILED;

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(codes[i].word, error->code) == 0)
            code = codes[i].code;
    screen_error(&ctl->screen, error->code, error->message, error->hint);
    return ctl->is_attached ? CTL_OURS : (int)code;
}

int ctl_fail_server(struct ctl *ctl, const struct err *err)
{
    char message[512];
    bool is_default = ctl_server_shown(ctl) == NULL;

    (void)snprintf(message, sizeof message, "the server at %.180s cannot be reached: %.250s",
                   ctl->options.server, err->text);
    return ctl_fail(
        ctl, CTL_UNREACHABLE, message,
        is_default
            ? "name it with --server unix:PATH or HOST:PORT (or DDP_SERVER), or use ddpctl run "
              "--standalone, which needs none"
            : "is rendezvous running there?");
}

int ctl_fail_unexpected(struct ctl *ctl, const struct msg *msg)
{
    char message[128];

    (void)snprintf(message, sizeof message, "the server answered with '%s', which nobody asked for",
                   msg_type_word(msg->type));
    return ctl_fail(ctl, CTL_FAILED, message, "are ddpctl and rendezvous of the same version?");
}

int ctl_job_exit(const struct part_job *job)
{
    if (!job->ended)
        return CTL_OURS;
    if (job->state == JOB_SUCCEEDED)
        return 0;
    if (job->exit_code != 0)
        return job->exit_code;
    return job->signal ? 128 + (int)job->signal : CTL_OURS;
}

const char *ctl_server_shown(const struct ctl *ctl)
{
    const char *variable = getenv("DDP_SERVER");
    struct options defaults;

    options_init(&defaults);
    if (strcmp(ctl->options.server, defaults.server) == 0)
        return NULL;
    return variable && strcmp(variable, ctl->options.server) == 0 ? NULL : ctl->options.server;
}
