#include "launcherd/launcher.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_US 5000u
#define RETRY_BASE_US 10000u
#define RETRY_MAX_US 1000000u
#define SILENT_BEATS 5u

/* Where a field holds the newest there can be, so that nothing of the dead shim's own counts. */
#define REVISION_LAST UINT32_MAX

void launcher_init(struct launcher *launcher, const struct launcher_options *options)
{
    /* without the shims: their memory is touched when there are some */
    memset(launcher, 0, offsetof(struct launcher, shims));
    launcher->options = *options;
    launcher->retry_at_us = UINT64_MAX;
    launcher->beat_at_us = UINT64_MAX;
    launcher->silent_at_us = UINT64_MAX;
    launcher->random = options->seed;
}

static void copy_text(char *to, size_t to_bytes, const char *from)
{
    snprintf(to, to_bytes, "%s", from);
}

static struct launcher_action *add(struct launcher_actions *actions, struct launcher_action action)
{
    assert(actions->count < LAUNCHER_ACTIONS_MAX);
    actions->items[actions->count] = action;
    return &actions->items[actions->count++];
}

static struct msg *send_server(struct launcher_actions *actions, enum msg_type type)
{
    return &add(actions,
                (struct launcher_action){.type = LAUNCHER_SEND_SERVER, .msg = {.type = type}})
                ->msg;
}

static struct msg *send_shim(struct launcher_actions *actions, const struct launcher_shim *shim,
                             enum msg_type type)
{
    return &add(actions, (struct launcher_action){.type = LAUNCHER_SEND_SHIM,
                                                  .job_id = shim->job_id,
                                                  .generation = shim->generation,
                                                  .msg = {.type = type}})
                ->msg;
}

/* More lines in one step than there is room for are left out: they are for people only. */
__attribute__((format(printf, 2, 3))) static void note(struct launcher_actions *actions,
                                                       const char *format, ...)
{
    if (actions->text_count == LAUNCHER_TEXTS_MAX)
        return;
    char *text = actions->texts[actions->text_count++];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof actions->texts[0], format, args);
    va_end(args);
    add(actions, (struct launcher_action){.type = LAUNCHER_LOG, .text = text});
}

/* splitmix64, Steele et al. 2014 */
static uint64_t draw(struct launcher *launcher)
{
    uint64_t z = launcher->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static struct launcher_shim *find(struct launcher *launcher, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

const struct launcher_shim *launcher_shim(const struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

/* Another server's shims are neither listed nor ordered about. Before the first welcome we cannot
 * know whose they are, and list all. */
static bool is_of_server(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return launcher->cluster[0] == '\0' || strcmp(launcher->cluster, shim->cluster) == 0;
}

static void remove_shim(struct launcher *launcher, struct launcher_shim *shim,
                        struct launcher_actions *actions)
{
    add(actions, (struct launcher_action){.type = LAUNCHER_REMOVE,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
    struct launcher_shim *last = &launcher->shims[--launcher->shim_count];
    if (shim != last)
        *shim = *last;
}

static uint32_t list_shims(const struct launcher *launcher, struct part_beat_shim *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!is_of_server(launcher, shim))
            continue;
        out[count++] = (struct part_beat_shim){
            .job_id = shim->job_id,
            .generation = shim->generation,
            .phase = shim->phase,
            .slot_mask = shim->dead ? 0 : shim->slot_mask,
        };
    }
    return count;
}

static void rank_list(const struct launcher_shim *shim, struct part_report_rank *ranks)
{
    if (shim->end.is_known) {
        memcpy(ranks, shim->end.ranks, shim->end.rank_count * sizeof ranks[0]);
        return;
    }
    for (uint32_t i = 0; i < shim->local_count; i++)
        ranks[i] = (struct part_report_rank){.rank = shim->rank_base + i, .state = RANK_LOST};
}

/* What there is to say about a shim that cannot speak any more. */
static void report_dead(struct launcher_actions *actions, const struct launcher_shim *shim,
                        uint64_t now_us)
{
    assert(actions->rank_rows < SHIMS_PER_NODE_MAX);
    struct part_report_rank *ranks = actions->ranks[actions->rank_rows++];
    uint64_t at_us = shim->end.is_known ? shim->end.failed_at_us : shim->gone_at_us;
    uint64_t age_us = now_us > at_us ? now_us - at_us : 0;

    rank_list(shim, ranks);
    struct msg_shim_report *report = &send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report;
    *report = (struct msg_shim_report){
        .job_id = shim->job_id,
        .generation = shim->generation,
        .revision = shim->revision,
        .phase = SHIM_ENDED,
        .failed_rank = shim->end.is_known ? shim->end.failed_rank : -1,
        .failed_age_us = age_us < DURATION_US_MAX ? age_us : DURATION_US_MAX,
        .failed_errno_exit = shim->end.is_known ? shim->end.failed_errno_exit : 0,
        .cause = shim->cause,
        .tail = shim->end.is_known ? shim->end.tail : "",
    };
    report->ranks.items = ranks;
    report->ranks.count = shim->end.is_known ? shim->end.rank_count : shim->local_count;
}

static void report_all_dead(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->dead && shim->acked < shim->revision && is_of_server(launcher, shim))
            report_dead(actions, shim, now_us);
    }
}

/* Shims that have not spoken since the welcome are asked, again at each beat: a request may get
 * lost. */
static void request_reports(const struct launcher *launcher, struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connected && !shim->reported && is_of_server(launcher, shim))
            send_shim(actions, shim, MSG_TYPE_REPORT_REQUEST)->report_request.all = true;
    }
}

