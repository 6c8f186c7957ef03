#include "ddpctl/http_route.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base64.h"
#include "common/limits.h"
#include "common/msg.h"

#define PAGES_MAX 100000u
#define REFRESH_DEFAULT_S 5u

/* Parses a number that has only digits. False: it is not a number, or above `max`. */
static bool number(const char *text, uint64_t max, uint64_t *value)
{
    *value = 0;
    if (text[0] == '\0' || strlen(text) > 19)
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        *value = *value * 10 + (uint64_t)(*text - '0');
    }
    return *value <= max;
}

bool http_host_name(const char *header, char *name, size_t name_bytes)
{
    const char *end = header;
    size_t length;

    if (header[0] == '[') {
        header++;
        end = strchr(header, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return false;
    } else {
        end = header + strcspn(header, ":");
    }
    length = (size_t)(end - header);
    if (length == 0 || length >= name_bytes)
        return false;
    memcpy(name, header, length);
    name[length] = '\0';
    if (*end == ']')
        end++;
    return *end == '\0' || (strlen(end) <= 6 && strspn(end + 1, "0123456789") == strlen(end + 1));
}

static bool is_address(const char *host)
{
    struct in6_addr bytes;

    return inet_pton(AF_INET, host, &bytes) == 1 || inet_pton(AF_INET6, host, &bytes) == 1;
}

bool http_host_is_loopback(const char *host)
{
    struct in_addr address;

    if (inet_pton(AF_INET, host, &address) == 1)
        return ntohl(address.s_addr) >> 24 == 127;
    return strcmp(host, "::1") == 0 || strcasecmp(host, "localhost") == 0;
}

/* Protects against DNS rebinding: another site points its own name to this address, and then a
 * browser lets that site's page read our pages. Such a request has that site's name as its Host. An
 * IP address as the Host cannot have been redirected. */
static bool host_is_ours(const char *header, const struct http_rules *rules)
{
    char host[256];

    if (header == NULL || !http_host_name(header, host, sizeof host))
        return false;
    if (is_address(host) || strcasecmp(host, "localhost") == 0)
        return true;
    for (uint32_t i = 0; i < rules->host_count; i++)
        if (strcasecmp(host, rules->hosts[i]) == 0)
            return true;
    return false;
}

bool http_token_matches(const char *given, size_t given_bytes, const char *token)
{
    size_t token_bytes = strlen(token);
    volatile unsigned char differs = given_bytes != token_bytes;

    for (size_t i = 0; i < HTTP_TOKEN_MAX; i++) {
        unsigned char a = i < given_bytes ? (unsigned char)given[i] : 0;
        unsigned char b = i < token_bytes ? (unsigned char)token[i] : 0;

        differs = (unsigned char)(differs | (a ^ b));
    }
    return differs == 0;
}

/* "Bearer KEY", or "Basic" with the key as the password, which a browser asks for. */
static bool has_key(const char *header, const char *token)
{
    uint8_t pair[2 * HTTP_TOKEN_MAX];
    const uint8_t *colon;
    size_t byte_count = 0;

    if (header == NULL)
        return false;
    if (strncasecmp(header, "Bearer ", 7) == 0)
        return http_token_matches(header + 7, strlen(header + 7), token);
    if (strncasecmp(header, "Basic ", 6) != 0 ||
        base64_bytes_max(strlen(header + 6)) > sizeof pair ||
        !base64_decode(header + 6, strlen(header + 6), pair, &byte_count))
        return false;
    colon = memchr(pair, ':', byte_count);
    if (colon == NULL)
        return false;
    return http_token_matches((const char *)colon + 1, byte_count - (size_t)(colon + 1 - pair),
                              token);
}

static bool take_query(const struct http_request *request, struct http_route *route)
{
    uint64_t value;

    if (request->page != NULL) {
        if (!number(request->page, PAGES_MAX, &value) || value == 0)
            return false;
        route->page = (uint32_t)value;
    }
    if (request->rank != NULL) {
        if (!number(request->rank, RANKS_PER_JOB_MAX - 1, &value))
            return false;
        route->rank = (int64_t)value;
    }
    if (request->refresh != NULL) {
        if (!number(request->refresh, 3600, &value))
            return false;
        route->refresh_s = (uint32_t)value;
        route->has_refresh = true;
    }
    return true;
}

static enum http_what find_page(const char *path, struct http_route *route)
{
    static const char jobs[] = "/jobs/";

    if (strcmp(path, "/") == 0)
        return HTTP_INDEX;
    if (strcmp(path, "/metrics") == 0)
        return HTTP_METRICS;
    if (strcmp(path, "/healthz") == 0)
        return HTTP_HEALTH;
    if (strcmp(path, "/style.css") == 0)
        return HTTP_STYLE;
    if (strncmp(path, jobs, sizeof jobs - 1) == 0 &&
        number(path + sizeof jobs - 1, JOB_ID_MAX, &route->job_id) && route->job_id > 0)
        return HTTP_JOB;
    return HTTP_NOT_FOUND;
}

void http_route(const struct http_request *request, const struct http_rules *rules,
                struct http_route *route)
{
    *route = (struct http_route){.rank = -1, .page = 1, .refresh_s = REFRESH_DEFAULT_S};
    if (!host_is_ours(request->host, rules)) {
        route->what = HTTP_BAD_HOST;
        return;
    }
    if (rules->token != NULL && strcmp(request->path, "/healthz") != 0 && /* only says yes or no */
        !has_key(request->authorization, rules->token)) {
        route->what = HTTP_NO_KEY;
        return;
    }
    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0) {
        route->what = HTTP_BAD_METHOD;
        return;
    }
    route->openmetrics =
        request->accept != NULL && strstr(request->accept, "application/openmetrics-text") != NULL;
    route->what = find_page(request->path, route);
    if (!take_query(request, route))
        route->what = HTTP_BAD_QUERY;
}

enum status http_token_parse(const char *text, size_t byte_count, char token[HTTP_TOKEN_MAX],
                             struct err *err)
{
    while (byte_count > 0 && (text[byte_count - 1] == '\n' || text[byte_count - 1] == '\r'))
        byte_count--;
    if (byte_count < HTTP_TOKEN_MIN || byte_count >= HTTP_TOKEN_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "a key has %d to %d characters, this one %zu",
                       HTTP_TOKEN_MIN, HTTP_TOKEN_MAX - 1, byte_count);
    for (size_t i = 0; i < byte_count; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "a key is one line of printable characters without spaces");
    memcpy(token, text, byte_count);
    token[byte_count] = '\0';
    return STATUS_OK;
}
