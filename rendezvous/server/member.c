#include "rendezvous/server/member.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/server/again.h"
#include "rendezvous/server/election.h"
#include "rendezvous/server/loop_watch.h"
#include "rendezvous/store/backup.h"
#include "rendezvous/store/seen_keeper.h"
#include "rendezvous/store/store_copy.h"

#define KEYS_EVERY_MS 3000u        /* how often a standby reads the keys */
#define PROBLEM_EVERY_US 10000000u /* each member of etcd may have another problem */
#define KEYS_TIME_US 1000000u      /* the limit of one read of the keys, which blocks the loop */
#define ALIVE_EVERY_MS 5000u
#define LOST_EVERY_US 600000000u
#define CERT_EVERY_US UINT64_C(86400000000)
#define CERT_SOON_S (14 * 86400)

static enum status open_server(struct member *member, bool stands_by, struct err *err)
{
    struct server_options options = member->options->server;

    options.election = member->election;
    options.stands_by = stands_by;
    options.lead = member->etcd != NULL ? &member->lead : NULL;
    if (options.listen != NULL && member->bound[0] != '\0')
        options.listen = member->bound;
    return server_open(&member->server, member->loop, &options, err);
}

/* Logs each change in the election once. */
static void log_changes(struct member *member, const struct election_view *view)
{
    const char *leader = view->count > 0 && view->servers[0].leads ? view->servers[0].address : "";
    const uint64_t now_us = clock_boot_us();

    if (view->problem[0] == '\0' && member->problem[0] != '\0') {
        log_line(LOG_INFO, LOG_ABOUT_NONE, "etcd answers again");
        member->problem[0] = '\0';
    } else if (strcmp(view->problem, member->problem) != 0 &&
               (member->problem[0] == '\0' || now_us >= member->problem_at_us + PROBLEM_EVERY_US)) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s; trying again", view->problem);
        memcpy(member->problem, view->problem, sizeof member->problem);
        member->problem_at_us = now_us;
    }
    if (view->problem[0] != '\0' || strcmp(leader, member->leader) == 0)
        return;
    if (leader[0] == '\0')
        log_line(LOG_INFO, LOG_ABOUT_NONE, "no server leads");
    else
        log_line(LOG_INFO, LOG_ABOUT_NONE, "the server at %s leads", leader);
    (void)snprintf(member->leader, sizeof member->leader, "%s", leader);
}

static void on_changed(void *owner)
{
    struct member *member = owner;
    struct election_view view;

    if (member->election == NULL || member->is_ending)
        return;
    election_view(member->election, &view);
    store_copy_hurry(member->copy, view.count == 0 || !view.servers[0].leads);
    log_changes(member, &view);
    if (election_leads(member->election) && server_stands_by(member->server))
        server_stop(member->server); /* member_run continues */
}

/* From any thread. */
static void on_lost(void *owner, const char *why)
{
    const struct member *member = owner;

    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "this server led and must not act any more: %s; starting again as a standby", why);
    again_start(member->bound);
}

static void on_store_lost(const char *why, void *context)
{
    on_lost(context, why);
}

static uint64_t acts_until_us(void *context)
{
    const struct member *member = context;

    election_alive(member->election); /* each request to etcd is progress */
    return election_acts_until_us(member->election);
}

static uint64_t keys_until_us(void *context)
{
    (void)context;
    return clock_boot_us() + KEYS_TIME_US;
}

static uint32_t missing_pm(void *owner)
{
    const struct member *member = owner;

    return store_copy_missing_pm(member->copy);
}

static bool must_wait(void *owner)
{
    struct member *member = owner;
    int64_t revision;
    struct seen seen;

    return store_copy_is_none(member->copy, &revision) &&
           seen_keeper_last(member->seen, &seen, NULL) != STATUS_NOT_FOUND;
}

/* Says that etcd has lost the state, and what to do. */
static void tell_lost(struct member *member)
{
    const char *url = member->options->etcd.url;
    const uint64_t now_us = clock_boot_us();
    char seen[SEEN_TEXT_BYTES];
    int64_t revision = 0;

    if (!store_copy_is_none(member->copy, &revision) || !seen_keeper_describe(member->seen, seen)) {
        if (member->lost[0] != '\0')
            log_line(LOG_INFO, LOG_ABOUT_NONE, "etcd has a state again");
        member->lost[0] = '\0';
    } else if (member->lost[0] == '\0' || now_us >= member->lost_at_us + LOST_EVERY_US) {
        (void)snprintf(member->lost, sizeof member->lost,
                       "etcd has no state, but had %s: ddpctl restore or rendezvous --new-cluster",
                       seen);
        member->lost_at_us = now_us;
        log_line(LOG_ERROR, LOG_ABOUT_NONE,
                 "etcd (%s, at revision %" PRId64 ") has no state, but this server has seen %s "
                 "there (%s): its data is lost, or it is another etcd. No server that knows this "
                 "leads",
                 url, revision, seen, seen_keeper_path(member->seen));
        log_line(LOG_ERROR, LOG_ABOUT_NONE,
                 "to go on, bring the data of etcd back; or restore a backup: ddpctl restore "
                 "--store %s FILE; or begin a new cluster without its jobs and keys: rendezvous "
                 "--new-cluster --store %s",
                 url, url);
    }
    if (member->server != NULL)
        server_set_lost(member->server, member->lost);
}