static void beat(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    struct msg_beat *msg = &send_server(actions, MSG_TYPE_BEAT)->beat;
    msg->sent_us = now_us;
    msg->shims.count = list_shims(launcher, actions->beat_shims);
    msg->shims.items = actions->beat_shims;
    request_reports(launcher, actions);
    report_all_dead(launcher, now_us, actions);
    launcher->beat_at_us = now_us + launcher->beat_interval_us;
}

/* -- the server
 * ----------------------------------------------------------------------------------------- */

static void on_server_open(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    const struct launcher_options *options = &launcher->options;
    launcher->server_open = true;
    launcher->welcomed = false;
    launcher->hello_at_us = now_us;
    launcher->retry_at_us = UINT64_MAX;
    launcher->silent_at_us = now_us + HELLO_TIMEOUT_US;
    struct msg_node_hello *hello = &send_server(actions, MSG_TYPE_NODE_HELLO)->node_hello;
    *hello = (struct msg_node_hello){
        .protocol = PROTOCOL_VERSION,
        .version = options->version,
        .name = options->name,
        .boot_id = options->boot_id,
        .instance = options->instance,
        .pid = options->pid,
        .address = options->address,
        .slots = options->slots,
        .gpus = options->gpus,
    };
    hello->shims.count = list_shims(launcher, actions->beat_shims);
    hello->shims.items = actions->beat_shims;
}

/* At once after a connection that had worked, then full jitter under a doubling cap: a server that
 * comes back is not met by all nodes in the same instant. Source: spec/reliability.md, section 4.
 */
static void on_server_closed(struct launcher *launcher, uint64_t now_us)
{
    if (launcher->welcomed)
        launcher->failures = 0;
    uint64_t cap_us = RETRY_MAX_US;
    if (launcher->failures < 7)
        cap_us = (uint64_t)RETRY_BASE_US << launcher->failures;
    uint64_t delay_us =
        launcher->failures == 0 ? RETRY_FIRST_US : 1000 + draw(launcher) % (cap_us - 1000);
    launcher->failures++;
    launcher->server_open = false;
    launcher->welcomed = false;
    launcher->beat_at_us = UINT64_MAX;
    launcher->silent_at_us = UINT64_MAX;
    launcher->retry_at_us = now_us + delay_us;
}

/* Leases count from when we spoke, not from when the answer came: our deadline is the earlier one.
 */
static void extend_lease(struct launcher *launcher, uint64_t sent_us,
                         struct launcher_actions *actions)
{
    if (sent_us + launcher->lease_us <= launcher->lease_until_us)
        return;
    launcher->lease_until_us = sent_us + launcher->lease_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connected && is_of_server(launcher, shim))
            send_shim(actions, shim, MSG_TYPE_LEASE)->lease.until_us = launcher->lease_until_us;
    }
}

