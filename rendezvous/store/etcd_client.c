#include "rendezvous/store/etcd_client.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/curl_library.h"
#include "common/io/conn.h"
#include "common/utf8.h"
#include "rendezvous/store/etcd_client_internal.h"
#include "rendezvous/store/etcd_json.h"

#define REPLY_BYTES_MAX ((size_t)512 << 20)
#define TRY_US_MIN 250000u  /* one try at one member, if there is time */
#define TOKENS_MAX 3        /* logins in a call at one member: a token may expire */
#define LOGIN_US 10000000u  /* a login may take this long, however short its request's limit is */
#define PAUSE_US_MIN 20000u /* when no member has answered */
#define PAUSE_US_MAX 500000u

/* gRPC's status codes, in the body of an answer. */
enum grpc_code {
    GRPC_INVALID = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_DENIED = 7,
    GRPC_EXHAUSTED = 8,
    GRPC_FAILED = 9,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAUTHENTICATED = 16,
};

/* -- one try -- */

struct buf *etcd_begin(struct etcd_client *client)
{
    client->request.byte_count = 0;
    client->request.failed = false;
    return &client->request;
}

size_t etcd_take_body(char *bytes, size_t size, size_t n, void *context)
{
    struct buf *body = context;

    buf_add(body, bytes, size * n);
    return body->failed ? size * n + 1 : size * n;
}

static bool has(const char *text, const char *words)
{
    return strstr(text, words) != NULL;
}

/* The request had no token, an expired one, or one from before a change of etcd's users. */
bool etcd_wants_token(const char *words)
{
    return has(words, "user name is empty") || has(words, "invalid auth token") ||
           has(words, "revision of auth store is old");
}

static enum try_result refuse_token(const struct etcd_client *client, const char *words,
                                    struct err *err)
{
    (void)err_set(err, STATUS_REFUSED, 0, "etcd at %s: %s: %s", etcd_endpoint(client), words,
                  client->user[0] == '\0'
                      ? "it has users, so give --store-user and --store-password-file"
                      : "check --store-user and --store-password-file");
    return TRY_TOKEN;
}

/* Decides what an error answer means. If a member cannot answer now (no leader, too many requests,
 * stopping), the next one is tried. */
enum try_result etcd_judge(const struct etcd_client *client, long http_code, struct err *err)
{
    char words[160];
    int code = etcd_json_error(client->body.bytes, client->body.byte_count, words, sizeof words);
    const char *who = etcd_endpoint(client);

    if (code == GRPC_UNAUTHENTICATED || etcd_wants_token(words))
        return refuse_token(client, words, err);
    if (code == GRPC_EXHAUSTED && has(words, "space exceeded"))
        (void)err_set(err, STATUS_IO, ETCD_NO_SPACE,
                      "etcd at %s has no room: %s; give it a larger --quota-backend-bytes, compact "
                      "and defragment it, then `etcdctl alarm disarm`",
                      who, words);
    else if (has(words, "larger than max") || has(words, "too large"))
        (void)err_set(err, STATUS_TOO_BIG, 0, "etcd at %s: %s", who, words);
    else if (code == GRPC_OUT_OF_RANGE)
        (void)err_set(err, STATUS_NOT_FOUND,
                      has(words, "future revision") ? ETCD_FUTURE : ETCD_COMPACTED,
                      "etcd at %s: %s", who, words);
    else if (code == GRPC_NOT_FOUND)
        (void)err_set(err, STATUS_NOT_FOUND, 0, "etcd at %s: %s", who, words);
    else if (code == GRPC_DENIED)
        (void)err_set(err, STATUS_REFUSED, 0,
                      "etcd at %s: %s: give the user of --store-user the right to read and write "
                      "all keys under the prefix of --store",
                      who, words);
    else if (code == GRPC_INVALID || code == GRPC_FAILED || code == GRPC_UNIMPLEMENTED)
        (void)err_set(err, STATUS_BAD_INPUT, 0, "etcd at %s: %s", who, words);
    else {
        (void)err_set(err, STATUS_TIMEOUT, 0, "%s: HTTP %ld, %s", who, http_code, words);
        return TRY_NEXT;
    }
    return TRY_FAILED;
}

struct curl_slist *etcd_headers(const struct etcd_client *client)
{
    char line[TOKEN_BYTES_MAX + 32];
    struct curl_slist *headers = client->curl.slist_append(NULL, "Content-Type: application/json");

