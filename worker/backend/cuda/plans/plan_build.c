/* The first engine of every request: from the cache, else from the heuristics. Several threads each take the next plan
 * until all are done.
 *
 * What costs time is the compilation of batch norms: about half a second of a processor each (cuDNN 9.x, on an EPYC);
 * a convolution's engine takes 2 ms, a plan out of the cache 0.1 ms, 8 ms if it holds a compiled kernel. So batch norms
 * come first. */
#include "worker/backend/cuda/plans/internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/fnv.h"
#include "common/io/mono.h"

#define THREADS_MAX 16
#define BACKGROUND_NICE 10
#define PROGRESS_US 100000
#define LINEAR_LINE "algorithm "
#define BUILDER_VERSION 3 /* increase when cudnn_layers.c builds another graph for a request */

/* How many multiprocessors an engine of this kind should use; 0: all. */
static int32_t sm_target(const struct plan_set *set, enum plan_kind kind)
{
    const bool is_norm = kind == PLAN_NORM_FORWARD || kind == PLAN_NORM_BACKWARD;
    const int32_t left = set->processors - (int32_t)set->spared_sms;

    return is_norm && set->spared_sms > 0 && left > 0 ? left : 0;
}

void plan_key(const struct plan_set *set, const struct plan_request *request,
              char key[PLAN_CACHE_KEY_MAX])
{
    (void)snprintf(
        key, PLAN_CACHE_KEY_MAX,
        "%s builder %d%s%s limit %zu candidates %u: %s %s n%u c%u h%u w%u k%u to %ux%u "
        "window %u %u "
        "%u%s%s%s%s",
        set->device_key, BUILDER_VERSION, set->target.deterministic ? " deterministic" : "",
        set->target.tf32 ? " tf32" : "", set->target.workspace_limit, set->candidates,
        plan_kind_name(request->kind), plan_type_name(request->type), request->n, request->c,
        request->h, request->w, request->k, request->out_h, request->out_w, request->window.kernel,
        request->window.stride, request->window.pad, request->has_bias ? " bias" : "",
        request->has_add ? " add" : "", request->has_relu ? " relu" : "",
        sm_target(set, request->kind) > 0 ? " spares" : "");
    if (sm_target(set, request->kind) > 0)
        (void)snprintf(key + strlen(key), PLAN_CACHE_KEY_MAX - strlen(key), " %u", set->spared_sms);
}

static void refused(struct plan *plan, const char *text, bool needs_driver)
{
    plan->info.status = STATUS_UNSUPPORTED;
    plan->info.needs_driver = needs_driver;
    (void)snprintf(plan->info.engine, sizeof plan->info.engine, "%.95s", text);
}

static void count_damage(struct plan_set *set)
{
    (void)pthread_mutex_lock(&set->lock);
    set->damaged_count++;
    (void)pthread_mutex_unlock(&set->lock);
}

static void add_counts(struct plan_set *set, const struct plan_counts *more)
{
    (void)pthread_mutex_lock(&set->lock);
    set->counts.queries += more->queries;
    set->counts.finalised += more->finalised;
    set->counts.from_cache += more->from_cache;
    set->counts.built += more->built;
    (void)pthread_mutex_unlock(&set->lock);
}

/* -- the cache -- */

/* Reads the line "time_us 12.500" before the plan; " spares" follows if the plan leaves
 * multiprocessors free. Below 0: no candidate could run. */
static const char *read_line(const char *text, struct plan_info *info)
{
    const char *end = strchr(text, '\n');
    char *rest;

    if (strncmp(text, "time_us ", 8) != 0 || end == NULL)
        return NULL;
    info->time_us = strtof(text + 8, &rest);
    info->spares_sms = strncmp(rest, " spares\n", 8) == 0;
    return end + 1;
}