static void on_welcome(struct launcher *launcher, const struct msg_node_welcome *welcome,
                       uint64_t now_us, struct launcher_actions *actions)
{
    uint32_t foreign_count = 0;
    launcher->welcomed = true;
    launcher->failures = 0;
    copy_text(launcher->cluster, sizeof launcher->cluster, welcome->cluster);
    launcher->beat_interval_us = welcome->beat_interval_us;
    launcher->lease_us = welcome->lease_us;
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        shim->reported = false;
        shim->acked = 0; /* by another process of the server, or by another server */
        foreign_count += !is_of_server(launcher, shim) && !shim->dead;
    }
    if (foreign_count > 0)
        note(actions,
             "%u shims belong to another server than cluster %s: left alone to their lease",
             foreign_count, launcher->cluster);
    extend_lease(launcher, launcher->hello_at_us, actions);
    beat(launcher, now_us, actions);
}

static void on_beat_ack(struct launcher *launcher, const struct msg_beat_ack *ack, uint64_t now_us,
                        struct launcher_actions *actions)
{
    if (!launcher->welcomed || ack->sent_us > now_us)
        return;
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    extend_lease(launcher, ack->sent_us, actions);
}

/* -- orders
 * ----------------------------------------------------------------------------------------- */

/* A new entry; NULL when the table is full, even of another server's dead. */
static struct launcher_shim *enter(struct launcher *launcher, struct launcher_actions *actions)
{
    for (uint32_t i = 0; launcher->shim_count == SHIMS_PER_NODE_MAX && i < launcher->shim_count;
         i++)
        if (launcher->shims[i].dead && !is_of_server(launcher, &launcher->shims[i]))
            remove_shim(launcher, &launcher->shims[i], actions);
    if (launcher->shim_count == SHIMS_PER_NODE_MAX)
        return NULL;
    struct launcher_shim *shim = &launcher->shims[launcher->shim_count++];
    memset(shim, 0, sizeof *shim);
    return shim;
}

/* Why `start` cannot be carried out; false: it can. */
static bool start_is_refused(const struct launcher *launcher, const struct msg_start *start,
                             char *cause, size_t cause_bytes)
{
    uint32_t slots = launcher->options.slots;
    if (slots < 64 && start->slot_mask >> slots != 0) {
        snprintf(cause, cause_bytes, "slots 0x%llx were ordered, node %s has %u",
                 (unsigned long long)start->slot_mask, launcher->options.name, slots);
        return true;
    }
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->dead || shim->phase == SHIM_ENDED || (shim->slot_mask & start->slot_mask) == 0)
            continue;
        snprintf(cause, cause_bytes, "slot %d of node %s is still held by job %llu, generation %u",
                 __builtin_ctzll(shim->slot_mask & start->slot_mask), launcher->options.name,
                 (unsigned long long)shim->job_id, shim->generation);
        return true;
    }
    return false;
}

static void set_dead(struct launcher_shim *shim, uint64_t now_us)
{
    shim->dead = true;
    shim->connected = false;
    shim->connect_at_us = 0;
    shim->phase = SHIM_ENDED;
    shim->revision = REVISION_LAST;
    shim->acked = 0;
    shim->gone_at_us = now_us;
}

static void refuse_without_entry(const struct msg_start *start, struct launcher_actions *actions,
                                 const char *cause)
{
    struct msg_shim_report *report = &send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report;
    *report = (struct msg_shim_report){
        .job_id = start->job_id,
        .generation = start->generation,
        .revision = REVISION_LAST,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .cause = cause,
        .tail = "",
    };
}

static void fill_entry(struct launcher_shim *shim, const struct msg_start *start)
{
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    shim->phase = SHIM_PREPARING;
    shim->slot_mask = start->slot_mask;
    shim->rank_base = start->rank_base;
    shim->local_count = start->local_count;
    copy_text(shim->cluster, sizeof shim->cluster, start->cluster);
}

