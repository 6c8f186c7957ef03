/* Collective operations of ranks through the store, with launcherd's own store in a separate
 * process. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "libddp/place.h"
#include "tests/lib/test.h"

enum { WORLD = 4, ROUNDS = 20 };
#define LIMIT_S 60.0

struct server {
    pid_t pid;
    int input; /* it ends when this closes */
};

static void set(const char *name, const char *value)
{
    CHECK_EQ(setenv(name, value, 1), 0); /* NOLINT(concurrency-mt-unsafe): before any thread */
}

static void serve(const char *program, const int in[2], const int out[2])
{
    if (dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 && close(in[1]) == 0)
        (void)execl(program, program, (char *)NULL);
    _exit(127);
}

static struct server start(void)
{
    const char *program = getenv("STORE_SERVER"); /* NOLINT(concurrency-mt-unsafe): as above */
    struct server server = {0};
    char line[128] = "";
    int in[2], out[2];
    FILE *output;

    CHECK(program != NULL);
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    server.pid = fork();
    CHECK(server.pid >= 0);
    if (server.pid == 0)
        serve(program, in, out);
    CHECK(close(in[0]) == 0 && close(out[1]) == 0);
    server.input = in[1];
    output = fdopen(out[0], "r");
    CHECK(output != NULL && fgets(line, sizeof line, output) != NULL);
    CHECK_EQ(fclose(output), 0);
    line[strcspn(line, "\n")] = '\0';
    CHECK(strncmp(line, "listening 127.0.0.1:", 20) == 0);
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", line + 20);
    return server;
}

static void stop(struct server *server)
{
    int status;

    CHECK_EQ(close(server->input), 0);
    CHECK_EQ(waitpid(server->pid, &status, 0), server->pid);
    CHECK_EQ(status, 0);
}

static struct ddp *open_rank(uint32_t rank, uint32_t world)
{
    const struct ddp_place place = {.rank = rank, .world = world, .generation = 1};
    struct ddp *ddp;

    CHECK_EQ(ddp_open_at(&ddp, &place, -1, NULL), STATUS_OK);
    return ddp;
}

struct rank {
    struct ddp *ddp;
    uint32_t rank;
    char failure[500];
};

#define EXPECT(rank, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)snprintf((rank)->failure, sizeof(rank)->failure, "line %d: %s: %.200s",          \
                           __LINE__, #condition, error.text);                                      \
            return NULL;                                                                           \
        }                                                                                          \
    } while (0)

/* Repeats all operations that every rank takes part in. */
static void *meet_often(void *owner)
{
    struct rank *rank = owner;
    struct ddp_error error = {.text = ""};
    char blob[DDP_BLOB_BYTES_MAX] = "unique id";
    size_t blob_bytes = rank->rank == 0 ? 10 : 0;
    uint64_t number;
    int64_t sum = 0;
    int any;

    if (rank->rank != 0)
        memset(blob, 0, sizeof blob);
    EXPECT(rank, ddp_join(rank->ddp, blob, &blob_bytes, sizeof blob, LIMIT_S, &error) == DDP_OK);
    EXPECT(rank, blob_bytes == 10 && strcmp(blob, "unique id") == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        number = rank->rank == 0 ? 1000 + i : 0;
        EXPECT(rank, ddp_broadcast(rank->ddp, &number, sizeof number, LIMIT_S, &error) == DDP_OK);
        EXPECT(rank, number == 1000 + i);
        EXPECT(rank, ddp_store_add(rank->ddp, "sum", 1, NULL, LIMIT_S, &error) == DDP_OK);
        EXPECT(rank, ddp_barrier(rank->ddp, LIMIT_S, &error) == DDP_OK);
        EXPECT(rank, ddp_store_add(rank->ddp, "sum", 0, &sum, LIMIT_S, &error) == DDP_OK);
        EXPECT(rank, sum == (int64_t)WORLD * (i + 1)); /* no rank is a round ahead */
        EXPECT(rank, ddp_any(rank->ddp, rank->rank == i % 8, &any, LIMIT_S, &error) == DDP_OK);
        EXPECT(rank, any == (i % 8 < WORLD));
    }
    return NULL;
}

