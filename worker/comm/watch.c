/* The watcher thread. The state machine (live.h) decides; this file does the I/O and the locking.
 */
#include "worker/comm/watch.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "worker/comm/live.h"
#include "worker/comm/sock.h"

/* How long a failed collective waits for rank 0 to name the lost rank. */
#define EXPLAIN_US UINT64_C(4000000)
#define LEAVE_US UINT64_C(1000000) /* how long rank 0 waits for others that leave */

/* One connection of the star; used by the watcher's thread only. */
struct link {
    int fd;
    uint32_t byte_count;
    uint8_t bytes[COMM_NOTE_BYTES];
};

struct comm_watch {
    uint32_t rank, world;
    comm_watch_broken broken;
    void *user;
    int wake_fd;
    pthread_t thread;
    struct link *links;   /* [world] */
    struct pollfd *polls; /* [1 + world] */
    uint32_t *poll_ranks; /* [1 + world] */

    pthread_mutex_t lock; /* protects everything below */
    pthread_cond_t changed;
    struct comm_live live;
    struct comm_peer *peers; /* [world] */
    uint64_t seq;            /* collectives begun */
    bool busy;               /* this rank */
    const char *what;        /* the newest of them */
    uint64_t seq_done;
    bool stalled;           /* request to the thread: report a stall, once */
    bool leaving, stopping; /* requests to the thread: send LEFT; end */
    bool left;              /* LEFT was sent */
    bool is_broken;         /* `broken` was called or is about to be */
};

