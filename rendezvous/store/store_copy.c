#include "rendezvous/store/store_copy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/io/conn.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"

#define FOLLOW_US 2000000u /* who takes the rows waits so long for the last changes */
#define REST_US_MIN 200000u
#define REST_US_MAX 30000000u
#define REQUEST_US 5000000u
#define LOOK_NS 50000000u
#define KEY_BYTES_MAX (ETCD_PREFIX_BYTES_MAX + 16u)

enum copy_state {
    COPY_READING,
    COPY_FOLLOWING, /* `store` has the rows of `revision` */
    COPY_RESTING,   /* after a failure, or where there is no state: tries again later */
    COPY_ENDED,     /* given away, or not wanted */
};

struct store_copy {
    struct etcd_client *client; /* the thread's */
    char prefix[ETCD_PREFIX_BYTES_MAX];
    uv_thread_t thread;
    uv_mutex_t lock; /* what follows it */
    uv_cond_t changed;
    enum copy_state state;
    struct store *store; /* COPY_FOLLOWING: used with the lock alone */
    bool is_wanted;      /* somebody waits for it: no pauses */
    bool is_none;        /* there is no state in etcd */
    bool was_too_slow;   /* of the thread: what it read was dropped meanwhile */
    struct err err;      /* of a change that could not be taken */
    bool is_warning;
    char note[384]; /* to be logged */
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
    va_list args;

    va_start(args, format);
    uv_mutex_lock(&copy->lock);
    copy->is_warning = is_warning;
    (void)vsnprintf(copy->note, sizeof copy->note, format, args);
    uv_mutex_unlock(&copy->lock);
    va_end(args);
}

/* At most; a wish for the rows ends it. */
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

/* After each page as long a pause: half of etcd's time is left to the server that leads. */
static bool on_page(uint64_t row_count, void *context)
{
    struct pace *pace = context;

    (void)row_count;
    if (!pace->copy->was_too_slow)
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

/* Thread: copy. The rows may be given away meanwhile. */
static bool on_changes(const struct etcd_answer *changes, void *context)
{
    struct store_copy *copy = context;
    enum status status = STATUS_CLOSED;

    uv_mutex_lock(&copy->lock);
    if (copy->state == COPY_FOLLOWING)
        status = remote_apply(copy->store->remote, changes, &copy->err);
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

/* A small request before each watch: for a token of etcd's users, and for a member that answers. */
static enum status ask(struct store_copy *copy, struct err *err)
{
    char key[KEY_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE};
    struct etcd_answer answer;
    struct arena arena = {0};
    enum status status;

    (void)snprintf(key, sizeof key, "%sseq", copy->prefix);
    range.key = etcd_text(key);
    status = etcd_range(copy->client, &range, clock_boot_us() + REQUEST_US, &arena, &answer, err);
    arena_reset(&arena);
    return status;
}

/* Until the rows are given away, or a change cannot be had or taken. All keys of the prefix are watched: the leader's key among
 * them tells that nothing is missing. */
static enum status follow(struct store_copy *copy, struct err *err)
{
    const struct etcd_watch_options options = {.on_changes = on_changes, .context = copy};
    char end[ETCD_PREFIX_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE, .key = etcd_text(copy->prefix)};
    uint64_t rest_us = REST_US_MIN;
    int64_t known = 0;

    (void)snprintf(end, sizeof end, "%s", copy->prefix);
    end[strlen(end) - 1]++; /* '0' is behind '/' */
    range.end = etcd_text(end);
    while (!has_ended(copy) && copy->err.text[0] == '\0') {
        enum status status = ask(copy, err);

        range.revision = store_copy_revision(copy) + 1;
        if (status == STATUS_OK && range.revision > 1)
            status = etcd_watch(copy->client, &range, &options, err);
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

/* False: it has ended, and `store` is the caller's. */
static bool set_state(struct store_copy *copy, enum copy_state state, struct store *store)
{
    struct store *old = NULL;
    bool is_set;

    uv_mutex_lock(&copy->lock);
    is_set = copy->state != COPY_ENDED;
    if (is_set) {
        old = copy->store;
        copy->state = state;
        copy->store = store;
        copy->err = (struct err){.text = ""};
    }
    uv_cond_broadcast(&copy->changed);
    uv_mutex_unlock(&copy->lock);
    if (old != NULL)
        store_release(old);
    return is_set;
}

/* From nothing, until it fails. */
static enum status keep(struct store_copy *copy, bool *had_rows, struct err *err)
{
    struct store *store = NULL;
    enum status status = read_rows(copy, &store, err);

    *had_rows = status == STATUS_OK;
    copy->was_too_slow = status == STATUS_NOT_FOUND && err->code == ETCD_COMPACTED;
    uv_mutex_lock(&copy->lock);
    copy->is_none = status == STATUS_NOT_FOUND && err->code != ETCD_COMPACTED;
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

/* -- what others ask ---------------------------------------------------------------------------- */

bool store_copy_note(struct store_copy *copy, bool *is_warning, char *text, size_t text_bytes)
{
    uv_mutex_lock(&copy->lock);
    *is_warning = copy->is_warning;
    (void)snprintf(text, text_bytes, "%s", copy->note);
    copy->note[0] = '\0';
    uv_mutex_unlock(&copy->lock);
    return text[0] != '\0';
}

bool store_copy_is_ready(struct store_copy *copy)
{
    bool is_ready;

    uv_mutex_lock(&copy->lock);
    is_ready = copy->state == COPY_FOLLOWING || copy->is_none;
    uv_mutex_unlock(&copy->lock);
    return is_ready;
}

struct store *store_copy_take(struct store_copy *copy, int64_t revision)
{
    struct store *store = NULL;
    uint64_t until_us = 0;

    uv_mutex_lock(&copy->lock);
    copy->is_wanted = true;
    uv_cond_broadcast(&copy->changed);
    while (copy->state == COPY_READING || copy->state == COPY_FOLLOWING) {
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
                            const char *prefix, struct err *err)
{
    struct store_copy *copy = calloc(1, sizeof *copy);
    struct etcd_options mine = *options;
    enum status status;

    *out = NULL;
    if (copy == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a copy of the state");
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
        abort(); /* the kernel gives no thread to a process that has just begun */
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
