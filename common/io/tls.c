#include "common/io/tls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/openssl_library.h"

#define PLAIN_BYTES 16384 /* what one TLS record holds at most */
/* What OpenSSL makes of an alert of the peer: SSL_AD_REASON_OFFSET and the alert's number. */
#define ALERTED(alert) (SSL_AD_REASON_OFFSET + (alert))

/* Set before the first context is made. */
static const struct openssl_library *openssl;

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    bool is_server;
    struct tls_keys keys;             /* of a server */
    uint8_t secret[KEY_SECRET_BYTES]; /* of a client */
    char identity[KEY_IDENTITY_BYTES_MAX];
};

struct tls {
    SSL *ssl;
    struct tls_context *context;
    char identity[KEY_IDENTITY_BYTES_MAX]; /* of the key that was offered; proved once is_ready */
    bool is_ready, is_closed, is_failed;
    bool is_known;   /* the server knows the identity */
    bool is_offered; /* the first message of a client shows its key, or was recorded when it did */
    /* Set only while one of our calls runs, otherwise NULL: the buffers that SSL reads and
     * writes. */
    const char *in;
    size_t in_bytes;
    struct buf *out;
    size_t out_before; /* how much `out` had before the call */
};

/* -- bytes to and from OpenSSL: the caller's memory, without a copy of our own ------------------ */

static int on_bio_read(BIO *bio, char *bytes, size_t byte_count, size_t *taken)
{
    struct tls *tls = openssl->bio_get_data(bio);
    size_t n = tls->in_bytes < byte_count ? tls->in_bytes : byte_count;

    openssl->bio_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n == 0) {
        openssl->bio_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
        return 0;
    }
    memcpy(bytes, tls->in, n);
    tls->in += n;
    tls->in_bytes -= n;
    *taken = n;
    return 1;
}

static int on_bio_write(BIO *bio, const char *bytes, size_t byte_count, size_t *written)
{
    struct tls *tls = openssl->bio_get_data(bio);

    openssl->bio_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    assert(tls->out != NULL); /* OpenSSL writes within our calls alone */
    buf_add(tls->out, bytes, byte_count);
    if (tls->out->failed)
        return 0;
    *written = byte_count;
    return 1;
}

static long on_bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method_new(void)
{
    BIO_METHOD *method =
        openssl->bio_meth_new(openssl->bio_get_new_index() | BIO_TYPE_SOURCE_SINK, "ddp");

    if (method != NULL) {
        (void)openssl->bio_meth_set_read_ex(method, on_bio_read);
        (void)openssl->bio_meth_set_write_ex(method, on_bio_write);
        (void)openssl->bio_meth_set_ctrl(method, on_bio_control);
    }
    return method;
}

/* -- keys -------------------------------------------------------------------------------------- */

/* TLS_AES_128_GCM_SHA256, which every TLS 1.3 implementation has (RFC 8446, section 9.1). An
 * external key is bound to one hash. */