static void on_start(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions)
{
    const struct msg_start *start = &event->msg->start;
    struct launcher_shim *shim = find(launcher, start->job_id, start->generation);

    if (strcmp(start->cluster, launcher->cluster) != 0)
        return; /* the server contradicts its own welcome */
    if (shim != NULL && is_of_server(launcher, shim))
        return; /* said again */
    if (shim != NULL && !shim->dead) {
        refuse_without_entry(start, actions,
                             "a job of another server, with this number, runs here");
        return;
    }
    if (shim != NULL)
        remove_shim(launcher, shim, actions);
    char cause[REASON_BYTES_MAX];
    bool refused = start_is_refused(launcher, start, cause, sizeof cause);
    shim = enter(launcher, actions);
    if (shim == NULL) {
        refuse_without_entry(start, actions, "this node has all the shims it can have");
        return;
    }
    fill_entry(shim, start);
    if (refused) {
        set_dead(shim, event->now_us);
        copy_text(shim->cause, sizeof shim->cause, cause);
        note(actions, "start of job %llu, generation %u refused: %s",
             (unsigned long long)start->job_id, start->generation, cause);
        report_dead(actions, shim, event->now_us);
        return;
    }
    add(actions, (struct launcher_action){.type = LAUNCHER_SPAWN_SHIM,
                                          .job_id = start->job_id,
                                          .generation = start->generation,
                                          .msg = *event->msg});
}

static void on_forget(struct launcher *launcher, struct launcher_shim *shim,
                      const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead) {
        remove_shim(launcher, shim, actions);
        return;
    }
    shim->forgotten = true; /* told when it connects, if it is not connected now */
    if (shim->connected)
        send_shim(actions, shim, MSG_TYPE_FORGET)->forget = event->msg->forget;
}

static void on_report_ack(struct launcher_shim *shim, const struct launcher_event *event,
                          struct launcher_actions *actions)
{
    if (!shim->dead && shim->connected)
        send_shim(actions, shim, MSG_TYPE_REPORT_ACK)->report_ack = event->msg->report_ack;
    else if (shim->dead && event->msg->report_ack.revision > shim->acked)
        shim->acked = event->msg->report_ack.revision;
}

/* A stop for what is not known here has come true already: its start order was lost, or it was
 * forgotten. The server waits for the end of every part before it starts the next generation. */
static void answer_unknown_stop(struct launcher_actions *actions, const struct msg_stop *stop)
{
    send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report = (struct msg_shim_report){
        .job_id = stop->job_id,
        .generation = stop->generation,
        .revision = REVISION_LAST,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .cause = "this node does not know the job",
        .tail = "",
    };
}

/* An order to one shim: job_id and generation stand first in each of these messages. */
static void on_order(struct launcher *launcher, const struct launcher_event *event, uint64_t job_id,
                     uint32_t generation, struct launcher_actions *actions)
{
    struct launcher_shim *shim = find(launcher, job_id, generation);
    if (shim == NULL && launcher->welcomed && event->msg->type == MSG_TYPE_STOP)
        answer_unknown_stop(actions, &event->msg->stop);
    if (shim == NULL || !launcher->welcomed || !is_of_server(launcher, shim))
        return;
    if (event->msg->type == MSG_TYPE_FORGET) {
        on_forget(launcher, shim, event, actions);
    } else if (event->msg->type == MSG_TYPE_REPORT_ACK) {
        on_report_ack(shim, event, actions);
    } else if (shim->connected) {
        send_shim(actions, shim, event->msg->type);
        actions->items[actions->count - 1].msg = *event->msg;
    }
}

static void on_server_msg(struct launcher *launcher, const struct launcher_event *event,
                          struct launcher_actions *actions)
{
    const struct msg *msg = event->msg;
    if (!launcher->server_open)
        return;
    if (msg->type == MSG_TYPE_NODE_WELCOME)
        on_welcome(launcher, &msg->node_welcome, event->now_us, actions);
    else if (msg->type == MSG_TYPE_BEAT_ACK)
        on_beat_ack(launcher, &msg->beat_ack, event->now_us, actions);
    else if (msg->type == MSG_TYPE_START && launcher->welcomed)
        on_start(launcher, event, actions);
    else if (msg->type == MSG_TYPE_GO)
        on_order(launcher, event, msg->go.job_id, msg->go.generation, actions);
    else if (msg->type == MSG_TYPE_WORLD)
        on_order(launcher, event, msg->world.job_id, msg->world.generation, actions);
    else if (msg->type == MSG_TYPE_STOP)
        on_order(launcher, event, msg->stop.job_id, msg->stop.generation, actions);
    else if (msg->type == MSG_TYPE_FORGET)
        on_order(launcher, event, msg->forget.job_id, msg->forget.generation, actions);
    else if (msg->type == MSG_TYPE_REPORT_ACK)
        on_order(launcher, event, msg->report_ack.job_id, msg->report_ack.generation, actions);
    else if (msg->type == MSG_TYPE_ERROR)
        note(actions, "the server says: %s%s%s", msg->error.message,
             msg->error.hint[0] != '\0' ? "; " : "", msg->error.hint);
}

