#include "ddpctl/collect.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "ddpctl/page.h"

#define PAGE_JOBS 500u
#define ANSWER_US 10000000u      /* how long the server may take to answer */
#define NODE_ANSWER_US 20000000u /* how long a node may take to answer through the server */
#define REST 4u                  /* a pause is at least so many times as long as the last reading */
#define GAUGES_OFF_US 60000000u  /* how long nodes are not asked after the server refused that */

static void begin(struct collect *collect);

static void ask(struct collect *collect, struct msg *msg)
{
    struct err err = {0};

    if (client_send(&collect->client, msg, &err) == STATUS_OK)
        client_expect(&collect->client, ANSWER_US);
}

static void ask_jobs(struct collect *collect)
{
    struct msg msg = {.type = MSG_TYPE_JOB_LIST,
                      .job_list = {.after_id = collect->last_id, .limit = PAGE_JOBS}};

    collect->stage = COLLECT_JOBS;
    ask(collect, &msg);
}

static void ask_last(struct collect *collect)
{
    struct msg msg = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = "@last"}};

    collect->stage = COLLECT_LAST;
    ask(collect, &msg);
}

static void ask_newest(struct collect *collect)
{
    uint64_t newest = collect->options.newest;
    struct msg msg = {
        .type = MSG_TYPE_JOB_LIST,
        .job_list = {.all = true,
                     .after_id = collect->newest_id > newest ? collect->newest_id - newest : 0,
                     .limit = (uint32_t)newest}};

    collect->stage = COLLECT_NEWEST;
    ask(collect, &msg);
}

static void ask_nodes(struct collect *collect)
{
    struct msg msg = {
        .type = MSG_TYPE_NODE_LIST,
        .node_list = {
            .all = true, .node = "", .after = collect->last_node, .limit = NODES_LISTED_MAX}};

    collect->stage = COLLECT_NODES;
    ask(collect, &msg);
}

static void ask_server(struct collect *collect)
{
    struct msg msg = {.type = MSG_TYPE_SERVER_GET, .server_get = {.request_id = 1}};

    collect->stage = COLLECT_SERVER;
    ask(collect, &msg);
}

static void on_timer(uv_timer_t *timer)
{
    begin(timer->data);
}

/* The pause after a slow reading is longer, so that a large cluster is not read all the time. */
static void arm(struct collect *collect)
{
    uint64_t pause_us = collect->options.interval_us;

    if (pause_us < collect->took_us * REST)
        pause_us = collect->took_us * REST;
    (void)uv_timer_start(&collect->timer, on_timer, pause_us / 1000, 0);
}

static void count_asked(struct collect *collect)
{
    collect->asked_count = 0;
    for (uint32_t i = 0; i < collect->gauges.count; i++)
        collect->asked_count += collect->gauges.rows[i].asked_us != 0;
}

static void complete(struct collect *collect)
{
    uint64_t now_us = clock_boot_us();

    client_expect(&collect->client, 0);
    collect->stage = COLLECT_IDLE;
    collect->took_us = now_us - collect->begun_us;
    collect->lost_us = 0;
    collect->lost_why[0] = '\0';
    collect->next.taken_us = now_us;
    collect->next.wall_ms = clock_wall_ms();
    cluster_free(&collect->cluster);
    collect->cluster = collect->next;
    collect->next = (struct cluster){0};
    (void)gauges_table_fit(&collect->gauges, &collect->cluster);
    count_asked(collect); /* a node with a pending question may be gone */
    arm(collect);
    collect->options.handlers->on_snapshot(collect);
}

static void fail(struct collect *collect, enum status status, const char *text)
{
    struct err err = {0};

    if (collect->is_closed)
        return;
    (void)err_set(&err, status, 0, "%s", text);
    collect_close(collect);
    collect->options.handlers->on_failed(collect, &err);
}

static void ask_watched(struct collect *collect)
{
    struct msg msg = {
        .type = MSG_TYPE_JOB_GET,
        .job_get = {.job = collect->watched_name, .first_rank = collect->watched_next.next_rank}};

    collect->stage = COLLECT_WATCHED;
    ask(collect, &msg);
}

static void after_server(struct collect *collect)
{
    job_pages_free(&collect->watched_next);
    if (collect->watched_name[0] != '\0')
        ask_watched(collect);
    else
        complete(collect);
}

static void on_watched(struct collect *collect, const struct msg_job_info *info)
{
    if (!job_pages_take(&collect->watched_next, info)) {
        fail(collect, STATUS_MEMORY, "out of memory");
    } else if (collect->watched_next.info.more_ranks) {
        ask_watched(collect);
    } else {
        job_pages_free(&collect->watched);
        collect->watched = collect->watched_next;
        collect->watched.info.jobs.items = &collect->watched.job; /* `job` was copied to here */
        collect->watched_next = (struct job_pages){0};
        collect->watched_problem[0] = '\0';
        complete(collect);
    }
}

