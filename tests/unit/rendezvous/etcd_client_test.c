/* The etcd client against a real etcd: transactions with guards, ranges in pages, leases, the error
 * text of each failure, and the change to the next member. */
#include "rendezvous/store/etcd_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "rendezvous/store/etcd_client_internal.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/test.h"

#define TTL_S 10u /* time enough for the requests that need the lease */

static struct arena arena;
static struct err err;

static uint64_t soon(void)
{
    return clock_boot_us() + 30000000;
}

static struct etcd_client *open_url(const char *url)
{
    char prefix[ETCD_PREFIX_BYTES_MAX];
    struct etcd_options options;
    struct etcd_client *client;

    arena_reset(&arena);
    CHECK_EQ(etcd_url_parse(url, &options, prefix, &err), STATUS_OK);
    CHECK_EQ(etcd_open(&client, &options, &err), STATUS_OK);
    return client;
}

static struct etcd_answer put(struct etcd_client *client, const char *key, struct etcd_bytes value)
{
    struct etcd_op op = {.kind = ETCD_PUT, .key = etcd_text(key), .value = value};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_answer answer = {0};

    if (etcd_transact(client, &txn, soon(), &arena, &answer, &err) != STATUS_OK)
        FAIL("put: %s", err.text);
    CHECK(answer.is_met);
    return answer;
}

static struct etcd_answer get(struct etcd_client *client, const char *key, const char *end,
                              uint32_t limit)
{
    struct etcd_op range = {.kind = ETCD_RANGE, .key = etcd_text(key), .limit = limit};
    struct etcd_answer answer = {0};

    if (end != NULL)
        range.end = etcd_text(end);
    if (etcd_range(client, &range, soon(), &arena, &answer, &err) != STATUS_OK)
        FAIL("range: %s", err.text);
    return answer;
}

TEST(urls_are_read)
{
    char prefix[ETCD_PREFIX_BYTES_MAX];
    static const char *const bad[] = {
        "etcd://",         "etcd:///x",      "etcd://h:0",          "etcd://h:65536", "etcd://h:",
        "etcd://h,,g",     "etcd://h,",      "etcd://user@h:2379",  "etcd://[::1",    "etcd://[]:1",
        "etcd://h:1:2",    "http://h",       "etcd://h/a b",        "etcd://h/%2f",   "etcd",
        "etcd://[::1]x:1", "etcd://h:12a/x", "etcds://h:2379/x?y=z"};
    struct etcd_options options;

    CHECK_EQ(
        etcd_url_parse("etcd://h1:1,h-2.example,[::1],[fe80::1]:77/a/b//", &options, prefix, &err),
        STATUS_OK);
    CHECK_EQ(options.endpoint_count, 4);
    CHECK_STR(options.endpoints[0], "h1:1");
    CHECK_STR(options.endpoints[1], "h-2.example:2379");
    CHECK_STR(options.endpoints[2], "[::1]:2379");
    CHECK_STR(options.endpoints[3], "[fe80::1]:77");
    CHECK_STR(prefix, "/a/b/");
    CHECK(!options.uses_tls);
    CHECK_EQ(etcd_url_parse("etcds://h/", &options, prefix, &err), STATUS_OK);
    CHECK_STR(prefix, "/ddp/");
    CHECK(options.uses_tls);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (etcd_url_parse(bad[i], &options, prefix, &err) != STATUS_BAD_INPUT)
            FAIL("%s is taken", bad[i]);
}

TEST(bytes_go_and_come_back)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_answer answer;
    size_t big = 1000000;
    char *bytes = calloc(1, big);

    etcd_member_start(&member, NULL);
    client = open_url(member.url);
    for (size_t i = 0; i < big; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    (void)put(client, "/a/1", (struct etcd_bytes){bytes, big});
    (void)put(client, "/a/2", (struct etcd_bytes){bytes, 2});
    (void)put(client, "/a/3", (struct etcd_bytes){"", 0});
    (void)put(client, "/b", etcd_text("other"));
    answer = get(client, "/a/1", NULL, 0);
    CHECK_EQ(answer.row_count, 1);
    CHECK_EQ(answer.rows[0].value.byte_count, big);
    CHECK_BYTES(answer.rows[0].value.bytes, bytes, big);
    answer = get(client, "/a/", "/a0", 2);
    CHECK(answer.row_count == 2 && answer.has_more);
    CHECK_STR(answer.rows[1].key.bytes, "/a/2");
    answer = get(client, "/a/2\x01", "/a0", 2);
    CHECK(answer.row_count == 1 && !answer.has_more);
    CHECK(etcd_bytes_are(answer.rows[0].key, "/a/3") && answer.rows[0].value.byte_count == 0);
    CHECK_EQ(get(client, "/none", NULL, 0).row_count, 0);
    free(bytes);
    etcd_close(&client);
    etcd_member_kill(&member);
}