/* -- the shims
 * ----------------------------------------------------------------------------------------- */

static void keep_end(struct launcher_shim *shim, const struct msg_shim_report *report,
                     uint64_t now_us)
{
    struct launcher_end *end = &shim->end;
    if (report->phase != SHIM_ENDED || report->ranks.count > SLOTS_PER_NODE_MAX)
        return;
    end->is_known = true;
    end->failed_rank = report->failed_rank;
    end->failed_errno_exit = report->failed_errno_exit;
    end->failed_at_us = now_us > report->failed_age_us ? now_us - report->failed_age_us : 0;
    end->rank_count = report->ranks.count;
    if (report->ranks.count > 0)
        memcpy(end->ranks, report->ranks.items, report->ranks.count * sizeof end->ranks[0]);
    copy_text(end->tail, sizeof end->tail, report->tail);
    copy_text(shim->cause, sizeof shim->cause, report->cause);
}

/* `how`: "was killed (signal 9)". What it had recorded itself about the end of its workers counts
 * more than the way in which it went. */
static void bury(const struct launcher *launcher, struct launcher_shim *shim,
                 const struct launcher_event *event)
{
    if (shim->dead)
        return;
    set_dead(shim, event->now_us);
    snprintf(shim->cause, sizeof shim->cause, "the shim of job %llu on %s %s",
             (unsigned long long)shim->job_id, launcher->options.name,
             event->text != NULL ? event->text : "is gone");
    if (event->msg != NULL && event->msg->type == MSG_TYPE_SHIM_REPORT)
        keep_end(shim, &event->msg->shim_report, event->now_us);
}

static void on_adopt(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions)
{
    if (find(launcher, event->shim->job_id, event->shim->generation) != NULL)
        return; /* a second directory of the same name cannot be */
    struct launcher_shim *shim = enter(launcher, actions);
    if (shim == NULL)
        return;
    *shim = *event->shim;
    shim->connected = false;
    shim->dead = false;
    shim->reported = false;
    shim->connect_at_us = 0;
    shim->connect_failures = 0;
    shim->end.is_known = false;
    if (!event->alive) {
        bury(launcher, shim, event);
        return;
    }
    add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SHIM,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
}

static void on_shim_open(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    shim->connected = true;
    shim->connect_at_us = 0;
    shim->connect_failures = 0;
    shim->reported = false;
    shim->phase = event->msg->shim_hello.phase;
    if (!is_of_server(launcher, shim) || launcher->cluster[0] == '\0')
        return;
    if (launcher->lease_until_us != 0)
        send_shim(actions, shim, MSG_TYPE_LEASE)->lease.until_us = launcher->lease_until_us;
    if (shim->forgotten) {
        struct msg_forget *forget = &send_shim(actions, shim, MSG_TYPE_FORGET)->forget;
        forget->job_id = shim->job_id;
        forget->generation = shim->generation;
    }
}

static void on_shim_msg(struct launcher *launcher, struct launcher_shim *shim,
                        const struct launcher_event *event, struct launcher_actions *actions)
{
    const struct msg *msg = event->msg;
    if (shim->dead)
        return;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        shim->phase = msg->shim_report.phase;
    else if (msg->type != MSG_TYPE_PROGRESS)
        return;
    if (!launcher->welcomed || !is_of_server(launcher, shim))
        return;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        shim->reported = true;
    send_server(actions, msg->type);
    actions->items[actions->count - 1].msg = *msg;
}

