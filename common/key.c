#include "common/key.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/base64.h"
#include "common/openssl_library.h"

#define SCHEME "ddp://"
#define SECRET_PADDED_CHARS (KEY_SECRET_CHARS + 1) /* as RFC 4648 section 4 writes it */

static bool is_name(const char *text, size_t byte_count)
{
    if (byte_count == 0 || byte_count >= NODE_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < byte_count; i++)
        if (!isalnum((unsigned char)text[i]) && (text[i] == '\0' || strchr("._-", text[i]) == NULL))
            return false;
    return true;
}

static bool is_id(const char *text, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++)
        if (strchr("0123456789abcdef", text[i]) == NULL || text[i] == '\0')
            return false;
    return byte_count == KEY_ID_CHARS;
}

/* base64url without padding to base64 with it, and to bytes. */
static bool secret_decode(const char *chars, uint8_t secret[KEY_SECRET_BYTES])
{
    char padded[SECRET_PADDED_CHARS];
    uint8_t bytes[KEY_SECRET_BYTES + 1]; /* what the padded text may decode to at most */
    size_t byte_count = 0;
    bool is_good = true;

    for (size_t i = 0; i < KEY_SECRET_CHARS; i++) {
        if (chars[i] == '+' || chars[i] == '/')
            return false;
        padded[i] = chars[i] == '-' ? '+' : chars[i] == '_' ? '/' : chars[i];
    }
    padded[KEY_SECRET_CHARS] = '=';
    assert(base64_bytes_max(sizeof padded) <= sizeof bytes);
    if (!base64_decode(padded, sizeof padded, bytes, &byte_count) || byte_count != KEY_SECRET_BYTES)
        is_good = false;
    else
        memcpy(secret, bytes, KEY_SECRET_BYTES);
    explicit_bzero(padded, sizeof padded);
    explicit_bzero(bytes, sizeof bytes);
    return is_good;
}

static void secret_encode(const uint8_t secret[KEY_SECRET_BYTES], char chars[KEY_SECRET_CHARS])
{
    char padded[BASE64_CHARS(KEY_SECRET_BYTES)];

    static_assert(sizeof padded == SECRET_PADDED_CHARS, "32 bytes take 44 characters");
    base64_encode(secret, KEY_SECRET_BYTES, padded);
    for (size_t i = 0; i < KEY_SECRET_CHARS; i++)
        chars[i] = padded[i] == '+' ? '-' : padded[i] == '/' ? '_' : padded[i];
    explicit_bzero(padded, sizeof padded);
}

static enum status bad(struct err *err, const char *what)
{
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "the key is not of the form ddp://HOST:PORT/NAME#SECRET: %s", what);
}