static void begin(struct collect *collect)
{
    if (collect->is_closed || collect->stage != COLLECT_IDLE || !collect->client.open)
        return;
    (void)uv_timer_stop(&collect->timer);
    cluster_free(&collect->next);
    collect->begun_us = clock_boot_us();
    collect->last_id = 0;
    collect->last_node[0] = '\0';
    ask_jobs(collect);
}

static void after_jobs(struct collect *collect)
{
    if (collect->options.newest > 0)
        ask_last(collect);
    else
        ask_nodes(collect);
}

static void on_jobs(struct collect *collect, const struct msg_jobs *jobs)
{
    bool is_kept = collect->stage == COLLECT_JOBS
                       ? cluster_add_jobs(&collect->next, jobs, &collect->cluster, clock_boot_us())
                       : cluster_add_newest(&collect->next, jobs);

    if (!is_kept) {
        fail(collect, STATUS_MEMORY, "out of memory");
    } else if (collect->stage == COLLECT_NEWEST) {
        ask_nodes(collect);
    } else if (jobs->jobs.count > 0 &&
               page_goes_on(jobs->more, collect->last_id,
                            jobs->jobs.items[jobs->jobs.count - 1].job_id)) {
        collect->last_id = jobs->jobs.items[jobs->jobs.count - 1].job_id;
        ask_jobs(collect);
    } else {
        after_jobs(collect);
    }
}

static void on_nodes(struct collect *collect, const struct msg_nodes *nodes)
{
    uint32_t count = nodes->nodes.count;

    if (!cluster_add_nodes(&collect->next, nodes)) {
        fail(collect, STATUS_MEMORY, "out of memory");
    } else if (count > 0 && page_goes_on_by_name(nodes->more, collect->last_node,
                                                 nodes->nodes.items[count - 1].name)) {
        (void)snprintf(collect->last_node, sizeof collect->last_node, "%s",
                       nodes->nodes.items[count - 1].name);
        ask_nodes(collect);
    } else {
        ask_server(collect);
    }
}

static void on_server(struct collect *collect, const struct msg_server_info *info)
{
    struct cluster_server *server = &collect->next.server;

    server->is_known = true;
    server->info = *info;
    server->info.version = server->version;
    (void)snprintf(server->version, sizeof server->version, "%s", info->version);
    after_server(collect);
}

static void on_watched_error(struct collect *collect, const struct msg_error *error)
{
    job_pages_free(&collect->watched);
    (void)snprintf(collect->watched_problem, sizeof collect->watched_problem, "%s", error->message);
    complete(collect);
}

static void on_error(struct collect *collect, const struct msg_error *error)
{
    if (collect->stage == COLLECT_LAST) /* the cluster has no job yet */
        ask_nodes(collect);
    else if (collect->stage == COLLECT_SERVER) /* an old server does not know this request */
        after_server(collect);
    else if (collect->stage == COLLECT_WATCHED)
        on_watched_error(collect, error);
    else
        fail(collect, STATUS_SYSTEM, error->message);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct collect *collect = client->owner;
    enum collect_stage stage = collect->stage;

    if (msg->type == MSG_TYPE_ERROR) {
        on_error(collect, &msg->error);
    } else if (msg->type == MSG_TYPE_JOBS && (stage == COLLECT_JOBS || stage == COLLECT_NEWEST)) {
        on_jobs(collect, &msg->jobs);
    } else if (msg->type == MSG_TYPE_JOB_INFO && stage == COLLECT_LAST &&
               msg->job_info.jobs.count == 1) {
        collect->newest_id = msg->job_info.jobs.items[0].job_id;
        ask_newest(collect);
    } else if (msg->type == MSG_TYPE_JOB_INFO && stage == COLLECT_WATCHED &&
               msg->job_info.jobs.count == 1) {
        on_watched(collect, &msg->job_info);
    } else if (msg->type == MSG_TYPE_NODES && stage == COLLECT_NODES) {
        on_nodes(collect, &msg->nodes);
    } else if (msg->type == MSG_TYPE_SERVER_INFO && stage == COLLECT_SERVER) {
        on_server(collect, &msg->server_info);
    } else {
        fail(collect, STATUS_BAD_INPUT,
             "the server answered what nobody asked for: are both of the same version?");
    }
}

static void on_open(struct client *client)
{
    struct collect *collect = client->owner;

    collect->stage = COLLECT_IDLE;
    begin(collect);
}

static void on_waiting(struct client *client, const struct err *err)
{
    struct collect *collect = client->owner;

    if (collect->lost_us == 0)
        collect->lost_us = clock_boot_us();
    (void)snprintf(collect->lost_why, sizeof collect->lost_why, "%s", err->text);
    if (client == &collect->client && collect->options.handlers->on_waiting != NULL)
        collect->options.handlers->on_waiting(collect, err);
}

static void on_failed(struct client *client, const struct err *err)
{
    struct collect *collect = client->owner;
    struct err why = *err;

    if (collect->is_closed)
        return;
    collect_close(collect);
    collect->options.handlers->on_failed(collect, &why);
}

