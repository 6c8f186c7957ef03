#include "tests/lib/etcd_member.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "rendezvous/store/etcd_client.h"
#include "tests/lib/test.h"

#define START_US 120000000u
#define STARTS_MAX 5 /* another program may take the port meanwhile */

/* A port that is free now. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

__attribute__((noreturn)) static void run_etcd(const struct etcd_member *member, const char *option)
{
    char data[600], log[600], listens[96], advertises[96];
    const char *const argv[] = {"etcd",
                                "--name=one",
                                data,
                                listens,
                                advertises,
                                "--listen-peer-urls=http://127.0.0.1:0",
                                "--initial-advertise-peer-urls=http://127.0.0.1:1",
                                "--initial-cluster=one=http://127.0.0.1:1",
                                "--heartbeat-interval=20",
                                "--election-timeout=100",
                                "--unsafe-no-fsync", /* no test cuts a machine's power here */
                                option,
                                NULL};
    int fd;

    (void)snprintf(data, sizeof data, "--data-dir=%.500s/etcd-%u", test_dir(), member->port);
    (void)snprintf(log, sizeof log, "%.500s/etcd.log", test_dir());
    (void)snprintf(listens, sizeof listens, "--listen-client-urls=http://127.0.0.1:%u",
                   member->port);
    (void)snprintf(advertises, sizeof advertises, "--advertise-client-urls=http://127.0.0.1:%u",
                   member->port);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)dup2(fd, 1);
    (void)dup2(fd, 2);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* True: etcd has ended. */
static bool has_ended(struct etcd_member *member, int *code)
{
    int status;

    if (waitpid(member->pid, &status, WNOHANG) != member->pid)
        return false;
    member->pid = 0;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return true;
}

static bool answers(const struct etcd_member *member)
{
    struct etcd_options options;
    struct etcd_client *client;
    struct etcd_health health;
    char prefix[ETCD_PREFIX_BYTES_MAX];
    enum status status;
    struct err err;

    CHECK_EQ(etcd_url_parse(member->url, &options, prefix, &err), STATUS_OK);
    if (etcd_open(&client, &options, &err) != STATUS_OK)
        FAIL("etcd_open: %s", err.text);
    status = etcd_health(client, clock_boot_us() + 1000000, &health, &err);
    etcd_close(&client);
    return status == STATUS_OK;
}

/* False: etcd ended, for example because its port was taken. */
static bool start(struct etcd_member *member, const char *option)
{
    uint64_t until_us = clock_boot_us() + START_US;
    int code = 0;

    (void)snprintf(member->url, sizeof member->url, "etcd://127.0.0.1:%u", member->port);
    member->pid = fork();
    CHECK(member->pid >= 0);
    if (member->pid == 0)
        run_etcd(member, option);
    while (!answers(member)) {
        if (has_ended(member, &code)) {
            if (code == 127)
                SKIP("etcd is not installed (Debian: etcd-server)");
            return false;
        }
        if (clock_boot_us() > until_us)
            FAIL("etcd does not answer within %u s", START_US / 1000000);
    }
    return true;
}

void etcd_member_start(struct etcd_member *member, const char *option)
{
    (void)test_dir(); /* made here, not by etcd's process */
    for (int i = 0; i < STARTS_MAX; i++) {
        member->port = free_port();
        if (start(member, option))
            return;
    }
    FAIL("etcd does not start: see etcd.log in %s", test_dir());
}

void etcd_member_again(struct etcd_member *member, const char *option)
{
    for (int i = 0; i < STARTS_MAX; i++)
        if (start(member, option))
            return;
    FAIL("etcd does not start again: see etcd.log in %s", test_dir());
}

void etcd_member_kill(struct etcd_member *member)
{
    CHECK(member->pid > 0 && kill(member->pid, SIGKILL) == 0);
    CHECK(waitpid(member->pid, NULL, 0) == member->pid);
    member->pid = 0;
}

/* `cp` and its arguments, or `rm`. */
static void run(const char *const argv[])
{
    int status = -1;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

void etcd_member_keep(const struct etcd_member *member, const char *name)
{
    char from[600], to[600];

    (void)snprintf(from, sizeof from, "%.500s/etcd-%u", test_dir(), member->port);
    (void)snprintf(to, sizeof to, "%.500s/%.80s", test_dir(), name);
    run((const char *const[]){"cp", "-a", from, to, NULL});
}

void etcd_member_put_back(const struct etcd_member *member, const char *name)
{
    char from[600], to[600];

    (void)snprintf(from, sizeof from, "%.500s/%.80s", test_dir(), name);
    (void)snprintf(to, sizeof to, "%.500s/etcd-%u", test_dir(), member->port);
    run((const char *const[]){"rm", "-r", to, NULL});
    run((const char *const[]){"cp", "-a", from, to, NULL});
}

void etcd_member_pause(const struct etcd_member *member)
{
    CHECK(member->pid > 0 && kill(member->pid, SIGSTOP) == 0);
}

void etcd_member_continue(const struct etcd_member *member)
{
    CHECK(member->pid > 0 && kill(member->pid, SIGCONT) == 0);
}