void plan_keep(struct plan_set *set, const struct plan *plan)
{
    const bool has_failed = plan->info.status != STATUS_OK;
    char line[64];
    size_t byte_count = 0, line_bytes;
    char *body = NULL, *text;

    if (set->cache.folder[0] == '\0')
        return;
    if (plan->is_linear || has_failed) {
        if (asprintf(&body, LINEAR_LINE "%u\n", plan->chosen) < 0)
            return;
        byte_count = strlen(body);
    } else {
        body = cudnn_plan_write(&set->cudnn, &plan->candidates[plan->chosen], &byte_count);
    }
    line_bytes = (size_t)snprintf(line, sizeof line, "time_us %.3f%s\n",
                                  has_failed ? -1.0 : (double)plan->info.time_us,
                                  plan->info.spares_sms ? " spares" : "");
    text = body != NULL ? malloc(line_bytes + byte_count) : NULL;
    if (text != NULL) {
        memcpy(text, line, line_bytes);
        memcpy(text + line_bytes, body, byte_count);
        (void)plan_cache_write(&set->cache, plan->key, text, line_bytes + byte_count);
    }
    free(text);
    free(body);
}

/* Reads what the cache has for the plans that are built; again after another process has written. */
static void read_cache(struct plan_set *set)
{
    set->damaged_count = 0;
    for (uint32_t i = 0; i < set->order_count; i++) {
        struct plan *plan = &set->plans[set->order[i]];
        struct plan_info info = {.time_us = 0};

        free(plan->text);
        plan->text = NULL;
        if (plan_cache_read(&set->cache, plan->key, &plan->text, &plan->text_bytes) ==
            PLAN_CACHE_DAMAGED)
            set->damaged_count++;
        set->counts.cache_bytes += plan->text != NULL ? plan->text_bytes : 0;
        if (plan->text != NULL && read_line(plan->text, &info) != NULL)
            plan->info.time_us = info.time_us;
    }
}

/* Whether an engine is made or read for the plan, after read_cache. */
static bool is_made(const struct plan_set *set, const struct plan *plan)
{
    return !plan->request.if_timed || plan->info.time_us != 0 ||
           (set->tune_us == PLAN_TUNE_ALL && plan_set_times(set));
}

/* What is left for this process to do, by what the cache has. */
static bool has_work(const struct plan_set *set)
{
    const bool times = plan_set_times(set) && set->tune_us > 0;

    for (uint32_t i = 0; i < set->order_count; i++) {
        const struct plan *plan = &set->plans[set->order[i]];

        if (is_made(set, plan) && ((plan->text == NULL && cudnn_serves(plan->request.kind)) ||
                                   (times && plan->info.time_us == 0)))
            return true;
    }
    return false;
}

static bool take_from_cache(struct plan_set *set, struct plan *plan)
{
    struct cudnn_refusal refusal;
    struct plan_info found = plan->info;
    const char *json = plan->text != NULL ? read_line(plan->text, &found) : NULL;

    if (json != NULL && found.time_us < 0) {
        found.time_us = 0;
        plan->info = found;
        plan->info.from_cache = true;
        refused(plan, "no candidate could run", false);
        add_counts(set, &(struct plan_counts){.from_cache = 1});
        return true;
    }
    if (json != NULL &&
        cudnn_plan_read(&set->target, json, plan->text_bytes - (size_t)(json - plan->text),
                        &plan->candidates[0], &refusal)) {
        plan->candidate_count = 1;
        plan->info = found;
        plan->info.from_cache = true;
        add_counts(set, &(struct plan_counts){.from_cache = 1, .finalised = 1});
    } else if (plan->text != NULL) {
        count_damage(set);
    }
    return plan->candidate_count > 0;
}

/* -- cuDNN -- */

static void propose_with(struct plan_set *set, struct plan *plan, cudnnBackendDescriptor_t whole,
                         int32_t sm_count, uint32_t limit, struct cudnn_refusal *refusal)
{
    struct cudnn_target target = set->target;

    target.threads = limit;
    target.sm_target = sm_count;
    plan->candidate_count =
        cudnn_plan_propose(&target, whole, plan->request.type, plan->candidates, limit, refusal);
    plan->info.spares_sms = sm_count > 0 && plan->candidate_count > 0;
    add_counts(set, &(struct plan_counts){.queries = 1, .finalised = plan->candidate_count});
}

