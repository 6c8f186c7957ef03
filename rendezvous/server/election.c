#include "rendezvous/server/election.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/core/leader.h"

#define KEY_BYTES_MAX (ETCD_PREFIX_BYTES_MAX + 64u)
#define VALUE_BYTES_MAX (SERVER_ADDRESS_BYTES_MAX + ELECTION_HOST_BYTES_MAX + 1u)
#define WAIT_US_MAX 1000000u
#define ALIVE_EVERY_MS 100u

struct election {
    struct election_options options;
    struct etcd_client *etcd;
    struct leader leader; /* used only by the thread */
    struct arena arena;   /* likewise */
    char leader_key[KEY_BYTES_MAX], servers_from[KEY_BYTES_MAX], servers_to[KEY_BYTES_MAX];
    char value[VALUE_BYTES_MAX];
    uv_thread_t thread;
    uv_async_t changed;
    uv_timer_t alive_timer;
    uint32_t handles_open;
    uv_mutex_t lock; /* guards the fields below, except the atomics */
    uv_cond_t wake;
    bool is_resigning;
    struct election_view view;
    _Atomic uint64_t acts_until_us; /* 0: it may not act */
    _Atomic int64_t token;          /* 0: not elected */
    _Atomic uint64_t alive_us;      /* when the loop's thread last made progress */
};

/* -- called by other threads ----------------------------------------------------------------------- */

bool election_leads(const struct election *election)
{
    return atomic_load(&election->token) != 0;
}

bool election_may_act(const struct election *election)
{
    return clock_boot_us() < atomic_load(&election->acts_until_us);
}

uint64_t election_acts_until_us(const struct election *election)
{
    return atomic_load(&election->acts_until_us);
}

void election_alive(struct election *election)
{
    atomic_store(&election->alive_us, clock_boot_us());
}

/* By the thread: the loop may have noted a later time than `now_us`. */
static uint64_t silent_us(const struct election *election, uint64_t now_us)
{
    const uint64_t alive_us = atomic_load(&election->alive_us);

    return now_us > alive_us ? now_us - alive_us : 0;
}

void election_check(struct election *election)
{
    election_alive(election);
    if (!election_may_act(election))
        election->options.on_lost(election->options.owner,
                                  "its lease has ended before it could renew it");
}

const char *election_key(const struct election *election)
{
    return election->leader_key;
}

int64_t election_token(const struct election *election)
{
    return atomic_load(&election->token);
}

void election_view(struct election *election, struct election_view *view)
{
    uv_mutex_lock(&election->lock);
    *view = election->view;
    uv_mutex_unlock(&election->lock);
}

/* -- requests to etcd --------------------------------------------------------------------------- */

/* Parses "ADDRESS\nHOST". */
static void read_server(struct etcd_bytes value, struct election_server *server)
{
    const char *end = memchr(value.bytes, '\n', value.byte_count);
    const size_t address_bytes = end != NULL ? (size_t)(end - value.bytes) : value.byte_count;
    const size_t host_bytes = end != NULL ? value.byte_count - address_bytes - 1 : 0;

    (void)snprintf(server->address, sizeof server->address, "%.*s", (int)address_bytes,
                   value.bytes);
    (void)snprintf(server->host, sizeof server->host, "%.*s", (int)host_bytes,
                   end != NULL ? end + 1 : "");
}

/* Takes the rows of READ and CLAIM: the leader key and the list of servers. */
static void read_rows(struct election *election, const struct etcd_answer *answer,
                      struct leader_event *event)
{
    struct election_view view = {.count = 0};

    for (uint32_t i = 0; i < answer->row_count; i++) {
        const struct etcd_row *row = &answer->rows[i];

        if (!etcd_bytes_are(row->key, election->leader_key))
            continue;
        event->has_key = true;
        event->key_lease_id = (uint64_t)row->lease;
        event->key_revision = (uint64_t)row->created;
        read_server(row->value, &view.servers[0]);
        view.servers[0].leads = true;
        view.count = 1;
    }
    for (uint32_t i = 0; i < answer->row_count && view.count < SERVERS_MAX; i++) {
        const struct etcd_row *row = &answer->rows[i];

        if (etcd_bytes_are(row->key, election->leader_key) ||
            (event->has_key && (uint64_t)row->lease == event->key_lease_id))
            continue; /* the leader, which is listed already */
        read_server(row->value, &view.servers[view.count++]);
    }
    uv_mutex_lock(&election->lock);
    election->view = view;
    uv_mutex_unlock(&election->lock);
}

static enum status ask(struct election *election, const struct etcd_txn *txn, uint64_t deadline_us,
                       struct leader_event *event, struct err *err)
{
    struct etcd_answer answer = {0};
    enum status status =
        etcd_transact(election->etcd, txn, deadline_us, &election->arena, &answer, err);

    if (status == STATUS_OK)
        read_rows(election, &answer, event);
    return status;
}

