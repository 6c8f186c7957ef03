/* doctor: what is wrong with this client, the server, the nodes, and the network between them. First what
 * can be seen from here, then each node about itself, then connections between nodes: one listens, and
 * its peers connect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/msg_version.h"
#include "ddpctl/doctor.h"
#include "ddpctl/doctor_talk.h"
#include "ddpctl/job_pages.h"
#include "ddpctl/node_pages.h"
#include "ddpctl/output.h"
#include "ddpctl/verbs.h"

#define PATIENCE_US 5000000u
#define SLOW_US 100000u /* a round trip to the server that is worth a warning */
#define PORTS_TEXT_BYTES 64

/* The nodes that are looked at. */
struct ward {
    struct ctl *ctl;
    struct doctor_case about;
    struct doctor_findings findings;
    struct node_pages pages;
    struct doctor_node *nodes; /* [count]: those that are up */
    uint32_t count;
    const char *job; /* empty: none */
};

/* -- what can be seen from here -- */

static void look_at_key(struct ward *ward)
{
    const struct server *server = &ward->ctl->server;
    char path[PATH_MAX];
    struct err err = {0};
    struct stat file;

    if (server->tls == NULL)
        doctor_say(&ward->findings, DOCTOR_KEY, DOCTOR_SKIP, "no key is used with %s",
                   server->address);
    else if (server_key_path(path, &err) != STATUS_OK || stat(path, &file) != 0)
        doctor_say(&ward->findings, DOCTOR_KEY, DOCTOR_SKIP, "the key of %s is in no file",
                   server->key.name);
    else
        doctor_say(&ward->findings, DOCTOR_KEY, (file.st_mode & 077) != 0 ? DOCTOR_FAIL : DOCTOR_OK,
                   "%s, of %s, mode %03o", path, server->key.name, (unsigned)(file.st_mode & 0777));
}

static int on_server_info(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct ward *ward = context;
    const struct msg_server_info *info = &msg->server_info;

    (void)ctl;
    if (info->is_of_past)
        doctor_say(&ward->findings, DOCTOR_STATE, DOCTOR_FAIL,
                   "its state is of the past: %s. What was done since is lost "
                   "(docs/operations.md)",
                   info->past_why[0] != '\0' ? info->past_why : "newer jobs were seen");
    if (info->keys_lost_ms != 0)
        doctor_say(
            &ward->findings, DOCTOR_SERVER_KEYS, DOCTOR_WARN,
            "its keys are of the past: removed ones may be valid again, and new ones are not "
            "known (ddpctl server; docs/operations.md)");
    if (info->store_is_low)
        doctor_say(&ward->findings, DOCTOR_STORE, DOCTOR_FAIL,
                   "the disk or etcd under its store is nearly full: no jobs are taken");
    return CTL_OK;
}

/* Starting the server again would mend only the last of these. */
static void say_unreached(struct ward *ward, const struct doctor_greeting *greeting)
{
    const char *address = ward->ctl->server.address;

    if (greeting->is_refused)
        doctor_say(&ward->findings, DOCTOR_WELCOME, DOCTOR_FAIL, "%s refuses this client: %s%s%s",
                   address, greeting->err.text, greeting->hint[0] != '\0' ? ": " : "",
                   greeting->hint);
    else if (greeting->err.status == STATUS_REFUSED)
        doctor_say(&ward->findings, DOCTOR_KEY, DOCTOR_FAIL, "%s does not accept %s: %s", address,
                   ward->ctl->server.tls != NULL ? "our key" : "us without a key",
                   greeting->err.text);
    else
        doctor_say(&ward->findings, DOCTOR_SERVER, DOCTOR_FAIL, "%s cannot be reached: %s", address,
                   greeting->err.text);
}

