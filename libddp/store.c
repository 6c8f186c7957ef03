#include "libddp/store.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "libddp/ddp.h"

enum { SLICE_MS = 200, BACKOFF_FIRST_MS = 10, BACKOFF_MAX_MS = 500 };

#define CONNECT_US 300000000u /* at most, as PyTorch's client */
#define ANSWER_US 30000000u   /* requests that need not wait are answered at once or not at all */
#define MAGIC 0x3C85F7CEu

enum command {
    COMMAND_VALIDATE = 0,
    COMMAND_SET = 1,
    COMMAND_GET = 3,
    COMMAND_ADD = 4,
    COMMAND_CHECK = 5,
    COMMAND_WAIT = 6,
    COMMAND_DELETE_KEY = 8,
    COMMAND_PING = 13,
};

/* -- time -------------------------------------------------------------------------------------- */

enum status store_limit_from(struct store_limit *limit, double limit_s, bool (*is_stopped)(void),
                             struct err *err)
{
    const uint64_t now_us = mono_us();

    if (isnan(limit_s))
        return err_set(err, STATUS_BAD_INPUT, 0, "the time limit is not a number");
    limit->is_stopped = is_stopped;
    limit->until_us =
        limit_s < 0 || limit_s > 1e9 ? UINT64_MAX : now_us + (uint64_t)(limit_s * 1e6);
    return STATUS_OK;
}

static struct store_limit at_most(const struct store_limit *limit, uint64_t us)
{
    const uint64_t until_us = mono_us() + us;

    return (struct store_limit){limit->until_us < until_us ? limit->until_us : until_us,
                                limit->is_stopped};
}

/* For requests that need not wait: a short limit of the caller must not interrupt the answer. */
static struct store_limit for_answer(const struct store_limit *limit)
{
    return (struct store_limit){mono_us() + ANSWER_US, limit->is_stopped};
}

/* Waits at most `most_ms` for the socket; fd -1: just waits. True: it is ready. */
static bool wait_ready(int fd, short events, const struct store_limit *limit, int most_ms)
{
    const uint64_t now_us = mono_us();
    const uint64_t left_ms = limit->until_us > now_us ? (limit->until_us - now_us + 999) / 1000 : 0;
    struct pollfd wanted = {.fd = fd, .events = events};

    return poll(&wanted, 1, left_ms < (uint64_t)most_ms ? (int)left_ms : most_ms) > 0;
}

static bool is_over(const struct store_limit *limit)
{
    return mono_us() >= limit->until_us;
}

static enum status stopped(struct err *err)
{
    return err_set(err, STATUS_CLOSED, 0, "stopped by a signal while it waited for the store");
}

/* Until the socket is ready. */
static enum status await_ready(int fd, short events, const struct store_limit *limit,
                               struct err *err)
{
    for (;;) {
        if (limit->is_stopped())
            return stopped(err);
        if (wait_ready(fd, events, limit, SLICE_MS))
            return STATUS_OK;
        if (is_over(limit))
            return err_set(err, STATUS_TIMEOUT, 0, "the store gave no answer in time");
    }
}

/* -- bytes ------------------------------------------------------------------------------------- */

void store_close(struct store *store)
{
    if (store->fd >= 0)
        (void)close(store->fd);
    store->fd = -1;
    buf_free(&store->out);
}

static enum status gone(struct err *err, int code)
{
    return err_set(err, STATUS_CLOSED, code, "the store closed the connection%s%s",
                   code != 0 ? ": " : "", code != 0 ? strerror(code) : "");
}

