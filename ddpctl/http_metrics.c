#include "ddpctl/http_metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GAUGES_STALE_US 120000000u /* older gauges are not shown */

enum family {
    FAMILY_UP,
    FAMILY_SNAPSHOT_AGE,
    FAMILY_SERVER_INFO,
    FAMILY_SERVER_UPTIME,
    FAMILY_STORE_WRITES,
    FAMILY_STORE_LOW,
    FAMILY_CONNECTIONS,
    FAMILY_JOBS,
    FAMILY_SUBMITTED,
    FAMILY_ENDED,
    FAMILY_SLOTS,
    FAMILY_NODE_UP,
    FAMILY_NODE_BEAT_AGE,
    FAMILY_NODE_DRAINED,
    FAMILY_NODE_SLOTS,
    FAMILY_NODE_SLOTS_FREE,
    FAMILY_NODE_SLOTS_CLOSED,
    FAMILY_NODE_LOAD,
    FAMILY_NODE_CPU,
    FAMILY_NODE_MEMORY_SIZE,
    FAMILY_NODE_MEMORY_AVAILABLE,
    FAMILY_NODE_DISK_SIZE,
    FAMILY_NODE_DISK_FREE,
    FAMILY_NODE_GAUGES_AGE,
    FAMILY_GPU_INFO,
    FAMILY_GPU_JOB,
    FAMILY_GPU_UTILIZATION,
    FAMILY_GPU_MEMORY_USED,
    FAMILY_GPU_MEMORY_SIZE,
    FAMILY_GPU_TEMPERATURE,
    FAMILY_GPU_POWER,
    FAMILY_GPU_POWER_LIMIT,
    FAMILY_JOB_RANKS,
    FAMILY_JOB_RANKS_RUNNING,
    FAMILY_JOB_RESTARTS,
    FAMILY_JOB_START,
    FAMILY_JOB_EPOCH,
    FAMILY_JOB_STEP,
    FAMILY_JOB_STEPS,
    FAMILY_JOB_LOSS,
    FAMILY_JOB_RATE,
    FAMILY_JOB_CHECKPOINT,
    FAMILY_JOB_PROGRESS_AGE,
};

#define GAUGE(name, help)                                                                          \
    {                                                                                              \
        name, "gauge", help                                                                        \
    }
#define COUNTER(name, help)                                                                        \
    {                                                                                              \
        name, "counter", help                                                                      \
    }