    headers =
        client->curl.slist_append(headers, "Expect:"); /* no round trip before large requests */
    if (client->token[0] != '\0') {
        (void)snprintf(line, sizeof line, "Authorization: %s", client->token);
        headers = client->curl.slist_append(headers, line);
    }
    return headers;
}

void etcd_set_request(struct etcd_client *client, const char *path, struct curl_slist *headers,
                      long limit_ms)
{
    const struct curl_library *curl = &client->curl;
    char url[ETCD_ENDPOINT_BYTES_MAX + 64];

    (void)snprintf(url, sizeof url, "http%s://%s/v3/%s", client->uses_tls ? "s" : "",
                   etcd_endpoint(client), path);
    client->body.byte_count = 0;
    client->body.failed = false;
    client->words[0] = '\0';
    (void)curl->easy_setopt(client->easy, CURLOPT_URL, url);
    (void)curl->easy_setopt(client->easy, CURLOPT_HTTPHEADER, headers);
    (void)curl->easy_setopt(client->easy, CURLOPT_POSTFIELDS, client->request.bytes);
    (void)curl->easy_setopt(client->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                            (curl_off_t)client->request.byte_count);
    (void)curl->easy_setopt(client->easy, CURLOPT_TIMEOUT_MS, limit_ms);
}

/* What the user should check when a member refuses us or we refuse it. */
static const char *advice(const struct etcd_client *client, const char *words, CURLcode code)
{
    int64_t left_s = 0;

    if (code == CURLE_GOT_NOTHING && !client->uses_tls)
        return ": if it has TLS, write etcds://";
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return ": its certificate must be signed by --store-ca and name that host";
    if (has(words, " alert ") && client->cert_path != NULL &&
        etcd_files_left(client->cert_path, &left_s) && left_s < 0)
        return ": the certificate of --store-cert has ended: put a new one in its place, no "
               "restart is needed";
    if (has(words, " alert "))
        return ": does it take the certificate of --store-cert?";
    return has(words, "wrong version number") ? ": if it has no TLS, write etcd://" : "";
}

/* curl's message says more than its code: which name a certificate lacks, or why the peer refuses
 * ours. */
enum status etcd_unanswered(const struct etcd_client *client, CURLcode code, struct err *err)
{
    const char *words = client->words[0] != '\0' ? client->words : client->curl.easy_strerror(code);

    return err_set(err, STATUS_TIMEOUT, (int)code, "%s: %.120s%s", etcd_endpoint(client), words,
                   advice(client, words, code));
}

/* The answer is in client->body. */
static enum try_result try_once(struct etcd_client *client, const char *path, uint64_t limit_us,
                                struct err *err)
{
    const struct curl_library *curl = &client->curl;
    struct curl_slist *headers = etcd_headers(client);
    long limit_ms = (long)(limit_us / 1000 > 0 ? limit_us / 1000 : 1), http_code = 0;
    CURLcode code;

    etcd_set_request(client, path, headers, limit_ms);
    code = curl->easy_perform(client->easy);
    (void)curl->easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http_code);
    (void)curl->easy_setopt(client->easy, CURLOPT_HTTPHEADER, NULL);
    curl->slist_free_all(headers);
    if (client->body.failed) {
        (void)err_set(err, STATUS_TOO_BIG, 0, "an answer of etcd at %s is too large",
                      etcd_endpoint(client));
        return TRY_FAILED;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        (void)err_set(err, STATUS_TIMEOUT, (int)code, "not wanted any more");
        return TRY_FAILED;
    }
    if (code != CURLE_OK) {
        (void)etcd_unanswered(client, code, err);
        return TRY_NEXT;
    }
    return http_code == 200 ? TRY_DONE : etcd_judge(client, http_code, err);
}

/* -- a call: tries until the deadline -- */

static void pause_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000),
                            .tv_nsec = (long)(us % 1000000) * 1000};

    (void)nanosleep(&left, NULL);
}

/* Half of what is left, so that a silent member leaves time for the others. */
static uint64_t try_limit_us(uint64_t left_us)
{
    uint64_t half_us = left_us / 2;

    if (left_us <= TRY_US_MIN)
        return left_us;
    return half_us > TRY_US_MIN ? half_us : TRY_US_MIN;
}

static enum status timed_out(struct err *err, const struct err *last)
{
    return err_set(err, STATUS_TIMEOUT, 0, "etcd does not answer in time (%s)",
                   last->text[0] != '\0' ? last->text : "no time was left to ask it");
}

/* Decodes the reply. One that cannot be decoded counts as no reply: it may come from another
 * program or a broken connection. */
