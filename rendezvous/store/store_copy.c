#include "rendezvous/store/store_copy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/io/conn.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/seen_keeper.h"

#define FOLLOW_US 2000000u /* how long store_copy_take waits for the last changes */
#define REST_US_MIN 200000u
#define REST_US_MAX 30000000u
#define REQUEST_US 5000000u
#define LOOK_NS 50000000u
#define NOTES_MAX 4u

struct note {
    bool is_warning;
    char text[512];
};

enum copy_state {
    COPY_READING,
    COPY_FOLLOWING, /* `store` has the rows of `revision` */
    COPY_RESTING,   /* after a failure, or without a state: tries again later */
    COPY_ENDED,     /* its rows were taken, or it was closed */
};

struct store_copy {
    struct etcd_client *client; /* used only by the thread */
    char prefix[ETCD_PREFIX_BYTES_MAX];
    struct seen_keeper *seen; /* NULL: none */
    uv_thread_t thread;
    uv_mutex_t lock; /* guards the fields below */
    uv_cond_t changed;
    enum copy_state state;
    struct store *store; /* COPY_FOLLOWING: only used under the lock */
    bool is_wanted;      /* store_copy_take waits: no pauses */
    bool is_urgent;      /* nobody leads: no pauses between pages */
    bool is_none;        /* etcd has no state */
    int64_t none_at;     /* etcd's revision then */
    int64_t
        asked_at; /* etcd's revision when this watch was about to begin; used only by the thread */
    uint64_t rests;      /* how often it came to COPY_RESTING */
    uint32_t missing_pm; /* COPY_READING */
    bool was_too_slow;   /* used only by the thread: the revision it read was compacted away */
    struct err err;      /* of a change that could not be applied */
    char past_id[SEEN_ID_BYTES]; /* seen_id of a state that is earlier than was seen; empty: none */
    struct note notes[NOTES_MAX]; /* to be logged, in order */
    uint32_t note_count;
};

static bool has_ended(struct store_copy *copy)
{
    bool ended;

    uv_mutex_lock(&copy->lock);
    ended = copy->state == COPY_ENDED;
    uv_mutex_unlock(&copy->lock);
    return ended;
}

static bool goes_on(void *context)
{
    return !has_ended(context);
}

__attribute__((format(printf, 3, 4))) static void set_note(struct store_copy *copy, bool is_warning,
                                                           const char *format, ...)
{
    struct note *note;
    va_list args;

    va_start(args, format);
    uv_mutex_lock(&copy->lock);
    copy->note_count += copy->note_count < NOTES_MAX; /* else in the place of the last one */
    note = &copy->notes[copy->note_count - 1];
    note->is_warning = is_warning;
    (void)vsnprintf(note->text, sizeof note->text, format, args);
    uv_mutex_unlock(&copy->lock);
    va_end(args);
}

/* Sleeps at most `us`; ends early when the rows are wanted. */
static void rest(struct store_copy *copy, uint64_t us)
{
    uint64_t until_us = clock_boot_us() + us, now_us;

    uv_mutex_lock(&copy->lock);
    while (copy->state != COPY_ENDED && !copy->is_wanted && (now_us = clock_boot_us()) < until_us)
        (void)uv_cond_timedwait(&copy->changed, &copy->lock, (until_us - now_us) * 1000);
    uv_mutex_unlock(&copy->lock);
}

/* -- reading ------------------------------------------------------------------------------------ */

struct pace {
    struct store_copy *copy;
    uint64_t at_us;
};

static uint32_t missing_pm(uint64_t row_count, uint64_t of)
{
    return row_count < of ? 1 + (uint32_t)((of - row_count) * (STORE_COPY_MISSING_ALL - 1) / of)
                          : 1;
}

/* Pauses after each page for as long as the page took: half of etcd's time is left to the leader,
 * if there is one. */
static bool on_page(uint64_t row_count, uint64_t of, void *context)
{
    struct pace *pace = context;
    bool is_urgent;

    uv_mutex_lock(&pace->copy->lock);
    pace->copy->missing_pm = missing_pm(row_count, of);
    is_urgent = pace->copy->is_urgent;
    uv_mutex_unlock(&pace->copy->lock);
    if (!pace->copy->was_too_slow && !is_urgent)
        rest(pace->copy, clock_boot_us() - pace->at_us);
    pace->at_us = clock_boot_us();
    return !has_ended(pace->copy);
}