const struct http_family http_families[] = {
    [FAMILY_UP] = GAUGE("ddp_up", "1 while the server answers."),
    [FAMILY_SNAPSHOT_AGE] =
        GAUGE("ddp_snapshot_age_seconds", "How old the lists of jobs and nodes are."),
    [FAMILY_SERVER_INFO] = GAUGE("ddp_server_info", "Always 1; the version of the server."),
    [FAMILY_SERVER_UPTIME] = GAUGE("ddp_server_uptime_seconds", "For how long the server has run."),
    [FAMILY_STORE_WRITES] =
        COUNTER("ddp_server_store_writes_total", "Transactions of the server's store."),
    [FAMILY_STORE_LOW] = GAUGE("ddp_server_store_nearly_full",
                               "1 while the server's disk is nearly full: no new jobs."),
    [FAMILY_CONNECTIONS] = GAUGE("ddp_server_connections", "Connections of nodes and clients."),
    [FAMILY_JOBS] = GAUGE("ddp_jobs", "Jobs that wait or run, by state."),
    [FAMILY_SUBMITTED] =
        COUNTER("ddp_jobs_submitted_total", "Jobs that were submitted since the server's start."),
    [FAMILY_ENDED] = COUNTER("ddp_jobs_ended_total",
                             "Jobs that ended since the server's start, by how they ended."),
    [FAMILY_SLOTS] = GAUGE("ddp_slots", "Slots of all nodes, by state."),
    [FAMILY_NODE_UP] = GAUGE("ddp_node_up", "1 while the node's heartbeats come."),
    [FAMILY_NODE_BEAT_AGE] =
        GAUGE("ddp_node_beat_age_seconds", "Time since the node's last heartbeat."),
    [FAMILY_NODE_DRAINED] =
        GAUGE("ddp_node_drained", "1 while an operator keeps new jobs off the node."),
    [FAMILY_NODE_SLOTS] = GAUGE("ddp_node_slots", "Slots of the node."),
    [FAMILY_NODE_SLOTS_FREE] = GAUGE("ddp_node_slots_free", "Slots that a job could get now."),
    [FAMILY_NODE_SLOTS_CLOSED] =
        GAUGE("ddp_node_slots_closed", "Slots that are checked, quarantined or drained."),
    [FAMILY_NODE_LOAD] = GAUGE("ddp_node_load1", "Load of the node, mean of a minute."),
    [FAMILY_NODE_CPU] = GAUGE("ddp_node_cpu_utilization_ratio",
                              "Share of the time of all processors that was used, 0 to 1."),
    [FAMILY_NODE_MEMORY_SIZE] = GAUGE("ddp_node_memory_size_bytes", "Memory of the node."),
    [FAMILY_NODE_MEMORY_AVAILABLE] =
        GAUGE("ddp_node_memory_available_bytes", "Memory that programs could still get."),
    [FAMILY_NODE_DISK_SIZE] =
        GAUGE("ddp_node_log_disk_size_bytes", "Size of the file system of the logs."),
    [FAMILY_NODE_DISK_FREE] =
        GAUGE("ddp_node_log_disk_free_bytes", "Free space of the file system of the logs."),
    [FAMILY_NODE_GAUGES_AGE] =
        GAUGE("ddp_node_gauges_age_seconds",
              "How old the values of the node and of its GPUs are: nodes take turns."),
    [FAMILY_GPU_INFO] = GAUGE("ddp_gpu_info", "Always 1; the model and the UUID of the GPU."),
    [FAMILY_GPU_JOB] = GAUGE("ddp_gpu_job", "The number of the job on the GPU; 0: none."),
    [FAMILY_GPU_UTILIZATION] =
        GAUGE("ddp_gpu_utilization_ratio", "Share of the time in which a kernel ran, 0 to 1."),
    [FAMILY_GPU_MEMORY_USED] = GAUGE("ddp_gpu_memory_used_bytes", "Memory of the GPU in use."),
    [FAMILY_GPU_MEMORY_SIZE] = GAUGE("ddp_gpu_memory_size_bytes", "Memory of the GPU."),
    [FAMILY_GPU_TEMPERATURE] = GAUGE("ddp_gpu_temperature_celsius", "Temperature of the GPU."),
    [FAMILY_GPU_POWER] = GAUGE("ddp_gpu_power_watts", "Power that the GPU draws."),
    [FAMILY_GPU_POWER_LIMIT] = GAUGE("ddp_gpu_power_limit_watts", "Power that the GPU may draw."),
    [FAMILY_JOB_RANKS] = GAUGE("ddp_job_ranks", "Ranks of the job."),
    [FAMILY_JOB_RANKS_RUNNING] = GAUGE("ddp_job_ranks_running", "Ranks that run."),
    [FAMILY_JOB_RESTARTS] = COUNTER("ddp_job_restarts_total", "Restarts of the job."),
    [FAMILY_JOB_START] =
        GAUGE("ddp_job_start_timestamp_seconds", "When the job started first, since 1970."),
    [FAMILY_JOB_EPOCH] = GAUGE("ddp_job_epoch", "Epoch of rank 0."),
    [FAMILY_JOB_STEP] = GAUGE("ddp_job_step", "Step of rank 0."),
    [FAMILY_JOB_STEPS] = GAUGE("ddp_job_steps", "Steps of the whole training."),
    [FAMILY_JOB_LOSS] = GAUGE("ddp_job_loss", "Loss that rank 0 told last."),
    [FAMILY_JOB_RATE] =
        GAUGE("ddp_job_samples_per_second", "Samples a second of all ranks together."),
    [FAMILY_JOB_CHECKPOINT] = GAUGE("ddp_job_checkpoint_step", "Step of the newest checkpoint."),
    [FAMILY_JOB_PROGRESS_AGE] =
        GAUGE("ddp_job_progress_age_seconds", "Time since the step of the job changed."),
};
const size_t http_family_count = sizeof http_families / sizeof http_families[0];

