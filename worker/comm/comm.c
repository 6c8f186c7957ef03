/* Bring-up, collectives and their errors. See comm.h. */
#include "worker/comm/comm.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "worker/comm/gloo.h"
#include "worker/comm/greet.h"
#include "worker/comm/mesh.h"
#include "worker/comm/sock.h"
#include "worker/comm/star.h"
#include "worker/comm/watch.h"

struct comm {
    uint32_t rank, world;
    uint64_t timeout_us, busy_us;
    bool greeter_is_open;
    struct comm_greeter greeter;
    int *fds;    /* [world] connections by rank, our own entry -1 */
    int stop_fd; /* an eventfd: readable once no collective can complete any more */
    struct comm_watch *watch;
    struct comm_gloo *gloo;
    uint16_t *halves; /* [half_count] buffer of comm_all_reduce_sum_half */
    size_t half_count;
};

static enum status check_options(const struct comm_options *options, struct err *err)
{
    if (options->world == 0 || options->world > COMM_WORLD_MAX || options->rank >= options->world)
        return err_set(err, STATUS_BAD_INPUT, 0, "rank %u of a world of %u (1 to %d)",
                       options->rank, options->world, COMM_WORLD_MAX);
    if (options->address == NULL || options->timeout_us == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "no address or no time-out for rank %u",
                       options->rank);
    return STATUS_OK;
}

static enum status make(struct comm **out, const struct comm_options *options, struct err *err)
{
    struct comm *comm = calloc(1, sizeof *comm);

    if (comm != NULL)
        comm->fds = malloc((size_t)options->world * sizeof *comm->fds);
    if (comm == NULL || comm->fds == NULL) {
        free(comm);
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", options->world);
    }
    comm->rank = options->rank;
    comm->world = options->world;
    comm->timeout_us = options->timeout_us;
    comm->busy_us = options->busy_us;
    comm->stop_fd = -1;
    for (uint32_t i = 0; i < comm->world; i++)
        comm->fds[i] = -1;
    *out = comm;
    return STATUS_OK;
}

static enum status open_greeter(struct comm *comm, const struct comm_options *options,
                                const struct comm_identity *identity, struct err *err)
{
    enum status status =
        comm_greeter_open(&comm->greeter, options->address, options->rank, identity, err);

    if (status != STATUS_OK)
        return status;
    comm->greeter_is_open = true;
    return STATUS_OK;
}

enum status comm_open(struct comm **comm, const struct comm_options *options,
                      struct comm_blob *blob, struct err *err)
{
    struct comm_identity identity = {
        .job_id = options->job_id, .generation = options->generation, .world = options->world};
    enum status status = check_options(options, err);

    assert(options->rank == 0);
    *comm = NULL;
    if (status != STATUS_OK)
        return status;
    if (getrandom(identity.secret, sizeof identity.secret, 0) != (ssize_t)sizeof identity.secret)
        return err_set(err, STATUS_SYSTEM, errno, "getrandom: %s", strerror(errno));
    status = make(comm, options, err);
    if (status == STATUS_OK)
        status = open_greeter(*comm, options, &identity, err);
    if (status == STATUS_OK)
        comm_blob_encode(&identity, &(*comm)->greeter.place, blob);
    else
        comm_close(comm);
    return status;
}