/* Carries out READ, or CLAIM if `claims`. */
static enum status read_keys(struct election *election, bool claims, uint64_t deadline_us,
                             struct leader_event *event, struct err *err)
{
    const struct etcd_bytes key = etcd_text(election->leader_key);
    const struct etcd_compare is_free = {.target = ETCD_CREATED, .key = key, .revision = 0};
    const struct etcd_op ops[] = {
        {.kind = ETCD_PUT,
         .key = key,
         .value = etcd_text(election->value),
         .lease = (int64_t)election->leader.lease_id},
        {.kind = ETCD_RANGE, .key = key},
        {.kind = ETCD_RANGE,
         .key = etcd_text(election->servers_from),
         .end = etcd_text(election->servers_to)},
    };
    const struct etcd_txn txn = {.compares = &is_free,
                                 .compare_count = claims ? 1 : 0,
                                 .then = claims ? ops : ops + 1,
                                 .then_count = claims ? 3 : 2,
                                 .otherwise = ops + 1,
                                 .otherwise_count = claims ? 2 : 0};

    return ask(election, &txn, deadline_us, event, err);
}

static enum status announce(struct election *election, uint64_t deadline_us, struct err *err)
{
    struct etcd_answer answer = {0};
    char key[KEY_BYTES_MAX + 16];
    const struct etcd_op put = {.kind = ETCD_PUT,
                                .key = {.bytes = key},
                                .value = etcd_text(election->value),
                                .lease = (int64_t)election->leader.lease_id};
    struct etcd_op ops[] = {put};
    const struct etcd_txn txn = {.then = ops, .then_count = 1};

    (void)snprintf(key, sizeof key, "%s%016" PRIx64, election->servers_from,
                   election->leader.lease_id);
    ops[0].key = etcd_text(key);
    return etcd_transact(election->etcd, &txn, deadline_us, &election->arena, &answer, err);
}

static enum status renew(struct election *election, uint64_t deadline_us,
                         struct leader_event *event, struct err *err)
{
    uint32_t ttl_s = 0;
    enum status status = etcd_lease_keep(election->etcd, (int64_t)election->leader.lease_id,
                                         deadline_us, &ttl_s, err);

    event->ttl_us = ttl_s * UINT64_C(1000000);
    if (status != STATUS_NOT_FOUND)
        return status;
    event->ttl_us = 0;
    return STATUS_OK;
}

static enum status grant(struct election *election, uint64_t deadline_us,
                         struct leader_event *event, struct err *err)
{
    const uint32_t ttl_s = (uint32_t)((election->options.lease_us + 999999) / 1000000);
    int64_t lease = 0;
    enum status status = etcd_lease_grant(election->etcd, ttl_s, deadline_us, &lease, err);

    event->lease_id = (uint64_t)lease;
    event->ttl_us = ttl_s * UINT64_C(1000000);
    return status;
}

static enum status request(struct election *election, const struct leader_action *action,
                           struct leader_event *event, struct err *err)
{
    const uint64_t deadline_us = event->sent_us + action->timeout_us;

    switch (action->request) {
    case LEADER_GRANT:
        return grant(election, deadline_us, event, err);
    case LEADER_ANNOUNCE:
        return announce(election, deadline_us, err);
    case LEADER_RENEW:
        return renew(election, deadline_us, event, err);
    case LEADER_CLAIM:
    case LEADER_READ:
        return read_keys(election, action->request == LEADER_CLAIM, deadline_us, event, err);
    case LEADER_REVOKE:
        return etcd_lease_revoke(election->etcd, (int64_t)election->leader.lease_id, deadline_us,
                                 err);
    case LEADER_WAIT:
        break;
    }
    return STATUS_OK;
}

/* -- the thread --------------------------------------------------------------------------------- */

static void note_problem(struct election *election, const char *text)
{
    uv_mutex_lock(&election->lock);
    (void)snprintf(election->view.problem, sizeof election->view.problem, "%.255s", text);
    uv_mutex_unlock(&election->lock);
}

/* Whether the success of this request shows that all is well. etcd grants and renews leases without
 * checking user and password. */
static bool tells_all_is_well(const struct election *election, enum leader_request request)
{
    return request == LEADER_ANNOUNCE || request == LEADER_CLAIM || request == LEADER_READ ||
           election->leader.state == LEADER_LEADING;
}

static struct leader_event carry_out(struct election *election, const struct leader_action *action)
{
    struct leader_event event = {.type = LEADER_EVENT_ANSWER, .sent_us = clock_boot_us()};
    struct err err = {.text = ""};

    arena_reset(&election->arena);
    event.is_ok = request(election, action, &event, &err) == STATUS_OK;
    if (!event.is_ok || tells_all_is_well(election, action->request))
        note_problem(election, event.is_ok ? "" : err.text);
    return event;
}

/* Waits until the core wants to be stepped, or until it is time to resign. */
static struct leader_event wait_until(struct election *election, uint64_t at_us)
{
    const uint64_t now_us = clock_boot_us();
    uint64_t in_us = at_us > now_us ? at_us - now_us : 0;
    struct leader_event event = {.type = LEADER_EVENT_TICK};