/* If a comparison fails, the first list of operations is not carried out, and the other list is. */
TEST(a_guard_holds_or_nothing_is_done)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_answer answer;
    struct etcd_compare compares[2] = {
        {.target = ETCD_CREATED, .key = {"/leader", 7}},
        {.target = ETCD_VALUE, .key = {"/seq", 4}, .value = {"1", 1}}};
    struct etcd_op then[2] = {{.kind = ETCD_PUT, .key = {"/seq", 4}, .value = {"2", 1}},
                              {.kind = ETCD_DELETE, .key = {"/x", 2}, .end = {"/y", 2}}};
    struct etcd_op otherwise = {.kind = ETCD_RANGE, .key = {"/seq", 4}};
    struct etcd_txn txn = {compares, then, &otherwise, 2, 2, 1};

    etcd_member_start(&member, NULL);
    client = open_url(member.url);
    (void)put(client, "/seq", etcd_text("1"));
    (void)put(client, "/xa", etcd_text("v"));
    (void)put(client, "/leader", etcd_text("me"));
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    CHECK(!answer.is_met && answer.row_count == 1);
    CHECK(etcd_bytes_are(answer.rows[0].value, "1"));
    CHECK_EQ(get(client, "/xa", NULL, 0).row_count, 1);
    compares[0].revision = get(client, "/leader", NULL, 0).rows[0].created;
    CHECK(compares[0].revision > 0);
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    CHECK(answer.is_met && answer.tries == 1 && answer.revision > compares[0].revision);
    CHECK_EQ(get(client, "/xa", NULL, 0).row_count, 0);
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err),
             STATUS_OK); /* a second copy */
    CHECK(!answer.is_met && etcd_bytes_are(answer.rows[0].value, "2"));
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(keys_of_a_lease_end_with_it)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_op op = {.kind = ETCD_PUT, .key = {"/leader", 7}, .value = {"me", 2}};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_answer answer;
    int64_t lease;
    uint32_t ttl_s = 0;

    etcd_member_start(&member, NULL);
    client = open_url(member.url);
    CHECK_EQ(etcd_lease_grant(client, TTL_S, soon(), &lease, &err), STATUS_OK);
    op.lease = lease;
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    answer = get(client, "/leader", NULL, 0);
    CHECK(answer.row_count == 1 && answer.rows[0].lease == lease);
    CHECK_EQ(etcd_lease_keep(client, lease, soon(), &ttl_s, &err), STATUS_OK);
    CHECK_EQ(ttl_s, TTL_S);
    while (get(client, "/leader", NULL, 0).row_count > 0) /* no client keeps it alive */
        arena_reset(&arena);
    CHECK_EQ(etcd_lease_keep(client, lease, soon(), &ttl_s, &err), STATUS_NOT_FOUND);
    CHECK_EQ(etcd_lease_grant(client, 600, soon(), &lease, &err), STATUS_OK);
    op.lease = lease;
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    CHECK_EQ(etcd_lease_revoke(client, lease, soon(), &err), STATUS_OK);
    CHECK_EQ(get(client, "/leader", NULL, 0).row_count, 0);
    CHECK_EQ(etcd_lease_revoke(client, lease, soon(), &err), STATUS_OK);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(old_revisions_can_be_dropped)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_op range = {.kind = ETCD_RANGE, .key = {"/k", 2}};
    struct etcd_answer answer;
    struct etcd_health health;
    int64_t newest;

    etcd_member_start(&member, NULL);
    client = open_url(member.url);
    range.revision = put(client, "/k", etcd_text("1")).revision;
    newest = put(client, "/k", etcd_text("2")).revision;
    CHECK_EQ(etcd_range(client, &range, soon(), &arena, &answer, &err), STATUS_OK);
    CHECK(etcd_bytes_are(answer.rows[0].value, "1"));
    CHECK_EQ(etcd_compact(client, newest, soon(), &err), STATUS_OK);
    CHECK_EQ(etcd_compact(client, newest, soon(), &err), STATUS_OK);
    CHECK_EQ(etcd_range(client, &range, soon(), &arena, &answer, &err), STATUS_NOT_FOUND);
    CHECK_EQ(err.code, ETCD_COMPACTED);
    CHECK_EQ(etcd_health(client, soon(), &health, &err), STATUS_OK);
    CHECK(health.database_bytes > 0 && health.used_bytes > 0 && !health.is_full);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(a_full_etcd_says_so)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_op op = {.kind = ETCD_PUT, .key = {"/k", 2}};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_health health;
    struct etcd_answer answer;
    enum status status = STATUS_OK;
    char *bytes = calloc(1, 1000000);

    etcd_member_start(&member, "--quota-backend-bytes=4000000");
    client = open_url(member.url);
    op.value = (struct etcd_bytes){bytes, 1000000};
    for (int i = 0; i < 100 && status == STATUS_OK; i++)
        status = etcd_transact(client, &txn, soon(), &arena, &answer, &err);
    CHECK_EQ(status, STATUS_IO);
    CHECK_EQ(err.code, ETCD_NO_SPACE);
    CHECK(strstr(err.text, "--quota-backend-bytes") != NULL);
    CHECK_EQ(etcd_health(client, soon(), &health, &err), STATUS_OK);
    CHECK(health.is_full);
    free(bytes);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(what_is_too_large_is_named)
{
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_op op = {.kind = ETCD_PUT, .key = {"/k", 2}};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_answer answer;
    char *bytes = calloc(1, 3000000);

    etcd_member_start(&member, NULL);
    client = open_url(member.url);
    op.value = (struct etcd_bytes){bytes, 3000000};
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_TOO_BIG);
    free(bytes);
    etcd_close(&client);
    etcd_member_kill(&member);
}