/* False: the server cannot be reached, so nothing else can be asked. */
static bool look_at_server(struct ward *ward)
{
    const char *address = ward->ctl->server.address;
    struct msg ask = {.type = MSG_TYPE_SERVER_GET, .server_get = {.request_id = 1}};
    struct doctor_greeting greeting;

    doctor_greet(ward->ctl, &greeting);
    if (greeting.err.status != STATUS_OK) {
        say_unreached(ward, &greeting);
        return false;
    }
    doctor_say(&ward->findings, DOCTOR_SERVER,
               greeting.round_trip_us >= SLOW_US ? DOCTOR_WARN : DOCTOR_OK,
               "%s (cluster %s) answers in %.2f ms", address, greeting.cluster,
               (double)greeting.round_trip_us / 1e3);
    if (strcmp(greeting.version, msg_release()) == 0)
        doctor_say(&ward->findings, DOCTOR_RELEASE, DOCTOR_OK, "ddpctl and server are %s",
                   msg_release());
    else
        doctor_say(&ward->findings, DOCTOR_RELEASE, DOCTOR_WARN,
                   "ddpctl is version %s, the server %s", msg_release(), greeting.version);
    (void)verb_ask(ward->ctl, &ask, MSG_TYPE_SERVER_INFO, on_server_info, ward);
    return true;
}

/* -- which nodes -- */

static bool is_named(const struct ctl *ctl, const char *name)
{
    for (uint32_t i = 0; i < ctl->options.node.count; i++)
        if (strcmp(ctl->options.node.items[i], name) == 0)
            return true;
    return ctl->options.node.count == 0;
}

static int check_names(const struct ward *ward)
{
    char message[160];

    for (uint32_t i = 0; i < ward->ctl->options.node.count; i++) {
        const char *name = ward->ctl->options.node.items[i];
        bool is_known = false;

        for (uint32_t k = 0; k < ward->pages.node_count; k++)
            is_known = is_known || strcmp(ward->pages.nodes[k].name, name) == 0;
        if (is_known)
            continue;
        (void)snprintf(message, sizeof message, "there is no node %.80s", name);
        return ctl_fail(ward->ctl, CTL_NOT_FOUND, message, "ddpctl nodes -a lists them");
    }
    return CTL_OK;
}

static bool is_of_job(const struct job_pages *job, const char *name)
{
    for (uint32_t i = 0; i < job->rank_count; i++)
        if (strcmp(job->ranks[i].node, name) == 0)
            return true;
    return false;
}

static bool has_places(const struct job_pages *job)
{
    for (uint32_t i = 0; i < job->rank_count; i++)
        if (job->ranks[i].node[0] != '\0')
            return true;
    return false;
}

static void judge_state(struct ward *ward, const struct part_node *node)
{
    struct doctor_findings *out = &ward->findings;

    out->node = node->name;
    if (node->refused_ms != 0)
        doctor_say(out, DOCTOR_BUILD, DOCTOR_FAIL, "%s refused: %s",
                   node->state == NODE_UP ? "another launcherd of this name is" : "is",
                   node->notice);
    if (node->state != NODE_UP)
        doctor_say(out, DOCTOR_NODE, DOCTOR_FAIL, "is %s", output_node_state(node));
    else if (node->drained)
        doctor_say(out, DOCTOR_NODE, DOCTOR_WARN, "was drained by %s: %s", node->drained_by,
                   node->drain_reason);
    else if (node->slots_closed > 0)
        doctor_say(out, DOCTOR_NODE, DOCTOR_WARN, "%u of %u slots are closed", node->slots_closed,
                   node->slots);
    else
        doctor_say(out, DOCTOR_NODE, DOCTOR_OK, "up, %u slots", node->slots);
    if (strncmp(node->notice, NOTICE_OF_TWIN, sizeof NOTICE_OF_TWIN - 1) == 0)
        doctor_say(out, DOCTOR_TWIN, DOCTOR_WARN, "%s", node->notice);
    else if (node->notice[0] != '\0' && node->refused_ms == 0)
        doctor_say(out, DOCTOR_ORDERS, DOCTOR_WARN, "%s", node->notice);
    if (strcmp(node->version, msg_release()) != 0)
        doctor_say(out, DOCTOR_RELEASE, DOCTOR_WARN, "its launcherd is version %s, ddpctl %s",
                   node->version, msg_release());
    out->node = NULL;
}

