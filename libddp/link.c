#include "libddp/link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/frame.h"

enum {
    READ_BYTES = 4096,
    READS_MAX = 64 /* in one call: a shim that sends without pause must not keep us here */
};

static enum status closed(struct link *link, struct err *err)
{
    link->is_closed = true;
    return err_set(err, STATUS_CLOSED, 0, "the shim hung up: this generation is being stopped");
}

enum status link_open(struct link *link, int fd, struct err *err)
{
    int type = 0, domain = 0;
    socklen_t type_bytes = sizeof type, domain_bytes = sizeof domain;

    *link = (struct link){.fd = fd};
    if (fd < 0)
        return STATUS_OK;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 || type != SOCK_STREAM ||
        domain != AF_UNIX) {
        link->fd = -1;
        return err_set(err, STATUS_BAD_INPUT, errno,
                       "environment: DDP_SHIM_FD=%d is not a stream socket: was it closed on the "
                       "way here?",
                       fd);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return STATUS_OK;
}

void link_close(struct link *link)
{
    if (link->fd >= 0)
        (void)close(link->fd);
    link->fd = -1;
    buf_free(&link->in);
    buf_free(&link->out);
}

enum status link_flush(struct link *link, struct err *err)
{
    while (link->fd >= 0 && link->out.byte_count > 0) {
        ssize_t n =
            send(link->fd, link->out.bytes, link->out.byte_count, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return STATUS_OK;
        if (n < 0)
            return closed(link, err);
        buf_drop(&link->out, (size_t)n);
    }
    return STATUS_OK;
}

/* Takes every whole message off the front. */
static enum status take_all(struct link *link,
                            void (*take)(void *owner, const struct wire_message *message),
                            void *owner)
{
    struct wire_message message;
    const char *payload;
    size_t payload_bytes;

    for (;;) {
        enum status status = frame_next(link->in.bytes, link->in.byte_count, FRAME_BYTES_MAX,
                                        &payload, &payload_bytes, &link->broken);
        if (status == STATUS_BUSY)
            return STATUS_OK;
        if (status == STATUS_OK)
            status = wire_decode(payload, payload_bytes, &message, &link->broken);
        if (status != STATUS_OK)
            return status;
        take(owner, &message);
        buf_drop(&link->in, FRAME_HEAD_BYTES + payload_bytes);
    }
}

enum status link_read(struct link *link,
                      void (*take)(void *owner, const struct wire_message *message), void *owner,
                      struct err *err)
{
    char bytes[READ_BYTES];
    enum status status = STATUS_OK;

    for (int reads = 0; reads < READS_MAX && link->fd >= 0 && status == STATUS_OK; reads++) {
        ssize_t n = recv(link->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0)
            return closed(link, err);
        if (link->broken.text[0] != '\0')
            continue; /* read and dropped, so that the shim need not keep it */
        buf_add(&link->in, bytes, (size_t)n);
        if (link->in.failed)
            return err_set(err, STATUS_MEMORY, 0, "no memory for a message of the shim");
        status = take_all(link, take, owner);
    }
    if (link->broken.text[0] != '\0')
        return err_set(err, link->broken.status, 0, "%s", link->broken.text);
    return STATUS_OK;
}
