/* One server's part of the election, against answers of etcd written by hand. tests/sim/election.c plays several. */
#include "rendezvous/core/leader.h"

#include "tests/lib/test.h"

#define LEASE_US 4000000u
#define UNTIL_US (LEASE_US - LEASE_US / LEADER_MARGIN) /* after the sending */
#define OURS 7u

static struct leader leader;
static uint64_t now_us, sent_us;

static struct leader_action step(struct leader_event event)
{
    struct leader_action action;

    event.now_us = now_us;
    event.sent_us = sent_us;
    action = leader_step(&leader, &event);
    if (action.request != LEADER_WAIT)
        sent_us = now_us;
    return action;
}

static struct leader_action tick(void)
{
    return step((struct leader_event){.type = LEADER_EVENT_TICK});
}

static struct leader_action granted(void)
{
    return step((struct leader_event){
        .type = LEADER_EVENT_ANSWER, .is_ok = true, .lease_id = OURS, .ttl_us = LEASE_US});
}

static struct leader_action done(void)
{
    return step(
        (struct leader_event){.type = LEADER_EVENT_ANSWER, .is_ok = true, .ttl_us = LEASE_US});
}

static struct leader_action failed(void)
{
    return step((struct leader_event){.type = LEADER_EVENT_ANSWER});
}

static struct leader_action key(uint64_t lease_id, uint64_t revision)
{
    return step((struct leader_event){.type = LEADER_EVENT_ANSWER,
                                      .is_ok = true,
                                      .has_key = lease_id != 0,
                                      .key_lease_id = lease_id,
                                      .key_revision = revision});
}

/* Has a lease and is announced; the first READ is pending. */
static void begin(void)
{
    now_us = 1000000;
    leader_init(&leader, LEASE_US, 1);
    CHECK_EQ(tick().request, LEADER_GRANT);
    CHECK_EQ(granted().request, LEADER_READ);
}

/* Leads with revision 11; the last request was sent at sent_us, 1 s. */
static void lead(void)
{
    begin();
    CHECK_EQ(key(0, 0).request, LEADER_CLAIM);
    CHECK_EQ(key(OURS, 11).request, LEADER_ANNOUNCE);
    CHECK_EQ(done().request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_LEADING);
    CHECK_EQ(leader.revision, 11);
}

/* Lets time pass until the next request. */
static enum leader_request next(void)
{
    struct leader_action action = tick();

    for (int i = 0; i < 100 && action.request == LEADER_WAIT; i++) {
        if (action.at_us == UINT64_MAX)
            return LEADER_WAIT;
        CHECK(action.at_us > now_us); /* no timer spins */
        now_us = action.at_us;
        action = tick();
    }
    return action.request;
}

TEST(a_free_key_is_claimed)
{
    lead();
    CHECK(leader_may_act(&leader, now_us));
}

TEST(a_taken_key_is_read_again_and_again)
{
    begin();
    CHECK_EQ(key(3, 5).request, LEADER_ANNOUNCE);
    CHECK_EQ(done().request, LEADER_WAIT);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(next(), LEADER_READ);
        CHECK_EQ(key(3, 5).request, LEADER_WAIT);
        CHECK_EQ(leader.current, 3);
    }
    CHECK_EQ(leader.state, LEADER_STANDBY);
    CHECK(!leader_may_act(&leader, now_us));
}

TEST(somebody_else_was_faster)
{
    begin();
    CHECK_EQ(key(0, 0).request, LEADER_CLAIM);
    CHECK_EQ(key(3, 5).request, LEADER_ANNOUNCE);
    CHECK_EQ(leader.state, LEADER_STANDBY);
}

/* The delay between seeing the key gone and claiming it, while the server still reads the rows; the
 * key stays free. */
static uint64_t claimed_after_us(uint32_t missing_pm)
{
    const uint64_t step_us = 10000;
    uint64_t free_us;
    struct leader_action action;

    begin();
    free_us = now_us;
    action = step((struct leader_event){
        .type = LEADER_EVENT_ANSWER, .is_ok = true, .missing_pm = missing_pm});
    while (action.request != LEADER_CLAIM && now_us < free_us + 10 * LEASE_US) {
        struct leader_event event = {.type = LEADER_EVENT_TICK, .missing_pm = missing_pm};

        now_us += step_us;
        if (action.request != LEADER_WAIT)
            event = (struct leader_event){.type = LEADER_EVENT_ANSWER,
                                          .is_ok = true,
                                          .ttl_us = LEASE_US,
                                          .missing_pm = missing_pm};
        action = step(event);
    }
    return now_us - free_us;
}