static enum status read_rows(struct store_copy *copy, struct store **store, struct err *err)
{
    const struct store_lead lead = {.client = copy->client, .prefix = copy->prefix};
    struct pace context = {.copy = copy, .at_us = clock_boot_us()};
    const struct remote_pace pace = {.goes_on = on_page, .context = &context};
    uint64_t begun_us = context.at_us, row_count = 0;
    enum status status = store_make_empty(store, &lead, err);

    if (status == STATUS_OK)
        status = remote_copy((*store)->remote, (*store)->db, &lead, &pace, &row_count, err);
    if (status == STATUS_OK)
        set_note(copy, false,
                 "this server stands by with the rows of the state: %" PRIu64 " read in %.1f s",
                 row_count, (double)(clock_boot_us() - begun_us) / 1e6);
    return status;
}

/* -- following ---------------------------------------------------------------------------------- */

/* Runs on the copy's thread. The rows may have been taken meanwhile. */
static bool on_changes(const struct etcd_answer *changes, void *context)
{
    struct store_copy *copy = context;
    enum status status = STATUS_CLOSED;

    uv_mutex_lock(&copy->lock);
    if (copy->state == COPY_FOLLOWING) {
        const uint64_t commit = copy->store->remote->point.commit;

        status = remote_apply(copy->store->remote, changes, &copy->err);
        if (copy->store->remote->point.commit > commit &&
            copy->store->remote->point.at > copy->asked_at)
            copy->store->has_followed = true;
    }
    uv_cond_broadcast(&copy->changed);
    uv_mutex_unlock(&copy->lock);
    return status == STATUS_OK;
}

int64_t store_copy_revision(struct store_copy *copy)
{
    int64_t revision;

    uv_mutex_lock(&copy->lock);
    revision = copy->store != NULL ? copy->store->remote->revision : 0;
    uv_mutex_unlock(&copy->lock);
    return revision;
}

/* A small request before each watch: it logs in to etcd, finds a member that answers, and notices an
 * etcd that was put back to an earlier state. Sets the revision from which to watch on; 0: the rows
 * were taken by the caller. */
static enum status ask(struct store_copy *copy, int64_t *from, struct err *err)
{
    struct remote_point point = {.commit = 0};
    int64_t revision = 0;
    enum status status;

    uv_mutex_lock(&copy->lock);
    if (copy->store != NULL) {
        revision = copy->store->remote->revision;
        point = copy->store->remote->point;
    }
    uv_mutex_unlock(&copy->lock);
    *from = 0;
    if (revision == 0)
        return STATUS_OK;
    status = remote_check_history(copy->client, copy->prefix, revision, &point,
                                  clock_boot_us() + REQUEST_US, &copy->asked_at, err);
    if (status == STATUS_OK)
        *from = revision + 1;
    else if (status == STATUS_NOT_FOUND && err->code == ETCD_WENT_BACK)
        set_note(copy, true, STORE_WENT_BACK ": %s. It reads all rows again", err->text);
    return status;
}

/* A watch has ended. What follows may be the changes of a state that was put back meanwhile, with commits of before. */
static void note_gap(struct store_copy *copy)
{
    uv_mutex_lock(&copy->lock);
    if (copy->store != NULL)
        copy->store->has_followed = false;
    uv_mutex_unlock(&copy->lock);
}

/* Follows changes until the rows are taken or a change cannot be received or applied. Watches all
 * keys of the prefix: the leader key among them shows whether anything is missing. */
static enum status follow(struct store_copy *copy, struct err *err)
{
    const struct etcd_watch_options options = {.on_changes = on_changes, .context = copy};
    char end[ETCD_PREFIX_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE, .key = etcd_text(copy->prefix)};
    uint64_t rest_us = REST_US_MIN;
    int64_t known = 0;

    (void)snprintf(end, sizeof end, "%s", copy->prefix);
    end[strlen(end) - 1]++; /* '0' comes after '/' */
    range.end = etcd_text(end);
    while (!has_ended(copy) && copy->err.text[0] == '\0') {
        enum status status = ask(copy, &range.revision, err);

        if (status == STATUS_OK && range.revision > 0)
            status = etcd_watch(copy->client, &range, &options, err);
        note_gap(copy);
        if (status != STATUS_OK && status != STATUS_TIMEOUT)
            return status;
        rest_us = range.revision > known || rest_us > REST_US_MAX ? REST_US_MIN : rest_us * 2;
        known = range.revision;
        if (copy->err.text[0] == '\0')
            rest(copy, rest_us);
    }
    if (copy->err.text[0] == '\0')
        return STATUS_OK;
    *err = copy->err;
    return err->status;
}

/* -- the thread --------------------------------------------------------------------------------- */