static enum try_result read_reply(const struct etcd_client *client, struct arena *arena,
                                  struct etcd_reply *reply, struct err *err)
{
    struct err why = {.text = ""};
    enum status status =
        etcd_json_reply(client->body.bytes, client->body.byte_count, arena, reply, &why);

    if (status == STATUS_OK)
        return TRY_DONE;
    (void)err_set(err, status == STATUS_BAD_INPUT ? STATUS_TIMEOUT : status, 0, "%s: %s",
                  etcd_endpoint(client), why.text);
    return status == STATUS_BAD_INPUT ? TRY_NEXT : TRY_FAILED;
}

static enum status get_token(struct etcd_client *client, uint64_t deadline_us, struct err *err);

/* Keeps the older reason if the last try merely ran out of time: it may have had only
 * milliseconds. */
static void keep_reason(struct err *last, const struct err *why)
{
    if (why->code != CURLE_OPERATION_TIMEDOUT || last->text[0] == '\0')
        *last = *why;
}

/* Sends client->request. */
static enum status post(struct etcd_client *client, const char *path, uint64_t deadline_us,
                        struct arena *arena, struct etcd_reply *reply, struct err *err)
{
    uint64_t rest_us = PAUSE_US_MIN, now_us;
    uint32_t failed_in_a_row = 0, tries = 0;
    struct err last = {.text = ""}, why = {.text = ""};
    int token_count = 0;

    *reply = (struct etcd_reply){.token = ""};
    if (client->request.failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a request to etcd");
    while ((now_us = clock_boot_us()) < deadline_us) {
        enum try_result result;

        tries++;
        result = try_once(client, path, try_limit_us(deadline_us - now_us), &why);
        if (result == TRY_DONE)
            result = read_reply(client, arena, reply, &why);
        if (result == TRY_DONE) {
            reply->answer.tries = tries;
            return STATUS_OK;
        }
        if (result == TRY_TOKEN && client->user[0] != '\0' && token_count < TOKENS_MAX) {
            enum status status = get_token(client, deadline_us, err);

            if (status != STATUS_OK)
                return status;
            token_count++;
            continue;
        }
        if (result != TRY_NEXT)
            return err_set(err, why.status, why.code, "%s", why.text);
        keep_reason(&last, &why);
        token_count = 0; /* each member has its own time limit for tokens */
        client->current = (client->current + 1) % client->endpoint_count;
        if (++failed_in_a_row % client->endpoint_count != 0)
            continue;
        now_us = clock_boot_us();
        if (now_us + rest_us < deadline_us)
            pause_us(rest_us);
        rest_us = rest_us * 2 < PAUSE_US_MAX ? rest_us * 2 : PAUSE_US_MAX;
    }
    return timed_out(err, &last);
}

/* Adds a JSON string: names and passwords may have any character. */
static void add_json_text(struct buf *out, const char *text)
{
    buf_add_text(out, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == '"' || *c == '\\')
            buf_printf(out, "\\u%04x", (unsigned)(unsigned char)*c);
        else
            buf_add(out, c, 1);
    }
    buf_add_text(out, "\"");
}

/* Logs in to etcd. The current request is kept for the next try. A login has a time limit of its own: etcd
 * hashes the password, which takes longer than a short request may where the processors are busy, and
 * each login that is given up makes them busier. If the request's time is over then, the token is
 * there for the next request. */
static enum status get_token(struct etcd_client *client, uint64_t deadline_us, struct err *err)
{
    const uint64_t login_us = clock_boot_us() + LOGIN_US;
    struct buf kept = client->request;
    struct etcd_reply reply;
    struct arena arena = {0};
    struct err why = {.text = ""};
    enum status status;
    char user[sizeof client->user];

    (void)snprintf(user, sizeof user, "%s", client->user);
    client->user[0] = '\0'; /* the login itself needs no token */
    client->token[0] = '\0';
    client->request = (struct buf){0};
    buf_add_text(&client->request, "{\"name\":");
    add_json_text(&client->request, user);
    buf_add_text(&client->request, ",\"password\":");
    add_json_text(&client->request, client->password);
    buf_add_text(&client->request, "}");
    status = post(client, "auth/authenticate", deadline_us > login_us ? deadline_us : login_us,
                  &arena, &reply, &why);
    if (status != STATUS_OK)
        (void)err_set(err, status, why.code, "%s", why.text);
    if (status == STATUS_BAD_INPUT) /* "authentication failed, invalid user ID or password" */
        status =
            err_set(err, STATUS_REFUSED, 0,
                    "user %.60s: %.150s: check --store-user and the file of --store-password-file",
                    user, why.text);
    if (status == STATUS_OK && strlen(reply.token) >= sizeof client->token)
        status = err_set(err, STATUS_REFUSED, 0, "etcd's token for user %s is too long", user);
    if (status == STATUS_OK)
        (void)snprintf(client->token, sizeof client->token, "%s", reply.token);
    explicit_bzero(client->request.bytes, client->request.byte_count);
    buf_free(&client->request);
    client->request = kept;
    (void)snprintf(client->user, sizeof client->user, "%s", user);
    arena_reset(&arena);
    return status;
}