/* Notes how far the state has come, as this standby sees it (store/seen.h). Without a state an administrator may remove
 * the file. */
static void note_seen(struct member *member)
{
    struct seen seen;

    if (store_copy_seen(member->copy, &seen))
        seen_keeper_note(member->seen, &seen);
    else
        seen_keeper_look(member->seen);
}

/* Warns once a day while the client certificate for etcd is about to end. Open connections outlive the
 * certificate: without a warning all servers would fail later, each at its next new connection. */
static void warn_of_certificate(struct member *member)
{
    const char *path = member->options->etcd.cert_path;
    const uint64_t now_us = clock_boot_us();
    int64_t left_s = 0;

    if (path == NULL || (member->cert_at_us != 0 && now_us < member->cert_at_us + CERT_EVERY_US))
        return;
    member->cert_at_us = now_us;
    if (etcd_files_left(path, &left_s) && left_s < CERT_SOON_S)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "the certificate of --store-cert, %s, %s%" PRId64
                 " days%s: put a new one and its key in their places, no restart is needed",
                 path, left_s < 0 ? "ended " : "ends in ", (left_s < 0 ? -left_s : left_s) / 86400,
                 left_s < 0 ? " ago" : "");
}

static void log_copy(struct member *member)
{
    bool is_warning;
    char text[512];

    while (store_copy_note(member->copy, &is_warning, text, sizeof text))
        log_line(is_warning ? LOG_WARNING : LOG_INFO, LOG_ABOUT_NONE, "%s", text);
}

/* A standby also refers nodes and clients that have a key, so it must know the keys. They are few
 * and seldom change. While etcd does not answer, those that were read last stay. */
static void on_keys_timer(uv_timer_t *timer)
{
    struct member *member = timer->data;
    struct store_lead lead = {
        .client = member->etcd, .prefix = member->place.prefix, .until_us = keys_until_us};
    struct server *server = member->server;
    struct err err = {.text = ""};
    bool are_read;

    if (server == NULL || !server_stands_by(server) || member->is_ending)
        return;
    log_copy(member);
    warn_of_certificate(member);
    note_seen(member);
    tell_lost(member);
    server_keys_begin(server);
    are_read = store_read_principals(&lead, server_keys_add, server, &err) == STATUS_OK;
    server_keys_end(server, are_read);
    if (are_read)
        member->key_failures = 0;
    else if (++member->key_failures == 2) /* on the first failure there may be no state yet */
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "the keys could not be read, so those read before are used, if any: %s", err.text);
}

static enum status join(struct member *member, struct err *err)
{
    struct election_options options = {.etcd = &member->place.options,
                                       .prefix = member->place.prefix,
                                       .address = server_own_address(member->server),
                                       .lease_us = member->options->leader_lease_us,
                                       .owner = member,
                                       .on_changed = on_changed,
                                       .missing_pm = missing_pm,
                                       .must_wait = must_wait,
                                       .on_lost = on_lost};
    enum status status;

    if (strlen(options.address) >= SERVER_ADDRESS_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "%.150s...: an address that other servers tell nodes and clients has at "
                       "most %u bytes",
                       options.address, SERVER_ADDRESS_BYTES_MAX - 1);
    status = election_open(&member->election, member->loop, &options, err);
    if (status == STATUS_OK)
        server_set_election(member->server, member->election);
    return status;
}

/* Warns of jobs in the state directory from before --store was used: nobody would notice that they
 * are missing. */
static void warn_of_left_jobs(const struct member_options *options)
{
    const char *dir = options->server.state_dir;
    const uint64_t count = backup_jobs_left(dir);

    if (count > 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "the state in %s has %" PRIu64
                 " jobs, which this server does not see: with --store only those in etcd count. To "
                 "move them, while no server runs and etcd has none: ddpctl backup --move "
                 "--state-dir %s FILE, then ddpctl restore --store %s FILE",
                 dir, count, dir, options->etcd.url);
}

/* Prepares everything on etcd that needs no server yet. */
static enum status prepare(struct member *member, struct err *err)
{
    const struct member_options *options = member->options;
    char seen_path[4200];
    enum status status = etcd_place_make(&member->place, &options->etcd, err);