/* "HOST:PORT" of [byte_count]. */
static bool is_server(const char *text, size_t byte_count)
{
    size_t colon = byte_count;
    unsigned long port = 0;

    while (colon > 0 && text[colon - 1] != ':')
        colon--;
    if (colon < 2 || colon == byte_count || byte_count - colon > 5)
        return false;
    for (size_t i = colon; i < byte_count; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    if (port == 0 || port > 65535)
        return false;
    for (size_t i = 0; i < colon - 1; i++)
        if (!isalnum((unsigned char)text[i]) && strchr(".-_:[]%", text[i]) == NULL)
            return false;
    return true;
}

/* One or several, with commas between them. */
static bool are_servers(const char *text, size_t byte_count)
{
    uint32_t count = 0;

    for (;;) {
        const char *comma = memchr(text, ',', byte_count);
        const size_t one = comma != NULL ? (size_t)(comma - text) : byte_count;

        if (one > KEY_HOST_BYTES_MAX + 6 || !is_server(text, one) || ++count > SERVERS_MAX)
            return false;
        if (comma == NULL)
            return true;
        text += one + 1;
        byte_count -= one + 1;
    }
}

enum status key_parse(const char *text, struct key *key, struct err *err)
{
    const char *at = text + strspn(text, " \t\r\n");
    size_t byte_count = strlen(at), part;

    while (byte_count > 0 && strchr(" \t\r\n", at[byte_count - 1]) != NULL)
        byte_count--;
    if (byte_count < strlen(SCHEME) || strncmp(at, SCHEME, strlen(SCHEME)) != 0)
        return bad(err, "it does not begin with ddp://");
    at += strlen(SCHEME);
    byte_count -= strlen(SCHEME);

    part = strcspn(at, "/#");
    if (part >= byte_count || at[part] != '/')
        return bad(err, "no /NAME after the server");
    if (part >= sizeof key->server || !are_servers(at, part))
        return bad(err, "the server is not HOST:PORT, nor several with commas between them");
    memset(key, 0, sizeof *key);
    memcpy(key->server, at, part);
    at += part + 1;
    byte_count -= part + 1;

    part = strcspn(at, "#");
    if (part >= byte_count)
        return bad(err, "no #SECRET after the name");
    if (!is_name(at, part))
        return bad(err, "the name is not made of letters, digits, '.', '_' and '-'");
    memcpy(key->name, at, part);
    at += part + 1;
    byte_count -= part + 1;
    if (byte_count != KEY_SECRET_CHARS || !secret_decode(at, key->secret)) {
        key_forget(key);
        return bad(err,
                   "the secret after # is not 43 characters of A-Z, a-z, 0-9, '-' and '_'; was "
                   "the end of the string cut off?");
    }
    return STATUS_OK;
}

void key_format(const struct key *key, char *url)
{
    int n = snprintf(url, KEY_URL_BYTES_MAX, SCHEME "%s/%s#", key->server, key->name);

    assert(n > 0 && (size_t)n + KEY_SECRET_CHARS < KEY_URL_BYTES_MAX);
    secret_encode(key->secret, url + n);
    url[(size_t)n + KEY_SECRET_CHARS] = '\0';
}

void key_forget(struct key *key)
{
    explicit_bzero(key->secret, sizeof key->secret);
}

enum status key_secret_new(uint8_t secret[KEY_SECRET_BYTES], struct err *err)
{
    /* up to 256 bytes come whole */
    if (getrandom(secret, KEY_SECRET_BYTES, 0) != KEY_SECRET_BYTES)
        return err_set(err, STATUS_SYSTEM, errno, "the kernel gave no random bytes for a key: %s",
                       strerror(errno));
    return STATUS_OK;
}

enum status key_id(const uint8_t secret[KEY_SECRET_BYTES], char id[KEY_ID_CHARS + 1],
                   struct err *err)
{
    static const char label[] = "ddp key id";
    uint8_t bytes[sizeof label - 1 + KEY_SECRET_BYTES], hash[EVP_MAX_MD_SIZE];
    const struct openssl_library *openssl = openssl_library(err);
    unsigned hash_bytes = 0;
    int is_done;

    if (openssl == NULL)
        return STATUS_LIBRARY;
    memcpy(bytes, label, sizeof label - 1);
    memcpy(bytes + sizeof label - 1, secret, KEY_SECRET_BYTES);
    is_done =
        openssl->evp_digest(bytes, sizeof bytes, hash, &hash_bytes, openssl->evp_sha256(), NULL);
    explicit_bzero(bytes, sizeof bytes);
    if (is_done != 1 || hash_bytes < KEY_ID_CHARS / 2)
        return err_set(err, STATUS_LIBRARY, 0, "OpenSSL has no SHA-256 for the id of a key");
    for (size_t i = 0; i < KEY_ID_CHARS / 2; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", hash[i]);
    return STATUS_OK;
}

enum status key_identity(const struct key *key, char *identity, struct err *err)
{
    char id[KEY_ID_CHARS + 1];
    enum status status = key_id(key->secret, id, err);

    if (status == STATUS_OK)
        (void)snprintf(identity, KEY_IDENTITY_BYTES_MAX, "%s:%s", key->name, id);
    return status;
}

enum status key_identity_split(const char *identity, size_t byte_count, char *name,
                               char id[KEY_ID_CHARS + 1], struct err *err)
{
    const char *colon = memchr(identity, ':', byte_count);
    size_t name_bytes = colon != NULL ? (size_t)(colon - identity) : byte_count;

    if (colon == NULL || !is_name(identity, name_bytes) ||
        !is_id(colon + 1, byte_count - name_bytes - 1))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the peer's TLS identity is not NAME:ID: not one of our programs");
    memcpy(name, identity, name_bytes);
    name[name_bytes] = '\0';
    memcpy(id, colon + 1, KEY_ID_CHARS);
    id[KEY_ID_CHARS] = '\0';
    return STATUS_OK;
}
