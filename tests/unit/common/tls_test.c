/* Two sessions in one process; what one appends to its wire is the other's input. */
#include "common/io/tls.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "tests/lib/test.h"

struct end {
    struct tls *tls;
    struct buf wire, plain; /* bytes for the other side; bytes from it */
    enum status status;
    struct err err;
};

struct pair {
    struct key key;        /* the key that the server knows */
    bool has_other_secret; /* the server's secret for that identity is not the client's */
    bool lacks_keys;       /* the server knows of keys that it has not read */
    uint32_t finds;
    struct tls_context *server_context, *client_context;
    struct end server, client;
    size_t chunk;        /* bytes that arrive at once */
    struct buf recorded; /* all that the client sent */
};

static struct pair pair;

static bool find(void *user, const char *identity, size_t byte_count,
                 uint8_t secret[KEY_SECRET_BYTES])
{
    struct pair *p = user;
    char known[KEY_IDENTITY_BYTES_MAX];

    p->finds++;
    if (key_identity(&p->key, known, NULL) != STATUS_OK || strlen(known) != byte_count ||
        memcmp(known, identity, byte_count) != 0)
        return false;
    memcpy(secret, p->key.secret, KEY_SECRET_BYTES);
    secret[7] ^= (uint8_t)p->has_other_secret;
    return true;
}

static bool are_all(void *user, const char *identity)
{
    (void)identity;
    const struct pair *p = user;

    return !p->lacks_keys;
}

static void key_of(struct key *key, const char *name)
{
    memset(key, 0, sizeof *key);
    (void)strcpy(key->server, "127.0.0.1:1");
    (void)strncpy(key->name, name, sizeof key->name - 1);
    CHECK_EQ(key_secret_new(key->secret, NULL), STATUS_OK);
}

static void pair_close(void)
{
    tls_free(&pair.server.tls);
    tls_free(&pair.client.tls);
    tls_context_free(&pair.server_context);
    tls_context_free(&pair.client_context);
    buf_free(&pair.server.wire);
    buf_free(&pair.server.plain);
    buf_free(&pair.client.wire);
    buf_free(&pair.client.plain);
    buf_free(&pair.recorded);
}

static void pair_open(const struct key *known, const struct key *shown, size_t chunk)
{
    const struct tls_keys keys = {.find = find, .are_all = are_all, .user = &pair};
    struct err err;

    memset(&pair, 0, sizeof pair);
    pair.key = *known;
    pair.chunk = chunk;
    CHECK_EQ(tls_server_new(&pair.server_context, &keys, &err), STATUS_OK);
    CHECK_EQ(tls_client_new(&pair.client_context, shown, &err), STATUS_OK);
    CHECK_EQ(tls_new(&pair.server.tls, pair.server_context, &err), STATUS_OK);
    CHECK_EQ(tls_new(&pair.client.tls, pair.client_context, &err), STATUS_OK);
    CHECK_EQ(tls_start(pair.client.tls, &pair.client.wire, &err), STATUS_OK);
}

/* True: bytes were moved. */
static bool move(struct end *from, struct end *to)
{
    size_t n = from->wire.byte_count < pair.chunk ? from->wire.byte_count : pair.chunk;

    if (n == 0)
        return false;
    if (from == &pair.client)
        buf_add(&pair.recorded, from->wire.bytes, n);
    if (to->status == STATUS_OK)
        to->status = tls_receive(to->tls, from->wire.bytes, n, &to->plain, &to->wire, &to->err);
    buf_drop(&from->wire, n);
    return true;
}

static void run(void)
{
    while (move(&pair.client, &pair.server) || move(&pair.server, &pair.client))
        ;
}

static void pair_ready(size_t chunk)
{
    struct key key;

    key_of(&key, "node0");
    pair_open(&key, &key, chunk);
    run();
    CHECK(tls_is_ready(pair.server.tls));
    CHECK(tls_is_ready(pair.client.tls));
}

static void check_talk(struct end *from, struct end *to, size_t byte_count)
{
    char *text = malloc(byte_count);

    CHECK(text != NULL);
    for (size_t i = 0; i < byte_count; i++)
        text[i] = (char)(i * 31 + i / 255);
    CHECK_EQ(tls_send(from->tls, text, byte_count, &from->wire, &from->err), STATUS_OK);
    run();
    CHECK_EQ(to->plain.byte_count, byte_count);
    CHECK_BYTES(to->plain.bytes, text, byte_count);
    buf_drop(&to->plain, byte_count);
    free(text);
}

