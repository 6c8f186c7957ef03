/* Sets of plans, and what a set finds in the cache, builds and times: counted, as there is nothing to build. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/cuda/standin.h"
#include "tests/standin/cudnn/plans.h"

struct plan_set {
    struct plan_options options;
    struct plan_request *requests;
    struct plan_info *infos;
    uint32_t count;
    struct plan_counts counts;
};

struct plan_options standin_plan_options;
uint32_t standin_plan_runs[PLAN_KINDS];
uint32_t standin_plan_builds;
struct plan_counts standin_plan_totals;
float standin_plan_times_us[PLAN_KINDS];

static enum status open_set(struct plan_set **set_out, const struct plan_options *options,
                            struct err *err)
{
    standin_plan_options = *options;
    *set_out = calloc(1, sizeof **set_out);
    if (*set_out == NULL)
        return err_set(err, STATUS_MEMORY, 0, "stand-in: out of memory");
    (*set_out)->options = *options;
    assert(options->shares == NULL ||
           options->shares->options.device_index == options->device_index);
    return STATUS_OK;
}

static void close_set(struct plan_set **set_at)
{
    free((*set_at)->requests);
    free((*set_at)->infos);
    free(*set_at);
    *set_at = NULL;
}

static bool can_do(enum plan_kind kind)
{
    if (kind == PLAN_NORM_FORWARD || kind == PLAN_NORM_BACKWARD || kind == PLAN_NORM_EVALUATE)
        return !standin_faults.no_norm_plans;
    if (kind == PLAN_CONV_DGRAD_ADD)
        return !standin_faults.no_add_plans;
    if (kind == PLAN_CONV_DGRAD_MASKED)
        return !standin_faults.no_masked_plans;
    if (kind == PLAN_CONV_STATS_PROLOGUE || kind == PLAN_CONV_DGRAD_NORM)
        return !standin_faults.no_prologue_plans;
    return kind != PLAN_NORM_APPLY || !standin_faults.no_apply_plans;
}

/* -- the cache, of the process: which plans it has, and which of them have a time -- */

enum { KEPT_MAX = 4096, NAME_BYTES = 256 };

static struct kept {
    struct plan_request request;
    bool deterministic, is_timed;
} kept[KEPT_MAX];
static uint32_t kept_count;
static struct {
    char name[NAME_BYTES];
    float us;
} kept_times[KEPT_MAX];
static uint32_t kept_times_count;
bool standin_plan_cache;

void standin_plan_cache_clear(void)
{
    kept_count = kept_times_count = 0;
}

/* What makes plans equal; see struct plan_request. */
static bool is_equal(const struct plan_request *a, const struct plan_request *b)
{
    return a->kind == b->kind && a->type == b->type && a->n == b->n && a->c == b->c &&
           a->h == b->h && a->w == b->w && a->k == b->k && a->out_h == b->out_h &&
           a->out_w == b->out_w && memcmp(&a->window, &b->window, sizeof a->window) == 0 &&
           a->has_bias == b->has_bias && a->has_add == b->has_add && a->has_relu == b->has_relu;
}

static struct kept *find_kept(const struct plan_set *plans, const struct plan_request *request)
{
    for (uint32_t i = 0; standin_plan_cache && i < kept_count; i++)
        if (kept[i].deterministic == plans->options.deterministic &&
            is_equal(&kept[i].request, request))
            return &kept[i];
    return NULL;
}

static bool is_first(const struct plan_set *plans, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (is_equal(&plans->requests[i], &plans->requests[index]))
            return false;
    return true;
}

static bool times(const struct plan_set *plans)
{
    return !plans->options.deterministic && plans->options.candidates != 1;
}

static bool is_put_off(const struct plan_set *plans, const struct plan_request *request)
{
    const struct kept *plan = find_kept(plans, request);
    const bool tunes_all = plans->options.tune_us == PLAN_TUNE_ALL && times(plans);

    return request->if_timed && !tunes_all && (plan == NULL || !plan->is_timed);
}

static void build_plan(struct plan_set *plans, const struct plan_request *request)
{
    plans->counts.plans++;
    if (is_put_off(plans, request))
        return;
    plans->counts.finalised++;
    if (find_kept(plans, request) != NULL) {
        plans->counts.from_cache++;
        return;
    }
    plans->counts.queries++;
    plans->counts.built++;
    if (!standin_plan_cache)
        return;
    assert(kept_count < KEPT_MAX);
    kept[kept_count++] = (struct kept){*request, plans->options.deterministic, false};
}

