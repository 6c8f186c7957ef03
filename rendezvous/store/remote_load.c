/* What a new leader reads: it first finishes a commit that its predecessor did not finish, then
 * reads all rows as of one revision. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rendezvous/store/key_span.h"
#include "rendezvous/store/remote_internal.h"

#define READ_US 10000000u
#define PAGE_ROWS_MIN 1u
#define PAGE_ROWS_FIRST 256u
#define PAGE_ROWS_MAX 2048u
#define PAGE_BYTES_WANTED (4u << 20)
#define LOADS_MAX 30

struct load {
    struct remote *remote;
    int64_t revision; /* the revision to read; 0: the newest */
    uint32_t page_rows;
    uint64_t row_count;
    uint64_t row_total;             /* with a pace: about how many rows there are */
    struct rows_table *table;       /* the table whose rows are read; NULL: the keys name it */
    bool has_rows;                  /* the rows were copied before */
    const struct remote_pace *pace; /* NULL: without pauses */
    struct err *err;
};

static enum status damaged(const struct load *load, const char *what)
{
    return err_set(load->err, STATUS_UNSUPPORTED, 0,
                   "what is in etcd under %s is not a state of rendezvous, or damaged: %s; give "
                   "another prefix, or remove it with etcdctl del --prefix",
                   load->remote->lead.prefix, what);
}

/* -- pages -- */

/* A leader that is still reading changes nothing and answers nobody, and its lease is renewed
 * meanwhile. So a slow page is no reason to give up before the lease is lost. */
static uint64_t read_deadline(struct remote *remote)
{
    return remote->lead.revision != 0 ? clock_boot_us() + READ_US : remote_deadline(remote);
}

/* The rows of one page, and where the next one begins. */
static enum status read_page(struct load *load, struct etcd_op *range, struct etcd_answer *answer)
{
    struct remote *remote = load->remote;
    enum status status;

    for (;;) {
        range->revision = load->revision;
        range->limit = load->page_rows;
        status = etcd_range(remote->lead.client, range, read_deadline(remote), &remote->arena,
                            answer, load->err);
        if (status != STATUS_TOO_BIG || load->page_rows == PAGE_ROWS_MIN)
            break;
        load->page_rows = load->page_rows / 8 > PAGE_ROWS_MIN ? load->page_rows / 8 : PAGE_ROWS_MIN;
    }
    return status;
}

static void fit_page(struct load *load, const struct etcd_answer *answer)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < answer->row_count; i++)
        bytes += answer->rows[i].key.byte_count + answer->rows[i].value.byte_count;
    if (bytes < PAGE_BYTES_WANTED / 2 && load->page_rows < PAGE_ROWS_MAX)
        load->page_rows *= 2;
    else if (bytes > PAGE_BYTES_WANTED && load->page_rows > PAGE_ROWS_MIN)
        load->page_rows /= 2;
}

/* Sets the range to what follows the page that was read. */
static enum status go_on(struct load *load, struct key_span *span, struct etcd_op *range,
                         const struct etcd_answer *answer, char *next, size_t next_bytes)
{
    struct etcd_bytes from = range->end;

    if (answer->has_more && answer->row_count == 0)
        return damaged(load, "a page without rows");
    if (answer->has_more) {
        from = answer->rows[answer->row_count - 1].key;
        from.byte_count++; /* with its NUL */
    }
    if (from.byte_count > next_bytes)
        return damaged(load, "a key that is too long");
    key_span_learn(span, range->key, from, answer->row_count, load->page_rows, answer->has_more);
    if (answer->row_count >= load->page_rows / 2)
        fit_page(load, answer);
    memcpy(next, from.bytes, from.byte_count);
    range->key = (struct etcd_bytes){next, from.byte_count};
    return STATUS_OK;
}

typedef enum status on_row(struct load *load, const char *key, struct etcd_bytes value);