/* First asks for engines that use fewer multiprocessors, if this is wanted; then without this. */
static void propose_cudnn(struct plan_set *set, struct plan *plan, cudnnBackendDescriptor_t whole,
                          uint32_t limit, struct cudnn_refusal *refusal)
{
    const int32_t sm_count = sm_target(set, plan->request.kind);

    propose_with(set, plan, whole, sm_count, limit, refusal);
    if (plan->candidate_count == 0 && sm_count > 0)
        propose_with(set, plan, whole, 0, limit, refusal);
}

/* The ids of the plan's tensors, which are those of every engine. */
static void bind(struct plan *plan, const struct cudnn_graph *graph)
{
    memcpy(plan->bindings, graph->bindings, sizeof plan->bindings);
    plan->binding_count = graph->binding_count;
}

static void build_cudnn(struct plan_set *set, struct plan *plan)
{
    struct cudnn_refusal refusal;
    cudnnBackendDescriptor_t whole;
    struct cudnn_graph graph;

    cudnn_graph_init(&graph, &set->cudnn);
    cudnn_layer_build(&graph, &plan->request);
    bind(plan, &graph);
    if (!take_from_cache(set, plan)) {
        plan->info.time_us = 0;
        whole = cudnn_graph_finish(&graph);
        if (whole != NULL)
            propose_cudnn(set, plan, whole, 1, &refusal);
        add_counts(set, &(struct plan_counts){.built = 1});
        if (whole == NULL)
            refused(plan, graph.text, false);
        else if (plan->candidate_count == 0)
            refused(plan, refusal.text, cudnn_needs_driver(refusal.code));
        else
            plan_keep(set, plan);
    }
    cudnn_graph_close(&graph);
}

void plan_propose(struct plan_set *set, struct plan *plan, uint32_t limit)
{
    struct cudnn_plan first = plan->candidates[0];
    const bool spared = plan->info.spares_sms;
    struct cudnn_refusal refusal;
    cudnnBackendDescriptor_t whole;
    struct cudnn_graph graph;

    if (plan->is_linear)
        return; /* all were proposed at once */
    cudnn_graph_init(&graph, &set->cudnn);
    cudnn_layer_build(&graph, &plan->request);
    whole = cudnn_graph_finish(&graph);
    plan->candidates[0] = (struct cudnn_plan){.descriptor = NULL};
    plan->candidate_count = 0;
    if (whole != NULL)
        propose_cudnn(set, plan, whole, limit, &refusal);
    if (plan->candidate_count > 0) {
        cudnn_plan_close(&set->cudnn, &first);
        plan->info.from_cache = false;
    } else {
        plan->candidates[0] = first;
        plan->candidate_count = 1;
        plan->info.spares_sms = spared;
    }
    cudnn_graph_close(&graph);
}

void plan_drop_others(struct plan_set *set, struct plan *plan)
{
    for (uint32_t i = 0; i < plan->candidate_count && !plan->is_linear; i++)
        if (i != plan->chosen)
            cudnn_plan_close(&set->cudnn, &plan->candidates[i]);
}

/* -- cublasLt: its proposals take no time, so it is asked in every set, and the cache has only which was chosen -- */

static enum status propose_linear(struct plan_set *set, struct plan *plan,
                                  const struct plan_request *request, struct err *err)
{
    const uint32_t limit =
        set->candidates < LT_CANDIDATES_MAX ? set->candidates : LT_CANDIDATES_MAX;
    enum status status = lt_plan_open(&set->lt, request, set->target.tf32, &plan->lt, err);

    if (status == STATUS_OK && set->lt_handle == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "cublasLt chooses algorithms on a device alone");
    if (status == STATUS_OK)
        status = lt_plan_propose(&set->lt, set->lt_handle, set->target.workspace_limit, limit,
                                 &plan->lt, err);
    return status;
}