/* -- the calls -- */

enum status etcd_transact(struct etcd_client *client, const struct etcd_txn *txn,
                          uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                          struct err *err)
{
    struct etcd_reply reply;
    enum status status;

    assert(txn->then_count <= ETCD_OPS_MAX && txn->otherwise_count <= ETCD_OPS_MAX);
    etcd_json_txn(txn, etcd_begin(client));
    status = post(client, "kv/txn", deadline_us, arena, &reply, err);
    if (status == STATUS_OK)
        *answer = reply.answer;
    return status;
}

enum status etcd_range(struct etcd_client *client, const struct etcd_op *range,
                       uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                       struct err *err)
{
    struct etcd_reply reply;
    enum status status;

    etcd_json_range(range, etcd_begin(client));
    status = post(client, "kv/range", deadline_us, arena, &reply, err);
    if (status == STATUS_OK)
        *answer = reply.answer;
    return status;
}

/* A call whose answer has no rows. */
static enum status ask(struct etcd_client *client, const char *path, uint64_t deadline_us,
                       struct etcd_reply *reply, struct err *err)
{
    struct arena arena = {0};
    enum status status = post(client, path, deadline_us, &arena, reply, err);

    reply->token = "";
    reply->answer.rows = NULL;
    arena_reset(&arena);
    return status;
}

/* We choose the lease's number, so that a second copy of the request makes no second lease. */
enum status etcd_lease_grant(struct etcd_client *client, uint32_t ttl_s, uint64_t deadline_us,
                             int64_t *lease, struct err *err)
{
    struct etcd_reply reply;
    struct err why = {.text = ""};
    int64_t id = 0;
    enum status status;

    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
        return err_set(err, STATUS_SYSTEM, 0, "no random bytes for a lease");
    id = (int64_t)((uint64_t)id >> 1 | 1);
    buf_printf(etcd_begin(client), "{\"TTL\":\"%" PRIu32 "\",\"ID\":\"%" PRId64 "\"}", ttl_s, id);
    status = ask(client, "lease/grant", deadline_us, &reply, &why);
    if (status == STATUS_BAD_INPUT && has(why.text, "lease already exists"))
        status = STATUS_OK; /* an earlier try has made it */
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "%s", why.text);
    *lease = id;
    return STATUS_OK;
}

enum status etcd_lease_keep(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                            uint32_t *ttl_s, struct err *err)
{
    struct etcd_reply reply;
    enum status status;

    buf_printf(etcd_begin(client), "{\"ID\":\"%" PRId64 "\"}", lease);
    status = ask(client, "lease/keepalive", deadline_us, &reply, err);
    if (status == STATUS_OK && reply.ttl_s <= 0)
        return err_set(err, STATUS_NOT_FOUND, 0, "the lease in etcd has ended");
    if (status == STATUS_OK && ttl_s != NULL)
        *ttl_s = (uint32_t)reply.ttl_s;
    return status;
}

/* Revokes or compacts `name`. If that has been done already, etcd answers `gone_code`, which counts
 * as success; 0: any code that says so. */
static enum status give_up(struct etcd_client *client, const char *path, const char *name,
                           int64_t number, int gone_code, uint64_t deadline_us, struct err *err)
{
    struct etcd_reply reply;
    struct err why = {.text = ""};
    enum status status;

    buf_printf(etcd_begin(client), "{\"%s\":\"%" PRId64 "\"}", name, number);
    status = ask(client, path, deadline_us, &reply, &why);
    if (status == STATUS_NOT_FOUND && (gone_code == 0 || why.code == gone_code))
        return STATUS_OK;
    return status == STATUS_OK ? status : err_set(err, status, why.code, "%s", why.text);
}

enum status etcd_lease_revoke(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                              struct err *err)
{
    return give_up(client, "lease/revoke", "ID", lease, 0, deadline_us, err);
}

