/* A watch: one request whose answer is an endless stream of JSON objects, one a line. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/store/etcd_client_internal.h"
#include "rendezvous/store/etcd_json.h"

#define CONNECT_MS 5000L
/* The watch ends after this long without a byte: nothing else shows that a member has vanished. */
#define IDLE_S 60L

struct watch {
    struct etcd_client *client;
    const struct etcd_watch_options *options;
    bool is_ended; /* as wanted, or with a status in `err` */
    enum status status;
    struct err *err;
};

static bool end(struct watch *watch, enum status status)
{
    watch->is_ended = true;
    watch->status = status;
    return false;
}

/* The token expired after the last call. Drops it, so that the next call gets a new one. */
static enum status drop_token(struct etcd_client *client, const char *words, struct err *err)
{
    client->token[0] = '\0';
    return err_set(err, STATUS_TIMEOUT, 0, "etcd at %s ended a watch: %.100s",
                   etcd_endpoint(client), words);
}

/* False: end the stream. */
static bool take_reply(struct watch *watch, const struct etcd_reply *reply)
{
    const char *who = etcd_endpoint(watch->client);

    if (reply->compacted != 0)
        return end(watch, err_set(watch->err, STATUS_NOT_FOUND, ETCD_COMPACTED,
                                  "etcd at %s: changes up to revision %lld were dropped", who,
                                  (long long)reply->compacted));
    if (reply->is_cancelled && etcd_wants_token(reply->cancel_reason))
        return end(watch, drop_token(watch->client, reply->cancel_reason, watch->err));
    if (reply->is_cancelled)
        return end(watch, err_set(watch->err, STATUS_REFUSED, 0, "etcd at %s ended a watch: %.100s",
                                  who, reply->cancel_reason));
    if (reply->answer.row_count > 0 &&
        !watch->options->on_changes(&reply->answer, watch->options->context))
        return end(watch, STATUS_OK);
    return true;
}

static bool take_line(struct watch *watch, const char *line, size_t byte_count)
{
    static const char failed[] = "{\"error\":";
    struct arena arena = {0};
    struct etcd_reply reply;
    char words[120];
    bool goes_on;
    enum status status;

    if (byte_count == 0)
        return true;
    if (byte_count > sizeof failed && memcmp(line, failed, sizeof failed - 1) == 0 &&
        etcd_json_error(line, byte_count, words, sizeof words) >= 0)
        return end(watch, err_set(watch->err, STATUS_TIMEOUT, 0, "etcd at %s ended a watch: %s",
                                  etcd_endpoint(watch->client), words));
    status = etcd_json_reply(line, byte_count, &arena, &reply, watch->err);
    goes_on = status == STATUS_OK ? take_reply(watch, &reply) : end(watch, status);
    arena_reset(&arena);
    return goes_on;
}

/* curl's callback: takes the complete lines and keeps the rest. */
static size_t take_bytes(char *bytes, size_t size, size_t n, void *context)
{
    struct watch *watch = context;
    struct buf *body = &watch->client->body;
    size_t known = body->byte_count, begin = 0, byte_count = size * n;
    const char *newline;

    buf_add(body, bytes, byte_count);
    if (body->failed) {
        (void)end(watch, err_set(watch->err, STATUS_TOO_BIG, 0, "a change of etcd is too large"));
        return byte_count + 1;
    }
    while ((newline = memchr(body->bytes + known, '\n', body->byte_count - known)) != NULL) {
        size_t at = (size_t)(newline - body->bytes);

        if (!take_line(watch, body->bytes + begin, at - begin))
            return byte_count + 1;
        known = begin = at + 1;
    }
    buf_drop(body, begin);
    return byte_count;
}

/* Sets the curl options that only a watch needs; `watch` NULL: resets them. */
static void set_up(struct etcd_client *client, struct watch *watch)
{
    const struct curl_library *curl = &client->curl;
    const long is_on = watch != NULL;

    (void)curl->easy_setopt(client->easy, CURLOPT_WRITEFUNCTION,
                            watch != NULL ? take_bytes : etcd_take_body);
    (void)curl->easy_setopt(client->easy, CURLOPT_WRITEDATA,
                            watch != NULL ? (void *)watch : &client->body);
    (void)curl->easy_setopt(client->easy, CURLOPT_LOW_SPEED_LIMIT, is_on);
    (void)curl->easy_setopt(client->easy, CURLOPT_LOW_SPEED_TIME, is_on * IDLE_S);
    (void)curl->easy_setopt(client->easy, CURLOPT_CONNECTTIMEOUT_MS, is_on * CONNECT_MS);
}

enum status etcd_watch(struct etcd_client *client, const struct etcd_op *range,
                       const struct etcd_watch_options *options, struct err *err)
{
    struct watch watch = {.client = client, .options = options, .err = err};
    const struct curl_library *curl = &client->curl;
    struct curl_slist *headers = etcd_headers(client);
    long http_code = 0;
    CURLcode code;

    assert(range->end.bytes != NULL && range->revision > 0);
    etcd_json_watch(range, etcd_begin(client));
    etcd_set_request(client, "watch", headers, 0);
    set_up(client, &watch);
    code = curl->easy_perform(client->easy);
    (void)curl->easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http_code);
    set_up(client, NULL);
    (void)curl->easy_setopt(client->easy, CURLOPT_HTTPHEADER, NULL);
    curl->slist_free_all(headers);
    if (watch.is_ended)
        return watch.status;
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return STATUS_OK;
    if (code == CURLE_OK && http_code != 200) {
        struct err why = {.text = ""};

        if (etcd_judge(client, http_code, &why) == TRY_TOKEN)
            return drop_token(client, why.text, err);
        return err_set(err, why.status, why.code, "%s", why.text);
    }
    if (code == CURLE_OK)
        (void)err_set(err, STATUS_TIMEOUT, 0, "%s: it closed a watch", etcd_endpoint(client));
    else
        (void)etcd_unanswered(client, code, err);
    client->current = (client->current + 1) % client->endpoint_count;
    return STATUS_TIMEOUT;
}
