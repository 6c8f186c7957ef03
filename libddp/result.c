#include <stdio.h>
#include <unistd.h>

#include "libddp/internal.h"

static enum ddp_status translate(enum status status)
{
    static const enum ddp_status as_ours[] = {
        [STATUS_OK] = DDP_OK,
        [STATUS_IO] = DDP_IO,
        [STATUS_SYSTEM] = DDP_SYSTEM,
        [STATUS_MEMORY] = DDP_MEMORY,
        [STATUS_BAD_INPUT] = DDP_BAD_INPUT,
        [STATUS_TOO_BIG] = DDP_TOO_BIG,
        [STATUS_NOT_FOUND] = DDP_NOT_FOUND,
        [STATUS_CONFLICT] = DDP_CONFLICT,
        [STATUS_REFUSED] = DDP_UNSUPPORTED,
        [STATUS_BUSY] = DDP_BUSY,
        [STATUS_TIMEOUT] = DDP_TIMEOUT,
        [STATUS_CLOSED] = DDP_CLOSED,
        [STATUS_PEER_LOST] = DDP_CLOSED,
        [STATUS_UNSUPPORTED] = DDP_UNSUPPORTED,
        [STATUS_LIBRARY] = DDP_SYSTEM,
    };

    return as_ours[status];
}

enum ddp_status result(enum status status, const struct err *err, struct ddp_error *error)
{
    const enum ddp_status translated = translate(status);

    if (status == STATUS_OK || error == NULL)
        return translated;
    error->status = translated;
    error->code = err->code;
    (void)snprintf(error->text, sizeof error->text, "%s", err->text);
    return translated;
}

enum ddp_status result_forked(struct ddp_error *error)
{
    if (error == NULL)
        return DDP_FORKED;
    error->status = DDP_FORKED;
    error->code = 0;
    (void)snprintf(error->text, sizeof error->text,
                   "process %d is a fork of the one that called ddp_open, which alone speaks for "
                   "the rank",
                   (int)getpid());
    return DDP_FORKED;
}

bool is_forked(const struct ddp *ddp)
{
    return getpid() != ddp->pid;
}

const char *ddp_status_name(enum ddp_status status)
{
    static const char *const names[] = {
        [DDP_OK] = "DDP_OK",
        [DDP_IO] = "DDP_IO",
        [DDP_SYSTEM] = "DDP_SYSTEM",
        [DDP_MEMORY] = "DDP_MEMORY",
        [DDP_BAD_INPUT] = "DDP_BAD_INPUT",
        [DDP_TOO_BIG] = "DDP_TOO_BIG",
        [DDP_NOT_FOUND] = "DDP_NOT_FOUND",
        [DDP_CONFLICT] = "DDP_CONFLICT",
        [DDP_BUSY] = "DDP_BUSY",
        [DDP_TIMEOUT] = "DDP_TIMEOUT",
        [DDP_CLOSED] = "DDP_CLOSED",
        [DDP_UNSUPPORTED] = "DDP_UNSUPPORTED",
        [DDP_FORKED] = "DDP_FORKED",
    };

    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "DDP_UNKNOWN";
}

const char *ddp_version(void)
{
    return DDP_VERSION;
}