static int choose_nodes(struct ward *ward, const struct job_pages *job)
{
    const bool by_job = ward->about.has_job && has_places(job);
    int rc = check_names(ward);

    ward->nodes = calloc(ward->pages.node_count + 1u, sizeof *ward->nodes);
    if (ward->nodes == NULL)
        return ctl_fail(ward->ctl, CTL_FAILED, "out of memory", "");
    for (uint32_t i = 0; rc == CTL_OK && i < ward->pages.node_count; i++) {
        const struct part_node *node = &ward->pages.nodes[i];

        if (!is_named(ward->ctl, node->name) || (by_job && !is_of_job(job, node->name)))
            continue;
        judge_state(ward, node);
        if (node->state == NODE_UP)
            (void)snprintf(ward->nodes[ward->count++].name, NODE_NAME_BYTES_MAX, "%s", node->name);
    }
    if (rc == CTL_OK && ward->count == 0)
        doctor_say(&ward->findings, DOCTOR_NODE, DOCTOR_WARN, "no node is up that could be asked");
    ward->about.nodes = ward->count;
    return rc;
}

static int find_nodes(struct ward *ward)
{
    struct msg msg = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = ward->job}};
    struct request request = {.msg = &msg, .patience_us = PATIENCE_US, .answer = MSG_TYPE_JOB_INFO};
    struct job_pages job = {0};
    int rc = node_pages_read(ward->ctl, true, &ward->pages);

    if (rc == CTL_OK && ward->about.has_job)
        rc = job_pages_read(ward->ctl, &request, &job);
    if (rc == CTL_OK && ward->about.has_job && !has_places(&job))
        screen_message(&ward->ctl->screen, "-- job %s has no nodes yet: all nodes are looked at --",
                       ward->job);
    if (rc == CTL_OK)
        rc = choose_nodes(ward, &job);
    job_pages_free(&job);
    return rc;
}

/* -- each node about itself -- */

static struct doctor_ask *make_asks(const struct ward *ward, enum node_question what,
                                    uint32_t *count)
{
    struct doctor_ask *asks = calloc(ward->count + 1u, sizeof *asks);

    *count = asks != NULL ? ward->count : 0;
    for (uint32_t i = 0; i < *count; i++) {
        asks[i].read =
            (struct msg_node_read){.node = ward->nodes[i].name, .what = what, .job = ward->job};
        asks[i].is_answered = ward->nodes[i].is_silent; /* it would take another minute each time */
    }
    return asks;
}

/* The node has let this question pass. */
static bool is_passed(const struct doctor_ask *ask)
{
    return ask->json == NULL && strcmp(ask->problem, NODE_IS_SILENT) == 0;
}

/* The node is well, and has no place for this question. */
static bool is_crowded(const struct doctor_ask *ask)
{
    return ask->json == NULL && (strcmp(ask->problem, NODE_ANSWERS_OTHERS) == 0 ||
                                 strcmp(ask->problem, NODE_ANSWERS_YOU) == 0);
}

/* asks[i] was for node i. */
static void note_silent(struct ward *ward, const struct doctor_ask *asks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!is_passed(&asks[i]) && !is_crowded(&asks[i]))
            continue;
        ward->nodes[i].is_silent = true;
        ward->findings.node = ward->nodes[i].name;
        doctor_say(&ward->findings, is_passed(&asks[i]) ? DOCTOR_ANSWER : DOCTOR_TURN, DOCTOR_FAIL,
                   "%s", asks[i].problem);
    }
    ward->findings.node = NULL;
}

static uint32_t count_heard(const struct ward *ward)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < ward->count; i++)
        count += !ward->nodes[i].is_silent;
    return count;
}

/* The server read its clock between our two readings, and the node read its own not later than the
 * server. So their difference is known up to the time that the question took. */
static void take_clock(struct doctor_node *node, const struct doctor_ask *ask)
{
    const int64_t took_ms = (int64_t)((ask->answered_us - ask->sent_us) / 1000);

    node->has_clock = ask->problem[0] == '\0' && ask->node_ms > 0 && ask->server_ms > 0;
    node->clock_off_ms = ask->node_ms - ask->server_ms;
    node->clock_accuracy_ms = took_ms + 1;
}

