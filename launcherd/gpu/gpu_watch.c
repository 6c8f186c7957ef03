#include "launcherd/gpu/gpu_watch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/thread_start.h"
#include "common/limits.h"
#include "launcherd/gpu/gpu_holders.h"
#include "launcherd/gpu/nvml.h"

#define EVENTS_WAIT_MS 250u /* the longest that gpu_watch_close waits for this thread */
#define EVENTS_RETRY_MS 1000u
#define XIDS_MAX 64u
#define SLOTS SLOTS_PER_NODE_MAX

struct question {
    uint64_t asked_us, bytes_max;
    uint32_t device; /* NVML's index */
};

struct xid {
    uint32_t slot, number;
};

/* Shared with the threads; `lock` protects all fields below it. */
struct gpu_watch {
    struct nvml nvml; /* its functions are set before the second thread starts */
    uv_async_t async;
    struct gpu_watch_handlers handlers;
    void *owner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping, attached;
    uint32_t threads; /* running */
    bool counted;     /* `status`, `err` and `count` are set */
    enum status status;
    struct err err;
    uint32_t count;
    struct devices devices; /* of the slots */
    uint64_t pending;       /* questions that no thread has taken; one bit for each slot */
    struct question questions[SLOTS];
    uint64_t answered; /* facts that the loop has not taken; one bit for each slot */
    struct gpu_facts facts[SLOTS];
    uint64_t gauges_wanted; /* one bit for each slot; read when no question is pending */
    uint64_t gauges_now_us; /* when they were last requested */
    struct gpu_gauges gauges[SLOTS];
    uint32_t xid_count;
    struct xid xids[XIDS_MAX];
};

