/* Rows of jobs and request ids. */
#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/array_spec.h"
#include "common/io/conn.h"
#include "common/msg_table.h"
#include "rendezvous/store/internal.h"

/* Hashes in hexadecimal; those that are not known are left out, as earlier versions did. */
static void add_identity(cJSON *object, const struct rdzv_identity *identity)
{
    const struct {
        const char *name;
        uint64_t mark;
    } marks[] = {
        {"machine", identity->machine}, {"boot", identity->boot}, {"state", identity->state}};
    char text[24];

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        (void)snprintf(text, sizeof text, "%" PRIx64, marks[i].mark);
        if (marks[i].mark != 0)
            (void)cJSON_AddStringToObject(object, marks[i].name, text);
    }
}

/* [{"node":"n0","rank_base":0,"local_count":2,"slot_mask":"3"}]; slot_mask is a u64, so a string.
 * With "machine", "boot" and "state": the identity of the node's launcherd. */
static char *parts_to_json(const struct rdzv_record *record)
{
    cJSON *array = cJSON_CreateArray();
    char mask[24], *json;
    uint32_t i;

    for (i = 0; i < record->part_count; i++) {
        const struct rdzv_part *part = &record->parts[i];
        cJSON *object = cJSON_CreateObject();

        (void)snprintf(mask, sizeof mask, "%" PRIu64, part->slot_mask);
        (void)cJSON_AddStringToObject(object, "node", part->node);
        (void)cJSON_AddNumberToObject(object, "rank_base", part->rank_base);
        (void)cJSON_AddNumberToObject(object, "local_count", part->local_count);
        (void)cJSON_AddStringToObject(object, "slot_mask", mask);
        add_identity(object, &part->identity);
        (void)cJSON_AddItemToArray(array, object);
    }
    json = cJSON_PrintUnformatted(array);
    cJSON_Delete(array);
    return json;
}

static uint32_t number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= UINT32_MAX
               ? (uint32_t)item->valuedouble
               : 0;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    return text != NULL ? text : "";
}

/* If memory is short or there are more parts than a job can have, the record gets none. The core
 * then fails the job, because its parts do not fit its state. */
static void parts_from_json(const char *json, struct arena *arena, struct rdzv_record *record)
{
    cJSON *array = cJSON_Parse(json);
    int count = cJSON_GetArraySize(array);
    const cJSON *object;

    if (count > 0 && count <= (int)NODES_PER_JOB_MAX)
        record->parts = arena_alloc(arena, (size_t)count * sizeof *record->parts);
    for (object = record->parts != NULL ? array->child : NULL; object != NULL;
         object = object->next) {
        struct rdzv_part *part = &record->parts[record->part_count++];

        (void)snprintf(part->node, sizeof part->node, "%s", text_of(object, "node"));
        part->rank_base = number_of(object, "rank_base");
        part->local_count = number_of(object, "local_count");
        part->slot_mask = strtoull(text_of(object, "slot_mask"), NULL, 10);
        part->identity = (struct rdzv_identity){
            .machine = strtoull(text_of(object, "machine"), NULL, 16),
            .boot = strtoull(text_of(object, "boot"), NULL, 16),
            .state = strtoull(text_of(object, "state"), NULL, 16),
        };
    }
    cJSON_Delete(array);
}

#define BIND_INT(field) sqlite3_bind_int64(stmt, ++column, (sqlite3_int64)(field))
#define BIND_U32(field) BIND_INT(field)
#define BIND_I32(field) BIND_INT(field)
#define BIND_U64(field) BIND_INT(field)
#define BIND_I64(field) BIND_INT(field)
#define BIND_BOOL(field) BIND_INT(field)
#define BIND_F64(field) sqlite3_bind_double(stmt, ++column, (field))
#define BIND_TEXT(field) sqlite3_bind_text(stmt, ++column, (field), -1, SQLITE_STATIC)
#define BIND_STATE(field) BIND_TEXT(job_state_name(field))
#define BIND(kind, field, name, audience, bytes) (void)BIND_##kind(record->field);

