/* What this rank is doing right now, for the thread that reports it: the collective, or else the
 * layer. */
#include "worker/train/internal.h"

#include <inttypes.h>

void train_now(void *user, struct agent_now *now)
{
    const struct train *train = user;
    char layer[AGENT_TEXT_BYTES] = "", part[AGENT_TEXT_BYTES] = "";
    const char *what = NULL;
    const struct ddp *ddp = atomic_load(&train->ddp_now);
    uint32_t bucket = 0, buckets = 0;

    *now = (struct agent_now){.text = ""};
    if (train->net != NULL)
        net_now(train->net, layer, sizeof layer);
    if (train->comm != NULL)
        now->collectives = comm_now(train->comm, &what);
    if (ddp != NULL)
        bucket = ddp_bucket_now(ddp, &buckets);
    now->in_collective = what != NULL;
    if (what == NULL) {
        (void)snprintf(now->text, sizeof now->text, "%s", layer);
        return;
    }
    if (bucket > 0)
        (void)snprintf(part, sizeof part, ": bucket %u of %u", bucket, buckets);
    else if (layer[0] != '\0') /* synchronised batch norms */
        (void)snprintf(part, sizeof part, ": %.60s", layer);
    (void)snprintf(now->text, sizeof now->text, "%s number %" PRIu64 "%.36s", what,
                   now->collectives, part);
}