/* A server that has more of the rows claims earlier; one that has none claims too. */
TEST(it_waits_by_the_rows_that_it_has_still_to_read)
{
    const uint64_t most_us = LEADER_BEHIND_US + LEASE_US, quarter_us = LEASE_US / 4;

    CHECK_EQ(claimed_after_us(0), 0);
    CHECK_NEAR(claimed_after_us(1), LEADER_BEHIND_US, 50000);
    CHECK_NEAR(claimed_after_us(250), LEADER_BEHIND_US + quarter_us, 50000);
    CHECK_NEAR(claimed_after_us(750), LEADER_BEHIND_US + 3 * quarter_us, 50000);
    CHECK_NEAR(claimed_after_us(1000), most_us, 50000);
}

/* The server had none of the rows and has them now, so it need not wait. */
TEST(it_claims_when_it_has_the_rows)
{
    begin();
    CHECK(
        step((struct leader_event){.type = LEADER_EVENT_ANSWER, .is_ok = true, .missing_pm = 1000})
            .request == LEADER_ANNOUNCE);
    now_us += 700000; /* more than LEADER_BEHIND_US */
    CHECK(
        step((struct leader_event){
                 .type = LEADER_EVENT_ANSWER, .is_ok = true, .ttl_us = LEASE_US, .missing_pm = 900})
            .request == LEADER_READ);
    CHECK_EQ(key(0, 0).request, LEADER_CLAIM);
}

TEST(the_lease_counts_from_the_sending)
{
    now_us = 1000000;
    leader_init(&leader, LEASE_US, 1);
    (void)tick();
    now_us += 1100000;                         /* the answer takes this long */
    CHECK_EQ(granted().request, LEADER_RENEW); /* that is due already */
    CHECK_EQ(leader.until_us, 1000000 + UNTIL_US);
    now_us += 500000;
    CHECK_EQ(done().request, LEADER_READ);
    CHECK_EQ(leader.until_us, 2100000 + UNTIL_US);
}

