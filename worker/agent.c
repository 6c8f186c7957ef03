#include "worker/agent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/mono.h"
#include "libddp/ddp.h"
#include "libddp/place.h"

/* -- the library's results as ours -- */

static enum status status_of(enum ddp_status status)
{
    switch (status) {
    case DDP_OK:
        return STATUS_OK;
    case DDP_CLOSED:
        return STATUS_CLOSED;
    case DDP_MEMORY:
        return STATUS_MEMORY;
    case DDP_TOO_BIG:
        return STATUS_TOO_BIG;
    case DDP_BAD_INPUT:
        return STATUS_BAD_INPUT;
    case DDP_IO:
    case DDP_SYSTEM:
    case DDP_NOT_FOUND:
    case DDP_CONFLICT:
    case DDP_BUSY:
    case DDP_TIMEOUT:
    case DDP_UNSUPPORTED:
    case DDP_FORKED:
        break; /* of calls that a worker does not make */
    }
    return STATUS_SYSTEM;
}

/* -- the environment -- */

enum status agent_read_place(struct agent_place *place, struct err *err)
{
    struct ddp_place found;
    int shim_fd;
    enum status status = place_read(&found, &shim_fd, err);

    if (status != STATUS_OK)
        return status;
    if (shim_fd < 0 && found.world > 1)
        return err_set(
            err, STATUS_UNSUPPORTED, 0,
            "WORLD_SIZE=%u, but no launcher of ours started this rank (DDP_SHIM_FD is not "
            "set): use ddpctl run --standalone --nproc-per-node %u -- ddp-worker ...",
            found.world, found.world);
    *place = (struct agent_place){
        .rank = found.rank,
        .world = found.world,
        .local_rank = found.local_rank,
        .local_world = found.local_world,
        .job_id = found.job_id,
        .generation = found.generation,
        .checkpoint_step = found.checkpoint_step,
        .shim_fd = shim_fd,
    };
    (void)snprintf(place->address, sizeof place->address, "%s", found.address);
    (void)snprintf(place->cluster, sizeof place->cluster, "%s", found.cluster);
    (void)snprintf(place->node, sizeof place->node, "%s", found.node);
    return STATUS_OK;
}

/* -- the connection -- */

#define AGAIN_US 1000000ull /* the thread tells so often */
#define PROMISE_S 2.0       /* and promises this */

struct agent {
    struct ddp *ddp;
    _Atomic(const char *) doing;
    _Atomic(const char *) phase; /* of agent_phase; NULL: steps */
    pthread_mutex_t lock;        /* covers what follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool is_telling, is_ending;
    agent_probe *probe;
    void *probe_user;
    struct ddp_progress newest; /* without times: those are told once */
};

enum status agent_open(struct agent **out, const struct agent_place *place, struct err *err)
{
    const struct ddp_place known = {
        .rank = place->rank,
        .world = place->world,
        .job_id = place->job_id,
        .generation = place->generation,
        .has_launcher = 1,
    };
    struct agent *agent;
    pthread_condattr_t attributes;
    enum status status;

