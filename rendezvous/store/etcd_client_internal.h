/* Shared by etcd_client.c and etcd_watch.c. */
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
    uint32_t endpoint_count, current; /* current: the one that answered last */
    bool uses_tls;
    char *cert_path; /* NULL: none */
    char user[CREDENTIAL_BYTES_MAX], password[CREDENTIAL_BYTES_MAX];
    char token[TOKEN_BYTES_MAX]; /* "": none yet */
    struct buf request, body;
    char words[CURL_ERROR_SIZE];    /* curl's reason for a failure */
    bool (*goes_on)(void *context); /* NULL: always */
    void *context;
};

/* What to do after one try of a request. */
enum try_result { TRY_DONE, TRY_NEXT, TRY_TOKEN, TRY_FAILED };

/* Whether the error means that a new token is needed, such as "etcdserver: invalid auth token". */
bool etcd_wants_token(const char *words);
/* Returns STATUS_TIMEOUT and sets the reason. */
enum status etcd_unanswered(const struct etcd_client *client, CURLcode code, struct err *err);
/* Judges the error answer in client->body. */
enum try_result etcd_judge(const struct etcd_client *client, long http_code, struct err *err);
/* The headers of a request; free them with slist_free_all. */
struct curl_slist *etcd_headers(const struct etcd_client *client);
/* Sets the URL and the body (client->request). `limit_ms` 0: no time limit. */
void etcd_set_request(struct etcd_client *client, const char *path, struct curl_slist *headers,
                      long limit_ms);
/* curl's callback: appends to the client's body. `context` is the client's body. */
size_t etcd_take_body(char *bytes, size_t size, size_t n, void *context);
/* Empties client->request, which the caller then fills. */
struct buf *etcd_begin(struct etcd_client *client);

#endif
