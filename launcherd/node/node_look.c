#include "launcherd/node/node_look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcherd/inspect/summary.h"
#include "launcherd/process/proc.h"

#define PROCESSES_MAX 4096u
#define SAMPLE_MS 1000
#define BUSY_PERCENT 5u /* of one processor */
#define GPU_BUSY_PERCENT 5
#define GPU_FRESH_US 900000u
#define GPU_TIMEOUT_US 500000u

struct sample {
    pid_t pid;
    uint64_t start_ticks, cpu_ticks;
};

struct look_rank {
    struct look *look;
    uint32_t rank;
    bool is_done;
    struct summary summary;
};

struct look {
    struct node_look *looks;
    struct look *next;
    struct msg_look ask;
    uv_work_t work;
    uv_timer_t timer;
    bool is_working, is_sent, timer_closed;
    uint32_t waits_for; /* stacks that are still awaited */
    pid_t shim_pid;
    uint64_t slot_mask;
    uint32_t gpus;
    struct gpu_watch *watch;
    bool is_busy, is_deaf; /* written by the thread while is_working */
    uint32_t rank_count;
    struct look_rank ranks[SLOTS_PER_NODE_MAX];
};

/* -- in a thread of the pool ------------------------------------------------------------------- */

/* Samples the CPU time of the processes below the shim. */
static uint32_t take_samples(pid_t shim, struct proc_found *found, struct sample *samples)
{
    const uint32_t count = proc_find_descendants(shim, NULL, NULL, found, PROCESSES_MAX);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count && i < PROCESSES_MAX; i++) {
        struct proc_stat stat;

        if (proc_stat_of(found[i].pid, &stat))
            samples[kept++] = (struct sample){found[i].pid, stat.is.start_ticks, stat.cpu_ticks};
    }
    return kept;
}

static bool uses_processor(pid_t shim)
{
    const struct timespec while_it_works = {.tv_sec = SAMPLE_MS / 1000};
    struct proc_found *found = calloc(PROCESSES_MAX, sizeof *found);
    struct sample *samples = calloc(PROCESSES_MAX, sizeof *samples);
    const uint64_t most = (uint64_t)sysconf(_SC_CLK_TCK) * BUSY_PERCENT / 100;
    bool is_busy = found == NULL || samples == NULL; /* unknown counts as busy */

    if (!is_busy) {
        const uint32_t count = take_samples(shim, found, samples);

        (void)nanosleep(&while_it_works, NULL);
        for (uint32_t i = 0; i < count && !is_busy; i++) {
            struct proc_stat stat;

            is_busy = proc_stat_of(samples[i].pid, &stat) &&
                      stat.is.start_ticks == samples[i].start_ticks &&
                      stat.cpu_ticks > samples[i].cpu_ticks + most;
        }
    }
    free(found);
    free(samples);
    return is_busy;
}

static bool uses_gpu(const struct look *look)
{
    static const struct gpu_gauges none;
    struct gpu_gauges *gauges;
    bool is_busy = false;

    if (look->watch == NULL || look->gpus == 0)
        return false;
    gauges = calloc(SLOTS_PER_NODE_MAX, sizeof *gauges);
    if (gauges == NULL)
        return true;
    gauges[0] = none;
    gpu_watch_gauges(look->watch, look->gpus, clock_boot_us(), GPU_FRESH_US, GPU_TIMEOUT_US,
                     gauges);
    for (uint32_t i = 0; i < look->gpus && !is_busy; i++)
        is_busy =
            (look->slot_mask >> i & 1) != 0 && gauges[i].utilization_percent > GPU_BUSY_PERCENT;
    free(gauges);
    return is_busy;
}

static void on_work(uv_work_t *work)
{
    struct look *look = work->data;

    look->is_busy = uses_processor(look->shim_pid) || uses_gpu(look);
    look->is_deaf = proc_is_stopped(look->shim_pid);
}

/* -- in the loop ------------------------------------------------------------------------------- */

static void drop_if_over(struct look *look)
{
    if (look->is_sent && look->timer_closed && !look->is_working && look->waits_for == 0)
        free(look);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct look *look = timer->data;

    look->timer_closed = true;
    drop_if_over(look);
}

/* Removes it from the unanswered questions. */
static void end(struct look *look)
{
    struct look **at = &look->looks->first;

    while (*at != look)
        at = &(*at)->next;
    *at = look->next;
    look->looks->count--;
    look->is_sent = true;
    uv_close((uv_handle_t *)&look->timer, on_timer_closed);
}

static void send_answer(const struct node_look *looks, const struct msg_look *ask,
                        struct look *look)
{
    static struct part_rank_look ranks[SLOTS_PER_NODE_MAX];
    struct msg msg = {.type = MSG_TYPE_LOOKED, .looked = {.request_id = ask->request_id}};
    uint32_t count = 0;

