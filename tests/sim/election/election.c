/* Several servers on one etcd, simulated: the real rendezvous/core/leader.h in each, etcd as one register that carries out each
 * request at one instant, or never, or after the server has given up waiting for it.
 *
 *   sim-election [--seeds N] [--seed N] [--first] [--verbose]
 *
 * Faults: requests and answers that are lost or late, etcd that is away, servers that are killed, stopped or cut off, or whose
 * loop alone stands still, clocks that run up to 3 % fast or slow, leases that etcd ends up to half a second late.
 *
 * Rules, judged by what etcd has at that instant:
 *   two-act         a server that acts (sends, answers) holds the leader key under its own revision
 *   stale-write     no write is carried out for a server that no longer leads
 *   job-lost        a job whose submit was answered is stored
 *   job-doubled     a request is stored once
 *   nobody-leads    within 30 s after the last fault a server leads and answers submits
 *   late            after a leader is killed while both standbys still read the rows, the first to have all rows leads
 *   stuck-leads     a server whose loop stands still gives the key up in time
 *   spins           a server makes no more than a thousand steps a second */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/election/election.h"

static struct world world;

static uint64_t below(uint64_t n)
{
    return draw_u64(&world.draw) % n;
}

static void fail(const char *rule, uint32_t server)
{
    if (world.rule != NULL)
        return;
    world.rule = rule;
    (void)snprintf(world.text, sizeof world.text, "server %u, revision %llu; key has %llu", server,
                   (unsigned long long)world.servers[server].leader.revision,
                   (unsigned long long)world.etcd.key_revision);
}

