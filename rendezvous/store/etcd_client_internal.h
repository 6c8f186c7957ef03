/* Between etcd_client.c and etcd_watch.c. */
#ifndef RENDEZVOUS_STORE_ETCD_CLIENT_INTERNAL_H
#define RENDEZVOUS_STORE_ETCD_CLIENT_INTERNAL_H

#include "common/buf.h"
#include "common/curl_library.h"
#include "rendezvous/store/etcd_client.h"

#define CREDENTIAL_BYTES_MAX 256u
#define TOKEN_BYTES_MAX 1024u

struct etcd_client {
    struct curl_library curl;
    CURL *easy;
    char endpoints[ETCD_ENDPOINTS_MAX][ETCD_ENDPOINT_BYTES_MAX];
    uint32_t endpoint_count, current; /* current: answered last */
    bool uses_tls;
    char user[CREDENTIAL_BYTES_MAX], password[CREDENTIAL_BYTES_MAX];
    char token[TOKEN_BYTES_MAX]; /* "": none yet */
    struct buf request, body;
    char words[CURL_ERROR_SIZE];    /* of curl, why it failed */
    bool (*goes_on)(void *context); /* NULL: always */
    void *context;
};

/* What becomes of a try. */
enum try_result { TRY_DONE, TRY_NEXT, TRY_TOKEN, TRY_FAILED };

/* "etcdserver: invalid auth token" and others of which a new token is the cure. */
bool etcd_wants_token(const char *words);
/* STATUS_TIMEOUT, and why. */
enum status etcd_unanswered(const struct etcd_client *client, CURLcode code, struct err *err);
/* Of an answer in client->body that is no success. */
enum try_result etcd_judge(const struct etcd_client *client, long http_code, struct err *err);
/* Of a request; to be freed with slist_free_all. */
struct curl_slist *etcd_headers(const struct etcd_client *client);
/* Sets the URL and what is sent: client->request. `limit_ms` 0: for as long as it takes. */
void etcd_set_request(struct etcd_client *client, const char *path, struct curl_slist *headers,
                      long limit_ms);
/* Writes an answer to the client's body, which is `context`. */
size_t etcd_take_body(char *bytes, size_t size, size_t n, void *context);
/* Empties the request that is to be filled. */
struct buf *etcd_begin(struct etcd_client *client);

#endif
