/* upgrade --plan: asks the server and its nodes what they are, and shows the order. */
#include <stdlib.h>
#include <string.h>

#include "common/msg_version.h"
#include "ddpctl/doctor_talk.h"
#include "ddpctl/node_pages.h"
#include "ddpctl/page.h"
#include "ddpctl/upgrade.h"
#include "ddpctl/verbs.h"

#define PAGE 500u

struct found {
    struct arena arena; /* has the texts */
    struct upgrade_facts facts;
    struct part_server servers[SERVERS_MAX];
    struct node_pages pages;
    uint64_t last_id;
    bool more;
};

static const char *keep(struct found *found, const char *text)
{
    const char *copy = arena_text(&found->arena, text, strlen(text));

    return copy != NULL ? copy : "";
}

static int on_server(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_server_info *info = &msg->server_info;
    struct found *found = context;
    struct upgrade_facts *facts = &found->facts;

    (void)ctl;
    facts->server_schema = info->schema;
    facts->store_is_low = info->store_is_low;
    facts->servers = found->servers;
    facts->server_count = info->servers.count;
    for (uint32_t i = 0; i < info->servers.count; i++) {
        found->servers[i] = info->servers.items[i];
        found->servers[i].address = keep(found, info->servers.items[i].address);
        found->servers[i].host = keep(found, info->servers.items[i].host);
        if (found->servers[i].leads)
            facts->server_name = found->servers[i].address;
    }
    return CTL_OK;
}

static int on_jobs(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_jobs *page = &msg->jobs;
    struct found *found = context;
    const uint64_t before = found->last_id;

    (void)ctl;
    for (uint32_t i = 0; i < page->jobs.count; i++) {
        const struct part_job *job = &page->jobs.items[i];

        found->facts.jobs_running += job->state == JOB_RUNNING;
        found->facts.jobs_moving += job->state == JOB_STARTING || job->state == JOB_RESTARTING;
        if (job->job_id > found->last_id)
            found->last_id = job->job_id;
    }
    found->more = page_goes_on(page->more, before, found->last_id);
    return CTL_OK;
}

static int ask_all(struct ctl *ctl, struct found *found)
{
    struct msg msg = {.type = MSG_TYPE_SERVER_GET, .server_get = {.request_id = 1}};
    struct doctor_greeting greeting;
    int rc = CTL_OK;

    doctor_greet(ctl, &greeting);
    if (greeting.is_refused)
        return ctl_fail_err(ctl, CTL_DENIED, &greeting.err, greeting.hint);
    if (greeting.err.status != STATUS_OK)
        return ctl_fail_server(ctl, &greeting.err);
    found->facts.server_version = keep(found, greeting.version);
    found->facts.server_protocol = greeting.protocol;
    found->facts.server_name = ctl->server.address;
    if (greeting.protocol >= msg_type_since(msg.type) && msg_protocol() >= msg_type_since(msg.type))
        rc = verb_ask(ctl, &msg, MSG_TYPE_SERVER_INFO, on_server, found);
    if (rc == CTL_OK)
        rc = node_pages_read(ctl, true, &found->pages);
    found->facts.nodes = found->pages.nodes;
    found->facts.node_count = found->pages.node_count;
    for (found->more = true; rc == CTL_OK && found->more;) {
        struct msg list = {.type = MSG_TYPE_JOB_LIST,
                           .job_list = {.after_id = found->last_id, .limit = PAGE}};

        rc = verb_ask(ctl, &list, MSG_TYPE_JOBS, on_jobs, found);
    }
    return rc;
}

static int show(struct ctl *ctl, const struct upgrade_facts *facts)
{
    struct upgrade_plan *plan = calloc(1, sizeof *plan);
    struct upgrade_step *steps = calloc(upgrade_steps_max(facts), sizeof *steps);
    struct buf out = {0};
    int rc = CTL_FAILED;

    if (plan == NULL || steps == NULL) {
        rc = ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    } else {
        plan->steps = steps;
        upgrade_make(plan, facts);
        if (ctl->screen.json)
            upgrade_json(plan, &out);
        else
            upgrade_text(plan, &out);
        rc = verb_done(ctl, &out);
        if (rc == CTL_OK && !upgrade_is_safe(plan))
            rc = CTL_FAILED;
    }
    free(plan);
    free(steps);
    return rc;
}

int verb_upgrade(struct ctl *ctl)
{
    struct found found = {.facts = {.version = msg_release(),
                                    .protocol = msg_protocol(),
                                    .schema = STORE_SCHEMA_VERSION}};
    int rc = verb_too_many(ctl, 0);

    if (rc == CTL_OK && !ctl->options.plan)
        rc = ctl_fail(ctl, CTL_USAGE, "upgrade changes nothing by itself",
                      "ddpctl upgrade --plan shows which program comes after which, and what is "
                      "safe");
    if (rc == CTL_OK)
        rc = ask_all(ctl, &found);
    if (rc == CTL_OK)
        rc = show(ctl, &found.facts);
    node_pages_free(&found.pages);
    arena_reset(&found.arena);
    return rc;
}