struct writing {
    const struct http_view *view;
    bool openmetrics;
    bool is_headed; /* HELP and TYPE of `family` are written */
    enum family family;
    struct buf *out;
};

/* Called before each sample; writes HELP and TYPE before the first one, so that a family without
 * samples is left out. OpenMetrics names a family of counters without _total. */
static void head(struct writing *writing)
{
    const struct http_family *family = &http_families[writing->family];
    size_t length = strlen(family->name);

    if (writing->is_headed)
        return;
    writing->is_headed = true;
    if (writing->openmetrics && strcmp(family->type, "counter") == 0)
        length -= strlen("_total");
    buf_printf(writing->out, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)length, family->name,
               family->help, (int)length, family->name, family->type);
}

static void put_value(struct writing *writing, double value)
{
    if (isfinite(value) && value == floor(value) && fabs(value) < 1e15)
        buf_printf(writing->out, " %.0f\n", value);
    else if (isfinite(value))
        buf_printf(writing->out, " %.12g\n", value);
    else
        buf_add_text(writing->out, isnan(value) ? " NaN\n" : value > 0 ? " +Inf\n" : " -Inf\n");
}

/* Writes a label; backslash, quote and line feed in its value are escaped. Texts of messages are
 * valid UTF-8. */
static void put_label(struct writing *writing, const char *name, const char *value, bool is_first)
{
    buf_printf(writing->out, "%s%s=\"", is_first ? "" : ",", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            buf_add(writing->out, "\\", 1);
        if (*value == '\n')
            buf_add_text(writing->out, "\\n");
        else
            buf_add(writing->out, value, 1);
    }
    buf_add(writing->out, "\"", 1);
}

static void plain(struct writing *writing, double value)
{
    head(writing);
    buf_add_text(writing->out, http_families[writing->family].name);
    put_value(writing, value);
}

/* A sample with one label. */
static void labelled(struct writing *writing, const char *name, const char *label, double value)
{
    head(writing);
    buf_printf(writing->out, "%s{", http_families[writing->family].name);
    put_label(writing, name, label, true);
    buf_add_text(writing->out, "}");
    put_value(writing, value);
}

static void put_server(struct writing *writing)
{
    const struct cluster *cluster = writing->view->cluster;
    const struct msg_server_info *info = &cluster->server.info;

    if (writing->family == FAMILY_SNAPSHOT_AGE)
        plain(writing, (double)(writing->view->now_us - cluster->taken_us) / 1e6);
    if (!cluster->server.is_known)
        return;
    if (writing->family == FAMILY_SERVER_INFO)
        labelled(writing, "version", cluster->server.version, 1);
    else if (writing->family == FAMILY_SERVER_UPTIME)
        plain(writing, floor((double)info->up_us / 1e6));
    else if (writing->family == FAMILY_STORE_WRITES)
        plain(writing, (double)info->store_writes);
    else if (writing->family == FAMILY_STORE_LOW)
        plain(writing, info->store_is_low);
    else if (writing->family == FAMILY_CONNECTIONS)
        plain(writing, info->connections);
    else if (writing->family == FAMILY_SUBMITTED)
        plain(writing, (double)info->submitted);
    if (writing->family != FAMILY_ENDED)
        return;
    labelled(writing, "state", "succeeded", (double)info->succeeded);
    labelled(writing, "state", "failed", (double)info->failed);
    labelled(writing, "state", "cancelled", (double)info->cancelled);
}

/* Slots of a lost node have no state: they are counted in the last element of `states`. */
static void count_slots(const struct cluster *cluster, uint64_t states[SLOT_DRAINED + 2])
{
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        const struct cluster_node *node = &cluster->nodes[i];
        uint32_t open = node->part.slots - node->closed_count;

        if (node->part.state == NODE_LOST) {
            states[SLOT_DRAINED + 1] += node->part.slots;
            continue;
        }
        for (uint32_t slot = 0; slot < node->closed_count; slot++)
            states[node->closed[slot].state]++;
        states[SLOT_FREE] += node->part.slots_free < open ? node->part.slots_free : open;
        states[SLOT_BUSY] += node->part.slots_free < open ? open - node->part.slots_free : 0;
    }
}