    *out = NULL;
    if (place->shim_fd < 0)
        return STATUS_OK;
    agent = calloc(1, sizeof *agent);
    if (agent == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the link to the shim");
    status = ddp_open_at(&agent->ddp, &known, place->shim_fd, err);
    if (status != STATUS_OK) {
        free(agent);
        return status;
    }
    (void)pthread_mutex_init(&agent->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&agent->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    *out = agent;
    return STATUS_OK;
}

void agent_close(struct agent **out)
{
    struct agent *agent = *out;

    *out = NULL;
    if (agent == NULL)
        return;
    agent_end_telling(agent);
    ddp_leave(&agent->ddp);
    (void)pthread_cond_destroy(&agent->changed);
    (void)pthread_mutex_destroy(&agent->lock);
    free(agent);
}

_Static_assert(COMM_BLOB_BYTES_MAX >= DDP_BLOB_BYTES_MAX, "what the protocol carries has room");

enum status agent_join(struct agent *agent, struct comm_blob *blob, struct err *err)
{
    struct ddp_error error;
    size_t byte_count = blob->byte_count;
    enum ddp_status status;

    if (agent == NULL)
        return STATUS_OK;
    status =
        ddp_join(agent->ddp, blob->bytes, &byte_count, sizeof blob->bytes, DDP_NO_LIMIT, &error);
    if (status != DDP_OK)
        return err_set(err, status_of(status), error.code, "%s", error.text);
    blob->byte_count = (uint32_t)byte_count;
    return STATUS_OK;
}

/* -- telling; with the lock held -- */

static enum ddp_status tell(struct agent *agent, const struct ddp_progress *times)
{
    struct ddp_progress now = agent->newest;
    const char *doing = atomic_load(&agent->doing);
    const bool is_phase = doing != NULL && doing == atomic_load(&agent->phase);
    struct agent_now found = {.text = ""};
    char text[2 * AGENT_TEXT_BYTES];

    if (agent->probe != NULL)
        agent->probe(agent->probe_user, &found);
    now.collectives = found.collectives;
    now.in_collective = found.in_collective;
    now.again_s = agent->is_telling ? PROMISE_S : 0;
    if (found.text[0] == '\0')
        (void)snprintf(text, sizeof text, "%s", doing != NULL ? doing : "");
    else
        (void)snprintf(text, sizeof text, "%.60s%s%s", is_phase ? doing : "", is_phase ? ": " : "",
                       found.text);
    now.doing = text;
    if (times != NULL) {
        now.timed_steps = times->timed_steps;
        now.step_s = times->step_s;
        now.data_s = times->data_s;
        now.compute_s = times->compute_s;
        now.update_s = times->update_s;
        now.wait_s = times->wait_s;
    }
    return ddp_report(agent->ddp, &now, NULL);
}

static void *run(void *user)
{
    struct agent *agent = user;
    uint64_t next_us = mono_us();

    (void)pthread_mutex_lock(&agent->lock);
    while (!agent->is_ending) {
        struct timespec until;

        next_us += AGAIN_US;
        until = (struct timespec){.tv_sec = (time_t)(next_us / 1000000),
                                  .tv_nsec = (long)(next_us % 1000000) * 1000};
        while (!agent->is_ending &&
               pthread_cond_timedwait(&agent->changed, &agent->lock, &until) == 0)
            ;
        if (!agent->is_ending)
            (void)tell(agent, NULL);
    }
    (void)pthread_mutex_unlock(&agent->lock);
    return NULL;
}

enum status agent_begin_telling(struct agent *agent, agent_probe *probe, void *user,
                                struct err *err)
{
    int rc;

    if (agent == NULL || agent->is_telling)
        return STATUS_OK;
    agent->probe = probe;
    agent->probe_user = user;
    agent->is_ending = false;
    agent->is_telling = true;
    rc = pthread_create(&agent->thread, NULL, run, agent);
    if (rc == 0)
        return STATUS_OK;
    agent->is_telling = false;
    agent->probe = NULL;
    return err_set(err, STATUS_SYSTEM, rc, "thread that tells of progress: %s", strerror(rc));
}

void agent_end_telling(struct agent *agent)
{
    if (agent == NULL || !agent->is_telling)
        return;
    (void)pthread_mutex_lock(&agent->lock);
    agent->is_ending = true;
    (void)pthread_cond_broadcast(&agent->changed);
    (void)pthread_mutex_unlock(&agent->lock);
    (void)pthread_join(agent->thread, NULL);
    agent->is_telling = false;
    agent->probe = NULL;
    agent->newest.is_urgent = 1; /* the promise ends here */
    (void)tell(agent, NULL);
}

void agent_phase(struct agent *agent, enum agent_phase phase, const char *what)
{
    static const int phases[] = {[AGENT_STEPS] = DDP_STEPS,
                                 [AGENT_PREPARING] = DDP_PREPARING,
                                 [AGENT_VALIDATING] = DDP_VALIDATING,
                                 [AGENT_SAVING] = DDP_SAVING};

    if (agent == NULL)
        return;
    (void)pthread_mutex_lock(&agent->lock);
    atomic_store(&agent->doing, what);
    atomic_store(&agent->phase, phase == AGENT_STEPS ? NULL : what);
    agent->newest.phase = phases[phase];
    agent->newest.is_urgent = 0;
    (void)tell(agent, NULL);
    (void)pthread_mutex_unlock(&agent->lock);
}

void agent_doing(struct agent *agent, const char *what)
{
    if (agent != NULL)
        atomic_store(&agent->doing, what);
}

enum status agent_report(struct agent *agent, const struct agent_progress *progress, bool is_urgent)
{
    const struct ddp_progress times = {
        .timed_steps = progress->timed_steps,
        .step_s = (double)progress->step_us / 1e6,
        .data_s = (double)progress->data_us / 1e6,
        .compute_s = (double)progress->compute_us / 1e6,
        .update_s = (double)progress->update_us / 1e6,
        .wait_s = (double)progress->wait_us / 1e6,
    };
    enum ddp_status status;

    if (agent == NULL)
        return STATUS_OK;
    (void)pthread_mutex_lock(&agent->lock);
    agent->newest = (struct ddp_progress){
        .epoch = progress->epoch,
        .epochs = progress->epochs,
        .step = progress->step,
        .steps = progress->steps,
        .loss = progress->loss,
        .samples_per_s = progress->samples_per_s,
        .is_urgent = is_urgent,
    };
    status = tell(agent, &times);
    agent->newest.is_urgent = 0;
    (void)pthread_mutex_unlock(&agent->lock);
    if (status != DDP_CLOSED && progress->checkpoint_step > 0)
        status = ddp_committed(agent->ddp, progress->checkpoint_step, NULL);
    return status == DDP_CLOSED ? STATUS_CLOSED : STATUS_OK;
}

void agent_committed(struct agent *agent, uint64_t step)
{
    if (agent != NULL)
        (void)ddp_committed(agent->ddp, step, NULL);
}

void agent_fail(struct agent *agent, const char *text)
{
    if (agent != NULL)
        (void)ddp_fail(agent->ddp, text, NULL);
}