static void add(struct event event)
{
    uint32_t i = world.event_count++;

    if (world.event_count > EVENTS_MAX)
        abort(); /* a bug in the simulator */
    while (i > 0 && world.events[(i - 1) / 2].at_us > event.at_us) {
        world.events[i] = world.events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world.events[i] = event;
}

static struct event take(void)
{
    struct event first = world.events[0], last = world.events[--world.event_count];
    uint32_t i = 0, child;

    while ((child = 2 * i + 1) < world.event_count) {
        if (child + 1 < world.event_count &&
            world.events[child + 1].at_us < world.events[child].at_us)
            child++;
        if (last.at_us <= world.events[child].at_us)
            break;
        world.events[i] = world.events[child];
        i = child;
    }
    world.events[i] = last;
    return first;
}

/* -- clocks -- */

static uint64_t clock_of(const struct server *server)
{
    return (uint64_t)server->clock_us + world.now_us * server->rate / FACTOR_ONE;
}

/* The time at which the server's clock will show `clock_us`. */
static uint64_t time_of(const struct server *server, uint64_t clock_us)
{
    const uint64_t shown = clock_of(server);

    return clock_us <= shown ? world.now_us
                             : world.now_us + (clock_us - shown) * FACTOR_ONE / server->rate + 1;
}

/* -- etcd -- */

static void expire(void)
{
    struct etcd *etcd = &world.etcd;

    for (uint32_t i = 0; i < etcd->lease_count; i++) {
        if (etcd->leases[i].end_us == 0 || etcd->leases[i].end_us > world.now_us)
            continue;
        etcd->leases[i].end_us = 0;
        if (etcd->key_lease == i + 1)
            etcd->key_revision = etcd->key_lease = 0;
    }
}

static bool lives(uint64_t lease_id)
{
    return lease_id > 0 && world.etcd.leases[lease_id - 1].end_us != 0;
}

static void extend(uint64_t lease_id)
{
    struct lease *lease = &world.etcd.leases[lease_id - 1];

    lease->end_us = world.now_us + lease->ttl_us + below(LEASE_LATE_US);
}

static struct leader_event carry_out(enum leader_request request, uint64_t lease_id)
{
    struct etcd *etcd = &world.etcd;
    struct leader_event answer = {.type = LEADER_EVENT_ANSWER, .is_ok = true};

    expire();
    if (request == LEADER_GRANT) {
        if (etcd->lease_count == LEASES_MAX)
            abort();
        answer.lease_id = ++etcd->lease_count;
        answer.ttl_us = etcd->leases[answer.lease_id - 1].ttl_us = LEASE_US;
        extend(answer.lease_id);
    } else if (request == LEADER_RENEW && lives(lease_id)) {
        extend(lease_id);
        answer.ttl_us = LEASE_US;
    } else if (request == LEADER_REVOKE && lives(lease_id)) {
        etcd->leases[lease_id - 1].end_us = 1;
        expire();
    } else if (request == LEADER_CLAIM && etcd->key_revision == 0) {
        answer.is_ok = lives(lease_id); /* a put under a lease that is gone is an error */
        if (answer.is_ok) {
            etcd->key_revision = ++etcd->revision;
            etcd->key_lease = lease_id;
        }
    } else if (request == LEADER_ANNOUNCE) {
        answer.is_ok = lives(lease_id);
    }
    answer.has_key = etcd->key_revision != 0;
    answer.key_lease_id = etcd->key_lease;
    answer.key_revision = etcd->key_revision;
    return answer;
}

static bool is_stopped(const struct server *server)
{
    return world.now_us < server->stopped_until_us;
}

static bool is_cut(const struct server *server)
{
    return world.now_us < server->cut_until_us || world.now_us < world.etcd.away_until_us;
}

/* Whether its loop stands still. */
static bool is_stuck(const struct server *server)
{
    return world.now_us < server->stuck_until_us;
}

static uint64_t way_us(void)
{
    return below(20) == 0 && world.now_us < FAULTS_END_US ? below(3 * SECOND) : 200 + below(20000);
}

static bool is_lost(const struct server *server)
{
    return is_cut(server) || (world.now_us < FAULTS_END_US && below(50) == 0);
}

/* -- servers -- */

static void step(uint32_t i, struct leader_event event);

/* Starts server `i`, which takes `reading_us` to read the rows. */
static void begin_in(uint32_t i, uint64_t reading_us)
{
    struct server *server = &world.servers[i];

    server->incarnation++;
    server->is_alive = true;
    server->is_writing = false;
    if (is_stuck(server)) /* what it hangs in ends first */
        server->stopped_until_us = server->stuck_until_us;
    server->stuck_until_us = 0;
    server->rows_begin_us = world.now_us;
    server->rows_at_us = world.now_us + reading_us;
    leader_init(&server->leader, LEASE_US, draw_u64(&world.draw));
    add((struct event){.at_us = world.now_us + 1000,
                       .kind = STEP,
                       .server = i,
                       .incarnation = server->incarnation});
}

static void begin(uint32_t i)
{
    begin_in(i, below(READING_US));
}

static void send(uint32_t i, const struct leader_action *action)
{
    struct server *server = &world.servers[i];
    struct event event = {.at_us = world.now_us + way_us(),
                          .kind = ARRIVE,
                          .server = i,
                          .incarnation = server->incarnation,
                          .request = action->request,
                          .lease_id = server->leader.lease_id,
                          .serial = ++server->serial};

    event.answer.sent_us = clock_of(server);
    if (!is_lost(server))
        add(event);
    event.at_us = time_of(server, clock_of(server) + action->timeout_us);
    event.kind = ANSWER; /* an answer of failure: none came in time */
    event.answer.type = LEADER_EVENT_ANSWER;
    add(event);
}

static uint32_t missing_pm(const struct server *server)
{
    const uint64_t all_us = server->rows_at_us - server->rows_begin_us;

    return world.now_us >= server->rows_at_us
               ? 0
               : 1 + (uint32_t)((server->rows_at_us - world.now_us) * 999 / all_us);
}

static void step(uint32_t i, struct leader_event event)
{
    struct server *server = &world.servers[i];
    const enum leader_state before = server->leader.state;
    struct leader_action action;

    if (++server->steps > 1000)
        fail("spins", i);
    if (world.now_us - server->step_at_us >= SECOND) {
        server->step_at_us = world.now_us;
        server->steps = 0;
    }
    event.now_us = clock_of(server);
    event.missing_pm = missing_pm(server);
    if (is_stuck(server))
        event.silent_us = (world.now_us - server->stuck_since_us) * server->rate / FACTOR_ONE;
    action = leader_step(&server->leader, &event);
    if (server->leader.state == LEADER_LEADING && before != LEADER_LEADING) {
        world.leaders++;
        add((struct event){
            .at_us = 1000 + below(100000) +
                     (world.now_us > server->rows_at_us ? world.now_us : server->rows_at_us),
            .kind = ACT,
            .server = i,
            .incarnation = server->incarnation});
    }
    if (world.is_verbose && server->leader.state != before)
        (void)printf("[%9llu] server %u: state %d, revision %llu\n",
                     (unsigned long long)world.now_us, i, server->leader.state,
                     (unsigned long long)server->leader.revision);
    if (server->leader.state == LEADER_ENDED)
        begin(i); /* the process starts anew */
    else if (action.request != LEADER_WAIT)
        send(i, &action);
    else if (action.at_us != UINT64_MAX)
        add((struct event){.at_us = time_of(server, action.at_us),
                           .kind = STEP,
                           .server = i,
                           .incarnation = server->incarnation});
}

static void arrive(struct event event)
{
    struct server *server = &world.servers[event.server];

    event.answer.type = LEADER_EVENT_ANSWER;
    uint64_t sent_us = event.answer.sent_us;
    event.answer = carry_out(event.request, event.lease_id);
    event.answer.sent_us = sent_us;
    event.kind = ANSWER;
    event.at_us += way_us();
    if (!is_lost(server))
        add(event);
}

/* The rule that matters most: a server that may act by its own clock must hold the leader key in
 * etcd. */
static bool may_act(uint32_t i)
{
    const struct server *server = &world.servers[i];

    if (!leader_may_act(&server->leader, clock_of(server)))
        return false;
    expire();
    if (world.etcd.key_revision != server->leader.revision)
        fail("two-act", i);
    return true;
}

/* The leader answers a submit that is stored, or writes the next one. */
static void act(struct event event)
{
    struct server *server = &world.servers[event.server];

    if (!may_act(event.server)) {
        begin(event.server); /* it looks at its clock, as the edge does before each message */
        return;
    }
    world.has_next = server->leader.revision != world.killed_revision;
    event.at_us = world.now_us + 1000 + below(50000);
    add(event);
    if (server->is_writing || is_cut(server))
        return;
    if (world.etcd.stored[world.job] > 0) { /* the request is stored already: it is the same job */
        world.acked[world.job] = true;
        world.last_ack_us = world.now_us;
        if (world.job + 1 < REQUESTS_MAX)
            world.job++;
        return;
    }
    server->is_writing = true;
    event.kind = WRITE_ARRIVES;
    event.at_us = world.now_us + way_us();
    event.revision = server->leader.revision;
    event.job = world.job;
    event.serial = 0;
    add(event);
}

/* Like rendezvous/store: the transaction compares the create revision of the leader key. */
static bool guard_holds(const struct event *event)
{
    return world.etcd.key_revision == event->revision;
}

static void write_arrives(struct event event)
{
    expire();
    event.is_ok = guard_holds(&event);
    if (event.is_ok) {
        if (world.etcd.key_revision != event.revision)
            fail("stale-write", event.server);
        if (++world.etcd.stored[event.job] > 1)
            fail("job-doubled", event.server);
        world.etcd.revision++;
    }
    event.kind = WRITE_ANSWERED;
    event.at_us += way_us();
    add(event);
}

static void write_answered(const struct event *event)
{
    struct server *server = &world.servers[event->server];

    server->is_writing = false;
    /* It no longer leads. Or the job is stored but not answered: the client repeats the submit, and
     * the next leader has the job. */
    if (!event->is_ok || !may_act(event->server)) {
        begin(event->server);
        return;
    }
    world.acked[event->job] = true;
    world.last_ack_us = world.now_us;
    if (event->job == world.job && world.job + 1 < REQUESTS_MAX)
        world.job++;
}

/* -- faults -- */

static void fault(void)
{
    const uint32_t i = (uint32_t)below(SERVERS);
    struct server *server = &world.servers[i];

    if (world.now_us >= FAULTS_END_US)
        return;
    switch (below(6)) {
    case 0:
        begin(i); /* killed and started again */
        break;
    case 1:
        server->stopped_until_us = world.now_us + below(5 * SECOND);
        break;
    case 2:
        server->cut_until_us = world.now_us + below(5 * SECOND);
        break;
    case 3:
        world.etcd.away_until_us = world.now_us + below(2 * SECOND);
        break;
    case 4:
        if (is_stuck(server))
            break;
        server->stuck_since_us = world.now_us;
        server->stuck_until_us = world.now_us + below(STUCK_US);
        if (server->stuck_until_us > FAULTS_END_US)
            server->stuck_until_us = FAULTS_END_US;
        break;
    default:
        if (server->is_alive && server->leader.asked == LEADER_WAIT &&
            server->leader.state == LEADER_LEADING)
            step(i, (struct leader_event){.type = LEADER_EVENT_RESIGN});
    }
    add((struct event){.at_us = world.now_us + below(4 * SECOND), .kind = FAULT});
}

/* The server that leads; SERVERS: none. */
static uint32_t find_leader(void)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        if (world.servers[i].leader.state == LEADER_LEADING &&
            world.servers[i].leader.revision == world.etcd.key_revision)
            return i;
    return SERVERS;
}