TEST(it_stops_before_its_lease_ends)
{
    lead();
    now_us = 1000000 + UNTIL_US - 1;
    CHECK(leader_may_act(&leader, now_us));
    now_us++;
    CHECK(!leader_may_act(&leader, now_us)); /* before any step */
    CHECK_EQ(tick().request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

TEST(renewals_that_fail_end_it_in_time)
{
    int tries = 0;

    lead();
    while (leader.state == LEADER_LEADING && tries < 100) {
        enum leader_request request = next();

        if (request == LEADER_WAIT)
            break;
        now_us += 10000;
        tries += request == LEADER_RENEW;
        (void)failed();
    }
    CHECK_EQ(leader.state, LEADER_ENDED);
    CHECK(tries >= 3);
    CHECK(now_us <= 1000000 + UNTIL_US + 10000);
}

/* The answer comes after the end of the lease by our own clock: too late to continue as leader,
 * although the lease was renewed. */
TEST(a_late_answer_does_not_revive_it)
{
    lead();
    CHECK(next() != LEADER_WAIT);
    while (leader.asked != LEADER_RENEW) {
        (void)key(OURS, 11);
        (void)next();
    }
    now_us = 1000000 + UNTIL_US;
    CHECK(!leader_may_act(&leader, now_us));
    sent_us = now_us - 10;
    CHECK_EQ(step((struct leader_event){.type = LEADER_EVENT_TICK}).request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
    CHECK_EQ(done().request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
    CHECK(!leader_may_act(&leader, now_us));
}

TEST(a_key_that_was_removed_ends_it)
{
    lead();
    while (next() == LEADER_RENEW)
        (void)done();
    CHECK_EQ(leader.asked, LEADER_READ);
    CHECK_EQ(key(0, 0).request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

TEST(a_key_that_was_made_anew_ends_it)
{
    lead();
    while (next() == LEADER_RENEW)
        (void)done();
    CHECK_EQ(key(OURS, 12).request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

/* The claim was carried out, its answer was lost. */
TEST(a_claim_without_an_answer_is_found)
{
    begin();
    CHECK_EQ(key(0, 0).request, LEADER_CLAIM);
    now_us += 200000;
    CHECK_EQ(failed().request, LEADER_WAIT);
    CHECK_EQ(next(), LEADER_CLAIM);
    CHECK_EQ(key(OURS, 11).request, LEADER_ANNOUNCE);
    CHECK_EQ(leader.state, LEADER_LEADING);
}

/* The key is ours, but the lease may have ended: renew first. */
TEST(a_claim_that_took_the_whole_lease_leads_to_nothing)
{
    begin();
    CHECK_EQ(key(0, 0).request, LEADER_CLAIM);
    now_us = 1000000 + UNTIL_US;
    CHECK_EQ(key(OURS, 11).request, LEADER_RENEW);
    CHECK_EQ(leader.state, LEADER_STANDBY);
    CHECK_EQ(done().request, LEADER_READ);
    CHECK_EQ(key(OURS, 11).request, LEADER_ANNOUNCE);
    CHECK_EQ(leader.state, LEADER_LEADING);
}

TEST(a_standby_whose_lease_is_gone_gets_another)
{
    begin();
    (void)key(3, 5);
    (void)done();
    while (next() == LEADER_READ)
        (void)key(3, 5);
    CHECK_EQ(leader.asked, LEADER_RENEW);
    CHECK_EQ(step((struct leader_event){.type = LEADER_EVENT_ANSWER, .is_ok = true}).request,
             LEADER_GRANT);
    CHECK_EQ(leader.state, LEADER_STANDBY);
    CHECK_EQ(
        step((struct leader_event){
                 .type = LEADER_EVENT_ANSWER, .is_ok = true, .lease_id = 8, .ttl_us = LEASE_US})
            .request,
        LEADER_ANNOUNCE); /* under the new lease */
}

TEST(a_leader_whose_lease_is_gone_ends)
{
    lead();
    while (next() == LEADER_READ)
        (void)key(OURS, 11);
    CHECK_EQ(leader.asked, LEADER_RENEW);
    (void)step((struct leader_event){.type = LEADER_EVENT_ANSWER, .is_ok = true});
    CHECK_EQ(leader.state, LEADER_ENDED);
}

/* The loop stands still: whoever leads is to serve. */
TEST(a_leader_whose_loop_stands_still_does_not_renew)
{
    struct leader_event silent = {.type = LEADER_EVENT_TICK, .silent_us = LEASE_US};
    struct leader_action action;

    lead();
    now_us = 1000000 + LEASE_US / 2;
    action = step(silent);
    CHECK_EQ(action.request, LEADER_WAIT);
    CHECK(action.at_us > now_us && action.at_us <= now_us + LEADER_READ_US_MAX);
    silent.silent_us = LEASE_US - 1;
    CHECK_EQ(step(silent).request, LEADER_RENEW); /* it has come back in time */
    CHECK_EQ(done().request, LEADER_READ);
    CHECK_EQ(key(OURS, 11).request, LEADER_WAIT);
    now_us += UNTIL_US;
    silent.silent_us = 2 * LEASE_US;
    CHECK_EQ(step(silent).request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

TEST(a_standby_whose_loop_stands_still_does_not_claim)
{
    begin();
    sent_us = now_us;
    CHECK_EQ(step((struct leader_event){
                      .type = LEADER_EVENT_ANSWER, .is_ok = true, .silent_us = LEASE_US})
                 .request,
             LEADER_WAIT);
    CHECK_EQ(tick().request, LEADER_CLAIM);
}

TEST(it_resigns)
{
    lead();
    CHECK_EQ(step((struct leader_event){.type = LEADER_EVENT_RESIGN}).request, LEADER_REVOKE);
    CHECK(!leader_may_act(&leader, now_us));
    CHECK_EQ(done().request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

TEST(it_resigns_once_the_request_at_hand_is_answered)
{
    begin();
    CHECK_EQ(step((struct leader_event){.type = LEADER_EVENT_RESIGN}).request, LEADER_WAIT);
    CHECK_EQ(key(0, 0).request, LEADER_REVOKE); /* it does not claim the key */
    CHECK_EQ(failed().request, LEADER_WAIT);
    CHECK_EQ(leader.state, LEADER_ENDED);
}

TEST_MAIN