static void take_chosen(struct plan_set *set, struct plan *plan)
{
    struct plan_info found = plan->info;
    const char *line = plan->text != NULL ? read_line(plan->text, &found) : NULL;
    unsigned long chosen;

    plan->info.time_us = 0;
    if (line == NULL || strncmp(line, LINEAR_LINE, sizeof LINEAR_LINE - 1) != 0)
        return;
    chosen = strtoul(line + sizeof LINEAR_LINE - 1, NULL, 10);
    if (chosen >= plan->candidate_count || found.time_us <= 0)
        return;
    plan->chosen = (uint32_t)chosen;
    plan->info.time_us = found.time_us;
    plan->info.from_cache = true;
    add_counts(set, &(struct plan_counts){.from_cache = 1});
}

/* A product's epilogue can compute the bias's gradient only for some types and sizes; otherwise the
 * caller has to compute it. */
static void build_linear(struct plan_set *set, struct plan *plan)
{
    struct plan_request bare = plan->request;
    struct err why = {.status = STATUS_OK};
    enum status status = propose_linear(set, plan, &plan->request, &why);

    if (status == STATUS_NOT_FOUND) {
        refused(plan, why.text, true);
        return;
    }
    if (status == STATUS_UNSUPPORTED && plan->request.kind == PLAN_LINEAR_WGRAD &&
        plan->request.has_bias) {
        bare.has_bias = false;
        lt_plan_close(&set->lt, &plan->lt);
        status = propose_linear(set, plan, &bare, &why);
        plan->info.lacks_bias = status == STATUS_OK;
    }
    if (status != STATUS_OK) {
        refused(plan, why.text, false);
        return;
    }
    plan->candidate_count = plan->lt.algorithm_count;
    take_chosen(set, plan);
}

/* -- threads -- */

static void put_off(struct plan *plan)
{
    refused(plan, "its engines are not timed yet (--tune)", false);
    plan->info.is_put_off = true;
}

static void build_one(struct plan_set *set, struct plan *plan)
{
    if (!is_made(set, plan))
        put_off(plan);
    else if (plan->is_linear)
        build_linear(set, plan);
    else
        build_cudnn(set, plan);
    free(plan->text);
    plan->text = NULL;
}

static void *build_some(void *user)
{
    struct plan_set *set = user;

    if (set->has_device)
        plan_device_use(set->device_index);
    if (set->in_background) /* this thread's alone, on Linux; without it only slower for the others */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), BACKGROUND_NICE);
    for (;;) {
        uint32_t at;

        (void)pthread_mutex_lock(&set->lock);
        at = set->next++;
        (void)pthread_mutex_unlock(&set->lock);
        if (at >= set->order_count)
            return NULL;
        if (!plan_set_stops(set))
            build_one(set, &set->plans[set->order[at]]);
        (void)pthread_mutex_lock(&set->lock);
        set->done++;
        (void)pthread_cond_signal(&set->is_done);
        (void)pthread_mutex_unlock(&set->lock);
    }
}

static struct timespec soon(void)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += PROGRESS_US * 1000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Until all plans have an engine. */
static void report_building(struct plan_set *set)
{
    uint32_t done;

    do {
        const struct timespec at = soon();

        (void)pthread_mutex_lock(&set->lock);
        if (set->done < set->order_count)
            (void)pthread_cond_timedwait(&set->is_done, &set->lock, &at);
        done = set->done;
        (void)pthread_mutex_unlock(&set->lock);
        if (set->progress != NULL)
            set->progress(set->note_user, PLAN_BUILDING, done, set->order_count);
    } while (done < set->order_count);
}

static enum status build_on_threads(struct plan_set *set, struct err *err)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted =
        set->threads != 0 ? set->threads : (uint32_t)(processors > 0 ? processors : 1);
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;

    if (wanted > THREADS_MAX)
        wanted = THREADS_MAX;
    if (wanted > set->order_count)
        wanted = set->order_count;
    while (started < wanted && pthread_create(&threads[started], NULL, build_some, set) == 0)
        started++;
    if (started == 0 && wanted > 0)
        return err_set(err, STATUS_SYSTEM, 0, "building plans: no thread could be started");
    if (started > 0)
        report_building(set);
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    return STATUS_OK;
}

/* -- all -- */

static uint64_t hash(const char *text, uint64_t value)
{
    return fnv_add(value, text, strlen(text));
}