static int ask_clocks(struct ward *ward)
{
    uint32_t count;
    struct doctor_ask *asks = make_asks(ward, NODE_ASKED_CLOCK, &count);
    int rc = doctor_talk(ward->ctl, asks, count, NULL);
    int64_t best_ms = INT64_MAX, off_ms = 0;

    if (rc == CTL_OK)
        note_silent(ward, asks, count);
    for (uint32_t i = 0; rc == CTL_OK && i < count; i++) {
        take_clock(&ward->nodes[i], &asks[i]);
        if (asks[i].server_ms == 0 || ward->nodes[i].clock_accuracy_ms >= best_ms)
            continue;
        best_ms = ward->nodes[i].clock_accuracy_ms;
        off_ms = asks[i].sent_ms - asks[i].server_ms;
    }
    if (best_ms < INT64_MAX)
        doctor_judge_clock("the clock of this client", off_ms, best_ms, &ward->findings);
    doctor_asks_free(asks, count);
    return rc;
}

static void take_facts(struct ward *ward, struct doctor_node *node, const struct doctor_ask *ask)
{
    struct err err = {0};

    node_facts_init(&node->facts);
    ward->findings.node = node->name;
    if (node->is_silent)
        ; /* that was said */
    else if (ask->json == NULL)
        doctor_say(&ward->findings, DOCTOR_ANSWER, DOCTOR_FAIL, "%s", ask->problem);
    else if (node_facts_read(&node->facts, ask->json, ask->json_bytes, &err) != STATUS_OK)
        doctor_say(&ward->findings, DOCTOR_ANSWER, DOCTOR_FAIL, "its answer cannot be read: %s",
                   err.text);
    else
        node->has_facts = true;
    if (node->has_facts) {
        doctor_judge_machine(&ward->about, node, &ward->findings);
        doctor_judge_gpus(&ward->about, node, &ward->findings);
    }
    ward->findings.node = NULL;
}

static int ask_facts(struct ward *ward)
{
    uint32_t count, names = ward->count < NODE_PEERS_ASKED_MAX ? ward->count : NODE_PEERS_ASKED_MAX;
    struct doctor_ask *asks = make_asks(ward, NODE_ASKED_DOCTOR, &count);
    const char *peers[NODE_PEERS_ASKED_MAX];
    int rc;

    for (uint32_t i = 0; i < names; i++)
        peers[i] = ward->nodes[i].name;
    for (uint32_t i = 0; i < count; i++)
        asks[i].read.peers = (struct msg_text_list){peers, names};
    rc = doctor_talk(ward->ctl, asks, count, "-- nodes that have answered");
    if (rc == CTL_OK)
        note_silent(ward, asks, count);
    for (uint32_t i = 0; rc == CTL_OK && i < count; i++)
        take_facts(ward, &ward->nodes[i], &asks[i]);
    if (rc == CTL_OK)
        doctor_compare(&ward->about, ward->nodes, ward->count, &ward->findings);
    doctor_asks_free(asks, count);
    return rc;
}

/* -- the network between them -- */

/* Which nodes connect to which, to test the network. */
struct visits {
    uint32_t (*peers)[DOCTOR_PEERS_OF_ONE]; /* [count]: the targets of node i; UINT32_MAX: none */
    const char *(*guests)[NODE_PEERS_ASKED_MAX]; /* [count]: the nodes that connect to node i */
    uint32_t *guest_count;
    char (*ports)[PORTS_TEXT_BYTES]; /* [count]: node i's, "1,2,3"; empty: it does not listen */
    struct msg_pair (*args)[DOCTOR_PEERS_OF_ONE]; /* [count]: the questions to connect */
    const char *(*names)[DOCTOR_PEERS_OF_ONE];
};