/* False: the thread must end, and `store` now belongs to the caller. */
static bool set_state(struct store_copy *copy, enum copy_state state, struct store *store)
{
    struct store *old = NULL;
    bool is_set;

    uv_mutex_lock(&copy->lock);
    is_set = copy->state != COPY_ENDED;
    if (is_set) {
        old = copy->store;
        copy->state = state;
        copy->rests += state == COPY_RESTING;
        copy->missing_pm = state == COPY_FOLLOWING ? 0 : STORE_COPY_MISSING_ALL;
        copy->store = store;
        copy->err = (struct err){.text = ""};
    }
    uv_cond_broadcast(&copy->changed);
    uv_mutex_unlock(&copy->lock);
    if (old != NULL)
        store_release(old);
    return is_set;
}

static void note_past(struct store_copy *copy, const struct seen *before, const struct seen *now)
{
    uv_mutex_lock(&copy->lock);
    (void)snprintf(copy->past_id, sizeof copy->past_id, "%s", seen_id(now));
    uv_mutex_unlock(&copy->lock);
    set_note(copy, true,
             STORE_WENT_BACK " (commit %" PRIu64 " of cluster %s; commit %" PRIu64
                             " of cluster %s, job %" PRIu64
                             " were seen). The server that leads is told, by the key %spast",
             now->commit, now->cluster, before->commit, before->cluster, before->job_id,
             copy->prefix);
}

/* If this server has seen a later state than etcd has: tells the one that leads. `store`: with all rows; NULL: none were
 * read yet. `is_told`: it was told of this state already. */
static enum status tell_past(struct store_copy *copy, struct store *store, bool *is_told,
                             struct err *err)
{
    struct seen before;
    struct past_look look = {.is_past = false};
    enum status status;

    if (copy->seen == NULL || seen_keeper_last(copy->seen, &before, NULL) != STATUS_OK)
        return STATUS_OK;
    status = store != NULL ? past_key_look_at(copy->client, store, &before, &look, err)
                           : past_key_look(copy->client, copy->prefix, &before, &look, err);
    if (status == STATUS_OK && look.is_past && !*is_told)
        note_past(copy, &before, &look.now);
    *is_told = status == STATUS_OK && look.is_past;
    return status;
}

/* Reads all rows, then follows changes until that fails. The first look may fail, for the second one is what counts. */
static enum status keep(struct store_copy *copy, bool *had_rows, struct err *err)
{
    struct store *store = NULL;
    bool is_told = false;
    enum status status;

    (void)tell_past(copy, NULL, &is_told, err);
    status = read_rows(copy, &store, err);
    if (status == STATUS_OK)
        status = tell_past(copy, store, &is_told, err);
    *had_rows = status == STATUS_OK;
    copy->was_too_slow = status == STATUS_NOT_FOUND && err->code == ETCD_COMPACTED;
    uv_mutex_lock(&copy->lock);
    copy->is_none = status == STATUS_NOT_FOUND && err->code != ETCD_COMPACTED;
    copy->none_at = store != NULL && copy->is_none ? store->remote->revision : 0;
    uv_mutex_unlock(&copy->lock);
    if (status == STATUS_OK && set_state(copy, COPY_FOLLOWING, store))
        status = follow(copy, err);
    else if (store != NULL)
        store_release(store);
    return status;
}

static void run(void *arg)
{
    struct store_copy *copy = arg;
    uint64_t rest_us = REST_US_MIN;
    bool is_told = false;

    while (!has_ended(copy)) {
        struct err err = {.text = ""};
        bool had_rows;
        enum status status = keep(copy, &had_rows, &err);

        if (!set_state(copy, COPY_RESTING, NULL))
            break;
        if (status != STATUS_OK && status != STATUS_NOT_FOUND && status != STATUS_TIMEOUT &&
            !is_told)
            set_note(copy, true,
                     "this server has no copy of the rows of the state (%s): it would read them "
                     "first if it were to lead",
                     err.text);
        is_told = !had_rows && (is_told || status != STATUS_NOT_FOUND);
        rest_us = had_rows || status == STATUS_NOT_FOUND ? REST_US_MIN : rest_us * 2;
        rest(copy, rest_us < REST_US_MAX ? rest_us : REST_US_MAX);
        (void)set_state(copy, COPY_READING, NULL);
    }
}

/* -- called by other threads ----------------------------------------------------------------------- */