static void put_sums(struct writing *writing)
{
    const struct cluster *cluster = writing->view->cluster;
    uint64_t states[SLOT_DRAINED + 2] = {0};

    for (int state = JOB_QUEUED; writing->family == FAMILY_JOBS && state <= JOB_RESTARTING; state++)
        labelled(writing, "state", job_state_name((enum job_state)state),
                 cluster->jobs_by_state[state]);
    if (writing->family != FAMILY_SLOTS)
        return;
    count_slots(cluster, states);
    for (int state = SLOT_FREE; state <= SLOT_DRAINED; state++)
        labelled(writing, "state", slot_state_name((enum slot_state)state), (double)states[state]);
    labelled(writing, "state", "lost", (double)states[SLOT_DRAINED + 1]);
}

/* What the server reports about the node. NaN: nothing. */
static double node_value(enum family family, const struct part_node *node)
{
    switch ((int)family) {
    case FAMILY_NODE_UP:
        return node->state == NODE_UP;
    case FAMILY_NODE_BEAT_AGE:
        return node->beat_age_us < 0 ? (double)NAN : (double)node->beat_age_us / 1e6;
    case FAMILY_NODE_DRAINED:
        return node->drained;
    case FAMILY_NODE_SLOTS:
        return node->slots;
    case FAMILY_NODE_SLOTS_FREE:
        return node->state == NODE_LOST ? 0 : node->slots_free;
    case FAMILY_NODE_SLOTS_CLOSED:
        return node->slots_closed;
    }
    return NAN;
}

/* What the node reports about itself. */
static double host_value(enum family family, const struct gauges_row *row, uint64_t now_us)
{
    switch ((int)family) {
    case FAMILY_NODE_LOAD:
        return row->gauges.load;
    case FAMILY_NODE_CPU:
        return row->gauges.cpu_percent / 100;
    case FAMILY_NODE_MEMORY_SIZE:
        return row->gauges.memory_total;
    case FAMILY_NODE_MEMORY_AVAILABLE:
        return row->gauges.memory_available;
    case FAMILY_NODE_DISK_SIZE:
        return row->gauges.disk_total;
    case FAMILY_NODE_DISK_FREE:
        return row->gauges.disk_free;
    case FAMILY_NODE_GAUGES_AGE:
        return (double)(now_us - row->read_us) / 1e6;
    }
    return NAN;
}

static double gpu_value(enum family family, const struct slot_gauges *slot)
{
    switch ((int)family) {
    case FAMILY_GPU_INFO:
        return 1;
    case FAMILY_GPU_JOB:
        return (double)slot->job_id;
    case FAMILY_GPU_UTILIZATION:
        return slot->utilization_percent / 100;
    case FAMILY_GPU_MEMORY_USED:
        return slot->memory_used;
    case FAMILY_GPU_MEMORY_SIZE:
        return slot->memory_total;
    case FAMILY_GPU_TEMPERATURE:
        return slot->temperature_c;
    case FAMILY_GPU_POWER:
        return slot->power_w;
    case FAMILY_GPU_POWER_LIMIT:
        return slot->power_limit_w;
    }
    return NAN;
}

static void put_gpu(struct writing *writing, const char *node, const struct slot_gauges *slot)
{
    double value = slot->has_gpu ? gpu_value(writing->family, slot) : (double)NAN;
    char number[16];

    if (isnan(value))
        return;
    head(writing);
    (void)snprintf(number, sizeof number, "%u", slot->slot);
    buf_printf(writing->out, "%s{", http_families[writing->family].name);
    put_label(writing, "node", node, true);
    put_label(writing, "slot", number, false);
    if (writing->family == FAMILY_GPU_INFO) {
        put_label(writing, "model", slot->gpu, false);
        put_label(writing, "uuid", slot->uuid, false);
    }
    buf_add_text(writing->out, "}");
    put_value(writing, value);
}