static void wake(struct comm_watch *watch)
{
    uint64_t one = 1;

    while (write(watch->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* A full send buffer means that the peer has not read for minutes: closes the connection, which the
 * read side then notices. */
static void send_note(struct comm_watch *watch, uint32_t rank, const struct comm_note *note)
{
    uint8_t bytes[COMM_NOTE_BYTES];

    assert(rank < watch->world);
    if (watch->links[rank].fd < 0)
        return;
    comm_note_encode(note, bytes);
    if (send(watch->links[rank].fd, bytes, sizeof bytes, MSG_NOSIGNAL) != (ssize_t)sizeof bytes)
        (void)shutdown(watch->links[rank].fd, SHUT_RDWR);
}

static void send_to_all(struct comm_watch *watch, const struct comm_note *note, uint32_t except)
{
    for (uint32_t i = 0; i < watch->world; i++)
        if (i != except)
            send_note(watch, i, note);
}

/* Call with the lock held. */
static struct comm_own own_of(const struct comm_watch *watch)
{
    return (struct comm_own){.seq = watch->seq, .busy = watch->busy};
}

/* Whether the current collective or any later one cannot complete. Call with the lock held. */
static bool is_hopeless(const struct comm_watch *watch)
{
    return watch->live.lost_rank != COMM_RANK_NONE ||
           (watch->seq > watch->seq_done &&
            comm_live_missing(&watch->live, watch->seq) != COMM_RANK_NONE);
}

/* Passes one event to the state machine and carries out its actions. */
static void step(struct comm_watch *watch, struct comm_live_event *event)
{
    struct comm_live_actions actions;
    struct comm_note beat;
    bool breaks = false;

    (void)pthread_mutex_lock(&watch->lock);
    event->own = own_of(watch);
    comm_live_step(&watch->live, event, &actions);
    beat = comm_live_beat(&watch->live, own_of(watch));
    if (!watch->is_broken && is_hopeless(watch)) {
        watch->is_broken = true;
        breaks = true;
    }
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);

    if (actions.sends)
        send_to_all(watch, &actions.note, actions.except);
    if (actions.beats)
        send_to_all(watch, &beat, COMM_RANK_NONE);
    if (breaks)
        watch->broken(watch->user);
}

static void read_link(struct comm_watch *watch, uint32_t rank)
{
    struct link *link = &watch->links[rank];
    struct comm_live_event event = {.from = rank};

    assert(rank < watch->world && link->byte_count < sizeof link->bytes);
    for (;;) {
        ssize_t n = recv(link->fd, link->bytes + link->byte_count,
                         sizeof link->bytes - link->byte_count, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        event.now_us = mono_us();
        if (n > 0)
            link->byte_count += (uint32_t)n;
        if (n > 0 && link->byte_count < sizeof link->bytes)
            continue;
        event.type = COMM_LIVE_NOTE;
        if (n <= 0 || !comm_note_decode(link->bytes, &event.note)) {
            event.type = COMM_LIVE_CLOSED;
            comm_sock_close(&link->fd);
        }
        link->byte_count = 0;
        step(watch, &event);
        if (link->fd < 0)
            return;
    }
}

/* Carries out the requests of other threads. false: the thread must end. */
static bool serve(struct comm_watch *watch)
{
    struct comm_live_event report = {.type = COMM_LIVE_REPORT, .now_us = mono_us()};
    struct comm_note goodbye = {.type = COMM_NOTE_LEFT, .rank = watch->rank};
    bool leaves, stalled, stops;
    uint64_t count;

    while (read(watch->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    (void)pthread_mutex_lock(&watch->lock);
    stops = watch->stopping;
    leaves = watch->leaving && !watch->left;
    stalled = watch->stalled;
    watch->stalled = false;
    goodbye.seq = watch->seq_done;
    report.note = comm_live_behind(&watch->live, own_of(watch));
    report.note.why = COMM_WHY_STALLED;
    (void)pthread_mutex_unlock(&watch->lock);

    if (stalled)
        step(watch, &report);
    if (!leaves)
        return !stops;
    send_to_all(watch, &goodbye, COMM_RANK_NONE);
    (void)pthread_mutex_lock(&watch->lock);
    watch->left = true;
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    return !stops; /* if this thread was late, both were asked, and nothing wakes it again */
}

static uint32_t fill_polls(struct comm_watch *watch)
{
    uint32_t count = 0;

    watch->polls[count++] = (struct pollfd){.fd = watch->wake_fd, .events = POLLIN};
    for (uint32_t i = 0; i < watch->world; i++) {
        if (watch->links[i].fd < 0)
            continue;
        watch->poll_ranks[count] = i;
        watch->polls[count++] = (struct pollfd){.fd = watch->links[i].fd, .events = POLLIN};
    }
    return count;
}

static void *run(void *user)
{
    struct comm_watch *watch = user;
    struct comm_live_event tick = {.type = COMM_LIVE_TICK};

    for (;;) {
        uint32_t count = fill_polls(watch);
        uint64_t beat_us;

        (void)pthread_mutex_lock(&watch->lock);
        beat_us = watch->live.beat_us;
        (void)pthread_mutex_unlock(&watch->lock);
        (void)poll(watch->polls, count, count > 1 ? comm_left_ms(beat_us) : -1);
        for (uint32_t i = 1; i < count; i++)
            if (watch->polls[i].revents != 0)
                read_link(watch, watch->poll_ranks[i]);
        if (watch->polls[0].revents != 0 && !serve(watch))
            return NULL;
        tick.now_us = mono_us();
        step(watch, &tick);
    }
}

static void free_memory(struct comm_watch *watch)
{
    free(watch->links);
    free(watch->polls);
    free(watch->poll_ranks);
    free(watch->peers);
    free(watch);
}

static void init_locks(struct comm_watch *watch)
{
    pthread_condattr_t attributes;

    (void)pthread_mutex_init(&watch->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&watch->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

enum status comm_watch_new(struct comm_watch **out, const int *links, uint32_t rank, uint32_t world,
                           comm_watch_broken broken, void *user, struct err *err)
{
    struct comm_watch *watch = calloc(1, sizeof *watch);
    int rc;

    assert(world > 1 && rank < world && broken != NULL);
    if (watch == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to watch %u ranks", world);
    watch->rank = rank;
    watch->world = world;
    watch->broken = broken;
    watch->user = user;
    watch->links = calloc(world, sizeof *watch->links);
    watch->polls = calloc(1 + (size_t)world, sizeof *watch->polls);
    watch->poll_ranks = calloc(1 + (size_t)world, sizeof *watch->poll_ranks);
    watch->peers = calloc(world, sizeof *watch->peers);
    if (watch->links == NULL || watch->polls == NULL || watch->poll_ranks == NULL ||
        watch->peers == NULL) {
        free_memory(watch);
        return err_set(err, STATUS_MEMORY, 0, "no memory to watch %u ranks", world);
    }
    for (uint32_t i = 0; i < world; i++)
        watch->links[i].fd = links[i];
    comm_live_init(&watch->live, watch->peers, rank, world, mono_us());
    init_locks(watch);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = watch->wake_fd < 0 ? errno : pthread_create(&watch->thread, NULL, run, watch);
    if (rc != 0) {
        if (watch->wake_fd >= 0)
            (void)close(watch->wake_fd);
        (void)pthread_cond_destroy(&watch->changed);
        (void)pthread_mutex_destroy(&watch->lock);
        free_memory(watch);
        return err_set(err, STATUS_SYSTEM, rc, "watcher thread: %s", strerror(rc));
    }
    *out = watch;
    return STATUS_OK;
}

/* Waits for a change; false when the deadline has passed. Call with the lock held. */
static bool wait_change(struct comm_watch *watch, uint64_t deadline_us)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_us / 1000000),
                                .tv_nsec = (long)(deadline_us % 1000000) * 1000};

    return pthread_cond_timedwait(&watch->changed, &watch->lock, &deadline) != ETIMEDOUT;
}

/* Whether this is rank 0 and others have not left yet: they leave in order only through it. Call
 * with the lock held. */
static bool must_wait_for_others(const struct comm_watch *watch)
{
    if (watch->rank != 0 || watch->live.lost_rank != COMM_RANK_NONE)
        return false;
    for (uint32_t i = 1; i < watch->world; i++)
        if (watch->peers[i].state == COMM_PEER_HERE)
            return true;
    return false;
}

void comm_watch_free(struct comm_watch **out)
{
    struct comm_watch *watch = *out;
    uint64_t deadline_us = mono_us() + LEAVE_US;

    if (watch == NULL)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    watch->leaving = true;
    wake(watch);
    while ((!watch->left || must_wait_for_others(watch)) && wait_change(watch, deadline_us))
        ;
    watch->stopping = true;
    wake(watch);
    (void)pthread_mutex_unlock(&watch->lock);
    (void)pthread_join(watch->thread, NULL);
    for (uint32_t i = 0; i < watch->world; i++)
        comm_sock_close(&watch->links[i].fd);
    (void)close(watch->wake_fd);
    (void)pthread_cond_destroy(&watch->changed);
    (void)pthread_mutex_destroy(&watch->lock);
    free_memory(watch);
    *out = NULL;
}

static enum status stalled_error(const struct comm_watch *watch, const char *what, struct err *err)
{
    const struct comm_live *live = &watch->live;

    if (live->lost_seq < watch->seq && live->lost_busy)
        return err_set(
            err, STATUS_TIMEOUT, 0,
            "%s number %llu timed out: rank %u did not come, it has begun %llu; it has been "
            "saving, loading or validating for too long: is its disk slow?",
            what, (unsigned long long)watch->seq, live->lost_rank,
            (unsigned long long)live->lost_seq);
    if (live->lost_seq >= watch->seq)
        return err_set(err, STATUS_TIMEOUT, 0,
                       "%s number %llu timed out: all ranks have begun it, it makes no progress",
                       what, (unsigned long long)watch->seq);
    return err_set(
        err, STATUS_TIMEOUT, 0, "%s number %llu timed out: rank %u did not come, it has begun %llu",
        what, (unsigned long long)watch->seq, live->lost_rank, (unsigned long long)live->lost_seq);
}

/* The error for the loss that is known and prevents the collective `seq`; STATUS_OK if there is none.
 * Call with the lock held. */
static enum status loss_error(const struct comm_watch *watch, uint64_t seq, const char *what,
                              struct err *err)
{
    static const char *const texts[COMM_WHYS] = {
        [COMM_WHY_CLOSED] = "connection closed",
        [COMM_WHY_SILENT] = "no sign of life for 5 s",
    };
    const struct comm_live *live = &watch->live;
    const char *why = texts[live->lost_why];
    uint32_t missing = comm_live_missing(live, seq);

    if (live->lost_rank != COMM_RANK_NONE && live->lost_why == COMM_WHY_STALLED)
        return stalled_error(watch, what, err);
    if (live->lost_rank == watch->rank)
        return err_set(err, STATUS_PEER_LOST, 0,
                       "rank %u, this one, was given up by the others (%s) during %s",
                       live->lost_rank, why == NULL ? "lost" : why, what);
    if (live->lost_rank != COMM_RANK_NONE)
        return err_set(err, STATUS_PEER_LOST, 0, "rank %u was lost (%s) during %s", live->lost_rank,
                       why == NULL ? "lost" : why, what);
    if (missing != COMM_RANK_NONE)
        return err_set(err, STATUS_PEER_LOST, 0, "rank %u has left, %s number %llu needs it",
                       missing, what, (unsigned long long)seq);
    return STATUS_OK;
}

enum status comm_watch_begin(struct comm_watch *watch, const char *what, struct err *err)
{
    enum status status;

    (void)pthread_mutex_lock(&watch->lock);
    assert(watch->seq_done <= watch->seq && !watch->leaving);
    watch->seq++;
    watch->what = what;
    status = loss_error(watch, watch->seq, what, err);
    (void)pthread_mutex_unlock(&watch->lock);
    return status;
}

uint64_t comm_watch_now(struct comm_watch *watch, const char **what)
{
    uint64_t seq;

    (void)pthread_mutex_lock(&watch->lock);
    seq = watch->seq;
    *what = watch->seq > watch->seq_done ? watch->what : NULL;
    (void)pthread_mutex_unlock(&watch->lock);
    return seq;
}

enum status comm_watch_lost(struct comm_watch *watch, const char *what, struct err *err)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&watch->lock);
    if (watch->live.lost_rank != COMM_RANK_NONE)
        status = loss_error(watch, watch->seq, what, err);
    (void)pthread_mutex_unlock(&watch->lock);
    return status;
}

enum status comm_watch_check_next(struct comm_watch *watch, const char *what, struct err *err)
{
    enum status status;

    (void)pthread_mutex_lock(&watch->lock);
    assert(watch->seq == watch->seq_done);
    status = loss_error(watch, watch->seq + 1, what, err);
    (void)pthread_mutex_unlock(&watch->lock);
    return status;
}

void comm_watch_set_busy(struct comm_watch *watch, bool busy)
{
    (void)pthread_mutex_lock(&watch->lock);
    watch->busy = busy;
    (void)pthread_mutex_unlock(&watch->lock);
}

uint64_t comm_watch_patience_us(struct comm_watch *watch, uint64_t moved_us, uint64_t limit_us,
                                uint64_t busy_limit_us)
{
    const uint64_t now_us = mono_us();
    uint64_t at_us;

    (void)pthread_mutex_lock(&watch->lock);
    at_us = comm_live_stalls_at(&watch->live, moved_us, limit_us, busy_limit_us);
    (void)pthread_mutex_unlock(&watch->lock);
    return at_us > now_us ? at_us - now_us : 0;
}

void comm_watch_end(struct comm_watch *watch)
{
    (void)pthread_mutex_lock(&watch->lock);
    assert(watch->seq > watch->seq_done);
    watch->seq_done = watch->seq;
    (void)pthread_mutex_unlock(&watch->lock);
}

enum status comm_watch_explain(struct comm_watch *watch, const char *what, uint32_t suspect,
                               const char *cause, struct err *err)
{
    uint64_t deadline_us = mono_us() + EXPLAIN_US;
    enum status status;

    (void)pthread_mutex_lock(&watch->lock);
    do
        status = loss_error(watch, watch->seq, what, err);
    while (status == STATUS_OK && wait_change(watch, deadline_us));
    (void)pthread_mutex_unlock(&watch->lock);
    if (status != STATUS_OK)
        return status;
    if (suspect != COMM_RANK_NONE)
        return err_set(err, STATUS_PEER_LOST, 0,
                       "rank %u was lost (connection broken) during %s: %s", suspect, what, cause);
    return err_set(err, STATUS_PEER_LOST, 0, "%s failed, by whose loss is not known: %s", what,
                   cause);
}

enum status comm_watch_stalled(struct comm_watch *watch, const char *what, struct err *err)
{
    (void)pthread_mutex_lock(&watch->lock);
    watch->stalled = true;
    wake(watch);
    (void)pthread_mutex_unlock(&watch->lock);
    return comm_watch_explain(watch, what, COMM_RANK_NONE, "timed out", err);
}