static SSL_SESSION *session_of(SSL *ssl, const uint8_t secret[KEY_SECRET_BYTES])
{
    static const unsigned char cipher_id[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = openssl->ssl_cipher_find(ssl, cipher_id);
    SSL_SESSION *session = openssl->ssl_session_new();

    if (session != NULL &&
        (cipher == NULL ||
         openssl->ssl_session_set1_master_key(session, secret, KEY_SECRET_BYTES) != 1 ||
         openssl->ssl_session_set_cipher(session, cipher) != 1 ||
         openssl->ssl_session_set_protocol_version(session, TLS1_3_VERSION) != 1)) {
        openssl->ssl_session_free(session);
        session = NULL;
    }
    return session;
}

/* OpenSSL asks the server for the key of an identity. An unknown identity gets a random key, so
 * that a stranger cannot find out which names exist. */
static int on_find_session(SSL *ssl, const unsigned char *identity, size_t byte_count,
                           SSL_SESSION **session)
{
    struct tls *tls = openssl->ssl_get_ex_data(ssl, 0);
    uint8_t secret[KEY_SECRET_BYTES];

    *session = NULL;
    if (byte_count >= sizeof tls->identity)
        return 1; /* not one of ours: no key, so the handshake fails */
    memcpy(tls->identity, identity, byte_count);
    tls->identity[byte_count] = '\0';
    tls->is_known = tls->context->keys.find(tls->context->keys.user, (const char *)identity,
                                            byte_count, secret);
    if (!tls->is_known && openssl->rand_bytes(secret, sizeof secret) != 1)
        return 0;
    *session = session_of(ssl, secret);
    explicit_bzero(secret, sizeof secret);
    return *session != NULL;
}

static int on_use_session(SSL *ssl, const EVP_MD *hash, const unsigned char **identity,
                          size_t *byte_count, SSL_SESSION **session)
{
    struct tls *tls = openssl->ssl_get_ex_data(ssl, 0);

    *session = NULL;
    if (hash != NULL && openssl->evp_md_get_type(hash) != NID_sha256)
        return 1; /* a server that chose another hash does not get the key */
    *identity = (const unsigned char *)tls->context->identity;
    *byte_count = strlen(tls->context->identity);
    *session = session_of(ssl, tls->context->secret);
    return *session != NULL;
}

/* -- contexts ---------------------------------------------------------------------------------- */

static enum status library_error(struct err *err, const char *what)
{
    char text[160] = "no reason given";
    unsigned long code = openssl->err_peek_last_error();

    if (code != 0)
        openssl->err_error_string_n(code, text, sizeof text);
    openssl->err_clear_error();
    return err_set(err, STATUS_LIBRARY, (int)code, "TLS: %s: %s", what, text);
}

static bool set_up(struct tls_context *context)
{
    static char groups[] = "X25519:P-256";
    SSL_CTX *ssl = context->ssl;

    if (openssl->ssl_ctx_ctrl(ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->ssl_ctx_ctrl(ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->ssl_ctx_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256") != 1 ||
        openssl->ssl_ctx_ctrl(ssl, SSL_CTRL_SET_GROUPS_LIST, 0, groups) != 1 ||
        openssl->ssl_ctx_set_num_tickets(ssl, 0) != 1)
        return false;
    (void)openssl->ssl_ctx_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    (void)openssl->ssl_ctx_ctrl(ssl, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY,
                                NULL);
    (void)openssl->ssl_ctx_ctrl(ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /* A peer that offers a certificate instead of the key is refused: we trust no signer. */
    openssl->ssl_ctx_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (context->is_server) {
        openssl->ssl_ctx_set_verify(ssl, SSL_VERIFY_NONE,
                                    NULL); /* it has the client's key, or no session */
        openssl->ssl_ctx_set_psk_find_session_callback(ssl, on_find_session);
        (void)openssl->ssl_ctx_set_max_early_data(ssl, 0);
    } else {
        openssl->ssl_ctx_set_psk_use_session_callback(ssl, on_use_session);
    }
    return true;
}

static enum status context_new(struct tls_context **out, bool is_server, struct err *err)
{
    struct tls_context *context;

    openssl = openssl_library(err);
    if (openssl == NULL)
        return STATUS_LIBRARY;
    context = calloc(1, sizeof *context);
    if (context == NULL)
        return err_set(err, STATUS_MEMORY, 0, "TLS: no memory for a context");
    context->is_server = is_server;
    context->ssl = openssl->ssl_ctx_new(is_server ? openssl->tls_server_method()
                                                  : openssl->tls_client_method());
    context->bio = bio_method_new();
    if (context->ssl == NULL || context->bio == NULL || !set_up(context)) {
        tls_context_free(&context);
        return library_error(err, "OpenSSL has no TLS 1.3 with pre-shared keys");
    }
    *out = context;
    return STATUS_OK;
}

enum status tls_server_new(struct tls_context **context, const struct tls_keys *keys,
                           struct err *err)
{
    enum status status = context_new(context, true, err);

    assert(keys->find != NULL && keys->are_all != NULL);
    if (status == STATUS_OK)
        (*context)->keys = *keys;
    return status;
}

enum status tls_client_new(struct tls_context **context, const struct key *key, struct err *err)
{
    enum status status = context_new(context, false, err);

    if (status != STATUS_OK)
        return status;
    memcpy((*context)->secret, key->secret, KEY_SECRET_BYTES);
    status = key_identity(key, (*context)->identity, err);
    if (status != STATUS_OK)
        tls_context_free(context);
    return status;
}

void tls_context_free(struct tls_context **context)
{
    if (*context == NULL)
        return;
    openssl->ssl_ctx_free((*context)->ssl);
    openssl->bio_meth_free((*context)->bio);
    explicit_bzero((*context)->secret, KEY_SECRET_BYTES);
    free(*context);
    *context = NULL;
}

/* -- sessions ---------------------------------------------------------------------------------- */

enum status tls_new(struct tls **out, struct tls_context *context, struct err *err)
{
    struct tls *tls = calloc(1, sizeof *tls);
    BIO *bio;

    if (tls == NULL)
        return err_set(err, STATUS_MEMORY, 0, "TLS: no memory for a session");
    tls->context = context;
    tls->ssl = openssl->ssl_new(context->ssl);
    bio = tls->ssl != NULL ? openssl->bio_new(context->bio) : NULL;
    if (bio == NULL) {
        tls_free(&tls);
        return library_error(err, "no memory for a session");
    }
    openssl->bio_set_data(bio, tls);
    openssl->bio_set_init(bio, 1);
    openssl->ssl_set_bio(tls->ssl, bio, bio);
    (void)openssl->ssl_set_ex_data(tls->ssl, 0, tls);
    if (context->is_server)
        openssl->ssl_set_accept_state(tls->ssl);
    else
        openssl->ssl_set_connect_state(tls->ssl);
    *out = tls;
    return STATUS_OK;
}

void tls_free(struct tls **tls)
{
    if (*tls == NULL)
        return;
    openssl->ssl_free((*tls)->ssl);
    free(*tls);
    *tls = NULL;
}

/* Tells the client whether its key is not accepted, or whether it should try later. OpenSSL's own
 * alert says neither, and has no call that chooses another: it is replaced. Nothing else was
 * written, since the key is the first thing that a server checks. The record is that of RFC 8446,
 * sections 5.1 and 6. */
static void alert(struct tls *tls)
{
    const bool are_all = tls->context->keys.are_all(tls->context->keys.user, tls->identity);
    const uint8_t record[] = {SSL3_RT_ALERT,
                              3,
                              3,
                              0,
                              2,
                              SSL3_AL_FATAL,
                              are_all ? SSL_AD_UNKNOWN_PSK_IDENTITY : SSL_AD_INTERNAL_ERROR};

    buf_cut(tls->out, tls->out_before);
    buf_add(tls->out, record, sizeof record);
}

/* What a server's alert says of our key. Until 0.1.0 servers sent one of the last two for any key
 * that they did not know, also before they had read their keys. */
static enum status refuse_client(int reason, struct err *err)
{
    char text[128];

    if (reason == ALERTED(SSL_AD_UNKNOWN_PSK_IDENTITY))
        return err_set(err, STATUS_REFUSED, reason,
                       "the server does not take this key: it was removed or rotated, or is of "
                       "another server");
    if (reason == ALERTED(SSL_AD_INTERNAL_ERROR) || reason == ALERTED(SSL_AD_ILLEGAL_PARAMETER) ||
        reason == ALERTED(SSL_AD_DECRYPT_ERROR))
        return err_set(err, STATUS_BUSY, reason,
                       "the server does not take this key now, and cannot say whether it is valid: "
                       "it stands by, could not read all its keys, or has keys of the past");
    openssl->err_error_string_n(openssl->err_peek_error(), text, sizeof text);
    return err_set(err, STATUS_BAD_INPUT, reason, "not TLS 1.3 with a key of this server: %s",
                   text);
}

/* Turns a failed handshake into a message that a person understands. */
static enum status refuse(struct tls *tls, int reason, struct err *err)
{
    char text[128];

    if (!tls->context->is_server)
        return refuse_client(reason, err);
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY && tls->out != NULL)
        alert(tls);
    if (tls->identity[0] != '\0')
        return err_set(err, STATUS_REFUSED, reason, "the key of \"%s\" is %s", tls->identity,
                       tls->is_known ? "wrong"
                                     : "unknown here: removed, rotated, or of another server");
    openssl->err_error_string_n(openssl->err_peek_error(), text, sizeof text);
    return err_set(err, STATUS_BAD_INPUT, reason, "not TLS 1.3 with a key of this server: %s",
                   text);
}

static enum status fail(struct tls *tls, struct err *err)
{
    int reason = ERR_GET_REASON(openssl->err_peek_error());
    enum status status;

    tls->is_failed = true;
    if (tls->out != NULL && tls->out->failed)
        status = err_set(err, STATUS_TOO_BIG, 0, "TLS: too much to send waits already");
    else if (!tls->is_ready)
        status = refuse(tls, reason, err);
    else
        status = err_set(err, STATUS_BAD_INPUT, reason, "TLS: a damaged record from \"%s\"",
                         tls->identity);
    openssl->err_clear_error();
    return status;
}

/* False: the peer was let in by something other than the key. The session is failed. */
static bool check_peer(const struct tls *tls)
{
    return openssl->ssl_session_reused(tls->ssl) == 1 &&
           openssl->ssl_version(tls->ssl) == TLS1_3_VERSION;
}

static enum status handshake(struct tls *tls, struct err *err)
{
    int code;

    openssl->err_clear_error();
    code = openssl->ssl_do_handshake(tls->ssl);
    if (code == 1) {
        if (!check_peer(tls)) {
            tls->is_failed = true;
            return err_set(err, STATUS_REFUSED, 0, "the peer did not prove that it has the key");
        }
        tls->is_ready = true;
        return STATUS_OK;
    }
    return openssl->ssl_get_error(tls->ssl, code) == SSL_ERROR_WANT_READ ? STATUS_OK
                                                                         : fail(tls, err);
}

static enum status read_all(struct tls *tls, struct buf *plain, struct err *err)
{
    char bytes[PLAIN_BYTES];
    size_t n;

    for (;;) {
        openssl->err_clear_error();
        n = 0;
        if (openssl->ssl_read_ex(tls->ssl, bytes, sizeof bytes, &n) == 1) {
            buf_add(plain, bytes, n);
            if (plain->failed)
                return err_set(err, STATUS_TOO_BIG, 0, "TLS: too much from \"%s\" waits already",
                               tls->identity);
            continue;
        }
        switch (openssl->ssl_get_error(tls->ssl, 0)) {
        case SSL_ERROR_WANT_READ:
            return STATUS_OK;
        case SSL_ERROR_ZERO_RETURN:
            tls->is_closed = true;
            return STATUS_OK;
        default:
            return fail(tls, err);
        }
    }
}

enum status tls_start(struct tls *tls, struct buf *wire, struct err *err)
{
    enum status status;

    assert(!tls->is_ready && !tls->is_failed);
    if (tls->context->is_server)
        return STATUS_OK; /* the client begins */
    tls->out = wire;
    status = handshake(tls, err);
    tls->out = NULL;
    return status;
}

enum status tls_receive(struct tls *tls, const void *bytes, size_t byte_count, struct buf *plain,
                        struct buf *wire, struct err *err)
{
    enum status status = STATUS_OK;

    assert(tls->in == NULL); /* not from within itself */
    if (tls->is_failed)
        return err_set(err, STATUS_CLOSED, 0, "TLS: the session has failed before");
    if (tls->is_closed)
        return byte_count == 0 ? STATUS_OK
                               : err_set(err, STATUS_BAD_INPUT, 0,
                                         "TLS: bytes from \"%s\" after its end", tls->identity);
    tls->in = bytes;
    tls->in_bytes = byte_count;
    tls->out = wire;
    tls->out_before = wire->byte_count;
    if (!tls->is_ready)
        status = handshake(tls, err);
    if (status == STATUS_OK && tls->is_known && wire->byte_count > tls->out_before)
        tls->is_offered = true; /* OpenSSL answers only what has the right binder */
    if (status == STATUS_OK && tls->is_ready)
        status = read_all(tls, plain, err);
    assert(status != STATUS_OK || tls->in_bytes == 0 || tls->is_closed);
    tls->in = NULL;
    tls->in_bytes = 0;
    tls->out = NULL;
    return status;
}

enum status tls_send(struct tls *tls, const void *bytes, size_t byte_count, struct buf *wire,
                     struct err *err)
{
    const char *from = bytes;
    enum status status = STATUS_OK;
    size_t n;

    assert(tls->is_ready && !tls->is_failed);
    tls->out = wire;
    while (byte_count > 0 && status == STATUS_OK) {
        openssl->err_clear_error();
        n = 0;
        if (openssl->ssl_write_ex(tls->ssl, from, byte_count, &n) != 1)
            status = fail(tls, err);
        from += n;
        byte_count -= n;
    }
    tls->out = NULL;
    return status;
}

void tls_end(struct tls *tls, struct buf *wire)
{
    if (!tls->is_ready || tls->is_failed)
        return;
    tls->out = wire;
    (void)openssl->ssl_shutdown(tls->ssl);
    openssl->err_clear_error();
    tls->out = NULL;
}

bool tls_is_ready(const struct tls *tls)
{
    return tls->is_ready;
}

bool tls_is_closed(const struct tls *tls)
{
    return tls->is_closed;
}

const char *tls_identity(const struct tls *tls)
{
    return tls->identity;
}

const char *tls_offered(const struct tls *tls)
{
    return tls->is_offered ? tls->identity : "";
}