static void run_ranks(struct rank *ranks, void *(*body)(void *))
{
    pthread_t threads[WORLD];

    for (uint32_t i = 0; i < WORLD; i++) {
        ranks[i] = (struct rank){.ddp = open_rank(i, WORLD), .rank = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, body, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < WORLD; i++)
        CHECK_STR(ranks[i].failure, "");
}

TEST(ranks_meet_and_leave_little_behind)
{
    struct server server = start();
    struct rank ranks[WORLD];
    char value[64];
    size_t byte_count = sizeof value;

    run_ranks(ranks, meet_often);
    /* the keys of the first barrier are deleted, those of the last one exist */
    CHECK_EQ(ddp_store_get(ranks[0].ddp, "libddp/ranks/0/all", value, &byte_count, 0, NULL),
             DDP_TIMEOUT);
    CHECK_EQ(ddp_store_get(ranks[0].ddp, "libddp/bytes/0", value, &byte_count, 0, NULL),
             DDP_TIMEOUT);
    for (uint32_t i = 0; i < WORLD; i++)
        ddp_leave(&ranks[i].ddp);
    stop(&server);
}

TEST(keys_are_those_of_other_clients)
{
    struct server server = start();
    struct ddp *one = open_rank(0, 2), *other = open_rank(1, 2);
    char value[8] = "";
    size_t byte_count = sizeof value;
    struct ddp_error error = {.text = ""};
    int64_t sum;

    CHECK_EQ(ddp_store_get(one, "late", value, &byte_count, 0.05, &error), DDP_TIMEOUT);
    CHECK(strstr(error.text, "late") != NULL);
    CHECK_EQ(ddp_store_set(other, "late", "a\0b", 3, LIMIT_S, &error), DDP_OK);
    CHECK_EQ(ddp_store_get(one, "late", value, &byte_count, LIMIT_S, &error), DDP_OK);
    CHECK_EQ(byte_count, 3);
    CHECK_BYTES(value, "a\0b", 3);
    CHECK_EQ(ddp_store_set(other, "long", "0123456789", 10, LIMIT_S, &error), DDP_OK);
    byte_count = 4;
    CHECK_EQ(ddp_store_get(one, "long", value, &byte_count, LIMIT_S, &error), DDP_TOO_BIG);
    CHECK_EQ(byte_count, 10);
    CHECK_EQ(ddp_store_add(one, "n", -5, &sum, LIMIT_S, &error), DDP_OK); /* still connected */
    CHECK_EQ(sum, -5);
    CHECK_EQ(ddp_store_add(one, "late", 1, &sum, LIMIT_S, &error), DDP_CLOSED);
    CHECK_EQ(ddp_store_add(one, "n", 1, &sum, LIMIT_S, &error), DDP_OK); /* it connects again */
    CHECK_EQ(sum, -4);
    CHECK_EQ(ddp_store_set(one, "", "", 0, LIMIT_S, &error), DDP_BAD_INPUT);
    CHECK_EQ(ddp_store_get(one, "n", value, &byte_count, (double)__builtin_nanf(""), &error),
             DDP_BAD_INPUT);
    ddp_leave(&one);
    ddp_leave(&other);
    stop(&server);
}

static void *come_late(void *owner)
{
    struct rank *rank = owner;
    struct ddp_error error = {.text = ""};

    EXPECT(rank, ddp_barrier(rank->ddp, LIMIT_S, &error) == DDP_OK);
    return NULL;
}

TEST(a_barrier_that_timed_out_goes_on)
{
    struct server server = start();
    struct rank late = {.ddp = open_rank(1, 2), .rank = 1};
    struct ddp *ddp = open_rank(0, 2);
    struct ddp_error error = {.text = ""};
    pthread_t thread;

    CHECK_EQ(ddp_barrier(ddp, 0.02, &error), DDP_TIMEOUT);
    CHECK(strstr(error.text, "not all of 2 ranks") != NULL);
    CHECK_EQ(ddp_barrier(ddp, 0, &error), DDP_TIMEOUT);
    CHECK_EQ(pthread_create(&thread, NULL, come_late, &late), 0);
    CHECK_EQ(ddp_barrier(ddp, LIMIT_S, &error), DDP_OK);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_STR(late.failure, "");
    ddp_leave(&ddp);
    ddp_leave(&late.ddp);
    stop(&server);
}

static void *vote_to_stop(void *owner)
{
    struct rank *rank = owner;
    struct ddp_error error = {.text = ""};
    int any = 0;

    EXPECT(rank, ddp_any(rank->ddp, ddp_should_stop(rank->ddp, NULL) != DDP_GO_ON, &any, LIMIT_S,
                         &error) == DDP_OK);
    EXPECT(rank, any == 1);
    return NULL;
}

TEST(ranks_agree_on_a_stop_that_was_caught)
{
    struct server server = start();
    struct rank late = {.ddp = open_rank(1, 2), .rank = 1};
    struct ddp *ddp = open_rank(0, 2);
    pthread_t thread;
    int any = 0;

    CHECK_EQ(ddp_catch_signals(ddp, NULL), DDP_OK);
    CHECK_EQ(ddp_any(ddp, 0, &any, 0.02, NULL), DDP_TIMEOUT);
    CHECK_EQ(raise(SIGTERM), 0);
    CHECK_EQ(ddp_should_stop(ddp, NULL), DDP_STOP_SIGNAL);
    CHECK_EQ(pthread_create(&thread, NULL, vote_to_stop, &late), 0);
    CHECK_EQ(ddp_any(ddp, 0, &any, LIMIT_S, NULL), DDP_OK);
    CHECK_EQ(any, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_STR(late.failure, "");
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 1); /* for the signal */
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 1); /* for the stop */
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 0);
    ddp_leave(&ddp);
    ddp_leave(&late.ddp);
    stop(&server);
}

