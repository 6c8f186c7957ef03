#include "ddpctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/address.h"

#define ONCE_PATIENCE_US 5000000u

static const char *code_name(enum ctl_exit code)
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
    screen_error(&ctl->screen, code_name(code), message, hint);
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

/* We have no key for the server, or it does not accept ours. */
static int fail_key(struct ctl *ctl, const struct err *err)
{
    char message[512], hint[256];

    if (ctl->server.tls == NULL && ctl->server.problem.status != STATUS_OK)
        (void)snprintf(message, sizeof message, "%.400s", err->text);
    else if (ctl->server.tls == NULL)
        (void)snprintf(message, sizeof message, "the server at %.180s refuses: %.250s",
                       ctl->server.address, err->text);
    else
        (void)snprintf(message, sizeof message,
                       "the server at %.180s does not accept the key of %s: %.200s",
                       ctl->server.address, ctl->server.key.name, err->text);
    (void)snprintf(hint, sizeof hint,
                   "have %s made by an admin (ddpctl user add NAME%s), and give it to ddpctl login",
                   ctl->server.tls != NULL ? "a new one" : "one",
                   ctl->server.tls != NULL ? ", or rotate" : "");
    return ctl_fail(ctl, CTL_DENIED, message, hint);
}

int ctl_fail_server(struct ctl *ctl, const struct err *err)
{
    const bool is_local = ctl->server.is_default && address_is_unix(ctl->server.address);
    /* A server that takes only TLS closes a connection without TLS at once. */
    const bool wants_key = err->status == STATUS_CLOSED && ctl->server.tls == NULL &&
                           !address_is_unix(ctl->server.address);
    char message[512];

    if (err->status == STATUS_REFUSED)
        return fail_key(ctl, err);
    if (err->status == STATUS_BUSY) {
        (void)snprintf(message, sizeof message,
                       "no server that leads can be reached (%.180s: %.250s)", ctl->server.address,
                       err->text);
        return ctl_fail(ctl, CTL_UNREACHABLE, message,
                        "jobs that run go on for a while; look at etcd, of which most members must "
                        "be up (etcdctl endpoint status --cluster), and at the log of rendezvous");
    }
    (void)snprintf(message, sizeof message, "the server at %.180s cannot be reached: %.250s",
                   ctl->server.address, err->text);
    if (err->code == EAGAIN)
        return ctl_fail(
            ctl, CTL_UNREACHABLE, message,
            "a local process opens many connections (sudo ss -xp shows whose they are), "
            "or the server stands still: look at its log (journalctl -u rendezvous)");
    return ctl_fail(ctl, CTL_UNREACHABLE, message,
                    err->status == STATUS_TIMEOUT
                        ? "it may be stopped, or wait for a disk: look at its log (journalctl -u "
                          "rendezvous); or a firewall drops what is sent"
                    : is_local  ? "start one (rendezvous & launcherd &), name it with --server "
                                  "unix:PATH or HOST:PORT (or DDP_SERVER), or "
                                  "use ddpctl run --standalone, which needs none"
                    : wants_key ? "does it take only clients with a key? ddpctl login"
                                : "is rendezvous running there?");
}

int ctl_fail_unexpected(struct ctl *ctl, const struct msg *msg)
{
    char message[128];

    (void)snprintf(message, sizeof message, "the server answered with '%s', which nobody asked for",
                   msg_type_name(msg->type));
    return ctl_fail(ctl, CTL_FAILED, message, "are ddpctl and rendezvous of the same version?");
}

uint64_t ctl_patience_us(const struct ctl *ctl)
{
    return ctl->options.follow ? ctl->options.patience_us : ONCE_PATIENCE_US;
}

int ctl_exit_written(const struct ctl *ctl, int code)
{
    if (!ctl->screen.is_lost || (!ctl->is_attached && code != CTL_OK))
        return code;
    return ctl->is_attached ? CTL_OURS : CTL_FAILED;
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

    if (ctl->server.is_default)
        return NULL;
    return variable && strcmp(variable, ctl->server.address) == 0 ? NULL : ctl->server.address;
}