static bool visits_new(struct visits *visits, uint32_t count)
{
    visits->peers = calloc(count, sizeof *visits->peers);
    visits->guests = calloc(count, sizeof *visits->guests);
    visits->guest_count = calloc(count, sizeof *visits->guest_count);
    visits->ports = calloc(count, sizeof *visits->ports);
    visits->args = calloc(count, sizeof *visits->args);
    visits->names = calloc(count, sizeof *visits->names);
    return visits->peers != NULL && visits->guests != NULL && visits->guest_count != NULL &&
           visits->ports != NULL && visits->args != NULL && visits->names != NULL;
}

static void visits_free(struct visits *visits)
{
    free(visits->peers);
    free(visits->guests);
    free(visits->guest_count);
    free(visits->ports);
    free(visits->args);
    free(visits->names);
}

/* Chooses the connections. A question names at most NODE_PEERS_ASKED_MAX nodes; a node beyond that
 * does not try to connect to this one. */
static void plan_visits(const struct ward *ward, struct visits *visits)
{
    for (uint32_t i = 0; i < ward->count; i++)
        for (uint32_t k = 0; k < DOCTOR_PEERS_OF_ONE; k++) {
            uint32_t peer = doctor_peer(ward->count, i, k, ward->count);

            if (peer != UINT32_MAX && (visits->guest_count[peer] == NODE_PEERS_ASKED_MAX ||
                                       ward->nodes[i].is_silent || ward->nodes[peer].is_silent))
                peer = UINT32_MAX;
            visits->peers[i][k] = peer;
            if (peer != UINT32_MAX)
                visits->guests[peer][visits->guest_count[peer]++] = ward->nodes[i].name;
        }
}

/* Writes {"ports":[1,2,3]} as "1,2,3". */
static void take_ports(const struct doctor_ask *ask, char text[PORTS_TEXT_BYTES])
{
    const char *begin = ask->json != NULL ? memchr(ask->json, '[', ask->json_bytes) : NULL;
    size_t used = 0, left;

    if (begin == NULL)
        return;
    left = ask->json_bytes - (size_t)(begin + 1 - ask->json);
    for (const char *at = begin + 1; used < left && used < PORTS_TEXT_BYTES - 1 &&
                                     strchr("0123456789,", at[used]) != NULL && at[used] != '\0';
         used++)
        text[used] = at[used];
    text[used] = '\0';
}

static int have_them_listen(struct ward *ward, struct visits *visits)
{
    uint32_t count;
    struct doctor_ask *asks = make_asks(ward, NODE_ASKED_LISTEN, &count);
    int rc;

    for (uint32_t i = 0; i < count; i++)
        asks[i].read.peers = (struct msg_text_list){visits->guests[i], visits->guest_count[i]};
    rc = doctor_talk(ward->ctl, asks, count, "-- nodes that listen");
    if (rc == CTL_OK)
        note_silent(ward, asks, count);
    for (uint32_t i = 0; rc == CTL_OK && i < count; i++) {
        take_ports(&asks[i], visits->ports[i]);
        ward->findings.node = ward->nodes[i].name;
        if (visits->ports[i][0] == '\0' && !ward->nodes[i].is_silent)
            doctor_say(&ward->findings, DOCTOR_CONNECT, DOCTOR_FAIL, "does not listen: %s",
                       asks[i].problem);
    }
    ward->findings.node = NULL;
    doctor_asks_free(asks, count);
    return rc;
}

static void judge_visits(struct ward *ward, const struct doctor_ask *ask, const char *from)
{
    struct doctor_try tries[4 * DOCTOR_PEERS_OF_ONE];
    uint32_t count = 0;
    struct err err = {0};

    ward->findings.node = from;
    if (is_passed(ask) || is_crowded(ask))
        doctor_say(&ward->findings, is_passed(ask) ? DOCTOR_ANSWER : DOCTOR_TURN, DOCTOR_FAIL, "%s",
                   ask->problem);
    else if (ask->json == NULL)
        doctor_say(&ward->findings, DOCTOR_CONNECT, DOCTOR_FAIL, "does not connect: %s",
                   ask->problem);
    else if (doctor_read_tries(ask->json, ask->json_bytes, tries, sizeof tries / sizeof tries[0],
                               &count, &err) != STATUS_OK)
        doctor_say(&ward->findings, DOCTOR_CONNECT, DOCTOR_FAIL, "its answer cannot be read: %s",
                   err.text);
    else
        doctor_judge_tries(from, tries, count, &ward->findings);
    ward->findings.node = NULL;
}

