/* The address of a store on etcd, see etcd_url_parse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/etcd_client.h"

#define HOST_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"
#define PREFIX_CHARS HOST_CHARS "/"
#define ADDRESS_CHARS "0123456789abcdefABCDEF:.%"

struct etcd_bytes etcd_text(const char *text)
{
    return (struct etcd_bytes){.bytes = text, .byte_count = strlen(text)};
}

bool etcd_bytes_are(struct etcd_bytes bytes, const char *text)
{
    return bytes.byte_count == strlen(text) && memcmp(bytes.bytes, text, bytes.byte_count) == 0;
}

bool etcd_url_is(const char *text)
{
    return strncmp(text, "etcd://", 7) == 0 || strncmp(text, "etcds://", 8) == 0;
}

static bool is_port(const char *text, size_t byte_count)
{
    char digits[8];
    unsigned long port;

    if (byte_count == 0 || byte_count > 5 || strspn(text, "0123456789") < byte_count)
        return false;
    (void)snprintf(digits, sizeof digits, "%.*s", (int)byte_count, text);
    port = strtoul(digits, NULL, 10);
    return port >= 1 && port <= 65535;
}

/* Parses "HOST", "HOST:PORT", "[ADDRESS]" or "[ADDRESS]:PORT", and adds the default port if there
 * is none. */
static bool take_endpoint(const char *text, size_t byte_count, char out[ETCD_ENDPOINT_BYTES_MAX])
{
    size_t host_bytes =
        text[0] == '[' ? 1 + strspn(text + 1, ADDRESS_CHARS) + 1 : strspn(text, HOST_CHARS);
    bool has_end = text[0] != '[' || (host_bytes <= byte_count && text[host_bytes - 1] == ']');

    if (byte_count == 0 || byte_count > ETCD_ENDPOINT_BYTES_MAX - 8 || !has_end ||
        host_bytes > byte_count || host_bytes == 0 || (text[0] == '[' && host_bytes < 4))
        return false;
    if (host_bytes == byte_count)
        (void)snprintf(out, ETCD_ENDPOINT_BYTES_MAX, "%.*s:%u", (int)byte_count, text, ETCD_PORT);
    else
        (void)snprintf(out, ETCD_ENDPOINT_BYTES_MAX, "%.*s", (int)byte_count, text);
    return host_bytes == byte_count ||
           (text[host_bytes] == ':' && is_port(text + host_bytes + 1, byte_count - host_bytes - 1));
}

static enum status take_prefix(const char *text, char prefix[ETCD_PREFIX_BYTES_MAX],
                               struct err *err)
{
    size_t byte_count = strlen(text);

    while (byte_count > 0 && text[byte_count - 1] == '/')
        byte_count--;
    if (byte_count == 0) {
        (void)snprintf(prefix, ETCD_PREFIX_BYTES_MAX, "/ddp/");
        return STATUS_OK;
    }
    if (byte_count + 2 > ETCD_PREFIX_BYTES_MAX || strspn(text, PREFIX_CHARS) < byte_count)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the prefix of keys in etcd, %.100s, may have letters, digits, . - _ and /, "
                       "and at most %u bytes",
                       text, ETCD_PREFIX_BYTES_MAX - 2);
    (void)snprintf(prefix, ETCD_PREFIX_BYTES_MAX, "%.*s/", (int)byte_count, text);
    return STATUS_OK;
}

enum status etcd_url_parse(const char *url, struct etcd_options *options,
                           char prefix[ETCD_PREFIX_BYTES_MAX], struct err *err)
{
    const char *at = strstr(url, "://"), *end;

    memset(options, 0, sizeof *options);
    if (!etcd_url_is(url) || at == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.100s is not etcd://HOST:PORT,.../PREFIX", url);
    options->uses_tls = strncmp(url, "etcds", 5) == 0;
    at += 3;
    end = at + strcspn(at, "/");
    for (;;) {
        size_t byte_count = strcspn(at, ",/");

        if (options->endpoint_count == ETCD_ENDPOINTS_MAX)
            return err_set(err, STATUS_BAD_INPUT, 0, "more than %u members of etcd are named",
                           ETCD_ENDPOINTS_MAX);
        if (!take_endpoint(at, byte_count, options->endpoints[options->endpoint_count++]))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%.*s is not HOST or HOST:PORT, as in etcd://h1:2379,h2,h3/prefix "
                           "(users and passwords have options of their own)",
                           (int)(byte_count < 100 ? byte_count : 100), at);
        at += byte_count;
        if (at == end)
            return take_prefix(end, prefix, err);
        at++;
    }
}