static const struct client_handlers handlers = {
    .on_open = on_open, .on_message = on_message, .on_waiting = on_waiting, .on_failed = on_failed};

/* -- questions to nodes -- */

static void answered(struct collect *collect, struct gauges_row *row, const char *problem)
{
    row->asked_us = 0;
    collect->asked_count -= collect->asked_count > 0;
    (void)snprintf(row->problem, sizeof row->problem, "%s", problem);
    if (collect->asked_count == 0)
        client_expect(&collect->node_client, 0);
    if (collect->options.handlers->on_gauges != NULL)
        collect->options.handlers->on_gauges(collect, row);
}

/* The id of a question is the time when it was asked; no two pending questions share it. */
static struct gauges_row *find_asked(struct collect *collect, uint64_t request_id)
{
    for (uint32_t i = 0; i < collect->gauges.count; i++)
        if (request_id != 0 && collect->gauges.rows[i].asked_us == request_id)
            return &collect->gauges.rows[i];
    return NULL;
}

static void forget_asked(struct collect *collect)
{
    collect->asked_count = 0;
    for (uint32_t i = 0; i < collect->gauges.count; i++)
        collect->gauges.rows[i].asked_us = 0;
}

static void on_node_message(struct client *client, const struct msg *msg)
{
    struct collect *collect = client->owner;
    struct gauges_row *row;
    struct err err = {.text = ""};

    if (msg->type == MSG_TYPE_ERROR) { /* an error does not say which question it is about */
        if (strcmp(msg->error.code, "bad_request") == 0)
            collect->gauges_off_until_us = clock_boot_us() + GAUGES_OFF_US;
        forget_asked(collect);
        client_expect(client, 0);
        return;
    }
    row = msg->type == MSG_TYPE_NODE_DATA ? find_asked(collect, msg->node_data.request_id) : NULL;
    if (row == NULL)
        return;
    if (msg->node_data.problem[0] != '\0') {
        answered(collect, row, msg->node_data.problem);
        return;
    }
    if (node_gauges_parse(&row->gauges, (const char *)msg->node_data.bytes.items,
                          msg->node_data.bytes.count, &err) == STATUS_OK) {
        row->is_known = true;
        row->read_us = clock_boot_us();
    }
    answered(collect, row, err.text);
}

static void on_node_open(struct client *client)
{
    forget_asked(client->owner);
}

static const struct client_handlers node_handlers = {
    .on_open = on_node_open, .on_message = on_node_message, .on_failed = on_failed};

bool collect_want(struct collect *collect, const char *node, uint64_t age_us)
{
    struct gauges_row *row = gauges_table_find(&collect->gauges, node);
    uint64_t now_us = clock_boot_us();
    struct msg msg = {.type = MSG_TYPE_NODE_READ,
                      .node_read = {.node = node, .what = NODE_ASKED_GAUGES, .job = ""}};
    struct err err = {0};

    if (row == NULL || row->asked_us != 0 || now_us < row->tried_us + age_us ||
        now_us < collect->gauges_off_until_us || !collect->node_client.open)
        return true;
    if (collect->asked_count == COLLECT_ASKED_MAX)
        return false;
    while (find_asked(collect, now_us) != NULL)
        now_us++;
    row->asked_us = row->tried_us = now_us;
    msg.node_read.request_id = now_us;
    collect->asked_count++;
    if (client_send(&collect->node_client, &msg, &err) == STATUS_OK)
        client_expect(&collect->node_client, NODE_ANSWER_US);
    return true;
}

void collect_open(struct collect *collect, const struct collect_options *options)
{
    *collect = (struct collect){.options = *options};
    (void)uv_timer_init(options->loop, &collect->timer);
    collect->timer.data = collect;
    client_open(&collect->client, options->loop, options->server, options->patience_us, &handlers,
                collect);
    client_open(&collect->node_client, options->loop, options->server, options->patience_us,
                &node_handlers, collect);
    collect->client.first_is_patient = options->first_is_patient;
    collect->node_client.first_is_patient = options->first_is_patient;
}

void collect_watch(struct collect *collect, const char *job)
{
    if (strcmp(job, collect->watched_name) == 0)
        return;
    (void)snprintf(collect->watched_name, sizeof collect->watched_name, "%s", job);
    job_pages_free(&collect->watched);
    collect->watched_problem[0] = '\0';
    collect_now(collect);
}

void collect_now(struct collect *collect)
{
    begin(collect);
}

void collect_close(struct collect *collect)
{
    if (collect->is_closed)
        return;
    collect->is_closed = true;
    client_close(&collect->client);
    client_close(&collect->node_client);
    uv_close((uv_handle_t *)&collect->timer, NULL);
}

void collect_free(struct collect *collect)
{
    cluster_free(&collect->cluster);
    cluster_free(&collect->next);
    job_pages_free(&collect->watched);
    job_pages_free(&collect->watched_next);
    gauges_table_free(&collect->gauges);
}