/* job 0: the first standby begins anew; 1: the second standby does; 2: the leader is killed; 3: by
 * now another server must have acted as leader. */
static void fall_behind(struct event event)
{
    const uint32_t leader = find_leader();
    const uint64_t rows_at_us = world.servers[(event.server + 1) % SERVERS].rows_at_us;
    const uint64_t gone_us = world.now_us + LEASE_US + LEASE_LATE_US;

    if (event.job == 0)
        event.server = leader;
    if (event.job == 3 ? !world.has_next : leader != event.server || leader == SERVERS)
        fail(event.job == 3 ? "late" : "nobody-leads", event.server);
    if (event.job == 3 || world.rule != NULL)
        return;
    if (event.job == 0) {
        begin_in((leader + 1) % SERVERS, READING_US);
        event.at_us += 2 * SECOND + below(3 * SECOND);
    } else if (event.job == 1) {
        begin_in((leader + 2) % SERVERS, READING_US);
        event.at_us += below(3 * SECOND);
    } else {
        world.killed_revision = world.etcd.key_revision;
        world.has_next = false;
        begin_in(leader, READING_US);
        event.at_us = CLAIM_US + (gone_us > rows_at_us ? gone_us : rows_at_us);
    }
    event.job++;
    add(event);
}

/* -- a run -- */