/* A member that accepts connections and never answers. */
static int open_silent(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(fd, 8) == 0 && getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The first member does not run, the second is silent, the third answers, and is asked first from
 * then on. */
TEST(the_next_member_is_asked)
{
    struct etcd_member member;
    struct etcd_client *client;
    uint16_t port;
    int silent = open_silent(&port);
    char url[256];

    etcd_member_start(&member, NULL);
    (void)snprintf(url, sizeof url, "etcd://127.0.0.1:1,127.0.0.1:%u,%s", port,
                   member.url + strlen("etcd://"));
    client = open_url(url);
    CHECK_EQ(put(client, "/k", etcd_text("v")).tries, 3);
    CHECK_STR(etcd_endpoint(client), member.url + strlen("etcd://"));
    CHECK_EQ(put(client, "/k", etcd_text("v")).tries, 1);
    etcd_close(&client);
    etcd_member_kill(&member);
    (void)close(silent);
}

/* One member that gives this body to the first request, in a process of its own. */
static pid_t answer_once(int fd, const char *body)
{
    char text[2048], request[4096];
    pid_t pid;

    (void)snprintf(
        text, sizeof text,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(body), body);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int conn = accept(fd, NULL, NULL);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(conn, request, sizeof request) <= 0 ||
            write(conn, text, strlen(text)) != (ssize_t)strlen(text))
            _exit(1);
        while (read(conn, request, sizeof request) > 0) /* until the client has enough */
            continue;
        _exit(0);
    }
    return pid;
}

static bool no_changes(const struct etcd_answer *changes, void *context)
{
    (void)changes, (void)context;
    return true;
}

/* The answers of etcd 3.4 to a watch whose token has just expired, to one without a token, and to
 * one without the right. */