/* The jobs that share its spec. */
static struct rdzv_ids ids_of(const struct rdzv_record *record)
{
    const uint64_t first = record->array_job != 0 ? record->array_job : record->job_id;
    const uint32_t count = record->array_job != 0 ? record->array_count : 1;

    return (struct rdzv_ids){.first = first, .last = first + (count > 0 ? count - 1 : 0)};
}

/* It is written to the file of seen.h before anybody is told of it. */
static void note_number(struct store *store, uint64_t job_id)
{
    store->has_news = store->has_news || job_id > store->seen.job_id;
    if (job_id > store->seen.job_id)
        store->seen.job_id = job_id;
}

void store_write_job(struct store *store, const struct rdzv_record *record)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_WRITE);
    char *parts = parts_to_json(record);
    int column = 0;

    assert(store->in_transaction && record->job_id != 0);
    RDZV_RECORD_TABLE(BIND)
    if (parts == NULL ||
        sqlite3_bind_text(stmt, ++column, parts, -1, SQLITE_TRANSIENT) != SQLITE_OK)
        store_fail(store, "find memory for a job of");
    cJSON_free(parts);
    store_run(store, stmt, "write a job to");
    store_place_ranks(store, record);
    note_number(store, record->job_id);
    if (rdzv_state_is_final(record->state))
        (void)store_trim_spec(store, ids_of(record), true);
}

/* The range that a summary can carry in a field; 0 to 0: it has no such field. */
struct range {
    int64_t min;
    uint64_t max;
};
#define RANGE_INDEX(kind, field, column, audience, bytes) RANGE_##field,
enum { RDZV_RECORD_TABLE(RANGE_INDEX) RANGE_COUNT };
#define RANGE_NAME(kind, field, column, audience, bytes) #field,
static const char *const range_names[] = {RDZV_RECORD_TABLE(RANGE_NAME)};
static struct range ranges[RANGE_COUNT];

static void find_ranges(void)
{
    const struct msg_shape *job = msg_shape(MSG_TYPE_JOBS)->fields[0].part();

    for (uint32_t i = 0; i < RANGE_COUNT; i++)
        for (uint32_t k = 0; k < job->field_count; k++)
            if (strcmp(job->fields[k].name, range_names[i]) == 0 && i != RANGE_job_id)
                ranges[i] = (struct range){job->fields[k].min, job->fields[k].max};
}

/* Clamps a number: with one that no summary can carry, the list of all jobs could not be sent. */
static int64_t within(uint32_t index, int64_t value)
{
    const struct range *range = &ranges[index];

    if (range->max == 0)
        return value;
    if (value < range->min)
        return range->min;
    return value > 0 && (uint64_t)value > range->max ? (int64_t)range->max : value;
}

/* Every I64 of a record is a time. This keeps differences of times from overflowing. */
static int64_t not_before_1970(int64_t ms)
{
    return ms > 0 ? ms : 0;
}

#define READ_INT(field, index)                                                                     \
    field = (__typeof__(field))within(index, sqlite3_column_int64(stmt, column++))
#define READ_U32(field, index) READ_INT(field, index)
#define READ_I32(field, index) READ_INT(field, index)
#define READ_U64(field, index) READ_INT(field, index)
#define READ_I64(field, index)                                                                     \
    field = not_before_1970(within(index, sqlite3_column_int64(stmt, column++)))
#define READ_BOOL(field, index) READ_INT(field, index)
#define READ_F64(field, index) field = sqlite3_column_double(stmt, column++)
#define READ_TEXT(field, index)                                                                    \
    (void)snprintf(field, sizeof field, "%s", store_text(stmt, column++))
#define READ_STATE(field, index) field = read_state(store_text(stmt, column++))
#define READ(kind, field, name, audience, bytes) READ_##kind(record->field, RANGE_##field);

/* A row with an unknown state is never active, and is shown as failed. */
static enum job_state read_state(const char *name)
{
    enum job_state state;

