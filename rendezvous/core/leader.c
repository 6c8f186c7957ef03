#include "rendezvous/core/leader.h"

#include <assert.h>
#include <string.h>

#define RETRY_US_MAX 1000000u

void leader_init(struct leader *leader, uint64_t lease_us, uint64_t seed)
{
    assert(lease_us >= LEADER_LEASE_MIN_US);
    memset(leader, 0, sizeof *leader);
    leader->lease_wanted_us = leader->lease_us = lease_us;
    leader->draw = draw_begin(seed, 0);
}

bool leader_may_act(const struct leader *leader, uint64_t now_us)
{
    return leader->state == LEADER_LEADING && !leader->is_resigning && now_us < leader->until_us;
}

bool leader_is_stuck(const struct leader *leader, uint64_t silent_us)
{
    return silent_us >= leader->lease_us;
}

static uint64_t renew_every_us(const struct leader *leader)
{
    return leader->lease_us / LEADER_RENEWALS;
}

/* Between half of `us` and `us`, so that servers that started together do not stay in step. */
static uint64_t jitter(struct leader *leader, uint64_t us)
{
    return us / 2 + draw_u64(&leader->draw) % (us / 2 + 1);
}

static uint64_t read_every_us(const struct leader *leader)
{
    const uint64_t us = leader->lease_us / 10;

    return us < LEADER_READ_US_MIN   ? LEADER_READ_US_MIN
           : us > LEADER_READ_US_MAX ? LEADER_READ_US_MAX
                                     : us;
}

static void drop_lease(struct leader *leader)
{
    leader->lease_id = 0;
    leader->is_announced = leader->may_claim = false;
    leader->until_us = 0;
}

/* etcd started to count the lease after `sent_us`. */
static void count_lease(struct leader *leader, const struct leader_event *event)
{
    leader->lease_us = event->ttl_us;
    leader->until_us = event->sent_us + event->ttl_us - event->ttl_us / LEADER_MARGIN;
    leader->renew_at_us = event->sent_us + renew_every_us(leader);
}

/* Takes the state of the leader key that CLAIM or READ found. */
static void on_key(struct leader *leader, const struct leader_event *event)
{
    const bool is_ours =
        event->has_key && leader->lease_id != 0 && event->key_lease_id == leader->lease_id;

    leader->current = event->has_key ? event->key_lease_id : 0;
    leader->read_at_us = event->now_us + jitter(leader, read_every_us(leader));
    leader->may_claim = !event->has_key;
    if (event->has_key)
        leader->free_at_us = 0;
    else if (leader->free_at_us == 0)
        leader->free_at_us = event->now_us;
    if (leader->state == LEADER_LEADING && (!is_ours || event->key_revision != leader->revision))
        leader->state = LEADER_ENDED; /* something removed our key */
    if (leader->state != LEADER_STANDBY || !is_ours || leader->is_resigning)
        return;
    /* Too late: the lease may have ended at etcd. RENEW shows that, and then READ. */
    if (event->now_us >= leader->until_us) {
        leader->renew_at_us = event->now_us;
        leader->read_at_us = event->now_us;
        return;
    }
    leader->revision = event->key_revision;
    leader->state = LEADER_LEADING;
}

static void on_answer(struct leader *leader, const struct leader_event *event)
{
    const enum leader_request asked = leader->asked;

    leader->asked = LEADER_WAIT;
    if (!event->is_ok) {
        leader->retry_at_us = event->now_us + jitter(leader, read_every_us(leader));
        if (asked == LEADER_REVOKE) /* it expires by itself */
            drop_lease(leader);
        return;
    }
    leader->retry_at_us = 0;
    if (asked == LEADER_GRANT) {
        leader->lease_id = event->lease_id;
        count_lease(leader, event);
    } else if (asked == LEADER_RENEW && event->ttl_us > 0) {
        count_lease(leader, event);
    } else if (asked == LEADER_RENEW || asked == LEADER_REVOKE) {
        drop_lease(leader);
        if (leader->state == LEADER_LEADING)
            leader->state = LEADER_ENDED;
    } else if (asked == LEADER_ANNOUNCE) {
        leader->is_announced = true;
    } else {
        on_key(leader, event);
    }
}

static enum leader_request resign(struct leader *leader)
{
    if (leader->lease_id != 0)
        return LEADER_REVOKE;
    leader->state = LEADER_ENDED;
    return LEADER_WAIT;
}

/* When this server may claim, counted from when the key was first found gone. The server that has
 * read the fewest rows waits longest, since it would need most time to get the state. */
static uint64_t claim_after_us(const struct leader *leader, uint32_t missing_pm)
{
    assert(missing_pm <= 1000);
    return missing_pm == 0 ? 0 : LEADER_BEHIND_US + leader->lease_us * missing_pm / 1000;
}

/* Whether to claim now. There must be enough time left for the answer. */
static bool claims(const struct leader *leader, const struct leader_event *event)
{
    return leader->state == LEADER_STANDBY && leader->may_claim && !event->must_wait &&
           event->now_us >= leader->free_at_us + claim_after_us(leader, event->missing_pm) &&
           event->now_us + renew_every_us(leader) < leader->until_us;
}

static enum leader_request next_request(struct leader *leader, const struct leader_event *event)
{
    const uint64_t now_us = event->now_us;

    if (leader->is_resigning)
        return resign(leader);
    if (now_us < leader->retry_at_us)
        return LEADER_WAIT;
    if (leader->lease_id == 0)
        return LEADER_GRANT;
    if (now_us >= leader->renew_at_us)
        return LEADER_RENEW;
    if (claims(leader, event))
        return LEADER_CLAIM;
    if (now_us >= leader->read_at_us)
        return LEADER_READ;
    return leader->is_announced ? LEADER_WAIT : LEADER_ANNOUNCE;
}

static uint64_t next_time_us(const struct leader *leader)
{
    uint64_t at_us = leader->renew_at_us;

    if (leader->read_at_us < at_us)
        at_us = leader->read_at_us;
    if (leader->lease_id == 0 || at_us < leader->retry_at_us)
        at_us = leader->retry_at_us;
    if (leader->state == LEADER_LEADING && leader->until_us < at_us)
        at_us = leader->until_us;
    return at_us;
}

/* The time-out of a request: it leaves time for one more try before the lease ends. */
static uint64_t timeout_us(const struct leader *leader)
{
    const uint64_t us = renew_every_us(leader);

    return us < RETRY_US_MAX ? us : RETRY_US_MAX;
}

struct leader_action leader_step(struct leader *leader, const struct leader_event *event)
{
    struct leader_action action = {.request = LEADER_WAIT, .at_us = UINT64_MAX};

    assert(event->type != LEADER_EVENT_ANSWER || leader->asked != LEADER_WAIT);
    if (event->type == LEADER_EVENT_RESIGN)
        leader->is_resigning = true;
    if (event->type == LEADER_EVENT_ANSWER)
        on_answer(leader, event);
    if (leader->state == LEADER_LEADING && event->now_us >= leader->until_us)
        leader->state = LEADER_ENDED;
    if (leader->state == LEADER_ENDED || leader->asked != LEADER_WAIT)
        return action;
    if (leader_is_stuck(leader, event->silent_us) && !leader->is_resigning) {
        action.at_us = event->now_us + read_every_us(leader);
        return action;
    }
    action.request = next_request(leader, event);
    leader->asked = action.request;
    action.timeout_us = timeout_us(leader);
    if (action.request == LEADER_WAIT && leader->state != LEADER_ENDED)
        action.at_us = next_time_us(leader);
    return action;
}