static int have_them_connect(struct ward *ward, struct visits *visits)
{
    uint32_t count, sent = 0;
    struct doctor_ask *asks = make_asks(ward, NODE_ASKED_CONNECT, &count);
    const char **from = calloc(count + 1u, sizeof *from);
    int rc;

    for (uint32_t i = 0; from != NULL && i < count; i++) {
        uint32_t peers = 0;

        for (uint32_t k = 0; k < DOCTOR_PEERS_OF_ONE; k++) {
            const uint32_t peer = visits->peers[i][k];

            if (peer == UINT32_MAX || visits->ports[peer][0] == '\0')
                continue;
            visits->names[i][peers] = ward->nodes[peer].name;
            visits->args[i][peers++] =
                (struct msg_pair){ward->nodes[peer].name, visits->ports[peer]};
        }
        if (peers == 0)
            continue;
        asks[sent].is_answered = false; /* a silent node has no peers */
        asks[sent].read.node = from[sent] = ward->nodes[i].name;
        asks[sent].read.peers = (struct msg_text_list){visits->names[i], peers};
        asks[sent++].read.args = (struct msg_pair_list){visits->args[i], peers};
    }
    rc = doctor_talk(ward->ctl, asks, sent, "-- nodes that have tried their peers");
    for (uint32_t i = 0; rc == CTL_OK && i < sent; i++)
        judge_visits(ward, &asks[i], from[i]);
    free(from);
    doctor_asks_free(asks, count);
    return rc;
}

static int try_network(struct ward *ward)
{
    struct visits visits = {0};
    int rc = CTL_OK;

    if (count_heard(ward) < 2) {
        doctor_say(&ward->findings, DOCTOR_CONNECT, DOCTOR_SKIP,
                   "there are no two nodes to connect");
        return CTL_OK;
    }
    if (!visits_new(&visits, ward->count)) {
        visits_free(&visits);
        return ctl_fail(ward->ctl, CTL_FAILED, "out of memory", "");
    }
    plan_visits(ward, &visits);
    rc = have_them_listen(ward, &visits);
    if (rc == CTL_OK)
        rc = have_them_connect(ward, &visits);
    visits_free(&visits);
    return rc;
}

/* -- all of it -- */

static int examine(struct ward *ward)
{
    int rc;

    look_at_key(ward);
    if (!look_at_server(ward))
        return CTL_OK;
    rc = find_nodes(ward);
    if (rc == CTL_OK)
        rc = ask_clocks(ward);
    if (rc == CTL_OK && !ward->ctl->options.net)
        rc = ask_facts(ward);
    return rc == CTL_OK ? try_network(ward) : rc;
}

static int show(struct ward *ward)
{
    struct output_style style = screen_style(&ward->ctl->screen);
    struct buf out = {0};
    bool is_bad = ward->findings.failed;

    for (uint32_t i = 0; i < ward->findings.count; i++)
        is_bad = is_bad || ward->findings.items[i].level == DOCTOR_FAIL;
    if (ward->ctl->screen.json)
        doctor_show_json(&ward->findings, &out);
    else
        doctor_show(&ward->findings, ward->count, &style, &out);
    if (screen_out(&ward->ctl->screen, &out) != STATUS_OK || is_bad)
        return CTL_FAILED;
    return CTL_OK;
}

int verb_doctor(struct ctl *ctl)
{
    struct ward ward = {.ctl = ctl, .job = ctl->word_count > 0 ? ctl->words[0] : ""};
    int rc = verb_too_many(ctl, 1);

    ward.about.has_job = ward.job[0] != '\0';
    if (rc == CTL_OK)
        rc = examine(&ward);
    if (rc == CTL_OK)
        rc = show(&ward);
    doctor_findings_free(&ward.findings);
    node_pages_free(&ward.pages);
    free(ward.nodes);
    return rc;
}