/* Whether an event belongs to a server's present process. The other events are in flight, no matter
 * what became of their sender. */
static bool is_of_server(const struct event *event)
{
    return event->kind != FAULT && event->kind != BEHIND && event->kind != ARRIVE &&
           event->kind != WRITE_ARRIVES;
}

static bool is_old(const struct event *event)
{
    const struct server *server = &world.servers[event->server];

    return event->incarnation != server->incarnation ||
           (event->kind == ANSWER && event->serial != server->serial);
}

static bool is_of_loop(const struct event *event)
{
    return event->kind == ACT || event->kind == WRITE_ANSWERED;
}

static void check_stuck(void)
{
    const uint32_t leader = find_leader();

    expire();
    if (leader < SERVERS && world.etcd.key_revision == world.servers[leader].leader.revision &&
        is_stuck(&world.servers[leader]) &&
        world.now_us > world.servers[leader].stuck_since_us + STUCK_LEADS_US)
        fail("stuck-leads", leader);
}

static void handle(struct event event)
{
    struct server *server = &world.servers[event.server];

    if (is_of_server(&event) && is_old(&event))
        return;
    if (is_of_server(&event) && is_stopped(server)) {
        event.at_us = server->stopped_until_us; /* when it wakes up, all pending events are there */
        add(event);
        return;
    }
    if (is_of_loop(&event) && is_stuck(server)) {
        event.at_us = server->stuck_until_us;
        add(event);
        return;
    }
    switch (event.kind) {
    case STEP:
        step(event.server, (struct leader_event){.type = LEADER_EVENT_TICK});
        break;
    case ARRIVE:
        arrive(event);
        break;
    case ANSWER:
        server->serial++; /* ignores a second answer to the same request */
        step(event.server, event.answer);
        break;
    case ACT:
        act(event);
        break;
    case WRITE_ARRIVES:
        write_arrives(event);
        break;
    case WRITE_ANSWERED:
        write_answered(&event);
        break;
    case FAULT:
        fault();
        break;
    case BEHIND:
        fall_behind(event);
    }
}

static void check_end(void)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        if (world.acked[i] && world.etcd.stored[i] != 1)
            fail("job-lost", 0);
    if (world.last_ack_us < FAULTS_END_US + CALM_US - 5 * SECOND && world.job + 1 < REQUESTS_MAX)
        fail("nobody-leads", 0);
}

static bool run(uint64_t seed, bool is_verbose)
{
    memset(&world, 0, sizeof world);
    world.draw = draw_begin(seed, 0);
    world.is_verbose = is_verbose;
    for (uint32_t i = 0; i < SERVERS; i++) {
        world.servers[i].clock_us = (int64_t)below(1000ull * SECOND);
        world.servers[i].rate = (uint32_t)(FACTOR_ONE - 30 + below(61));
        begin(i);
    }
    add((struct event){.at_us = 5 * SECOND, .kind = FAULT});
    add((struct event){.at_us = FAULTS_END_US + BEHIND_AT_US, .kind = BEHIND});
    while (world.rule == NULL && world.event_count > 0 &&
           world.events[0].at_us < FAULTS_END_US + CALM_US) {
        struct event event = take();

        world.now_us = event.at_us;
        handle(event);
        check_stuck();
    }
    if (world.rule == NULL)
        check_end();
    if (world.rule != NULL)
        (void)printf("seed %llu: at %.6f s: %s: %s\n", (unsigned long long)seed,
                     (double)world.now_us / SECOND, world.rule, world.text);
    return world.rule == NULL;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, count = 200, failed = 0, leaders = 0, jobs = 0;
    bool stops = false, is_verbose = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            count = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            first = strtoull(argv[++i], NULL, 10), count = 1;
        else if (strcmp(argv[i], "--first") == 0)
            stops = true;
        else if (strcmp(argv[i], "--verbose") == 0)
            is_verbose = true;
        else if (strcmp(argv[i], "--no-shrink") != 0) /* as in the other simulator */
            return 2;
    }
    for (uint64_t seed = first; seed < first + count && !(stops && failed > 0); seed++) {
        failed += !run(seed, is_verbose);
        leaders += world.leaders;
        jobs += world.job;
    }
    (void)printf("%llu seeds, %llu failed; %llu leaders, %llu jobs\n", (unsigned long long)count,
                 (unsigned long long)failed, (unsigned long long)leaders, (unsigned long long)jobs);
    return failed > 0;
}