TEST(both_sides_talk_whatever_the_pieces)
{
    static const size_t chunks[] = {1, 7, 1400, 1 << 20};
    char identity[KEY_IDENTITY_BYTES_MAX];

    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        pair_ready(chunks[i]);
        CHECK_EQ(key_identity(&pair.key, identity, NULL), STATUS_OK);
        CHECK_STR(tls_identity(pair.server.tls), identity);
        check_talk(&pair.client, &pair.server, 1);
        check_talk(&pair.server, &pair.client, 100000);
        check_talk(&pair.client, &pair.server, 40000);
        tls_end(pair.client.tls, &pair.client.wire);
        run();
        CHECK(tls_is_closed(pair.server.tls));
        CHECK(!tls_is_closed(pair.client.tls));
        check_talk(&pair.server, &pair.client, 10); /* the other way is still open */
        pair_close();
    }
}

/* An attacker who saw an identity on the wire has the name and the id, but not the secret; a removed node has an
 * identity that the server does not know. Neither learns which of the two it is. */
TEST(a_wrong_secret_and_an_unknown_name_look_the_same)
{
    char alert[2][64];
    size_t alert_bytes[2];

    for (int i = 0; i < 2; i++) {
        struct key known, unknown;

        key_of(&known, "node0");
        key_of(&unknown, "nodeX");
        pair_open(&known, i == 0 ? &known : &unknown, 1 << 20);
        pair.has_other_secret = i == 0;
        CHECK(move(&pair.client, &pair.server));
        CHECK_EQ(pair.finds, 1);
        CHECK_EQ(pair.server.status, STATUS_REFUSED);
        CHECK(strstr(pair.server.err.text, i == 0 ? "is wrong" : "is unknown here") != NULL);
        alert_bytes[i] = pair.server.wire.byte_count;
        CHECK(alert_bytes[i] > 0 && alert_bytes[i] <= sizeof alert[i]);
        memcpy(alert[i], pair.server.wire.bytes, alert_bytes[i]);
        run();
        CHECK_EQ(pair.client.status, STATUS_REFUSED);
        CHECK(strstr(pair.client.err.text, "does not take this key") != NULL);
        CHECK(!tls_is_ready(pair.server.tls) && !tls_is_ready(pair.client.tls));
        pair_close();
    }
    CHECK_EQ(alert_bytes[0], alert_bytes[1]);
    CHECK_BYTES(alert[0], alert[1], alert_bytes[0]);
}

/* A standby, or a server that could not read a key, knows neither that a key was removed nor that a secret is
 * wrong: another one may have been made since. */
TEST(a_server_that_lacks_keys_says_so)
{
    for (int i = 0; i < 2; i++) {
        struct key known, unknown;

        key_of(&known, "node0");
        key_of(&unknown, "nodeX");
        pair_open(&known, i == 0 ? &known : &unknown, i == 0 ? 1 << 20 : 1);
        pair.has_other_secret = i == 0;
        pair.lacks_keys = true;
        run();
        CHECK_EQ(pair.server.status, STATUS_REFUSED);
        CHECK_EQ(pair.client.status, STATUS_BUSY);
        CHECK(strstr(pair.client.err.text, "it stands by, could not read all its keys") != NULL);
        CHECK(!tls_is_ready(pair.server.tls) && !tls_is_ready(pair.client.tls));
        pair_close();
    }
}

/* Only one alert says that a key is not accepted. Servers of 0.1.0 send others also while they have no keys, and what
 * is no server of ours sends whatever it likes. */