uint64_t plan_set_name(const struct plan_set *set, const struct plan_request *requests,
                       uint32_t count)
{
    char key[PLAN_CACHE_KEY_MAX];
    uint64_t value = FNV_START;

    for (uint32_t i = 0; i < count; i++) {
        plan_key(set, &requests[i], key);
        value = hash(key, value);
    }
    return value;
}

static void find_equal_requests(struct plan_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct plan *plan = &set->plans[i];

        plan->built_as = i;
        plan->is_linear = !cudnn_serves(plan->request.kind);
        plan_key(set, &plan->request, plan->key);
        plan->key_hash = hash(plan->key, FNV_START);
        for (uint32_t k = 0; k < i && plan->built_as == i; k++)
            if (set->plans[k].key_hash == plan->key_hash &&
                strcmp(set->plans[k].key, plan->key) == 0)
                plan->built_as = set->plans[k].built_as;
        set->plans[plan->built_as].uses++;
    }
}

static bool is_compiled(enum plan_kind kind)
{
    return kind == PLAN_NORM_FORWARD || kind == PLAN_NORM_BACKWARD || kind == PLAN_NORM_EVALUATE ||
           kind == PLAN_NORM_APPLY || kind == PLAN_NORM_DX;
}

static enum status make_order(struct plan_set *set, struct err *err)
{
    set->order = calloc((size_t)set->count + 1, sizeof *set->order);
    if (set->order == NULL)
        return err_set(err, STATUS_MEMORY, 0, "plans: out of memory");
    for (int compiled = 1; compiled >= 0; compiled--)
        for (uint32_t i = 0; i < set->count; i++)
            if (set->plans[i].built_as == i && is_compiled(set->plans[i].request.kind) == compiled)
                set->order[set->order_count++] = i;
    set->counts.plans = set->order_count;
    return STATUS_OK;
}

/* eps and momentum are numbers of each layer's own. */
static void bind_equal_requests(struct plan_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct plan *plan = &set->plans[i];
        struct cudnn_graph graph;

        if (plan->built_as == i || plan->is_linear)
            continue;
        cudnn_graph_init(&graph, &set->cudnn);
        cudnn_layer_build(&graph, &plan->request);
        bind(plan, &graph);
        cudnn_graph_close(&graph);
    }
}

static bool goes_on(void *user, uint64_t waited_us)
{
    const struct plan_set *set = user;

    if (set->progress != NULL)
        set->progress(set->note_user, PLAN_WAITING, (uint32_t)(waited_us / 1000000), 0);
    return !plan_set_stops(set);
}

/* Of several processes that need the same plans one makes them; the others wait and read them. Who had to wait times
 * nothing: the other one has just done that. With PLAN_TUNE_ALL it times what is left. */
static void take_turn(struct plan_set *set, uint64_t name)
{
    const bool is_all = set->tune_us == PLAN_TUNE_ALL;
    const uint64_t begun_us = mono_us();
    enum plan_lock_answer answer;

    set->may_tune = true;
    read_cache(set);
    if (!has_work(set))
        return;
    answer = plan_lock_take(&set->cache_lock, &set->cache, name,
                            is_all ? PLAN_WAIT_ALL_US : PLAN_WAIT_US, goes_on, set);
    set->counts.wait_us = mono_us() - begun_us;
    set->may_tune = answer == PLAN_LOCK_TAKEN || set->cache.folder[0] == '\0' ||
                    (is_all && answer != PLAN_LOCK_BUSY);
    if (answer != PLAN_LOCK_NONE)
        read_cache(set); /* another process may have written between the first look and the lock */
}

enum status plan_build_all(struct plan_set *set, uint64_t name, struct err *err)
{
    enum status status;
    uint64_t begun_us;

    find_equal_requests(set);
    status = make_order(set, err);
    if (status != STATUS_OK)
        return status;
    take_turn(set, name);
    begun_us = mono_us();
    status = build_on_threads(set, err);
    if (status == STATUS_OK && plan_set_stops(set))
        return err_set(err, STATUS_CLOSED, 0, "plans are not needed any more");
    bind_equal_requests(set);
    set->counts.build_us = mono_us() - begun_us;
    return status;
}