static void on_shim_closed(struct launcher_shim *shim, uint64_t now_us)
{
    if (shim->dead)
        return;
    uint64_t delay_us = RETRY_MAX_US;
    if (shim->connect_failures < 7)
        delay_us = (uint64_t)RETRY_FIRST_US << shim->connect_failures;
    shim->connect_failures++;
    shim->connected = false;
    shim->connect_at_us = now_us + delay_us;
}

static void on_shim_gone(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->forgotten) {
        remove_shim(launcher, shim, actions);
        return;
    }
    bury(launcher, shim, event);
    note(actions, "job %llu, generation %u: %s", (unsigned long long)shim->job_id, shim->generation,
         shim->cause[0] != '\0' ? shim->cause : "its shim is gone, after the end");
    if (launcher->welcomed && is_of_server(launcher, shim))
        report_dead(actions, shim, event->now_us);
}

static void on_shim_failed(struct launcher *launcher, struct launcher_shim *shim,
                           const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    set_dead(shim, event->now_us);
    copy_text(shim->cause, sizeof shim->cause, event->text);
    if (shim->forgotten)
        remove_shim(launcher, shim, actions);
    else if (launcher->welcomed && is_of_server(launcher, shim))
        report_dead(actions, shim, event->now_us);
}

/* -- time
 * ----------------------------------------------------------------------------------------- */

static void run_timers(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    if (now_us >= launcher->retry_at_us) {
        launcher->retry_at_us = UINT64_MAX;
        add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SERVER});
    }
    if (now_us >= launcher->silent_at_us) {
        const char *why = launcher->welcomed ? "the server has not answered 5 beats"
                                             : "the server did not welcome this node in time";
        launcher->silent_at_us = UINT64_MAX;
        launcher->beat_at_us = UINT64_MAX;
        add(actions, (struct launcher_action){.type = LAUNCHER_CLOSE_SERVER, .text = why});
    } else if (launcher->welcomed && now_us >= launcher->beat_at_us) {
        beat(launcher, now_us, actions);
    }
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connect_at_us == 0 || now_us < shim->connect_at_us)
            continue;
        shim->connect_at_us = 0;
        add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SHIM,
                                              .job_id = shim->job_id,
                                              .generation = shim->generation});
    }
}

static uint64_t next_timer_us(const struct launcher *launcher)
{
    uint64_t at_us = launcher->retry_at_us;
    if (launcher->silent_at_us < at_us)
        at_us = launcher->silent_at_us;
    if (launcher->beat_at_us < at_us)
        at_us = launcher->beat_at_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].connect_at_us != 0 && launcher->shims[i].connect_at_us < at_us)
            at_us = launcher->shims[i].connect_at_us;
    return at_us;
}

static void on_shim_event(struct launcher *launcher, const struct launcher_event *event,
                          struct launcher_actions *actions)
{
    struct launcher_shim *shim = find(launcher, event->job_id, event->generation);
    if (shim == NULL)
        return;
    if (event->type == LAUNCHER_EVENT_SHIM_OPEN)
        on_shim_open(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_MSG)
        on_shim_msg(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_CLOSED)
        on_shim_closed(shim, event->now_us);
    else if (event->type == LAUNCHER_EVENT_SHIM_FAILED)
        on_shim_failed(launcher, shim, event, actions);
    else
        on_shim_gone(launcher, shim, event, actions);
}

void launcher_step(struct launcher *launcher, const struct launcher_event *event,
                   struct launcher_actions *actions)
{
    actions->count = 0;
    actions->rank_rows = 0;
    actions->text_count = 0;
    switch (event->type) {
    case LAUNCHER_EVENT_TICK:
        run_timers(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_ADOPT:
        on_adopt(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_ADOPTED:
        add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SERVER});
        break;
    case LAUNCHER_EVENT_SERVER_OPEN:
        on_server_open(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_SERVER_CLOSED:
        on_server_closed(launcher, event->now_us);
        break;
    case LAUNCHER_EVENT_SERVER_MSG:
        on_server_msg(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SHIM_OPEN:
    case LAUNCHER_EVENT_SHIM_MSG:
    case LAUNCHER_EVENT_SHIM_CLOSED:
    case LAUNCHER_EVENT_SHIM_FAILED:
    case LAUNCHER_EVENT_SHIM_GONE:
        on_shim_event(launcher, event, actions);
        break;
    }
    actions->timer_at_us = next_timer_us(launcher);
}
