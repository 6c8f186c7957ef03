/* A restore into etcd where something leads already: what is said. */
#include "rendezvous/server/transfer.h"

#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "rendezvous/store/etcd_client.h"
#include "tests/lib/etcd_lead.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/test.h"

static struct etcd_member member;
static struct err err;

static enum status run(const char *file, bool is_restore, bool is_etcd)
{
    const struct transfer_options options = {.path = file,
                                             .is_restore = is_restore,
                                             .state_dir = test_dir(),
                                             .etcd.url = is_etcd ? member.url : NULL};

    return transfer_run(&options, &err);
}

static void lead_as(const char *value)
{
    struct etcd_op op = {
        .kind = ETCD_PUT, .key = etcd_text("/ddp/leader"), .value = etcd_text(value)};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_client *client = etcd_lead_connect(member.port);
    struct etcd_answer answer;
    struct arena arena = {0};

    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + 30000000, &arena, &answer, &err),
             STATUS_OK);
    arena_reset(&arena);
    etcd_close(&client);
}

TEST(who_leads_is_said)
{
    char file[600];

    etcd_member_start(&member, NULL);
    (void)snprintf(file, sizeof file, "%.500s/b", test_dir());
    CHECK_EQ(run(NULL, true, false), STATUS_OK);
    CHECK_EQ(run(file, false, false), STATUS_OK);
    lead_as("10.0.0.7:29400\nhead7");
    CHECK_EQ(run(file, true, true), STATUS_BUSY);
    CHECK(strstr(err.text, "a server leads on this etcd (10.0.0.7:29400): stop all servers") !=
          NULL);
    lead_as(
        "none\nddpctl restore"); /* as a restore that was killed leaves it, until its lease ends */
    CHECK_EQ(run(file, true, true), STATUS_BUSY);
    CHECK_STR(err.text,
              "a ddpctl restore of the state on this etcd is under way, or was interrupted "
              "in the last 60 s: let it end, or try again in 60 s");
    etcd_member_kill(&member);
}

TEST_MAIN