/* Calls `take` for all keys that begin with `name`, with the rest of the key. */
static enum status each(struct load *load, const char *name, on_row *take)
{
    char from[REMOTE_KEY_BYTES_MAX], to[REMOTE_KEY_BYTES_MAX];
    char next[REMOTE_KEY_BYTES_MAX + ROWS_KEY_BYTES_MAX], end[sizeof next + KEY_SPAN_BYTES_MORE];
    struct remote *remote = load->remote;
    struct etcd_op range = {.kind = ETCD_RANGE, .key = remote_key(remote, from, "%s/", name)};
    struct etcd_bytes last_end = remote_key(remote, to, "%s0", name); /* '0' comes after '/' */
    struct key_span span = {.skip = range.key.byte_count};
    struct etcd_answer answer;
    enum status status = STATUS_OK;
    bool is_last = false;

    while (status == STATUS_OK && !is_last) {
        range.end = key_span_end(&span, range.key, last_end, end, sizeof end);
        status = read_page(load, &range, &answer);
        for (uint32_t i = 0; status == STATUS_OK && i < answer.row_count; i++)
            status = take(load, answer.rows[i].key.bytes + span.skip, answer.rows[i].value);
        is_last = status == STATUS_OK && !answer.has_more && range.end.bytes == last_end.bytes;
        load->row_count += status == STATUS_OK ? answer.row_count : 0;
        if (load->pace != NULL &&
            !load->pace->goes_on(load->row_count, load->row_total, load->pace->context))
            status = err_set(load->err, STATUS_CLOSED, 0, "the rows are not wanted any more");
        if (status == STATUS_OK && !is_last)
            status = go_on(load, &span, &range, &answer, next, sizeof next);
        arena_reset(&remote->arena);
    }
    return status;
}

/* -- a commit that was not finished -- */

static bool take_bytes(struct row_reader *reader, struct etcd_bytes *bytes)
{
    uint64_t byte_count;

    if (!row_take_number(reader, &byte_count) || byte_count > reader->byte_count - reader->at)
        return false;
    *bytes = (struct etcd_bytes){reader->bytes + reader->at, (size_t)byte_count};
    reader->at += (size_t)byte_count;
    return true;
}

/* Reads the writes from the chunks in remote->text. */
static enum status read_ops(struct load *load)
{
    struct remote *remote = load->remote;
    struct row_reader reader = {.bytes = remote->text.bytes, .byte_count = remote->text.byte_count};
    size_t prefix_bytes = strlen(remote->lead.prefix);

    while (reader.at < reader.byte_count) {
        struct etcd_bytes key, value;
        uint64_t is_delete;

        if (!row_take_number(&reader, &is_delete) || is_delete > 1 || !take_bytes(&reader, &key) ||
            !take_bytes(&reader, &value) || key.byte_count < prefix_bytes ||
            memcmp(key.bytes, remote->lead.prefix, prefix_bytes) != 0)
            return damaged(load, "a commit that was begun cannot be read");
        if (!remote_add_op(remote, (size_t)(key.bytes - remote->text.bytes), key.byte_count,
                           (size_t)(value.bytes - remote->text.bytes), value.byte_count,
                           is_delete == 1))
            return err_set(load->err, STATUS_MEMORY, 0, "no memory for a commit of etcd");
    }
    return STATUS_OK;
}

static enum status add_chunk(struct load *load, const char *key, struct etcd_bytes value)
{
    (void)key;
    buf_add(&load->remote->text, value.bytes, value.byte_count);
    return load->remote->text.failed
               ? err_set(load->err, STATUS_MEMORY, 0, "no memory for a commit of etcd")
               : STATUS_OK;
}

/* "12 3": two decimal numbers and nothing else. */
static bool read_two(const char *text, uint64_t *first, uint64_t *second)
{
    char *end = NULL;

    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *first = strtoull(text, &end, 10);
    if (*end != ' ' || end[1] < '0' || end[1] > '9')
        return false;
    *second = strtoull(end + 1, &end, 10);
    return *end == '\0' && errno == 0;
}

/* Finishes the commit that `valid` names: "SEQ CHUNKS". */
static enum status finish_pending(struct load *load, const char *valid)
{
    struct remote *remote = load->remote;
    char name[64], kept[64];
    uint64_t seq, chunk_count;
    enum status status;