/* A comm_watch_broken: interrupts the bring-up or the current collective. */
static void on_broken(void *user)
{
    struct comm *comm = user;
    uint64_t one = 1;

    while (write(comm->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Makes the star and starts its watcher. */
static enum status raise_star(struct comm *comm, const struct comm_hello *hello,
                              const struct comm_place *meeting, struct comm_place *roster,
                              struct err *err)
{
    int *links = malloc((size_t)comm->world * sizeof *links);
    enum status status;

    if (links == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", comm->world);
    for (uint32_t i = 0; i < comm->world; i++)
        links[i] = -1;
    if (comm->rank == 0)
        status = comm_star_gather(&comm->greeter, links, roster, comm->timeout_us, err);
    else
        status = comm_star_join(hello, meeting, &links[0], roster, comm->timeout_us, err);
    if (status == STATUS_OK)
        status = comm_watch_new(&comm->watch, links, comm->rank, comm->world, on_broken, comm, err);
    for (uint32_t i = 0; i < comm->world && status != STATUS_OK; i++)
        comm_sock_close(&links[i]);
    free(links);
    return status;
}

/* The more_us of comm_gloo_patience. */
static uint64_t more_us(void *user, uint64_t waited_us)
{
    const struct comm *comm = user;

    return comm_watch_patience_us(comm->watch, mono_us() - waited_us, comm->timeout_us,
                                  comm->busy_us);
}

/* Makes the connections between all ranks and Gloo's context on them. */
static enum status raise_mesh(struct comm *comm, const struct comm_hello *hello,
                              const struct comm_place *roster, struct err *err)
{
    const struct comm_gloo_patience patience = {comm->timeout_us, more_us, comm};
    struct comm_gloo_failure failure;
    struct err broken = {.text = ""};
    enum status status = comm_mesh_build(&comm->greeter, hello, roster, comm->stop_fd, comm->fds,
                                         comm->timeout_us, &broken);

    if (status == STATUS_CLOSED || status == STATUS_PEER_LOST) /* the star knows the first loss */
        return comm_watch_explain(comm->watch, "connecting", COMM_RANK_NONE, broken.text, err);
    if (status != STATUS_OK)
        return err_set(err, status, broken.code, "%s", broken.text);
    if (comm_gloo_new(&comm->gloo, comm->rank, comm->world, comm->fds, comm->stop_fd, &patience,
                      &failure) != COMM_GLOO_OK)
        return err_set(err, STATUS_LIBRARY, 0, "Gloo: %s", failure.text);
    comm_greeter_close(&comm->greeter);
    comm->greeter_is_open = false;
    return STATUS_OK;
}

static enum status bring_up(struct comm *comm, const struct comm_identity *identity,
                            const struct comm_place *meeting, struct err *err)
{
    struct comm_hello hello = {.kind = COMM_HELLO_STAR, .rank = comm->rank, .identity = *identity};
    struct comm_place *roster = calloc(comm->world, sizeof *roster);
    enum status status;

    if (roster == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", comm->world);
    hello.place = comm->greeter.place;
    comm->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->stop_fd < 0)
        status = err_set(err, STATUS_SYSTEM, errno, "eventfd: %s", strerror(errno));
    else
        status = raise_star(comm, &hello, meeting, roster, err);
    hello.kind = COMM_HELLO_MESH;
    if (status == STATUS_OK)
        status = raise_mesh(comm, &hello, roster, err);
    free(roster);
    return status;
}

/* The options of this rank must agree with what rank 0 announced. */
static enum status check_identity(const struct comm_options *options,
                                  const struct comm_identity *identity, struct err *err)
{
    if (identity->world != options->world || identity->job_id != options->job_id ||
        identity->generation != options->generation)
        return err_set(err, STATUS_REFUSED, 0,
                       "rank %u is of job %llu, generation %u, world %u, but rank 0 announced job "
                       "%llu, generation %u, world %u",
                       options->rank, (unsigned long long)options->job_id, options->generation,
                       options->world, (unsigned long long)identity->job_id, identity->generation,
                       identity->world);
    return STATUS_OK;
}

enum status comm_connect(struct comm **comm, const struct comm_options *options,
                         const struct comm_blob *blob, struct err *err)
{
    struct comm_identity identity;
    struct comm_place meeting;
    enum status status = check_options(options, err);

    if (status == STATUS_OK)
        status = comm_blob_decode(blob, &identity, &meeting, err);
    if (status == STATUS_OK)
        status = check_identity(options, &identity, err);
    if (status == STATUS_OK && options->rank != 0)
        status = make(comm, options, err);
    else
        assert(status != STATUS_OK || *comm != NULL); /* rank 0 called comm_open() */
    if (status == STATUS_OK && options->world > 1 && options->rank != 0)
        status = open_greeter(*comm, options, &identity, err);
    if (status == STATUS_OK && options->world > 1)
        status = bring_up(*comm, &identity, &meeting, err);
    if (status != STATUS_OK)
        comm_close(comm);
    return status;
}

void comm_close(struct comm **out)
{
    struct comm *comm = *out;

    if (comm == NULL)
        return;
    comm_watch_free(&comm->watch);
    if (comm->gloo != NULL)
        comm_gloo_free(&comm->gloo);
    for (uint32_t i = 0; i < comm->world; i++)
        comm_sock_close(&comm->fds[i]);
    if (comm->greeter_is_open)
        comm_greeter_close(&comm->greeter);
    if (comm->stop_fd >= 0)
        (void)close(comm->stop_fd);
    free(comm->fds);
    free(comm->halves);
    free(comm);
    *out = NULL;
}

/* -- collectives -- */

enum collective {
    ALL_REDUCE_F32,
    ALL_REDUCE_F64,
    ALL_REDUCE_HALF,
    BROADCAST,
    ALL_GATHER,
    MULTICAST,
    BARRIER
};

/* One call of a collective on this rank. */
struct call {
    enum collective collective;
    void *values;          /* in place; of ALL_GATHER the result */
    const void *mine;      /* ALL_GATHER: what this rank gives */
    size_t count;          /* elements; bytes of BROADCAST, ALL_GATHER and MULTICAST */
    uint32_t root;         /* BROADCAST */
    const uint32_t *ranks; /* [rank_count]: MULTICAST */
    uint32_t rank_count;
    comm_half_add add; /* ALL_REDUCE_HALF */
};

static const char *const names[] = {
    [ALL_REDUCE_F32] = "all-reduce",
    [ALL_REDUCE_F64] = "all-reduce",
    [ALL_REDUCE_HALF] = "all-reduce",
    [BROADCAST] = "broadcast",
    [ALL_GATHER] = "all-gather",
    [MULTICAST] = "multicast",
    [BARRIER] = "barrier",
};

static void execute(struct comm_gloo *gloo, const struct call *call,
                    struct comm_gloo_failure *failure)
{
    switch (call->collective) {
    case ALL_REDUCE_F32:
        (void)comm_gloo_all_reduce_f32(gloo, call->values, call->count, failure);
        break;
    case ALL_REDUCE_F64:
        (void)comm_gloo_all_reduce_f64(gloo, call->values, call->count, failure);
        break;
    case ALL_REDUCE_HALF:
        (void)comm_gloo_all_reduce_u16(gloo, call->values, call->count, call->add, failure);
        break;
    case BROADCAST:
        (void)comm_gloo_broadcast(gloo, call->values, call->count, call->root, failure);
        break;
    case ALL_GATHER:
        (void)comm_gloo_all_gather(gloo, call->mine, call->count, call->values, failure);
        break;
    case MULTICAST:
        (void)comm_gloo_multicast(gloo, call->values, call->count, call->ranks, call->rank_count,
                                  failure);
        break;
    case BARRIER:
        (void)comm_gloo_barrier(gloo, failure);
        break;
    }
}

/* Ends a collective: STATUS_OK, or the error for what Gloo reported. */
static enum status finish(struct comm *comm, const char *what,
                          const struct comm_gloo_failure *failure, struct err *err)
{
    switch (failure->result) {
    case COMM_GLOO_OK:
        comm_watch_end(comm->watch);
        return STATUS_OK;
    case COMM_GLOO_STALLED:
        return comm_watch_stalled(comm->watch, what, err);
    case COMM_GLOO_STOPPED:
    case COMM_GLOO_PEER_GONE:
        return comm_watch_explain(comm->watch, what, failure->rank, failure->text, err);
    case COMM_GLOO_MISMATCH:
        return err_set(err, STATUS_CONFLICT, 0,
                       "rank %u makes another call than %s here or with another size: %s",
                       failure->rank, what, failure->text);
    case COMM_GLOO_FAILED:
        break;
    }
    return err_set(err, STATUS_LIBRARY, 0, "%s: Gloo: %s", what, failure->text);
}

/* Runs a collective among all ranks. One without values is counted as the others are, but sends
 * nothing. */
static enum status run(struct comm *comm, const struct call *call, struct err *err)
{
    struct comm_gloo_failure failure = {.result = COMM_GLOO_OK};
    const char *what = names[call->collective];
    enum status status;

    assert(comm->world > 1 && comm->gloo != NULL && comm->watch != NULL);
    status = comm_watch_begin(comm->watch, what, err);
    if (status != STATUS_OK)
        return status;
    if (call->count > 0 || call->collective == BARRIER)
        execute(comm->gloo, call, &failure);
    return finish(comm, what, &failure, err);
}

uint64_t comm_now(const struct comm *comm, const char **what)
{
    *what = NULL;
    return comm->watch != NULL ? comm_watch_now(comm->watch, what) : 0;
}

enum status comm_all_reduce_sum(struct comm *comm, float *values, size_t count, struct err *err)
{
    const struct call call = {.collective = ALL_REDUCE_F32, .values = values, .count = count};

    return comm->world == 1 ? STATUS_OK : run(comm, &call, err);
}

enum status comm_all_reduce_sum_f64(struct comm *comm, double *values, size_t count,
                                    struct err *err)
{
    const struct call call = {.collective = ALL_REDUCE_F64, .values = values, .count = count};

    return comm->world == 1 ? STATUS_OK : run(comm, &call, err);
}

static enum status grow_halves(struct comm *comm, size_t count, struct err *err)
{
    uint16_t *halves;

    if (count <= comm->half_count)
        return STATUS_OK;
    halves = realloc(comm->halves, count * sizeof *halves);
    if (halves == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to reduce %zu values", count);
    comm->halves = halves;
    comm->half_count = count;
    return STATUS_OK;
}

enum status comm_all_reduce_sum_half(struct comm *comm, float *values, size_t count,
                                     enum comm_half type, struct err *err)
{
    struct call call = {
        .collective = ALL_REDUCE_HALF, .count = count, .add = comm_half_adder(type)};
    enum status status;

    if (comm->world == 1)
        return STATUS_OK;
    status = grow_halves(comm, count, err);
    if (status != STATUS_OK)
        return status;
    call.values = comm->halves;
    comm_half_pack(type, values, count, comm->halves);
    status = run(comm, &call, err);
    if (status == STATUS_OK)
        comm_half_unpack(type, comm->halves, count, values);
    return status;
}

enum status comm_broadcast(struct comm *comm, void *bytes, size_t byte_count, uint32_t root,
                           struct err *err)
{
    const struct call call = {
        .collective = BROADCAST, .values = bytes, .count = byte_count, .root = root};

    assert(root < comm->world);
    return comm->world == 1 ? STATUS_OK : run(comm, &call, err);
}

enum status comm_multicast(struct comm *comm, void *bytes, size_t byte_count, const uint32_t *ranks,
                           uint32_t rank_count, struct err *err)
{
    const struct call call = {.collective = MULTICAST,
                              .values = bytes,
                              .count = byte_count,
                              .ranks = ranks,
                              .rank_count = rank_count};

    assert(rank_count <= comm->world);
    return comm->world == 1 ? STATUS_OK : run(comm, &call, err);
}

enum status comm_all_gather(struct comm *comm, const void *mine, size_t byte_count, void *all,
                            struct err *err)
{
    const struct call call = {
        .collective = ALL_GATHER, .values = all, .mine = mine, .count = byte_count};

    if (comm->world > 1)
        return run(comm, &call, err);
    if (byte_count > 0)
        memcpy(all, mine, byte_count);
    return STATUS_OK;
}

enum status comm_barrier(struct comm *comm, struct err *err)
{
    const struct call call = {.collective = BARRIER};

    return comm->world == 1 ? STATUS_OK : run(comm, &call, err);
}

enum status comm_lost(struct comm *comm, const char *what, struct err *err)
{
    return comm->watch != NULL ? comm_watch_lost(comm->watch, what, err) : STATUS_OK;
}

enum status comm_check_next(struct comm *comm, const char *what, struct err *err)
{
    return comm->watch != NULL ? comm_watch_check_next(comm->watch, what, err) : STATUS_OK;
}

void comm_set_busy(struct comm *comm, bool busy)
{
    if (comm->watch != NULL)
        comm_watch_set_busy(comm->watch, busy);
}