    return job_state_parse(name, &state) ? state : JOB_FAILED;
}

static void read_job(sqlite3_stmt *stmt, struct arena *arena, struct rdzv_record *record)
{
    int column = 0;

    memset(record, 0, sizeof *record);
    if (ranges[RANGE_nodes].max == 0)
        find_ranges();
    RDZV_RECORD_TABLE(READ)
    parts_from_json(store_text(stmt, column), arena, record);
}

bool store_get_job(struct store *store, uint64_t job_id, struct arena *arena,
                   struct rdzv_record *record)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_GET);
    bool found;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    found = store_row(store, stmt, "read a job of");
    if (found)
        read_job(stmt, arena, record);
    (void)sqlite3_reset(stmt);
    return found;
}

uint32_t store_active_ids(struct store *store, uint64_t after_id, uint64_t *ids, uint32_t max)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_ACTIVE);
    uint32_t count = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)after_id);
    (void)sqlite3_bind_int64(stmt, 2, max);
    while (count < max && store_row(store, stmt, "read the jobs of")) {
        ids[count] = (uint64_t)sqlite3_column_int64(stmt, 0);
        if (ids[count] > after_id) /* else the index is damaged, and a caller would loop */
            after_id = ids[count++];
    }
    (void)sqlite3_reset(stmt);
    return count;
}

void store_list(struct store *store, struct store_viewer viewer, uint64_t after_id, uint32_t limit,
                void (*on_job)(const struct rdzv_record *, void *), void *context)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_LIST);
    struct rdzv_record record;
    struct arena arena = {0};

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)after_id);
    (void)sqlite3_bind_int(stmt, 2, viewer.sees_all);
    (void)sqlite3_bind_text(stmt, 3, viewer.user, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(stmt, 4, limit);
    while (store_row(store, stmt, "read the jobs of")) {
        read_job(stmt, &arena, &record);
        on_job(&record, context);
        arena_reset(&arena);
    }
}

static uint64_t read_id(struct store *store, sqlite3_stmt *stmt)
{
    uint64_t id = 0;

    if (store_row(store, stmt, "find a job in"))
        id = (uint64_t)sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    return id;
}

uint64_t store_next_job_id(struct store *store)
{
    return read_id(store, store_use(store, STORE_JOB_NEXT));
}

int64_t store_submitted_ms(struct store *store, uint64_t job_id)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_SUBMITTED);
    int64_t submitted_ms = 0;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    if (store_row(store, stmt, "read a job of"))
        submitted_ms = not_before_1970(sqlite3_column_int64(stmt, 0));
    (void)sqlite3_reset(stmt);
    return submitted_ms;
}

uint64_t store_lease_us(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_LEASE_GET);
    int64_t lease_us = 0;

    if (store_row(store, stmt, "read the lease of"))
        lease_us = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    if (lease_us < (int64_t)store->seen.lease_us)
        return store->seen.lease_us; /* the state may be of before that */
    return (uint64_t)lease_us < DURATION_US_MAX ? (uint64_t)lease_us : DURATION_US_MAX;
}

void store_write_lease(struct store *store, uint64_t lease_us)
{
    sqlite3_stmt *stmt = store_use(store, STORE_LEASE_WRITE);

    assert(store->in_transaction && lease_us <= DURATION_US_MAX);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)lease_us);
    store_run(store, stmt, "write the lease to");
    store->has_news = store->has_news || lease_us != store->seen.lease_us;
    store->seen.lease_us = lease_us;
}

bool store_is_copy(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_COPY_GET);
    const bool is_copy = store_row(store, stmt, "read the restore of");

    (void)sqlite3_reset(stmt);
    return is_copy;
}

void store_write_copy(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_COPY_WRITE);

    (void)sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    store_run(store, stmt, "write that jobs wait to");
}

void store_write_copy_over(struct store *store)
{
    store_run(store, store_use(store, STORE_COPY_DROP), "write the end of the restore to");
}