static struct timespec after_us(uint64_t timeout_us)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_us / 1000000);
    until.tv_nsec += (long)(timeout_us % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

static void wake_loop(struct gpu_watch *watch)
{
    if (watch->attached)
        uv_async_send(&watch->async);
}

static void thread_ends(struct gpu_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->threads--;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
}

static bool is_stopping(struct gpu_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool stopping = watch->stopping;
    pthread_mutex_unlock(&watch->lock);
    return stopping;
}

struct event_set {
    void *set;
    uint32_t count;
    void *devices[SLOTS];
};

/* NVML counts its inits, so this thread makes one of its own. */
static bool events_open(const struct nvml *nvml, struct event_set *events)
{
    unsigned count = 0;
    memset(events, 0, sizeof *events);
    if (nvml->init() != NVML_SUCCESS)
        return false;
    if (nvml->get_count(&count) != NVML_SUCCESS || nvml->events_new(&events->set) != NVML_SUCCESS) {
        nvml->shut_down();
        return false;
    }
    for (unsigned i = 0; i < count && i < SLOTS; i++) {
        if (nvml->get_handle(i, &events->devices[i]) == NVML_SUCCESS)
            (void)nvml->events_register(events->devices[i], NVML_EVENT_XID, events->set);
        events->count = i + 1;
    }
    return true;
}

static void events_close(const struct nvml *nvml, struct event_set *events)
{
    (void)nvml->events_free(events->set);
    (void)nvml->shut_down();
    events->set = NULL;
}

/* False: the device does not belong to this node. Called with the lock held. */
static bool find_slot(const struct gpu_watch *watch, uint32_t device, uint32_t *slot)
{
    *slot = device;
    for (uint32_t i = 0; i < watch->devices.count; i++) {
        *slot = i;
        if (watch->devices.items[i] == device)
            return true;
    }
    return watch->devices.all;
}

static void take_event(struct gpu_watch *watch, const struct event_set *events,
                       const struct nvml_event *event)
{
    for (uint32_t i = 0; i < events->count; i++) {
        uint32_t slot;
        if (events->devices[i] != event->device || (event->type & NVML_EVENT_XID) == 0)
            continue;
        pthread_mutex_lock(&watch->lock);
        if (!find_slot(watch, i, &slot)) {
            pthread_mutex_unlock(&watch->lock);
            continue;
        }
        while (watch->xid_count == XIDS_MAX && !watch->stopping) /* until the loop has taken some */
            pthread_cond_wait(&watch->changed, &watch->lock);
        if (watch->xid_count < XIDS_MAX)
            watch->xids[watch->xid_count++] = (struct xid){slot, (uint32_t)event->data};
        wake_loop(watch);
        pthread_mutex_unlock(&watch->lock);
    }
}

static void pause_events(struct gpu_watch *watch)
{
    struct timespec until = after_us(EVENTS_RETRY_MS * 1000ull);
    pthread_mutex_lock(&watch->lock);
    while (!watch->stopping &&
           pthread_cond_timedwait(&watch->changed, &watch->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&watch->lock);
}

static void *watch_events(void *arg)
{
    struct gpu_watch *watch = arg;
    const struct nvml *nvml = &watch->nvml;
    struct event_set events = {0};

    while (!is_stopping(watch)) {
        struct nvml_event event = {0};
        if (events.set == NULL && !events_open(nvml, &events)) {
            pause_events(watch);
            continue;
        }
        int code = nvml->events_wait(events.set, &event, EVENTS_WAIT_MS);
        if (code == NVML_SUCCESS) {
            take_event(watch, &events, &event);
        } else if (code != NVML_TIMEOUT) { /* a lost GPU; the answers to questions show which one */
            events_close(nvml, &events);
            pause_events(watch);
        }
    }
    if (events.set != NULL)
        events_close(nvml, &events);
    thread_ends(watch);
    return NULL;
}

static enum status begin_thread(struct gpu_watch *watch, void *(*run)(void *), struct err *err)
{
    int code;

    watch->threads++;
    code = thread_start(NULL, 0, run, watch);
    if (code != 0) {
        watch->threads--;
        return err_set(err, STATUS_SYSTEM, code, "no thread to ask NVML: %s", strerror(code));
    }
    return STATUS_OK;
}

static int init_and_count(struct gpu_watch *watch, bool *is_ready)
{
    unsigned count = 0;
    int code = watch->nvml.init();
    if (code != NVML_SUCCESS)
        return code;
    code = watch->nvml.get_count(&count);
    *is_ready = code == NVML_SUCCESS;
    if (!*is_ready)
        (void)watch->nvml.shut_down();
    pthread_mutex_lock(&watch->lock);
    watch->count = count;
    pthread_mutex_unlock(&watch->lock);
    return code;
}

/* Starts the second thread once the GPUs were counted and a loop is attached. A node that has the
 * library but no GPU attaches none: the thread would initialise NVML again and again there. Without
 * this thread the counters are still queried. Called with the lock held. */
static void begin_events(struct gpu_watch *watch)
{
    struct err err;
    if (watch->counted && watch->attached && !watch->stopping && watch->nvml.events_new != NULL)
        (void)begin_thread(watch, watch_events, &err);
}

/* Sets the result of gpu_watch_count. */
static bool first_look(struct gpu_watch *watch, bool *is_ready)
{
    struct err err = {0};
    enum status status = nvml_load(&watch->nvml, &err);
    int code = status == STATUS_OK ? init_and_count(watch, is_ready) : 0;
    if (code != NVML_SUCCESS)
        status = err_set(&err, STATUS_LIBRARY, code,
                         "NVML cannot count the GPUs: error %d (%s); see nvidia-smi", code,
                         nvml_error_text(&watch->nvml, code));
    pthread_mutex_lock(&watch->lock);
    watch->status = status;
    watch->err = err;
    watch->counted = true;
    begin_events(watch);
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    return watch->nvml.library != NULL;
}

static uint32_t device_of(const struct gpu_watch *watch, uint32_t slot)
{
    return watch->devices.all ? slot : watch->devices.items[slot];
}

/* What the thread does next. Questions go first: the state of a slot depends on them. */
enum work { WORK_END, WORK_QUESTION, WORK_GAUGES };

static enum work next_work(struct gpu_watch *watch, uint32_t *slot, struct question *question)
{
    enum work work = WORK_END;

    pthread_mutex_lock(&watch->lock);
    while (!watch->stopping && watch->pending == 0 && watch->gauges_wanted == 0)
        pthread_cond_wait(&watch->changed, &watch->lock);
    if (watch->stopping) {
        work = WORK_END;
    } else if (watch->pending == 0) {
        work = WORK_GAUGES;
        *slot = (uint32_t)__builtin_ctzll(watch->gauges_wanted);
        *question = (struct question){watch->gauges_now_us, 0, device_of(watch, *slot)};
    } else {
        work = WORK_QUESTION;
        *slot = (uint32_t)__builtin_ctzll(watch->pending);
        *question = watch->questions[*slot];
        watch->pending &= ~(1ull << *slot);
    }
    pthread_mutex_unlock(&watch->lock);
    return work;
}

static void post_facts(struct gpu_watch *watch, const struct gpu_facts *facts)
{
    pthread_mutex_lock(&watch->lock);
    watch->facts[facts->slot] = *facts;
    watch->answered |= 1ull << facts->slot;
    wake_loop(watch);
    pthread_mutex_unlock(&watch->lock);
}

/* After an error that does not concern the GPU itself, NVML is initialised again with the next
 * question: the driver may have been reloaded. */
static void answer(struct gpu_watch *watch, uint32_t slot, const struct question *question,
                   bool *is_ready)
{
    struct gpu_facts facts = {.slot = slot, .asked_us = question->asked_us};
    int code = *is_ready ? NVML_SUCCESS : init_and_count(watch, is_ready);
    if (code == NVML_SUCCESS) {
        nvml_look(&watch->nvml, question->device, question->bytes_max, &facts);
        facts.slot = slot;
    } else {
        facts.error = code;
        gpu_printable(nvml_error_text(&watch->nvml, code), facts.error_text,
                      sizeof facts.error_text);
    }
    if (*is_ready && facts.error != 0 && !facts.is_lost && !facts.needs_reset) {
        (void)watch->nvml.shut_down();
        *is_ready = false;
    }
    post_facts(watch, &facts);
}

static void read_gauges(struct gpu_watch *watch, uint32_t slot, const struct question *question,
                        bool *is_ready)
{
    int code = *is_ready ? NVML_SUCCESS : init_and_count(watch, is_ready);
    struct gpu_gauges gauges;

    pthread_mutex_lock(&watch->lock);
    gauges = watch->gauges[slot];
    pthread_mutex_unlock(&watch->lock);
    if (code == NVML_SUCCESS)
        nvml_gauges(&watch->nvml, question->device, question->asked_us, &gauges);
    else
        gpu_printable(nvml_error_text(&watch->nvml, code), gauges.error, sizeof gauges.error);
    pthread_mutex_lock(&watch->lock);
    watch->gauges[slot] = gauges;
    if (question->asked_us == watch->gauges_now_us) /* otherwise newer values have been requested */
        watch->gauges_wanted &= ~(1ull << slot);
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
}

static void *answer_questions(void *arg)
{
    struct gpu_watch *watch = arg;
    struct question question;
    enum work work = WORK_END;
    bool is_ready = false;
    uint32_t slot;

    if (first_look(watch, &is_ready))
        while ((work = next_work(watch, &slot, &question)) != WORK_END) {
            if (work == WORK_GAUGES)
                read_gauges(watch, slot, &question, &is_ready);
            else
                answer(watch, slot, &question, &is_ready);
        }
    if (is_ready)
        (void)watch->nvml.shut_down();
    thread_ends(watch);
    return NULL;
}

static void watch_free(struct gpu_watch *watch)
{
    nvml_unload(&watch->nvml);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

enum status gpu_watch_new(struct gpu_watch **out, struct err *err)
{
    struct gpu_watch *watch = calloc(1, sizeof *watch);
    pthread_condattr_t attributes;
    if (watch == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    watch->devices.all = true;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_mutex_lock(&watch->lock);
    enum status status = begin_thread(watch, answer_questions, err);
    pthread_mutex_unlock(&watch->lock);
    if (status == STATUS_OK)
        *out = watch;
    else
        watch_free(watch);
    return status;
}

enum status gpu_watch_count(struct gpu_watch *watch, uint64_t timeout_us, uint32_t *count,
                            struct err *err)
{
    struct timespec until = after_us(timeout_us);
    enum status status = STATUS_OK;
    int rc = 0;
    pthread_mutex_lock(&watch->lock);
    while (!watch->counted && rc == 0)
        rc = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    if (!watch->counted)
        status = err_set(err, STATUS_TIMEOUT, 0, "NVML does not answer: the driver hangs");
    else if (watch->status != STATUS_OK && err != NULL)
        *err = watch->err;
    if (watch->counted)
        status = watch->status;
    *count = status == STATUS_OK ? watch->count : 0;
    pthread_mutex_unlock(&watch->lock);
    return status;
}

void gpu_watch_choose(struct gpu_watch *watch, const struct devices *devices)
{
    pthread_mutex_lock(&watch->lock);
    assert(!watch->attached);
    watch->devices = *devices;
    pthread_mutex_unlock(&watch->lock);
}

static void on_async(uv_async_t *async)
{
    struct gpu_watch *watch = async->data;
    struct xid xids[XIDS_MAX];
    struct gpu_facts facts;

    pthread_mutex_lock(&watch->lock);
    uint32_t xid_count = watch->xid_count;
    memcpy(xids, watch->xids, xid_count * sizeof xids[0]);
    watch->xid_count = 0;
    pthread_cond_broadcast(&watch->changed);
    uint64_t answered = watch->answered;
    watch->answered = 0;
    pthread_mutex_unlock(&watch->lock);
    for (uint32_t i = 0; i < xid_count; i++)
        watch->handlers.on_xid(watch->owner, xids[i].slot, xids[i].number);
    for (; answered != 0; answered &= answered - 1) {
        pthread_mutex_lock(&watch->lock);
        facts = watch->facts[__builtin_ctzll(answered)];
        pthread_mutex_unlock(&watch->lock);
        watch->handlers.on_facts(watch->owner, &facts);
    }
}

enum status gpu_watch_attach(struct gpu_watch *watch, uv_loop_t *loop,
                             const struct gpu_watch_handlers *handlers, void *owner,
                             struct err *err)
{
    int rc = uv_async_init(loop, &watch->async, on_async);
    if (rc != 0)
        return err_set(err, STATUS_SYSTEM, rc, "no handle for NVML's answers: %s", uv_strerror(rc));
    watch->async.data = watch;
    watch->handlers = *handlers;
    watch->owner = owner;
    pthread_mutex_lock(&watch->lock);
    watch->attached = true;
    begin_events(watch);
    if (watch->answered != 0 || watch->xid_count > 0)
        uv_async_send(&watch->async);
    pthread_mutex_unlock(&watch->lock);
    return STATUS_OK;
}

void gpu_watch_ask(struct gpu_watch *watch, uint32_t slot, uint64_t asked_us, uint64_t bytes_max)
{
    assert(slot < SLOTS_PER_NODE_MAX && asked_us != 0);
    pthread_mutex_lock(&watch->lock);
    watch->questions[slot] = (struct question){asked_us, bytes_max, device_of(watch, slot)};
    watch->pending |= 1ull << slot;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
}

void gpu_watch_gauges(struct gpu_watch *watch, uint32_t count, uint64_t now_us, uint64_t age_us,
                      uint64_t timeout_us, struct gpu_gauges gauges[])
{
    struct timespec until = after_us(timeout_us);
    uint64_t mine = 0;
    int rc = 0;

    assert(count <= SLOTS_PER_NODE_MAX);
    pthread_mutex_lock(&watch->lock);
    for (uint32_t i = 0; i < count; i++)
        if (watch->gauges[i].read_us == 0 || watch->gauges[i].read_us + age_us < now_us)
            mine |= 1ull << i;
    watch->gauges_wanted |= mine;
    watch->gauges_now_us = now_us;
    pthread_cond_broadcast(&watch->changed);
    while ((watch->gauges_wanted & mine) != 0 && watch->threads > 0 && !watch->stopping && rc == 0)
        rc = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    memcpy(gauges, watch->gauges, count * sizeof gauges[0]);
    pthread_mutex_unlock(&watch->lock);
    for (uint32_t i = 0; i < count; i++)
        if ((mine & (1ull << i)) != 0 && gauges[i].read_us < now_us && gauges[i].error[0] == '\0')
            (void)snprintf(gauges[i].error, sizeof gauges[i].error, "the driver does not answer");
}

void gpu_watch_detach(struct gpu_watch *watch)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    bool attached = watch->attached;
    watch->attached = false;
    watch->stopping = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    if (attached)
        uv_close((uv_handle_t *)&watch->async, NULL);
}

bool gpu_watch_close(struct gpu_watch **out, uint64_t timeout_us)
{
    struct gpu_watch *watch = *out;
    struct timespec until = after_us(timeout_us);
    int rc = 0;
    *out = NULL;
    if (watch == NULL)
        return true;
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_cond_broadcast(&watch->changed);
    while (watch->threads > 0 && rc == 0)
        rc = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    bool all_ended = watch->threads == 0;
    pthread_mutex_unlock(&watch->lock);
    if (all_ended)
        watch_free(watch);
    return all_ended; /* otherwise a thread still uses the memory */
}
