/* Ranks connect although strangers call; a rank that does not come or does not belong is named. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/comm/group.h"
#include "tests/lib/test.h"
#include "worker/comm/wire.h"

#define STRANGERS 200

static int meet(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    float sum = 1.0F;
    struct err err = {.text = ""};
    enum status status = comm_all_reduce_sum(comm, &sum, 1, &err);

    (void)rank;
    (void)user;
    if (status != STATUS_OK)
        (void)dprintf(out, "%s\n", err.text);
    return status == STATUS_OK && sum == (float)world ? 0 : 1;
}

static int call_rank_0(const struct group *group)
{
    struct comm_identity identity;
    struct comm_place place;
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK_EQ(comm_blob_decode(&group->blob, &identity, &place, NULL), STATUS_OK);
    CHECK_STR(place.host, "127.0.0.1");
    address.sin_port = htons(place.port);
    CHECK_EQ(inet_pton(AF_INET, place.host, &address.sin_addr), 1);
    CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_all(int fd, const void *bytes, size_t byte_count)
{
    CHECK_EQ(send(fd, bytes, byte_count, MSG_NOSIGNAL), byte_count);
}

/* A hello that is right except for one field. */
static void say_hello(const struct group *group, int fd, uint32_t round)
{
    struct comm_hello hello = {.kind = COMM_HELLO_STAR, .rank = 1};
    uint8_t bytes[COMM_HELLO_BYTES];

    CHECK_EQ(comm_blob_decode(&group->blob, &hello.identity, &hello.place, NULL), STATUS_OK);
    switch (round % 4) {
    case 0:
        hello.identity.secret[15] ^= 0x80;
        break;
    case 1:
        hello.identity.job_id++;
        break;
    case 2:
        hello.identity.generation--;
        break;
    default:
        hello.kind = COMM_HELLO_MESH; /* too early */
        break;
    }
    comm_hello_encode(&hello, bytes);
    send_all(fd, bytes, sizeof bytes);
}

/* Strangers that are silent or send half hellos, garbage or wrong secrets; they stay connected. */
TEST(strangers_do_not_disturb)
{
    struct group group = group_of(4, meet, NULL);
    static int fds[STRANGERS];
    static const char garbage[4096] = "GET / HTTP/1.1\r\n\r\n";
    uint64_t begin_us = group_now_us();

    group_start(&group);
    for (uint32_t i = 0; i < STRANGERS; i++) {
        fds[i] = call_rank_0(&group);
        if (i % 4 == 1)
            send_all(fds[i], garbage, sizeof garbage);
        else if (i % 4 == 2)
            send_all(fds[i], group.blob.bytes, 20);
        else if (i % 4 == 3)
            say_hello(&group, fds[i], i / 4);
    }
    group_release(&group);
    for (uint32_t i = 0; i < 4; i++)
        if (group_wait(&group, i) != 0)
            FAIL("rank %u: %s", i, group.texts[i]);
    for (uint32_t i = 0; i < STRANGERS; i++)
        (void)close(fds[i]);
    CHECK(group_now_us() - begin_us < 60000000);
}

/* Starts all ranks, which then wait for each other for five seconds. */
static void start_for_5_s(struct group *group)
{
    group->timeout_us = 5000000;
    group_start(group);
    group_release(group);
}

TEST(wrong_secret_is_refused_and_names_who_is_missing)
{
    struct group group = group_of(3, meet, NULL);

    group.alien = 2;
    start_for_5_s(&group);
    CHECK_EQ(group_wait(&group, 2), 2);
    CHECK(strstr(group.texts[2], "REFUSED: rank 0 refused rank 2: wrong secret") != NULL);
    CHECK_EQ(group_wait(&group, 0), 2);
    CHECK(strstr(group.texts[0], "TIMEOUT: 1 of 3 ranks did not come within 5.0 s: rank 2;") !=
          NULL);
    CHECK_EQ(group_wait(&group, 1), 2);
    CHECK(strstr(group.texts[1], "TIMEOUT: rank 2 did not come in time, says rank 0") != NULL);
}

TEST(absent_rank_is_named)
{
    struct group group = group_of(4, meet, NULL);

    group.absent = 1;
    start_for_5_s(&group);
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 1)
            continue;
        CHECK_EQ(group_wait(&group, i), 2);
        CHECK(strstr(group.texts[i], "TIMEOUT: ") != NULL);
        CHECK(strstr(group.texts[i], "rank 1") != NULL);
    }
}