    for (uint32_t i = 0; look != NULL && i < look->rank_count; i++) {
        const struct look_rank *rank = &look->ranks[i];

        if (rank->is_done)
            ranks[count++] = (struct part_rank_look){.rank = rank->rank,
                                                     .state = rank->summary.state,
                                                     .place = rank->summary.place,
                                                     .where = rank->summary.where,
                                                     .stack = rank->summary.stack};
    }
    if (look != NULL) {
        msg.looked.is_busy = look->is_working || look->is_busy; /* unknown counts as busy */
        msg.looked.is_deaf = !look->is_working && look->is_deaf;
    }
    msg.looked.ranks.items = ranks;
    msg.looked.ranks.count = count;
    looks->host->send_server(looks->host->owner, &msg);
}

static void finish(struct look *look)
{
    if (look->is_sent)
        return;
    send_answer(look->looks, &look->ask, look);
    end(look);
}

static void on_worked(uv_work_t *work, int rc)
{
    struct look *look = work->data;

    look->is_working = false;
    if (rc != 0)
        look->is_busy = true;
    if (look->waits_for == 0)
        finish(look);
    drop_if_over(look);
}

static void on_timeout(uv_timer_t *timer)
{
    finish(timer->data);
}

/* Takes one stack. `json` NULL: there is none, and `problem` says why. Not called after
 * node_inspect_close. */
static void on_stack(void *owner, const char *json, size_t byte_count, const char *problem)
{
    struct look_rank *rank = owner;
    struct look *look = rank->look;

    if (json != NULL)
        summary_make(json, byte_count, &rank->summary);
    else
        summary_of_problem(problem, &rank->summary);
    rank->is_done = true;
    look->waits_for--;
    if (look->waits_for == 0 && !look->is_working)
        finish(look);
    drop_if_over(look);
}

static void find_slots(const struct node_host *host, struct look *look)
{
    look->gpus = host->core->options.gpus;
    for (uint32_t i = 0; i < host->core->shim_count; i++)
        if (host->core->shims[i].job_id == look->ask.job_id &&
            host->core->shims[i].generation == look->ask.generation)
            look->slot_mask = host->core->shims[i].slot_mask;
}

/* Answers may come within the call, so all ranks are counted before the first one is asked
 * about. */
static void ask_stacks(struct look *look, const struct node_shim *shim)
{
    const struct node_look *looks = look->looks;

    for (uint32_t i = 0; i < shim->rank_count; i++)
        if (shim->pids[i] != 0)
            look->ranks[look->rank_count++] =
                (struct look_rank){.look = look, .rank = shim->rank_base + i};
    look->waits_for = look->rank_count;
    for (uint32_t i = 0; i < look->rank_count; i++) {
        const struct inspect_key key = {.job_id = look->ask.job_id,
                                        .generation = look->ask.generation,
                                        .rank = look->ranks[i].rank,
                                        .what = LOG_STACK};

        node_inspect_ask(looks->inspect, &key, on_stack, &look->ranks[i]);
    }
}

void node_look_init(struct node_look *looks, const struct node_host *host,
                    struct node_inspect *inspect, struct gpu_watch *watch)
{
    *looks = (struct node_look){.host = host, .inspect = inspect, .watch = watch};
}

void node_look_ask(struct node_look *looks, const struct msg_look *ask)
{
    const struct node_shim *shim =
        node_shim_find(looks->inspect->shims, ask->job_id, ask->generation);
    struct look *look =
        shim != NULL && !shim->exited && looks->count < LOOKS_MAX ? calloc(1, sizeof *look) : NULL;

    if (look == NULL) {
        send_answer(looks, ask, NULL);
        return;
    }
    *look = (struct look){.looks = looks,
                          .next = looks->first,
                          .ask = *ask,
                          .shim_pid = shim->pid,
                          .watch = looks->watch};
    looks->first = look;
    looks->count++;
    look->work.data = look->timer.data = look;
    uv_timer_init(looks->host->loop, &look->timer);
    uv_timer_start(&look->timer, on_timeout, LOOK_MS, 0);
    find_slots(looks->host, look);
    look->is_working = uv_queue_work(looks->host->loop, &look->work, on_work, on_worked) == 0;
    look->is_busy = !look->is_working;
    if (ask->with_stacks)
        ask_stacks(look, shim);
    if (!look->is_working && look->waits_for == 0)
        finish(look);
}

void node_look_close(struct node_look *looks)
{
    while (looks->first != NULL) {
        struct look *look = looks->first;

        look->waits_for = 0; /* node_inspect_close, called next, drops the requests */
        end(look);
    }
}