TEST(a_watch_that_wants_a_token_is_tried_again)
{
#define CANCELLED(why)                                                                             \
    "{\"result\":{\"header\":{\"cluster_id\":\"1\",\"member_id\":\"6\",\"revision\":\"1\",\"raft_" \
    "term\":\"2\"},"                                                                               \
    "\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,\"cancel_reason\":\"rpc error: code "  \
    "= " why "\"}}\n"
    static const struct {
        const char *body;
        enum status status;
    } cases[] = {
        {CANCELLED("Unauthenticated desc = etcdserver: invalid auth token"), STATUS_TIMEOUT},
        {CANCELLED("InvalidArgument desc = etcdserver: user name is empty"), STATUS_TIMEOUT},
        {CANCELLED("PermissionDenied desc = etcdserver: permission denied"), STATUS_REFUSED},
    };
    const struct etcd_watch_options options = {.on_changes = no_changes};
    const struct etcd_op range = {
        .kind = ETCD_RANGE, .key = {"/a/", 3}, .end = {"/a0", 3}, .revision = 1};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct etcd_client *client;
        char url[64];
        uint16_t port;
        int code, fd = open_silent(&port);
        pid_t pid = answer_once(fd, cases[i].body);

        (void)snprintf(url, sizeof url, "etcd://127.0.0.1:%u", port);
        client = open_url(url);
        (void)snprintf(client->token, sizeof client->token, "old");
        CHECK_EQ(etcd_watch(client, &range, &options, &err), cases[i].status);
        CHECK(strstr(err.text, "ended a watch: rpc error: code = ") != NULL);
        CHECK_STR(client->token, cases[i].status == STATUS_TIMEOUT ? "" : "old");
        etcd_close(&client);
        CHECK(waitpid(pid, &code, 0) == pid && WIFEXITED(code) && WEXITSTATUS(code) == 0);
        (void)close(fd);
    }
}

/* A member that requires a token and answers no login before `from_us`, as hashing a password may take
 * long on a busy machine. */
static pid_t answer_slow_logins(int fd, uint64_t from_us)
{
    static const char refused[] = "{\"error\":\"etcdserver: user name is empty\",\"code\":3,"
                                  "\"message\":\"etcdserver: user name is empty\"}";
    static const char token[] = "{\"header\":{\"revision\":\"1\"},\"token\":\"t.1\"}";
    static const char kept[] =
        "{\"result\":{\"header\":{\"revision\":\"1\"},\"ID\":\"1\",\"TTL\":\"9\"}}";
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN); /* the client may have given up */
    for (;;) {
        char request[4096] = "", text[1024];
        const int conn = accept(fd, NULL, NULL);
        size_t got = 0;
        ssize_t n;

        while (strchr(request, '}') == NULL &&
               (n = read(conn, request + got, sizeof request - 1 - got)) > 0)
            got += (size_t)n;
        const bool is_login = strstr(request, "auth/authenticate") != NULL;
        const bool has_token = strstr(request, "Authorization: t.1") != NULL;
        const char *body = is_login ? token : has_token ? kept : refused;

        while (is_login && clock_boot_us() < from_us)
            (void)poll(NULL, 0, 10);
        (void)snprintf(text, sizeof text,
                       "HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       is_login || has_token ? "200 OK" : "400 Bad Request", strlen(body), body);
        (void)!write(conn, text, strlen(text));
        (void)close(conn);
    }
}

/* A login has its own time limit. With a short limit of the request it would never finish, and each
 * further login would make etcd busier. */
TEST(a_login_may_take_longer_than_its_request)
{
    struct etcd_client *client;
    char url[64];
    uint32_t ttl_s = 0;
    uint16_t port;
    int fd = open_silent(&port);
    const uint64_t until_us = clock_boot_us() + 3000000; /* half of it is for the first try */
    pid_t pid = answer_slow_logins(fd, until_us + 200000);

    (void)snprintf(url, sizeof url, "etcd://127.0.0.1:%u", port);
    client = open_url(url);
    (void)snprintf(client->user, sizeof client->user, "ddp");
    CHECK_EQ(etcd_lease_keep(client, 1, until_us, &ttl_s, &err), STATUS_TIMEOUT);
    CHECK_STR(client->token, "t.1");
    CHECK_EQ(etcd_lease_keep(client, 1, soon(), &ttl_s, &err), STATUS_OK);
    CHECK_EQ(ttl_s, 9);
    etcd_close(&client);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    (void)close(fd);
}

TEST(no_answer_is_a_time_out_with_its_reason)
{
    struct etcd_client *client = open_url("etcd://127.0.0.1:1");
    uint64_t begun_us = clock_boot_us();

    CHECK_EQ(etcd_lease_keep(client, 1, begun_us + 2000000, NULL, &err), STATUS_TIMEOUT);
    CHECK(clock_boot_us() - begun_us >= 1900000);
    CHECK(strstr(err.text, "does not answer in time (127.0.0.1:1: ") != NULL);
    CHECK_EQ(etcd_lease_keep(client, 1, 0, NULL, &err), STATUS_TIMEOUT);
    etcd_close(&client);
}

TEST_MAIN