    if (!read_two(valid, &seq, &chunk_count) || seq != remote->seq)
        return damaged(load, "a commit that was begun has no good number");
    (void)snprintf(kept, sizeof kept, "%s", valid);
    (void)snprintf(name, sizeof name, "pending/%" PRIu64, seq);
    load->row_count = 0;
    status = each(load, name, add_chunk);
    if (status == STATUS_OK && load->row_count != chunk_count)
        status = damaged(load, "parts of a commit that was begun are missing");
    if (status == STATUS_OK)
        status = read_ops(load);
    if (status == STATUS_OK)
        status = remote_carry_out(remote, kept, load->err);
    if (status == STATUS_OK && load->has_rows)
        status = remote_apply_ops(remote, load->err);
    remote->op_count = 0;
    remote->text.byte_count = 0;
    return status;
}

/* -- rows -- */

/* Key TABLE/N. */
static enum status take_layout(struct load *load, const char *key, struct etcd_bytes value)
{
    size_t name_bytes = strcspn(key, "/");
    struct rows_table *table = rows_find(&load->remote->rows, key, name_bytes);
    char *end = NULL;
    unsigned long id;

    if (table == NULL)
        return err_set(load->err, STATUS_UNSUPPORTED, 0,
                       "the state in etcd has a table, %.40s, which this rendezvous (" DDP_VERSION
                       ") does not know: use the version that wrote it",
                       key);
    id = key[name_bytes] == '/' ? strtoul(key + name_bytes + 1, &end, 10) : 0;
    if (end == NULL || *end != '\0' || id == 0 || id > UINT32_MAX)
        return damaged(load, "columns of rows without a number");
    return rows_add_layout(table, &load->remote->rows, (uint32_t)id, value.bytes, load->err);
}

/* Key TABLE/KEY. */
static enum status take_row(struct load *load, const char *key, struct etcd_bytes value)
{
    struct rows_table *table =
        load->table != NULL ? load->table : rows_find(&load->remote->rows, key, strcspn(key, "/"));

    if (table == NULL)
        return damaged(load, "rows of an unknown table");
    return rows_load(&load->remote->rows, table, value.bytes, value.byte_count, load->err);
}

/* Reads all rows as of the newest revision that was seen. */
static enum status load_rows(struct load *load)
{
    struct rows *rows = &load->remote->rows;
    enum status status;

    load->revision = load->remote->revision;
    load->page_rows = PAGE_ROWS_FIRST;
    rows_drop_layouts(rows);
    status = each(load, "layout", take_layout);