enum status etcd_compact(struct etcd_client *client, int64_t revision, uint64_t deadline_us,
                         struct err *err)
{
    return give_up(client, "kv/compaction", "revision", revision, ETCD_COMPACTED, deadline_us, err);
}

enum status etcd_health(struct etcd_client *client, uint64_t deadline_us,
                        struct etcd_health *health, struct err *err)
{
    struct etcd_reply reply;
    enum status status;

    memset(health, 0, sizeof *health);
    buf_add_text(etcd_begin(client), "{}");
    status = ask(client, "maintenance/status", deadline_us, &reply, err);
    if (status != STATUS_OK)
        return status;
    health->database_bytes = reply.database_bytes;
    health->used_bytes = reply.used_bytes;
    buf_add_text(etcd_begin(client), "{\"action\":\"GET\"}");
    status = ask(client, "maintenance/alarm", deadline_us, &reply, err);
    health->is_full = status == STATUS_OK && reply.is_full;
    return status;
}

/* -- opening -- */

const char *etcd_endpoint(const struct etcd_client *client)
{
    return client->endpoints[client->current];
}

static int look(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct etcd_client *client = context;

    (void)a, (void)b, (void)c, (void)d;
    return client->goes_on(client->context) ? 0 : 1;
}

/* Redirects are not followed and no proxy is used: these requests carry secrets. */
static bool set_up(struct etcd_client *client, const struct etcd_options *options)
{
    const struct curl_library *curl = &client->curl;
    CURLcode codes[20];
    size_t n = 0;

#define SET(option, value) codes[n++] = curl->easy_setopt(client->easy, (option), (value))
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_WRITEFUNCTION, etcd_take_body);
    SET(CURLOPT_WRITEDATA, &client->body);
    SET(CURLOPT_USERAGENT, "ddp/" DDP_VERSION);
    SET(CURLOPT_ERRORBUFFER, client->words);
    if (options->goes_on != NULL) {
        SET(CURLOPT_XFERINFOFUNCTION, look);
        SET(CURLOPT_XFERINFODATA, client);
        SET(CURLOPT_NOPROGRESS, 0L);
    }
    if (options->ca_path != NULL)
        SET(CURLOPT_CAINFO, options->ca_path);
    if (options->cert_path != NULL)
        SET(CURLOPT_SSLCERT, options->cert_path);
    if (options->key_path != NULL)
        SET(CURLOPT_SSLKEY, options->key_path);
#undef SET
    for (size_t i = 0; i < n; i++)
        if (codes[i] != CURLE_OK)
            return false;
    return true;
}

enum status etcd_open(struct etcd_client **out, const struct etcd_options *options, struct err *err)
{
    struct etcd_client *client = calloc(1, sizeof *client);
    enum status status;

    *out = client;
    if (client == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a client of etcd");
    assert(options->endpoint_count > 0);
    memcpy(client->endpoints, options->endpoints, sizeof client->endpoints);
    client->endpoint_count = options->endpoint_count;
    client->uses_tls = options->uses_tls;
    client->goes_on = options->goes_on;
    client->context = options->context;
    client->body.limit = REPLY_BYTES_MAX;
    status = curl_library_open(&client->curl, "a store on etcd needs", "", err);
    if (status == STATUS_OK &&
        ((options->user != NULL && strlen(options->user) >= sizeof client->user) ||
         (options->password != NULL && strlen(options->password) >= sizeof client->password)))
        status = err_set(err, STATUS_BAD_INPUT, 0, "user or password of etcd: over %u bytes",
                         CREDENTIAL_BYTES_MAX - 1);
    if (status == STATUS_OK) {
        (void)snprintf(client->user, sizeof client->user, "%s",
                       options->user != NULL ? options->user : "");
        (void)snprintf(client->password, sizeof client->password, "%s",
                       options->password != NULL ? options->password : "");
        client->cert_path = options->cert_path != NULL ? strdup(options->cert_path) : NULL;
        client->easy = client->curl.easy_init();
        if (client->easy == NULL || !set_up(client, options))
            status = err_set(err, STATUS_LIBRARY, 0, "libcurl cannot be used for etcd");
    }
    if (status != STATUS_OK)
        etcd_close(out);
    return status;
}

void etcd_close(struct etcd_client **out)
{
    struct etcd_client *client = *out;

    if (client == NULL)
        return;
    if (client->easy != NULL)
        client->curl.easy_cleanup(client->easy);
    curl_library_close(&client->curl);
    buf_free(&client->request);
    buf_free(&client->body);
    free(client->cert_path);
    explicit_bzero(client, sizeof *client);
    free(client);
    *out = NULL;
}