void store_write_alive(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_ALIVE_WRITE);

    (void)sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    store_run(store, stmt, "write that a server leads to");
}

void store_write_gap(struct store *store, uint64_t job_id)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_FLOOR);

    assert(store->in_transaction && job_id <= JOB_ID_MAX);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    store_run(store, stmt, "write the newest number to");
    note_number(store, job_id);
    store->next_event_id += STORE_ID_GAP;
    store_write_copy(store);
}

/* "12_3" */
static uint64_t find_element(struct store *store, uint64_t array, uint32_t index,
                             struct store_viewer viewer)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_ELEMENT);

    (void)sqlite3_bind_int(stmt, 1, viewer.sees_all);
    (void)sqlite3_bind_text(stmt, 2, viewer.user, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(stmt, 3, array <= JOB_ID_MAX ? (sqlite3_int64)array : 0);
    (void)sqlite3_bind_int64(stmt, 4, index);
    return read_id(store, stmt);
}

uint64_t store_find_job(struct store *store, const char *text, struct store_viewer viewer)
{
    uint64_t array;
    uint32_t index;
    bool is_number = strspn(text, "0123456789") == strlen(text);
    bool is_last = strcmp(text, "@last") == 0;
    sqlite3_stmt *stmt = store_use(store, is_last     ? STORE_JOB_LAST
                                          : is_number ? STORE_JOB_NUMBER
                                                      : STORE_JOB_NAMED);

    if (array_spec_job(text, &array, &index))
        return find_element(store, array, index, viewer);
    (void)sqlite3_bind_int(stmt, 1, viewer.sees_all);
    (void)sqlite3_bind_text(stmt, 2, viewer.user, -1, SQLITE_TRANSIENT);
    if (is_number) {
        unsigned long long id = strtoull(text, NULL, 10);

        (void)sqlite3_bind_int64(stmt, 3, id <= JOB_ID_MAX ? (sqlite3_int64)id : 0);
    } else if (!is_last) {
        (void)sqlite3_bind_text(stmt, 3, text, -1, SQLITE_TRANSIENT);
    }
    return read_id(store, stmt);
}

static void find_failed(struct store *store, const struct rdzv_after_item *item,
                        struct rdzv_after *after)
{
    sqlite3_stmt *stmt = store_use(store, STORE_JOB_FAILED);
    const int64_t first = (int64_t)item->first, last = (int64_t)item->last;

    (void)sqlite3_bind_int64(stmt, 1, first);
    (void)sqlite3_bind_int64(stmt, 2, last);
    if (store_row(store, stmt, "look for a job in")) {
        after->failed_id = (uint64_t)sqlite3_column_int64(stmt, 0);
        after->failed_state = read_state(store_text(stmt, 1));
    }
    (void)sqlite3_reset(stmt);
    if (after->failed_id != 0)
        return;
    stmt = store_use(store, STORE_JOB_COUNT);
    (void)sqlite3_bind_int64(stmt, 1, first);
    (void)sqlite3_bind_int64(stmt, 2, last);
    if (store_row(store, stmt, "count the jobs of") &&
        sqlite3_column_int64(stmt, 0) <= last - first) {
        after->failed_id = item->first;
        after->failed_state = JOB_QUEUED;
    }
    (void)sqlite3_reset(stmt);
}

void store_find_failed(struct store *store, struct rdzv_after *after)
{
    after->failed_id = 0;
    for (uint32_t i = 0; i < after->count && after->failed_id == 0; i++)
        if (!after->items[i].any)
            find_failed(store, &after->items[i], after);
}

bool store_find_request(struct store *store, const char *request_id, const char *user,
                        uint64_t *job_id)
{
    sqlite3_stmt *stmt = store_use(store, STORE_REQUEST_FIND);
    uint64_t id;

    (void)sqlite3_bind_text(stmt, 1, request_id, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_text(stmt, 2, user, -1, SQLITE_TRANSIENT);
    id = read_id(store, stmt);
    if (id == 0)
        return false;
    *job_id = id;
    return true;
}