    if (status == STATUS_OK &&
        !again_is_set()) /* a server that ran must not end while files are replaced */
        status = etcd_files_check(&member->place.options, err);
    if (status == STATUS_OK)
        status = store_hold(options->server.state_dir, &member->lock, err);
    if (status == STATUS_OK)
        status = etcd_open(&member->etcd, &member->place.options, err);
    if (status == STATUS_OK && !again_is_set())
        warn_of_left_jobs(options);
    (void)snprintf(seen_path, sizeof seen_path, "%.4000s/" SEEN_FILE_ETCD,
                   options->server.state_dir);
    if (status == STATUS_OK)
        status = seen_keeper_open(&member->seen, seen_path, err);
    if (status == STATUS_OK)
        status = store_copy_open(&member->copy, &member->place.options, member->place.prefix,
                                 member->seen, err);
    if (status != STATUS_OK)
        return status;
    member->lead = (struct store_lead){.client = member->etcd,
                                       .prefix = member->place.prefix,
                                       .quota_bytes = options->etcd_quota_bytes,
                                       .copy = member->copy,
                                       .seen = member->seen,
                                       .until_us = acts_until_us,
                                       .on_lost = on_store_lost,
                                       .context = member};
    (void)uv_timer_init(member->loop, &member->timer);
    uv_unref((uv_handle_t *)&member->timer);
    member->timer.data = member;
    (void)uv_timer_start(&member->timer, on_keys_timer, 0, KEYS_EVERY_MS);
    return STATUS_OK;
}

enum status member_open(struct member *member, uv_loop_t *loop,
                        const struct member_options *options, struct err *err)
{
    const bool has_others = options->etcd.url != NULL;
    enum status status = STATUS_OK;

    member->loop = loop;
    member->options = options;
    member->lock = FOLDER_LOCK_NONE;
    (void)snprintf(member->bound, sizeof member->bound, "%s", again_bound());
    if (has_others)
        status = prepare(member, err);
    if (status == STATUS_OK)
        status = loop_watch_open(&member->watch, loop, options->server.state_dir,
                                 options->server.lease_us, err);
    if (status == STATUS_OK)
        status = open_server(member, has_others, err);
    if (status != STATUS_OK || !has_others)
        return status;
    (void)snprintf(member->bound, sizeof member->bound, "%s", server_bound(member->server));
    return join(member, err);
}

/* A standby that has seen no commit cannot know whether the rows that it has are the newest (store_is_newest). */
static void on_alive_timer(uv_timer_t *timer)
{
    const struct member *member = timer->data;

    if (member->server != NULL && !member->is_ending && member->problem[0] == '\0')
        server_show_alive(member->server);
}

/* This server was elected while the loop ran: it leads from now on. */
static enum status lead(struct member *member, struct err *err)
{
    uint64_t begun_us = clock_boot_us();
    enum status status;

    server_free(&member->server);
    log_copy(member);
    (void)uv_timer_stop(&member->timer);
    member->lead.revision = election_token(member->election);
    log_line(LOG_INFO, LOG_ABOUT_NONE, "this server leads now, with token %lld",
             (long long)member->lead.revision);
    status = open_server(member, false, err);
    if (status == STATUS_TIMEOUT || status == STATUS_CONFLICT || status == STATUS_NOT_FOUND)
        on_lost(member, err->text);
    if (status == STATUS_OK)
        (void)uv_timer_start(&member->timer, on_alive_timer, ALIVE_EVERY_MS, ALIVE_EVERY_MS);
    election_check(member->election); /* reading the store may have taken too long to lead */
    if (status == STATUS_OK)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "this server has its state %.2f s after its election",
                 (double)(clock_boot_us() - begun_us) / 1e6);
    return status;
}

enum status member_run(struct member *member, struct err *err)
{
    enum status status = STATUS_OK;

    (void)uv_run(member->loop, UV_RUN_DEFAULT);
    while (status == STATUS_OK && !member->is_ending) {
        status = lead(member, err);
        if (status == STATUS_OK)
            (void)uv_run(member->loop, UV_RUN_DEFAULT);
    }
    return status;
}

void member_stop(struct member *member)
{
    member->is_ending = true;
    if (member->server != NULL)
        server_stop(member->server);
}

void member_close(struct member *member)
{
    member_stop(member);
    (void)uv_run(member->loop, UV_RUN_DEFAULT);
    server_free(&member->server);
    election_close(&member->election);
    store_copy_close(&member->copy);
    seen_keeper_close(&member->seen);
    loop_watch_close(&member->watch);
    if (member->etcd != NULL)
        uv_close((uv_handle_t *)&member->timer, NULL);
    etcd_close(&member->etcd);
    folder_lock_release(&member->lock);
}