static enum status send_out(struct store *store, const struct store_limit *limit, struct err *err)
{
    if (store->out.failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a request to the store");
    while (store->out.byte_count > 0) {
        ssize_t n =
            send(store->fd, store->out.bytes, store->out.byte_count, MSG_DONTWAIT | MSG_NOSIGNAL);
        enum status status = STATUS_OK;

        if (n >= 0)
            buf_drop(&store->out, (size_t)n);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            status = await_ready(store->fd, POLLOUT, limit, err);
        else if (errno != EINTR)
            status = gone(err, errno);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status receive(struct store *store, void *bytes, size_t byte_count,
                           const struct store_limit *limit, struct err *err)
{
    char *at = bytes;

    while (byte_count > 0) {
        ssize_t n = recv(store->fd, at, byte_count, MSG_DONTWAIT);
        enum status status = STATUS_OK;

        if (n > 0) {
            at += n;
            byte_count -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            status = await_ready(store->fd, POLLIN, limit, err);
        } else if (n == 0 || errno != EINTR) {
            status = gone(err, n == 0 ? 0 : errno);
        }
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static void add_number(struct buf *out, uint64_t number, size_t byte_count)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < byte_count; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    buf_add(out, bytes, byte_count);
}

static enum status receive_number(struct store *store, size_t byte_count, uint64_t *number,
                                  const struct store_limit *limit, struct err *err)
{
    uint8_t bytes[8] = {0};
    enum status status = receive(store, bytes, byte_count, limit, err);

    *number = 0;
    for (size_t i = 0; i < byte_count; i++)
        *number |= (uint64_t)bytes[i] << (8 * i);
    return status;
}

static void add_key(struct buf *out, const char *key)
{
    add_number(out, strlen(key) + 1, 8);
    buf_add(out, "/", 1);
    buf_add_text(out, key);
}

static void begin(struct store *store, enum command command)
{
    assert(store->fd >= 0 && store->out.byte_count == 0);
    add_number(&store->out, command, 1);
}

/* The request was answered, or the connection cannot be used any more. */
static enum status finish(struct store *store, enum status status)
{
    if (status != STATUS_OK)
        store_close(store);
    return status;
}

/* -- connecting -------------------------------------------------------------------------------- */

static enum status try_address(struct store *store, const struct addrinfo *address,
                               const struct store_limit *limit, struct err *err)
{
    const int yes = 1;
    int failed = 0;
    socklen_t failed_bytes = sizeof failed;
    enum status status = STATUS_OK;

    store->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (store->fd < 0)
        return err_set(err, STATUS_SYSTEM, errno, "no socket: %s", strerror(errno));
    (void)setsockopt(store->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(store->fd, address->ai_addr, address->ai_addrlen) != 0) {
        if (errno == EINPROGRESS)
            status = await_ready(store->fd, POLLOUT, limit, err);
        else
            failed = errno;
        if (failed == 0 && status == STATUS_OK &&
            getsockopt(store->fd, SOL_SOCKET, SO_ERROR, &failed, &failed_bytes) != 0)
            failed = errno;
    }
    if (status == STATUS_OK && failed != 0)
        status = err_set(err, STATUS_IO, failed, "%s", strerror(failed));
    return finish(store, status);
}

static enum status greet(struct store *store, const struct store_limit *limit, struct err *err)
{
    const uint64_t nonce = (uint32_t)getpid();
    uint64_t answer = 0;
    enum status status;

    begin(store, COMMAND_VALIDATE);
    add_number(&store->out, MAGIC, 4);
    add_number(&store->out, COMMAND_PING, 1);
    add_number(&store->out, nonce, 4);
    status = send_out(store, limit, err);
    if (status == STATUS_OK)
        status = receive_number(store, 4, &answer, limit, err);
    if (status == STATUS_OK && answer != nonce)
        status = err_set(err, STATUS_BAD_INPUT, 0, "it does not answer as a c10d store");
    return finish(store, status);
}

static enum status try_once(struct store *store, const char *host, const char *port,
                            const struct store_limit *limit, struct err *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    const int found = getaddrinfo(host, port, &hints, &addresses);
    enum status status = STATUS_IO;

    if (found != 0)
        return err_set(err, STATUS_IO, 0, "%s", gai_strerror(found));
    for (const struct addrinfo *at = addresses; at != NULL && status == STATUS_IO; at = at->ai_next)
        status = try_address(store, at, limit, err);
    freeaddrinfo(addresses);
    return status == STATUS_OK ? greet(store, limit, err) : status;
}

enum status store_connect(struct store *store, const struct store_limit *limit, struct err *err)
{
    const char *host = getenv("MASTER_ADDR"); /* NOLINT(concurrency-mt-unsafe): only read */
    const char *port = getenv("MASTER_PORT"); /* NOLINT(concurrency-mt-unsafe): as above */
    const struct store_limit within = at_most(limit, CONNECT_US);
    struct err why = {.text = ""};
    int backoff_ms = BACKOFF_FIRST_MS;

    if (store->fd >= 0)
        return STATUS_OK;
    if (host == NULL || port == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "there is no store: %s is not set; start the program with ddpctl run",
                       host == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    for (;;) {
        const struct store_limit once = for_answer(&within);
        enum status status = try_once(store, host, port, &once, &why);

        if (status == STATUS_OK)
            return STATUS_OK;
        if (within.is_stopped())
            return stopped(err);
        if (is_over(&within))
            return err_set(err, STATUS_TIMEOUT, why.code,
                           "no c10d store at %.80s:%.10s (MASTER_ADDR, MASTER_PORT): %.120s", host,
                           port, why.text);
        (void)wait_ready(-1, 0, &within, backoff_ms);
        backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
    }
}

/* -- requests ---------------------------------------------------------------------------------- */

enum status store_set(struct store *store, const char *key, const void *bytes, size_t byte_count,
                      const struct store_limit *limit, struct err *err)
{
    const struct store_limit answer = for_answer(limit);

    begin(store, COMMAND_SET);
    add_key(&store->out, key);
    add_number(&store->out, byte_count, 8);
    buf_add(&store->out, bytes, byte_count);
    return finish(store, send_out(store, &answer, err));
}

/* Sends what begin() and others have made and reads a number. */
static enum status ask_number(struct store *store, size_t byte_count, uint64_t *number,
                              const struct store_limit *limit, struct err *err)
{
    const struct store_limit answer = for_answer(limit);
    enum status status = send_out(store, &answer, err);

    if (status == STATUS_OK)
        status = receive_number(store, byte_count, number, &answer, err);
    return finish(store, status);
}

enum status store_add(struct store *store, const char *key, int64_t addend, int64_t *sum,
                      const struct store_limit *limit, struct err *err)
{
    uint64_t number = 0;
    enum status status;

    begin(store, COMMAND_ADD);
    add_key(&store->out, key);
    add_number(&store->out, (uint64_t)addend, 8);
    status = ask_number(store, 8, &number, limit, err);
    *sum = (int64_t)number;
    return status;
}

static enum status timed_out(const char *key, struct err *err)
{
    return err_set(err, STATUS_TIMEOUT, 0, "the key %.100s did not come in time", key);
}

/* Asks once, for a limit that has already passed. */
static enum status check(struct store *store, const char *key, const struct store_limit *limit,
                         struct err *err)
{
    uint64_t is_missing = 0;
    enum status status;

    begin(store, COMMAND_CHECK);
    add_number(&store->out, 1, 8);
    add_key(&store->out, key);
    status = ask_number(store, 1, &is_missing, limit, err);
    return status == STATUS_OK && is_missing != 0 ? timed_out(key, err) : status;
}

enum status store_wait(struct store *store, const char *key, const struct store_limit *limit,
                       struct err *err)
{
    uint64_t answer = 0;
    enum status status;

    if (is_over(limit))
        return check(store, key, limit, err);
    begin(store, COMMAND_WAIT);
    add_number(&store->out, 1, 8);
    add_key(&store->out, key);
    status = send_out(store, limit, err);
    if (status == STATUS_OK)
        status = receive_number(store, 1, &answer, limit, err);
    if (status == STATUS_OK && answer != 0)
        status = err_set(err, STATUS_BAD_INPUT, 0, "the store answered a wait with %u",
                         (unsigned)answer);
    if (status == STATUS_TIMEOUT)
        (void)timed_out(key, err);
    return finish(store, status); /* closing the connection ends the wait */
}

/* Reads and drops a value that does not fit, so that the next answer can be read. */
static enum status pass_over(struct store *store, uint64_t byte_count,
                             const struct store_limit *limit, struct err *err)
{
    char bytes[4096];
    enum status status = STATUS_OK;

    while (byte_count > 0 && status == STATUS_OK) {
        const size_t part = byte_count < sizeof bytes ? (size_t)byte_count : sizeof bytes;
        status = receive(store, bytes, part, limit, err);
        byte_count -= part;
    }
    return status;
}

enum status store_get(struct store *store, const char *key, void *bytes, size_t *byte_count,
                      const struct store_limit *limit, struct err *err)
{
    const struct store_limit answer = for_answer(limit);
    const size_t room = *byte_count;
    uint64_t count = 0;
    enum status status;

    begin(store, COMMAND_GET);
    add_key(&store->out, key);
    status = send_out(store, &answer, err);
    if (status == STATUS_OK)
        status = receive_number(store, 8, &count, &answer, err);
    if (status == STATUS_OK && count > DDP_VALUE_BYTES_MAX)
        status = err_set(err, STATUS_BAD_INPUT, 0, "the store sent a value of more than 8 MiB");
    if (status == STATUS_OK)
        status = count <= room ? receive(store, bytes, (size_t)count, &answer, err)
                               : pass_over(store, count, &answer, err);
    if (status != STATUS_OK)
        return finish(store, status);
    *byte_count = (size_t)count;
    if (count <= room)
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0, "the value of %.100s has %zu bytes, room is for %zu",
                   key, (size_t)count, room);
}

enum status store_delete(struct store *store, const char *key, const struct store_limit *limit,
                         struct err *err)
{
    uint64_t is_deleted = 0;

    begin(store, COMMAND_DELETE_KEY);
    add_key(&store->out, key);
    return ask_number(store, 8, &is_deleted, limit, err);
}