static void put_nodes(struct writing *writing)
{
    const struct http_view *view = writing->view;

    for (uint32_t i = 0; i < view->cluster->node_count; i++) {
        const struct part_node *node = &view->cluster->nodes[i].part;
        double value = node_value(writing->family, node);

        if (!isnan(value))
            labelled(writing, "node", node->name, value);
    }
    for (uint32_t i = 0; i < view->gauges->count; i++) {
        const struct gauges_row *row = &view->gauges->rows[i];
        double value;

        if (!row->is_known || view->now_us > row->read_us + GAUGES_STALE_US)
            continue;
        value = host_value(writing->family, row, view->now_us);
        if (!isnan(value))
            labelled(writing, "node", row->node, value);
        for (uint32_t slot = 0; slot < row->gauges.slot_count; slot++)
            put_gpu(writing, row->node, &row->gauges.slots[slot]);
    }
}

static double job_value(enum family family, const struct cluster_job *job, uint64_t now_us)
{
    const struct part_job *part = &job->part;
    bool has_progress = part->step > 0 || part->epoch > 0 || part->samples_per_s > 0;

    switch ((int)family) {
    case FAMILY_JOB_RANKS:
        return (double)part->nodes * part->nproc_per_node;
    case FAMILY_JOB_RANKS_RUNNING:
        return part->ranks_running;
    case FAMILY_JOB_RESTARTS:
        return part->restarts;
    case FAMILY_JOB_START:
        return part->started_ms > 0 ? (double)part->started_ms / 1000 : (double)NAN;
    case FAMILY_JOB_STEPS:
        return part->steps > 0 ? (double)part->steps : (double)NAN;
    case FAMILY_JOB_CHECKPOINT:
        return part->checkpoint_step > 0 ? (double)part->checkpoint_step : (double)NAN;
    }
    if (!has_progress)
        return NAN;
    switch ((int)family) {
    case FAMILY_JOB_EPOCH:
        return part->epoch;
    case FAMILY_JOB_STEP:
        return (double)part->step;
    case FAMILY_JOB_LOSS:
        return part->loss;
    case FAMILY_JOB_RATE:
        return part->samples_per_s;
    case FAMILY_JOB_PROGRESS_AGE:
        return (double)(now_us - job->step_us) / 1e6;
    }
    return NAN;
}

static void put_jobs(struct writing *writing)
{
    const struct cluster *cluster = writing->view->cluster;

    for (uint32_t i = 0; i < cluster->job_count; i++) {
        const struct cluster_job *job = &cluster->jobs[i];
        char number[24];
        double value;

        if (job->part.state == JOB_QUEUED)
            continue;
        value = job_value(writing->family, job, writing->view->now_us);
        if (isnan(value))
            continue;
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)job->part.job_id);
        head(writing);
        buf_printf(writing->out, "%s{", http_families[writing->family].name);
        put_label(writing, "job", number, true);
        put_label(writing, "name", job->part.name, false);
        put_label(writing, "user", job->part.user, false);
        buf_add_text(writing->out, "}");
        put_value(writing, value);
    }
}

void http_metrics_write(const struct http_view *view, bool openmetrics, struct buf *out)
{
    struct writing writing = {.view = view, .openmetrics = openmetrics, .out = out};
    bool is_up = view->lost_why[0] == '\0' && view->cluster->taken_us > 0;

    for (size_t i = 0; i < http_family_count; i++) {
        writing.family = (enum family)i;
        writing.is_headed = false;
        if (i == FAMILY_UP)
            plain(&writing, is_up);
        else if (!is_up)
            break;
        else if (i < FAMILY_JOBS || i == FAMILY_SUBMITTED || i == FAMILY_ENDED)
            put_server(&writing);
        else if (i <= FAMILY_SLOTS)
            put_sums(&writing);
        else if (i < FAMILY_JOB_RANKS)
            put_nodes(&writing);
        else
            put_jobs(&writing);
    }
    if (openmetrics)
        buf_add_text(out, "# EOF\n");
}