TEST(rank_0_dead_before_the_others_come)
{
    struct group group = group_of(3, meet, NULL);

    group_start(&group);
    CHECK_EQ(kill(group.pids[0], SIGKILL), 0);
    CHECK_EQ(group_wait(&group, 0), 128 + SIGKILL);
    group_release(&group);
    for (uint32_t i = 1; i < 3; i++) {
        CHECK_EQ(group_wait(&group, i), 2);
        CHECK(strstr(group.texts[i], "PEER_LOST: rank 0 ") != NULL);
    }
}

/* A rank dies after its hello, while the others still wait for another rank. */
TEST(rank_dead_during_bring_up)
{
    struct group group = group_of(3, meet, NULL);
    struct comm_hello hello = {.kind = COMM_HELLO_STAR, .rank = 1};
    uint8_t bytes[COMM_HELLO_BYTES];
    int fd;

    group.absent = 1; /* this test acts as rank 1 */
    group_start(&group);
    fd = call_rank_0(&group);
    CHECK_EQ(comm_blob_decode(&group.blob, &hello.identity, &hello.place, NULL), STATUS_OK);
    comm_hello_encode(&hello, bytes);
    send_all(fd, bytes, sizeof bytes);
    (void)close(fd);
    CHECK_EQ(group_wait(&group, 0), 2);
    CHECK(strstr(group.texts[0],
                 "PEER_LOST: rank 1 was lost (connection closed) before all ranks had come") !=
          NULL);
    group_release(&group);
    CHECK_EQ(group_wait(&group, 2), 2);
    CHECK(strstr(group.texts[2], "PEER_LOST: rank ") != NULL);
}

TEST(options_that_cannot_be)
{
    struct comm_options options = {.rank = 3, .world = 2, .address = "127.0.0.1", .timeout_us = 1};
    struct comm_blob blob = {.byte_count = 3};
    struct comm *comm = NULL;
    struct err err;

    CHECK_EQ(comm_connect(&comm, &options, &blob, &err), STATUS_BAD_INPUT);
    options.rank = 1;
    CHECK_EQ(comm_connect(&comm, &options, &blob, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "is not one") != NULL);
    options.rank = 0;
    options.address = "not an address";
    CHECK_EQ(comm_open(&comm, &options, &blob, &err), STATUS_BAD_INPUT);
    CHECK(comm == NULL);
    options.address = "127.0.0.1";
    CHECK_EQ(comm_open(&comm, &options, &blob, &err), STATUS_OK);
    comm_close(&comm);
    CHECK(comm == NULL);
}

/* True: somebody listens on 127.0.0.1, on the port of a rank 0 of 127.0.0.2. */
static bool is_open_elsewhere(void)
{
    struct comm_options options = {
        .rank = 0, .world = 2, .address = "127.0.0.2", .timeout_us = 1000};
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct comm_identity identity;
    struct comm_place place;
    struct comm_blob blob;
    struct comm *comm = NULL;
    struct err err;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_open;

    CHECK_EQ(comm_open(&comm, &options, &blob, &err), STATUS_OK);
    CHECK_EQ(comm_blob_decode(&blob, &identity, &place, &err), STATUS_OK);
    CHECK_STR(place.host, "127.0.0.2");
    address.sin_port = htons(place.port);
    CHECK_EQ(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
    is_open = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    (void)close(fd);
    comm_close(&comm);
    return is_open;
}

/* The port is open on the requested address only. Another program may have the same port on the
 * other address, but not every port that the kernel chooses. */
TEST(listens_on_its_address_alone)
{
    int opens = 0;

    while (opens < 5 && is_open_elsewhere())
        opens++;
    CHECK(opens < 5);
}

/* The blob of another generation is refused. */
TEST(blob_of_another_generation)
{
    struct comm_options options = {
        .rank = 0, .world = 2, .generation = 4, .address = "127.0.0.1", .timeout_us = 1000};
    struct comm_blob blob;
    struct comm *first = NULL, *other = NULL;
    struct err err;

    CHECK_EQ(comm_open(&first, &options, &blob, &err), STATUS_OK);
    options.rank = 1;
    options.generation = 5;
    CHECK_EQ(comm_connect(&other, &options, &blob, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "generation 5") != NULL && strstr(err.text, "generation 4") != NULL);
    CHECK(other == NULL);
    comm_close(&first);
}

TEST_MAIN