    if (in_us > WAIT_US_MAX)
        in_us = WAIT_US_MAX;
    uv_mutex_lock(&election->lock);
    if (!election->is_resigning)
        (void)uv_cond_timedwait(&election->wake, &election->lock, in_us * 1000);
    if (election->is_resigning)
        event.type = LEADER_EVENT_RESIGN;
    uv_mutex_unlock(&election->lock);
    return event;
}

/* Publishes the core's state for other threads. */
static void publish(struct election *election)
{
    const struct leader *leader = &election->leader;
    const bool acts = leader->state == LEADER_LEADING && !leader->is_resigning;

    atomic_store(&election->acts_until_us, acts ? leader->until_us : 0);
    if (leader->state == LEADER_LEADING)
        atomic_store(&election->token, (int64_t)leader->revision);
    (void)uv_async_send(&election->changed);
}

static void lost(const struct election *election)
{
    const uint64_t now_us = clock_boot_us();

    const char *why = "etcd has removed its lease or the leader key";

    if (leader_is_stuck(&election->leader, silent_us(election, now_us)))
        why = "its loop has stood still, in a call that does not return (a disk that hangs?), so "
              "its lease was not renewed";
    else if (now_us >= election->leader.until_us)
        why = "its lease has ended before it could renew it";
    election->options.on_lost(election->options.owner, why);
}

static void run(void *arg)
{
    struct election *election = arg;
    struct leader_event event = {.type = LEADER_EVENT_TICK};
    struct leader_action action;

    for (;;) {
        event.now_us = clock_boot_us();
        event.missing_pm = election->options.missing_pm(election->options.owner);
        event.must_wait = election->options.must_wait(election->options.owner);
        event.silent_us = silent_us(election, event.now_us);
        action = leader_step(&election->leader, &event);
        publish(election);
        if (election->leader.state == LEADER_ENDED && !election->leader.is_resigning)
            lost(election);
        if (election->leader.state == LEADER_ENDED)
            return;
        event = action.request == LEADER_WAIT ? wait_until(election, action.at_us)
                                              : carry_out(election, &action);
    }
}

/* -- opening and closing ------------------------------------------------------------------------ */

static void on_changed(uv_async_t *async)
{
    const struct election *election = async->data;

    election->options.on_changed(election->options.owner);
}

static void on_alive(uv_timer_t *timer)
{
    election_alive(timer->data);
}

/* The handles do not keep the loop running. */
static void open_handles(struct election *election, uv_loop_t *loop)
{
    (void)uv_async_init(loop, &election->changed, on_changed);
    uv_unref((uv_handle_t *)&election->changed);
    (void)uv_timer_init(loop, &election->alive_timer);
    (void)uv_timer_start(&election->alive_timer, on_alive, ALIVE_EVERY_MS, ALIVE_EVERY_MS);
    uv_unref((uv_handle_t *)&election->alive_timer);
    election->changed.data = election->alive_timer.data = election;
    election->handles_open = 2;
}

static void fill_texts(struct election *election, const struct election_options *options)
{
    char host[ELECTION_HOST_BYTES_MAX] = "";

    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(election->leader_key, sizeof election->leader_key, "%sleader", options->prefix);
    (void)snprintf(election->servers_from, sizeof election->servers_from, "%sservers/",
                   options->prefix);
    (void)snprintf(election->servers_to, sizeof election->servers_to, "%sservers0",
                   options->prefix); /* '0' comes after '/' */
    (void)snprintf(election->value, sizeof election->value, "%s\n%s", options->address, host);
}

enum status election_open(struct election **out, uv_loop_t *loop,
                          const struct election_options *options, struct err *err)
{
    struct election *election = calloc(1, sizeof *election);
    enum status status;
    uint64_t seed = 0;

    *out = NULL;
    if (election == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the election");
    election->options = *options;
    fill_texts(election, options);
    (void)uv_random(NULL, NULL, &seed, sizeof seed, 0, NULL);
    leader_init(&election->leader, options->lease_us, seed);
    status = etcd_open(&election->etcd, options->etcd, err);
    if (status != STATUS_OK) {
        free(election);
        return status;
    }
    (void)uv_mutex_init(&election->lock);
    (void)uv_cond_init(&election->wake);
    open_handles(election, loop);
    election_alive(election);
    if (uv_thread_create(&election->thread, run, election) != 0)
        abort(); /* the kernel refuses a thread to a process that has just started */
    *out = election;
    return STATUS_OK;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct election *election = handle->data;

    if (--election->handles_open > 0)
        return;
    uv_cond_destroy(&election->wake);
    uv_mutex_destroy(&election->lock);
    arena_reset(&election->arena);
    free(election);
}

void election_close(struct election **out)
{
    struct election *election = *out;

    if (election == NULL)
        return;
    uv_mutex_lock(&election->lock);
    election->is_resigning = true;
    uv_cond_signal(&election->wake);
    uv_mutex_unlock(&election->lock);
    (void)uv_thread_join(&election->thread);
    etcd_close(&election->etcd);
    uv_close((uv_handle_t *)&election->changed, on_handle_closed);
    uv_close((uv_handle_t *)&election->alive_timer, on_handle_closed);
    *out = NULL;
}
