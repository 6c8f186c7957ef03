#include "launcherd/core/shim_lease.h"

#include "launcherd/core/shim_stop.h"

#define LATE_US 1000000u         /* a step that is later than this was held up */
#define READ_RENEWALS_US 300000u /* to read what came in the meantime */

void shim_lease_take(struct shim *shim, const struct shim_event *event)
{
    if (event->type == SHIM_EVENT_LAUNCHER_MSG && event->msg->type == MSG_TYPE_LEASE &&
        event->msg->lease.until_us > shim->lease_until_us) {
        shim->lease_until_us = event->msg->lease.until_us;
        if (event->now_us < shim->lease_until_us)
            shim->judge_at_us = 0;
    }
}

/* A lease that is renewed, but over, too, changes nothing: more of them may wait. */
static bool must_read_first(struct shim *shim, uint64_t now_us)
{
    if (shim->judge_at_us == 0 && shim->launcher_open && now_us > shim->due_at_us &&
        now_us - shim->due_at_us > LATE_US)
        shim->judge_at_us = now_us + READ_RENEWALS_US;
    return now_us < shim->judge_at_us;
}

/* When a node has lost the server, it ends its workers at the end of its lease. The server restarts
 * the job elsewhere only after that, so two generations never run at the same time. */
void shim_lease_check(struct shim *shim, const struct shim_event *event,
                      struct shim_actions *actions)
{
    if (shim->lease_until_us == 0)
        shim->lease_until_us = event->now_us + shim->options.lease_us;
    if (shim->phase == SHIM_ENDED || shim->kill_at_us == UINT64_MAX ||
        event->now_us < shim->lease_until_us || must_read_first(shim, event->now_us))
        return;
    shim_fail(shim, event, FAILURE_NETWORK, -1,
              "cut off from the server for longer than the lease (%llu s)",
              (unsigned long long)(shim->options.lease_us / 1000000));
    shim_stop_now(shim, event->now_us, actions);
    shim_end_if_over(shim, event->now_us);
}

uint64_t shim_lease_timer_us(const struct shim *shim)
{
    return shim->judge_at_us > shim->lease_until_us ? shim->judge_at_us : shim->lease_until_us;
}