bool store_copy_seen(struct store_copy *copy, struct seen *seen)
{
    struct err err;
    bool is_known;

    uv_mutex_lock(&copy->lock);
    is_known =
        copy->state == COPY_FOLLOWING &&
        store_seen(copy->store, seen, copy->store->remote->point.commit, &err) == STATUS_OK &&
        strcmp(seen_id(seen), copy->past_id) != 0;
    uv_mutex_unlock(&copy->lock);
    return is_known;
}

bool store_copy_note(struct store_copy *copy, bool *is_warning, char *text, size_t text_bytes)
{
    bool has_note;

    uv_mutex_lock(&copy->lock);
    has_note = copy->note_count > 0;
    if (has_note) {
        *is_warning = copy->notes[0].is_warning;
        (void)snprintf(text, text_bytes, "%s", copy->notes[0].text);
        memmove(&copy->notes[0], &copy->notes[1], --copy->note_count * sizeof copy->notes[0]);
    }
    uv_mutex_unlock(&copy->lock);
    return has_note;
}

uint32_t store_copy_missing_pm(struct store_copy *copy)
{
    uint32_t missing;

    uv_mutex_lock(&copy->lock);
    missing = copy->is_none ? 0 : copy->missing_pm;
    uv_mutex_unlock(&copy->lock);
    return missing;
}

bool store_copy_is_none(struct store_copy *copy, int64_t *revision)
{
    bool is_none;

    uv_mutex_lock(&copy->lock);
    is_none = copy->is_none;
    *revision = copy->none_at;
    uv_mutex_unlock(&copy->lock);
    return is_none;
}

void store_copy_hurry(struct store_copy *copy, bool is_urgent)
{
    uv_mutex_lock(&copy->lock);
    copy->is_urgent = is_urgent;
    uv_mutex_unlock(&copy->lock);
}

struct store *store_copy_take(struct store_copy *copy, int64_t revision)
{
    struct store *store = NULL;
    uint64_t until_us = 0, rests;

    uv_mutex_lock(&copy->lock);
    copy->is_wanted = true;
    rests = copy->rests;
    uv_cond_broadcast(&copy->changed);
    /* A copy that is wanted does not rest: it may read again before this thread has the lock. */
    while (copy->rests == rests && (copy->state == COPY_READING || copy->state == COPY_FOLLOWING)) {
        if (copy->state == COPY_FOLLOWING && until_us == 0)
            until_us = clock_boot_us() + FOLLOW_US;
        if (copy->state == COPY_FOLLOWING && copy->err.text[0] == '\0' &&
            copy->store->remote->revision >= revision) {
            store = copy->store;
            copy->store = NULL;
            break;
        }
        if (until_us != 0 && clock_boot_us() > until_us)
            break;
        (void)uv_cond_timedwait(&copy->changed, &copy->lock, LOOK_NS);
    }
    copy->state = COPY_ENDED;
    uv_cond_broadcast(&copy->changed);
    uv_mutex_unlock(&copy->lock);
    return store;
}

/* -- opening and closing ------------------------------------------------------------------------ */

enum status store_copy_open(struct store_copy **out, const struct etcd_options *options,
                            const char *prefix, struct seen_keeper *seen, struct err *err)
{
    struct store_copy *copy = calloc(1, sizeof *copy);
    struct etcd_options mine = *options;
    enum status status;

    *out = NULL;
    if (copy == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a copy of the state");
    copy->missing_pm = STORE_COPY_MISSING_ALL;
    copy->seen = seen;
    (void)snprintf(copy->prefix, sizeof copy->prefix, "%s", prefix);
    mine.goes_on = goes_on;
    mine.context = copy;
    status = etcd_open(&copy->client, &mine, err);
    if (status != STATUS_OK) {
        free(copy);
        return status;
    }
    (void)uv_mutex_init(&copy->lock);
    (void)uv_cond_init(&copy->changed);
    if (uv_thread_create(&copy->thread, run, copy) != 0)
        abort(); /* the kernel refuses a thread to a process that has just started */
    *out = copy;
    return STATUS_OK;
}

void store_copy_close(struct store_copy **out)
{
    struct store_copy *copy = *out;

    if (copy == NULL)
        return;
    uv_mutex_lock(&copy->lock);
    copy->state = COPY_ENDED;
    uv_cond_broadcast(&copy->changed);
    uv_mutex_unlock(&copy->lock);
    (void)uv_thread_join(&copy->thread);
    if (copy->store != NULL)
        store_release(copy->store);
    etcd_close(&copy->client);
    uv_cond_destroy(&copy->changed);
    uv_mutex_destroy(&copy->lock);
    free(copy);
    *out = NULL;
}