/* A server that sends given bytes once. */
struct rude {
    int fd;
    const char *bytes;
    size_t byte_count;
};

static void *answer_rudely(void *owner)
{
    const struct rude *rude = owner;
    const int fd = accept(rude->fd, NULL, NULL);
    char bytes[256];

    if (fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0)
        (void)send(fd, rude->bytes, rude->byte_count, MSG_NOSIGNAL);
    if (fd >= 0)
        (void)close(fd);
    (void)close(rude->fd);
    return NULL;
}

static enum ddp_status ask_rude(const char *bytes, size_t byte_count, struct ddp_error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof address;
    struct rude rude = {socket(AF_INET, SOCK_STREAM, 0), bytes, byte_count};
    struct ddp *ddp = open_rank(0, 2);
    enum ddp_status status;
    pthread_t thread;
    char port[16];

    CHECK_EQ(bind(rude.fd, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(listen(rude.fd, 1), 0);
    CHECK_EQ(getsockname(rude.fd, (struct sockaddr *)&address, &address_bytes), 0);
    (void)snprintf(port, sizeof port, "%u", ntohs(address.sin_port));
    set("MASTER_PORT", port);
    CHECK_EQ(pthread_create(&thread, NULL, answer_rudely, &rude), 0);
    status = ddp_store_add(ddp, "n", 1, NULL, 0.3, error);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    ddp_leave(&ddp);
    return status;
}

TEST(a_server_that_is_no_store_is_named)
{
    struct ddp_error error = {.text = ""};
    struct ddp *ddp;

    set("MASTER_ADDR", "127.0.0.1");
    CHECK_EQ(ask_rude("HTTP/1.1 400 Bad Request\r\n", 26, &error), DDP_TIMEOUT);
    CHECK(strstr(error.text, "no c10d store at 127.0.0.1:") != NULL);
    CHECK_EQ(ask_rude("\1", 1, &error), DDP_TIMEOUT);
    CHECK_EQ(unsetenv("MASTER_PORT"), 0); /* NOLINT(concurrency-mt-unsafe): no thread now */
    ddp = open_rank(0, 2);
    CHECK_EQ(ddp_barrier(ddp, LIMIT_S, &error), DDP_UNSUPPORTED);
    CHECK(strstr(error.text, "MASTER_PORT") != NULL);
    ddp_leave(&ddp);
}

TEST(alone_needs_no_store)
{
    struct ddp *ddp;
    uint64_t number = 7;
    size_t byte_count = 3;
    char blob[8] = "abc";
    int any = 0;

    CHECK_EQ(unsetenv("MASTER_ADDR"), 0); /* NOLINT(concurrency-mt-unsafe): no thread now */
    ddp = open_rank(0, 1);
    CHECK_EQ(ddp_join(ddp, blob, &byte_count, sizeof blob, LIMIT_S, NULL), DDP_OK);
    CHECK_EQ(byte_count, 3);
    CHECK_EQ(ddp_barrier(ddp, LIMIT_S, NULL), DDP_OK);
    CHECK_EQ(ddp_broadcast(ddp, &number, sizeof number, LIMIT_S, NULL), DDP_OK);
    CHECK_EQ(ddp_any(ddp, 1, &any, LIMIT_S, NULL), DDP_OK);
    CHECK_EQ(any, 1);
    CHECK_EQ(number, 7);
    ddp_leave(&ddp);
}

TEST_MAIN