    if (status == STATUS_OK && sqlite3_exec(rows->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        return err_set(load->err, STATUS_IO, 0, "SQLite: %s", sqlite3_errmsg(rows->db));
    if (status == STATUS_OK)
        status = each(load, "rows", take_row);
    if (status == STATUS_OK && sqlite3_exec(rows->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return err_set(load->err, STATUS_IO, 0, "SQLite: %s", sqlite3_errmsg(rows->db));
    if (status != STATUS_OK)
        (void)sqlite3_exec(rows->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* -- layouts for writing -- */

/* Finds the number under which etcd has the table's columns, or adds a new one to the next
 * commit. */
static enum status choose_layout(struct load *load, struct rows_table *table)
{
    char key[REMOTE_KEY_BYTES_MAX];
    uint32_t newest = 0;

    for (uint32_t i = 0; i < table->layout_count; i++) {
        if (table->layouts[i].id > newest)
            newest = table->layouts[i].id;
        if (table->layouts[i].is_whole)
            table->layout = table->layouts[i].id;
    }
    if (table->layout != 0)
        return STATUS_OK;
    table->layout = newest + 1;
    (void)snprintf(key, sizeof key, "layout/%s/%u", table->name, table->layout);
    return remote_add_text(load->remote, key, table->columns)
               ? STATUS_OK
               : err_set(load->err, STATUS_MEMORY, 0, "no memory for the tables of the state");
}

static enum status choose_layouts(struct load *load, int schema)
{
    struct remote *remote = load->remote;
    enum status status = STATUS_OK;
    char text[32];

    for (uint32_t i = 0; status == STATUS_OK && i < remote->rows.table_count; i++)
        status = choose_layout(load, &remote->rows.tables[i]);
    (void)snprintf(text, sizeof text, "%d %d", REMOTE_FORMAT, STORE_SCHEMA_VERSION);
    if (status == STATUS_OK && schema != STORE_SCHEMA_VERSION &&
        !remote_add_text(remote, "format", text))
        status = err_set(load->err, STATUS_MEMORY, 0, "no memory for the tables of the state");
    return status;
}

/* -- opening -- */

static enum status check_format(struct load *load, const char *text, int *schema)
{
    uint64_t format, number;

    if (!read_two(text, &format, &number) || format < 1 || number < 1)
        return damaged(load, "its format is not a number");
    *schema = number > INT32_MAX ? INT32_MAX : (int)number;
    if (format > REMOTE_FORMAT || *schema > STORE_SCHEMA_VERSION)
        return err_set(load->err, STATUS_UNSUPPORTED, 0,
                       "the state in etcd under %s has schema %d, written by a newer rendezvous; "
                       "this one (" DDP_VERSION ") knows schema %d: use the version that wrote it",
                       load->remote->lead.prefix, *schema, STORE_SCHEMA_VERSION);
    return STATUS_OK;
}

/* A new state needs an empty prefix: only the keys of servers may be there. */
static enum status check_empty(struct load *load)
{
    static const char *const names[] = {"rows", "layout", "pending"};
    struct remote *remote = load->remote;
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < sizeof names / sizeof names[0]; i++) {
        char from[REMOTE_KEY_BYTES_MAX], to[REMOTE_KEY_BYTES_MAX];
        struct etcd_op range = {.kind = ETCD_RANGE,
                                .key = remote_key(remote, from, "%s/", names[i]),
                                .end = remote_key(remote, to, "%s0", names[i])};
        struct etcd_answer answer;

        status = read_page(load, &range, &answer);
        if (status == STATUS_OK && answer.row_count > 0)
            status = damaged(load, "it has rows but no format");
    }
    return status;
}

struct head {
    const struct etcd_row *format, *seq, *valid;
};

/* Reads the few keys that describe the state, at one revision. */
static enum status read_head(struct load *load, struct head *head)
{
    static const char *const names[] = {"leader", "format", "seq", "pending/valid"};
    char keys[4][REMOTE_KEY_BYTES_MAX];
    struct remote *remote = load->remote;
    struct etcd_op reads[4];
    struct etcd_txn txn = {.then = reads, .then_count = 4};
    const struct etcd_row *leader;
    struct etcd_answer answer;
    enum status status;

    for (size_t i = 0; i < 4; i++)
        reads[i] = (struct etcd_op){.kind = ETCD_RANGE,
                                    .key = remote_key(remote, keys[i], "%s", names[i])};
    status = etcd_transact(remote->lead.client, &txn, remote_deadline(remote), &remote->arena,
                           &answer, load->err);
    if (status != STATUS_OK)
        return status;
    leader = remote_row(&answer, reads[0].key);
    if (remote->lead.revision != 0 && (leader == NULL || leader->created != remote->lead.revision))
        return remote_lost(load->err);
    head->format = remote_row(&answer, reads[1].key);
    head->seq = remote_row(&answer, reads[2].key);
    head->valid = remote_row(&answer, reads[3].key);
    remote->revision = answer.revision;
    return STATUS_OK;
}

/* Removes the chunks of a commit that never became valid. */
static enum status drop_chunks(struct load *load, struct etcd_bytes seq)
{
    struct remote *remote = load->remote;
    char from[REMOTE_KEY_BYTES_MAX], to[REMOTE_KEY_BYTES_MAX], seq_key[REMOTE_KEY_BYTES_MAX];
    struct etcd_op drop = {.kind = ETCD_DELETE,
                           .key = remote_key(remote, from, "pending/"),
                           .end = remote_key(remote, to, "pending0")};
    struct etcd_compare guard = {
        .target = ETCD_VALUE, .key = remote_key(remote, seq_key, "seq"), .value = seq};
    const struct etcd_row *row;
    bool is_done;
    enum status status = remote_write(remote, &drop, 1, &guard, &is_done, &row, load->err);

    return status == STATUS_OK && !is_done ? damaged(load, "its commits changed meanwhile")
                                           : status;
}

static enum status take_seq(struct load *load, const struct etcd_row *row)
{
    char *end = NULL;

    if (row == NULL || row->value.byte_count == 0 || row->value.bytes[0] == '-')
        return damaged(load, "it has no number of its newest commit");
    load->remote->seq = strtoull(row->value.bytes, &end, 10);
    return *end == '\0' ? STATUS_OK : damaged(load, "it has no number of its newest commit");
}

/* Cleans up after an earlier commit. A server that only reads leaves that to the leader. */
static enum status settle(struct load *load, const struct head *head)
{
    if (load->remote->lead.revision == 0)
        return head->valid == NULL
                   ? STATUS_OK
                   : err_set(load->err, STATUS_BUSY, 0,
                             "a commit in etcd is not finished: is a server running?");
    if (head->valid != NULL)
        return finish_pending(load, head->valid->value.bytes);
    return drop_chunks(load, head->seq->value);
}

/* The rows were copied up to a revision after which nobody committed: the newest commit in etcd must be
 * that of the copy. */
static enum status check_copy(const struct load *load, int64_t copied, const struct head *head)
{
    const struct remote *remote = load->remote;
    struct remote_point now = {.commit = 0};

    if (remote->revision >= copied && head->seq != NULL && remote_take_point(&now, head->seq) &&
        now.commit == remote->point.commit && now.at == remote->point.at)
        return STATUS_OK;
    return err_set(load->err, STATUS_NOT_FOUND, ETCD_WENT_BACK,
                   "etcd does not have its commit %" PRIu64 " as this server has seen it",
                   remote->point.commit);
}

static enum status load_once(struct load *load, int *schema)
{
    struct head head;
    int64_t copied = load->remote->revision;
    enum status status = read_head(load, &head);

    if (status == STATUS_OK && load->has_rows)
        status = check_copy(load, copied, &head);
    if (status != STATUS_OK)
        return status;
    if (head.format == NULL) {
        load->remote->is_fresh = head.seq == NULL;
        return head.seq == NULL ? check_empty(load) : damaged(load, "it has no format");
    }
    status = check_format(load, head.format->value.bytes, schema);
    if (status == STATUS_OK)
        status = take_seq(load, head.seq);
    if (status == STATUS_OK)
        status = settle(load, &head);
    return status == STATUS_OK && !load->has_rows ? load_rows(load) : status;
}

/* Reads everything. Retries, since the leader may be in the middle of a commit, and the revision
 * that is read may be compacted away. */
static enum status load_state(struct load *load, int *schema)
{
    const struct timespec rest = {.tv_nsec = 100000000};
    enum status status = load_once(load, schema);

    for (int i = 1; i < LOADS_MAX; i++) {
        bool is_compacted = status == STATUS_NOT_FOUND && load->err->code == ETCD_COMPACTED;

        if (!is_compacted && status != STATUS_BUSY)
            break;
        arena_reset(&load->remote->arena);
        (void)nanosleep(&rest, NULL);
        status = load_once(load, schema);
    }
    return status;
}

/* Once the rows are there: prepares what a leader needs for writing. */
static enum status make_ready(struct load *load, int schema)
{
    struct remote *remote = load->remote;
    enum status status = choose_layouts(load, schema);

    if (status == STATUS_OK)
        status = rows_watch(&remote->rows, load->err);
    if (status == STATUS_OK)
        status = remote_mark_restore(remote, load->err);
    remote->mark = (struct remote_mark){
        .commit = remote->seq, .revision = remote->revision, .at_us = clock_boot_us()};
    return status;
}

enum status remote_adopt(struct remote *remote, const struct store_lead *lead, struct err *err)
{
    struct load load = {.remote = remote, .has_rows = true, .err = err};
    int schema = 0;
    enum status status;

    load.page_rows = PAGE_ROWS_FIRST;
    remote->lead = *lead;
    status = load_state(&load, &schema);
    arena_reset(&remote->arena);
    if (status == STATUS_OK && remote->is_fresh)
        status = damaged(&load, "its format is gone");
    return status == STATUS_OK ? make_ready(&load, schema) : status;
}

static enum status count_rows(struct load *load)
{
    char from[REMOTE_KEY_BYTES_MAX], to[REMOTE_KEY_BYTES_MAX];
    struct remote *remote = load->remote;
    struct etcd_op range = {.kind = ETCD_RANGE,
                            .key = remote_key(remote, from, "rows/"),
                            .end = remote_key(remote, to, "rows0"),
                            .limit = 1};
    struct etcd_answer answer = {0};
    enum status status = etcd_range(remote->lead.client, &range, read_deadline(remote),
                                    &remote->arena, &answer, load->err);

    load->row_total = answer.key_count > 0 ? (uint64_t)answer.key_count : 0;
    arena_reset(&remote->arena);
    return status;
}

/* An unfinished commit is left to the leader: its writes will arrive as changes. */
static enum status copy_once(struct load *load)
{
    struct head head;
    int schema;
    enum status status = read_head(load, &head);

    if (status == STATUS_OK && head.format == NULL)
        status = err_set(load->err, STATUS_NOT_FOUND, 0, "there is no state in etcd under %s",
                         load->remote->lead.prefix);
    if (status == STATUS_OK)
        status = check_format(load, head.format->value.bytes, &schema);
    if (status == STATUS_OK &&
        (head.seq == NULL || !remote_take_point(&load->remote->point, head.seq)))
        status = damaged(load, "it has no number of its newest commit");
    arena_reset(&load->remote->arena);
    load->row_count = 0;
    if (status == STATUS_OK)
        status = count_rows(load);
    return status == STATUS_OK ? load_rows(load) : status;
}

enum status remote_copy(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const struct remote_pace *pace, uint64_t *row_count, struct err *err)
{
    struct load load = {.remote = remote, .page_rows = PAGE_ROWS_FIRST, .pace = pace, .err = err};
    enum status status;

    *remote = (struct remote){.lead = *lead};
    status = rows_open(&remote->rows, db, err);
    if (status == STATUS_OK)
        status = copy_once(&load);
    arena_reset(&remote->arena);
    *row_count = load.row_count;
    return status;
}

enum status remote_open(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        struct err *err)
{
    struct load load = {.remote = remote, .page_rows = PAGE_ROWS_FIRST, .err = err};
    int schema = 0;
    enum status status;

    *remote = (struct remote){.lead = *lead};
    status = rows_open(&remote->rows, db, err);
    if (status == STATUS_OK)
        status = load_state(&load, &schema);
    arena_reset(&remote->arena);
    return status == STATUS_OK ? make_ready(&load, schema) : status;
}

enum status remote_read(struct remote *remote, sqlite3 *db, const struct store_lead *lead,
                        const char *const *tables, uint32_t table_count, struct err *err)
{
    struct load load = {.remote = remote, .page_rows = PAGE_ROWS_FIRST, .err = err};
    char name[64];
    enum status status;

    *remote = (struct remote){.lead = *lead};
    status = rows_open(&remote->rows, db, err);
    if (status == STATUS_OK)
        status = each(&load, "layout", take_layout);
    for (uint32_t i = 0; status == STATUS_OK && i < table_count; i++) {
        (void)snprintf(name, sizeof name, "rows/%s", tables[i]);
        load.table = rows_find(&remote->rows, tables[i], strlen(tables[i]));
        assert(load.table != NULL);
        status = each(&load, name, take_row);
    }
    arena_reset(&remote->arena);
    return status;
}