TEST(only_one_alert_says_that_a_key_is_not_accepted)
{
    static const struct {
        uint8_t alert;
        enum status status;
    } cases[] = {
        {SSL_AD_UNKNOWN_PSK_IDENTITY, STATUS_REFUSED}, {SSL_AD_INTERNAL_ERROR, STATUS_BUSY},
        {SSL_AD_ILLEGAL_PARAMETER, STATUS_BUSY},       {SSL_AD_DECRYPT_ERROR, STATUS_BUSY},
        {SSL_AD_HANDSHAKE_FAILURE, STATUS_BAD_INPUT},  {SSL_AD_PROTOCOL_VERSION, STATUS_BAD_INPUT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t record[] = {SSL3_RT_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL, cases[i].alert};
        struct key known;
        struct err err = {.text = ""};

        key_of(&known, "node0");
        pair_open(&known, &known, 1 << 20);
        CHECK_EQ(tls_receive(pair.client.tls, record, sizeof record, &pair.client.plain,
                             &pair.client.wire, &err),
                 cases[i].status);
        pair_close();
    }
}

TEST(a_recorded_session_opens_nothing)
{
    struct buf recorded;
    struct tls *second;
    struct buf plain = {0}, wire = {0};
    struct err err;

    pair_ready(1 << 20);
    check_talk(&pair.client, &pair.server, 100);
    recorded = pair.recorded;
    CHECK_EQ(tls_new(&second, pair.server_context, &err), STATUS_OK);
    CHECK_EQ(tls_receive(second, recorded.bytes, recorded.byte_count, &plain, &wire, &err),
             STATUS_REFUSED);
    CHECK(!tls_is_ready(second));
    CHECK_EQ(plain.byte_count, 0);
    buf_free(&wire);
    tls_free(&second);
    pair_close();
}

TEST(a_flipped_bit_ends_the_session)
{
    for (size_t at = 0; at < 40; at++) {
        pair_ready(1 << 20);
        CHECK_EQ(tls_send(pair.client.tls, "twenty bytes of text", 20, &pair.client.wire, NULL),
                 STATUS_OK);
        if (at < pair.client.wire.byte_count)
            pair.client.wire.bytes[at] ^= 4;
        run();
        CHECK_EQ(pair.server.plain.byte_count, 0);
        /* a larger length waits for more bytes; every other change is an error */
        CHECK(pair.server.status == STATUS_BAD_INPUT || at == 3 || at == 4);
        pair_close();
    }
}

TEST(what_is_not_tls_is_refused)
{
    static const char *const greetings[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n",
        "\0\0\0\x20{\"type\":\"node_hello\"}", "\x16\x03\x01\xff\xff"};

    for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        struct key key;

        key_of(&key, "node0");
        pair_open(&key, &key, 1 << 20);
        pair.server.status =
            tls_receive(pair.server.tls, greetings[i], i == 2 ? 25 : strlen(greetings[i]),
                        &pair.server.plain, &pair.server.wire, &pair.server.err);
        CHECK(pair.server.status != STATUS_OK || i == 3);
        CHECK(!tls_is_ready(pair.server.tls));
        CHECK_EQ(pair.server.plain.byte_count, 0);
        pair_close();
    }
}

/* Uses OpenSSL's own client instead of ours; its first output goes to our server. */
static enum status offer(SSL_CTX *context)
{
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL *ssl = SSL_new(context);
    char *bytes;
    long byte_count;
    enum status status;

    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    (void)SSL_do_handshake(ssl);
    byte_count = BIO_get_mem_data(out, &bytes);
    CHECK(byte_count > 0);
    status = tls_receive(pair.server.tls, bytes, (size_t)byte_count, &pair.server.plain,
                         &pair.server.wire, &pair.server.err);
    SSL_free(ssl);
    return status;
}

TEST(older_versions_and_clients_without_a_key_are_refused)
{
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        SSL_CTX *context = SSL_CTX_new(TLS_client_method());
        struct key key;

        CHECK_EQ(SSL_CTX_set_max_proto_version(context, version), 1);
        key_of(&key, "node0");
        pair_open(&key, &key, 1 << 20);
        CHECK_EQ(offer(context), STATUS_BAD_INPUT);
        CHECK(!tls_is_ready(pair.server.tls));
        SSL_CTX_free(context);
        pair_close();
    }
}

TEST(a_full_queue_ends_the_session_and_keeps_its_limit)
{
    char text[5000] = {0};
    enum status status = STATUS_OK;

    pair_ready(1 << 20);
    pair.client.wire.limit = 20000;
    for (int i = 0; i < 10 && status == STATUS_OK; i++)
        status = tls_send(pair.client.tls, text, sizeof text, &pair.client.wire, &pair.client.err);
    CHECK_EQ(status, STATUS_TOO_BIG);
    CHECK(pair.client.wire.byte_count <= 20000);
    pair_close();
}

TEST_MAIN
