/* Connections by address on a real loop. Without TLS they are allowed only on this machine. */
#include "common/io/conn_dial.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/address.h"
#include "tests/lib/test.h"

static uv_loop_t loop;

struct result {
    struct conn_dial dial;
    struct conn conn;
    uint32_t done_count, closed_count;
    enum status status;
    bool was_open;
    char text[256], label[96];
};

static void on_message(struct conn *conn, const struct msg *msg)
{
    (void)conn;
    FAIL("%s came", msg_type_name(msg->type));
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct result *result = conn->owner;

    (void)why;
    (void)text;
    result->closed_count++;
}

static const struct conn_handlers handlers = {on_message, on_closed};

static void end(struct result *result)
{
    result->was_open = true;
    (void)snprintf(result->label, sizeof result->label, "%s", result->conn.label);
    conn_close(&result->conn, STATUS_OK, "enough");
}

static void on_done(struct conn_dial *dial, enum status status, const char *text)
{
    struct result *result = dial->owner;

    result->done_count++;
    result->status = status;
    (void)snprintf(result->text, sizeof result->text, "%s", text);
    if (status == STATUS_OK)
        end(result);
}

static void dial_to(struct result *result, const char *address, bool cancels)
{
    struct err err = {.text = ""};

    memset(result, 0, sizeof *result);
    result->conn.owner = result->dial.owner = result;
    CHECK_EQ(uv_loop_init(&loop), 0);
    result->status = conn_dial_start(&result->dial, &result->conn, &loop, address, NULL,
                                     FRAME_BYTES_MAX, &handlers, on_done, &err);
    if (result->status != STATUS_OK)
        (void)snprintf(result->text, sizeof result->text, "%s", err.text);
    else if (!result->dial.is_running)
        end(result);
    if (cancels)
        conn_dial_cancel(&result->dial);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
    CHECK_EQ(result->closed_count, result->was_open ? 1 : 0);
}

/* Writes the address as text into `address`. */
static int bind_on(const struct sockaddr *host, socklen_t byte_count, char address[64])
{
    struct sockaddr_storage bound = {0};
    int fd = socket(host->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    if (bind(fd, host, byte_count) < 0) {
        (void)close(fd);
        return -1;
    }
    byte_count = sizeof bound;
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&bound, &byte_count), 0);
    address_format_tcp(&bound, address, 64);
    return fd;
}

static int listen_on(const struct sockaddr *host, socklen_t byte_count, char address[64])
{
    int fd = bind_on(host, byte_count, address);

    if (fd >= 0)
        CHECK_EQ(listen(fd, 8), 0);
    return fd;
}

TEST(an_address_opens_or_says_why_not)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static struct result result;
    char address[64];
    int fd = listen_on((struct sockaddr *)&v4, sizeof v4, address);

    dial_to(&result, address, false);
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(result.done_count, 1);
    CHECK_STR(result.label, address);
    (void)close(fd);
    fd =
        bind_on((struct sockaddr *)&v4, sizeof v4, address); /* no other program can listen there */
    CHECK(fd >= 0);
    dial_to(&result, address, false);
    CHECK_EQ(result.status, STATUS_REFUSED);
    CHECK_EQ(result.done_count, 1);
    (void)close(fd);
    dial_to(&result, "unix:/nowhere/ddp.sock", false);
    CHECK_EQ(result.status, STATUS_NOT_FOUND);
    CHECK_EQ(result.done_count, 0);
    dial_to(&result, "nonsense", false);
    CHECK_EQ(result.status, STATUS_BAD_INPUT);
    CHECK_EQ(result.done_count, 0);
}

TEST(a_cancelled_one_is_done_once)
{
    static struct result result;

    dial_to(&result, "127.0.0.1:1", true);
    CHECK_EQ(result.done_count, 1);
    CHECK_EQ(result.status, STATUS_CLOSED);
    conn_dial_cancel(&result.dial); /* no attempt is pending */
}

TEST(nothing_plain_leaves_this_machine)
{
    struct ifaddrs *all = NULL;
    static struct result result;
    int count = 0;

    CHECK_EQ(getifaddrs(&all), 0);
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        char address[64];
        int fd;

        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET)
            continue;
        struct sockaddr_in v4 = *(const struct sockaddr_in *)(const void *)at->ifa_addr;
        v4.sin_port = 0;
        if (ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
            continue;
        fd = listen_on((struct sockaddr *)&v4, sizeof v4, address);
        if (fd < 0)
            continue;
        dial_to(&result, address, false);
        CHECK_EQ(result.status, STATUS_UNSUPPORTED);
        CHECK(strstr(result.text, "there is no key for") != NULL);
        (void)close(fd);
        count++;
    }
    freeifaddrs(all);
    if (count == 0)
        SKIP("this machine has only loopback addresses");
}

TEST_MAIN
