/* libcurl. See http.h. */
#include "worker/data/fetch/http.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/curl_library.h"
#include "worker/data/fileio.h"

enum { REDIRECTS_MAX = 5 };

struct http {
    struct curl_library curl;
};

enum status http_open(struct http **out, struct err *err)
{
    struct http *http = calloc(1, sizeof *http);
    enum status status;

    *out = http;
    if (http == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to download");
    status = curl_library_open(&http->curl, "downloads need",
                               ", or download the files in another way", err);
    if (status != STATUS_OK)
        http_close(out);
    return status;
}

void http_close(struct http **out)
{
    if (*out == NULL)
        return;
    curl_library_close(&(*out)->curl);
    free(*out);
    *out = NULL;
}

/* -- one download -- */

struct transfer {
    const struct http *http;
    const struct http_request *request;
    uint64_t byte_count; /* of the whole file, received so far */
    enum status status;  /* an error of this program, not of libcurl */
    struct err *err;
};

#define SHOWN_BYTES 160

/* A URL without the user's name and password, for messages. */
static const char *shown_url(const char *url, char shown[SHOWN_BYTES])
{
    const char *host = strstr(url, "://");
    const char *at;

    host = host != NULL ? host + 3 : url;
    at = memchr(host, '@', strcspn(host, "/?#"));
    (void)snprintf(shown, SHOWN_BYTES, "%.*s%s", (int)(host - url), url,
                   at != NULL ? at + 1 : host);
    return shown;
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *user)
{
    struct transfer *transfer = user;
    const struct http_request *request = transfer->request;
    size_t byte_count = size * n;
    char shown[SHOWN_BYTES];

    if (transfer->byte_count > request->byte_limit ||
        byte_count > request->byte_limit - transfer->byte_count) {
        transfer->status =
            err_set(transfer->err, STATUS_TOO_BIG, 0,
                    "%.150s: longer than the %llu bytes of the published file",
                    shown_url(request->url, shown), (unsigned long long)request->byte_limit);
        return byte_count == 0 ? 1 : 0;
    }
    transfer->status = fileio_write(request->fd, bytes, byte_count, transfer->err);
    transfer->byte_count += byte_count;
    return transfer->status == STATUS_OK ? byte_count : 0;
}

static CURLcode set_up(const struct http *http, CURL *easy, struct transfer *transfer)
{
    const struct http_request *request = transfer->request;
    bool is_https = strncmp(request->url, "https:", 6) == 0;
    CURLcode codes[16];
    size_t n = 0;

#define SET(option, value) codes[n++] = http->curl.easy_setopt(easy, (option), (value))
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FAILONERROR, 1L);
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, is_https ? "https" : "http,https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    SET(CURLOPT_REDIR_PROTOCOLS,
        is_https ? (long)CURLPROTO_HTTPS : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    SET(CURLOPT_CONNECTTIMEOUT, (long)request->timeout_s);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)request->timeout_s);
    SET(CURLOPT_RESUME_FROM_LARGE, (curl_off_t)request->from);
    SET(CURLOPT_WRITEFUNCTION, take_bytes);
    SET(CURLOPT_WRITEDATA, transfer);
    SET(CURLOPT_USERAGENT, "ddp-worker/" DDP_VERSION);
#undef SET
    for (size_t i = 0; i < n; i++)
        if (codes[i] != CURLE_OK)
            return codes[i];
    return CURLE_OK;
}

static enum status explain(const struct transfer *transfer, CURL *easy, CURLcode code,
                           struct err *err)
{
    const struct http *http = transfer->http;
    const struct http_request *request = transfer->request;
    char shown[SHOWN_BYTES];
    const char *url = shown_url(request->url, shown);
    long answer = 0;

    (void)http->curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer);
    switch ((int)code) {
    case CURLE_HTTP_RETURNED_ERROR:
        if (request->from > 0 && answer == 416)
            return err_set(err, STATUS_CONFLICT, 0, "%.150s: no bytes from there", url);
        return err_set(err, answer == 404 ? STATUS_NOT_FOUND : STATUS_REFUSED, (int)answer,
                       "%.150s: the server answers %ld%s", url, answer,
                       answer == 404 ? " (not found): does the mirror have this file?" : "");
    case CURLE_RANGE_ERROR:
        return err_set(err, STATUS_CONFLICT, 0, "%.150s: the server sends no parts of files", url);
    case CURLE_TOO_MANY_REDIRECTS:
        return err_set(err, STATUS_REFUSED, 0, "%.150s: over %d redirects: is the mirror right?",
                       url, REDIRECTS_MAX);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(err, STATUS_TIMEOUT, 0,
                       "%.150s: no byte for %u s after %llu bytes: run it again to go on", url,
                       request->timeout_s, (unsigned long long)transfer->byte_count);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
        return err_set(err, STATUS_CLOSED, 0,
                       "%.150s: cut off after %llu bytes: run it again to go on", url,
                       (unsigned long long)transfer->byte_count);
    default:
        return err_set(err, STATUS_CLOSED, (int)code, "%.150s: %.80s", url,
                       http->curl.easy_strerror(code));
    }
}

enum status http_get(struct http *http, const struct http_request *request, struct err *err)
{
    struct transfer transfer = {
        .http = http, .request = request, .byte_count = request->from, .err = err};
    CURL *easy = http->curl.easy_init();
    CURLcode code;
    enum status status = STATUS_OK;

    if (easy == NULL)
        return err_set(err, STATUS_LIBRARY, 0, "libcurl cannot be used");
    code = set_up(http, easy, &transfer);
    if (code == CURLE_OK)
        code = http->curl.easy_perform(easy);
    if (transfer.status != STATUS_OK)
        status = transfer.status;
    else if (code != CURLE_OK)
        status = explain(&transfer, easy, code, err);
    http->curl.easy_cleanup(easy);
    return status;
}