/* Where there is time, all of them; else the costliest one. */
static void time_plans(struct plan_set *plans)
{
    const struct plan_options *options = &plans->options;
    struct kept *costliest = NULL;

    plans->counts.may_time = times(plans) && options->tune_us > 0 && !options->in_background &&
                             (plans->counts.built == 0 || options->tunes_cold);
    for (uint32_t i = 0; times(plans) && i < plans->count; i++) {
        struct kept *plan = find_kept(plans, &plans->requests[i]);

        if (plan == NULL || plan->is_timed || is_put_off(plans, &plans->requests[i]) ||
            !is_first(plans, i))
            continue;
        plans->counts.untimed++;
        if (plans->counts.may_time && options->tune_us == PLAN_TUNE_ALL) {
            plan->is_timed = true;
            plans->counts.tuned++;
        } else if (costliest == NULL ||
                   plan_cost_us(&plan->request) > plan_cost_us(&costliest->request)) {
            costliest = plan;
        }
    }
    if (plans->counts.may_time && options->tune_us != PLAN_TUNE_ALL && costliest != NULL) {
        costliest->is_timed = true;
        plans->counts.tuned++;
    }
    plans->counts.untimed -= plans->counts.tuned;
}

static float time_of(const struct plan_set *plans, const struct plan_request *request)
{
    const struct kept *plan = find_kept(plans, request);

    return plan == NULL || plan->is_timed ? standin_plan_times_us[request->kind] : 0;
}

static void add_totals(const struct plan_counts *counts)
{
    standin_plan_totals.plans += counts->plans;
    standin_plan_totals.queries += counts->queries;
    standin_plan_totals.finalised += counts->finalised;
    standin_plan_totals.from_cache += counts->from_cache;
    standin_plan_totals.built += counts->built;
    standin_plan_totals.tuned += counts->tuned;
    standin_plan_totals.untimed += counts->untimed;
}

static enum status build(struct plan_set *plans, const struct plan_request *requests,
                         uint32_t count, struct err *err)
{
    plans->requests = calloc((size_t)count + 1, sizeof *plans->requests);
    plans->infos = calloc((size_t)count + 1, sizeof *plans->infos);
    if (plans->requests == NULL || plans->infos == NULL)
        return err_set(err, STATUS_MEMORY, 0, "stand-in: out of memory");
    memcpy(plans->requests, requests, count * sizeof *requests);
    plans->count = count;
    standin_plan_builds++;
    for (uint32_t i = 0; i < count; i++)
        if (is_first(plans, i))
            build_plan(plans, &requests[i]);
    time_plans(plans);
    add_totals(&plans->counts);
    for (uint32_t i = 0; i < count; i++)
        plans->infos[i] = (struct plan_info){
            .status = can_do(requests[i].kind) && !is_put_off(plans, &requests[i])
                          ? STATUS_OK
                          : STATUS_UNSUPPORTED,
            .is_put_off = is_put_off(plans, &requests[i]),
            .workspace_bytes = 256,
            .time_us = time_of(plans, &requests[i]),
            .engine = "a plain loop",
            .spares_sms = plans->options.spared_sms > 0 && !standin_faults.no_spare_plans,
            .lacks_bias = standin_faults.no_bias_plans && requests[i].kind == PLAN_LINEAR_WGRAD &&
                          requests[i].has_bias,
        };
    return STATUS_OK;
}

static void counts_of(const struct plan_set *plans, struct plan_counts *counts)
{
    *counts = plans->counts;
}

static float time_read(const struct plan_set *plans, const char *name)
{
    (void)plans;
    for (uint32_t i = 0; standin_plan_cache && i < kept_times_count; i++)
        if (strcmp(kept_times[i].name, name) == 0)
            return kept_times[i].us;
    return 0;
}

static void time_write(struct plan_set *plans, const char *name, float time_us)
{
    (void)plans;
    assert(strlen(name) < NAME_BYTES && time_us > 0 && kept_times_count < KEPT_MAX);
    if (!standin_plan_cache)
        return;
    memcpy(kept_times[kept_times_count].name, name, strlen(name) + 1);
    kept_times[kept_times_count++].us = time_us;
}

static const struct plan_info *info(const struct plan_set *plans, uint32_t index)
{
    assert(index < plans->count);
    return &plans->infos[index];
}

static enum status run(struct plan_set *plans, uint32_t index, struct CUstream_st *stream,
                       void *workspace, void *const *pointers, struct err *err)
{
    struct plan_call call;
    int code;

    assert(index < plans->count && stream != NULL && workspace != NULL);
    call.request = plans->requests[index];
    for (int port = 0; port < PLAN_PORTS; port++)
        assert((pointers[port] != NULL) == plan_takes(&call.request, (enum plan_port)port));
    memcpy(call.pointers, pointers, sizeof call.pointers);
    standin_plan_runs[call.request.kind]++;
    if (plans->infos[index].lacks_bias)
        call.pointers[PLAN_PORT_DBIAS] = NULL;
    code = standin_queue(stream, standin_plan_run, &call, sizeof call);
    return code == 0 ? STATUS_OK
                     : err_set(err, STATUS_LIBRARY, code, "stand-in plan: failed on purpose");
}

const struct cuda_plans standin_plans = {.open = open_set,
                                         .close = close_set,
                                         .build = build,
                                         .info = info,
                                         .counts = counts_of,
                                         .time_read = time_read,
                                         .time_write = time_write,
                                         .run = run};
