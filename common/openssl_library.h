/* OpenSSL, loaded when a key, a TLS connection or a digest of a staged archive is needed: it takes half of the time that the start
 * of launcherd takes, and a shim, which is launcherd started for a job on a node, needs none of it. */
#ifndef COMMON_OPENSSL_LIBRARY_H
#define COMMON_OPENSSL_LIBRARY_H

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "common/dl_library.h"
#include "common/status.h"

/* X(member, function). What OpenSSL's headers have as a macro is called by the function behind it. */
#define OPENSSL_LIBRARY_FUNCTIONS(X)                                                               \
    X(asn1_time_diff, ASN1_TIME_diff)                                                              \
    X(bio_clear_flags, BIO_clear_flags)                                                            \
    X(bio_get_data, BIO_get_data)                                                                  \
    X(bio_get_new_index, BIO_get_new_index)                                                        \
    X(bio_meth_free, BIO_meth_free)                                                                \
    X(bio_meth_new, BIO_meth_new)                                                                  \
    X(bio_meth_set_ctrl, BIO_meth_set_ctrl)                                                        \
    X(bio_meth_set_read_ex, BIO_meth_set_read_ex)                                                  \
    X(bio_meth_set_write_ex, BIO_meth_set_write_ex)                                                \
    X(bio_new, BIO_new)                                                                            \
    X(bio_set_data, BIO_set_data)                                                                  \
    X(bio_set_flags, BIO_set_flags)                                                                \
    X(bio_set_init, BIO_set_init)                                                                  \
    X(err_clear_error, ERR_clear_error)                                                            \
    X(err_error_string_n, ERR_error_string_n)                                                      \
    X(err_peek_error, ERR_peek_error)                                                              \
    X(err_peek_last_error, ERR_peek_last_error)                                                    \
    X(evp_digest, EVP_Digest)                                                                      \
    X(evp_digest_final_ex, EVP_DigestFinal_ex)                                                     \
    X(evp_digest_init_ex, EVP_DigestInit_ex)                                                       \
    X(evp_digest_update, EVP_DigestUpdate)                                                         \
    X(evp_md_ctx_free, EVP_MD_CTX_free)                                                            \
    X(evp_md_ctx_new, EVP_MD_CTX_new)                                                              \
    X(evp_md_get_type, EVP_MD_get_type)                                                            \
    X(evp_pkey_free, EVP_PKEY_free)                                                                \
    X(evp_sha256, EVP_sha256)                                                                      \
    X(pem_read_private_key, PEM_read_PrivateKey)                                                   \
    X(pem_read_x509, PEM_read_X509)                                                                \
    X(rand_bytes, RAND_bytes)                                                                      \
    X(ssl_cipher_find, SSL_CIPHER_find)                                                            \
    X(ssl_ctx_ctrl, SSL_CTX_ctrl)                                                                  \
    X(ssl_ctx_free, SSL_CTX_free)                                                                  \
    X(ssl_ctx_new, SSL_CTX_new)                                                                    \
    X(ssl_ctx_set_ciphersuites, SSL_CTX_set_ciphersuites)                                          \
    X(ssl_ctx_set_max_early_data, SSL_CTX_set_max_early_data)                                      \
    X(ssl_ctx_set_num_tickets, SSL_CTX_set_num_tickets)                                            \
    X(ssl_ctx_set_options, SSL_CTX_set_options)                                                    \
    X(ssl_ctx_set_psk_find_session_callback, SSL_CTX_set_psk_find_session_callback)                \
    X(ssl_ctx_set_psk_use_session_callback, SSL_CTX_set_psk_use_session_callback)                  \
    X(ssl_ctx_set_verify, SSL_CTX_set_verify)                                                      \
    X(ssl_do_handshake, SSL_do_handshake)                                                          \
    X(ssl_free, SSL_free)                                                                          \
    X(ssl_get_error, SSL_get_error)                                                                \
    X(ssl_get_ex_data, SSL_get_ex_data)                                                            \
    X(ssl_new, SSL_new)                                                                            \
    X(ssl_read_ex, SSL_read_ex)                                                                    \
    X(ssl_session_free, SSL_SESSION_free)                                                          \
    X(ssl_session_new, SSL_SESSION_new)                                                            \
    X(ssl_session_reused, SSL_session_reused)                                                      \
    X(ssl_session_set1_master_key, SSL_SESSION_set1_master_key)                                    \
    X(ssl_session_set_cipher, SSL_SESSION_set_cipher)                                              \
    X(ssl_session_set_protocol_version, SSL_SESSION_set_protocol_version)                          \
    X(ssl_set_accept_state, SSL_set_accept_state)                                                  \
    X(ssl_set_bio, SSL_set_bio)                                                                    \
    X(ssl_set_connect_state, SSL_set_connect_state)                                                \
    X(ssl_set_ex_data, SSL_set_ex_data)                                                            \
    X(ssl_shutdown, SSL_shutdown)                                                                  \
    X(ssl_version, SSL_version)                                                                    \
    X(ssl_write_ex, SSL_write_ex)                                                                  \
    X(tls_client_method, TLS_client_method)                                                        \
    X(tls_server_method, TLS_server_method)                                                        \
    X(x509_check_private_key, X509_check_private_key)                                              \
    X(x509_free, X509_free)                                                                        \
    X(x509_get0_not_after, X509_get0_notAfter)

struct openssl_library {
    void *handle; /* of dlopen; NULL: not loaded */
    OPENSSL_LIBRARY_FUNCTIONS(DL_MEMBER)
};

/* The one of this process, which the first call loads and which stays loaded. From any thread.
 * NULL: it is not installed, or lacks a function; `err` (STATUS_LIBRARY) says so. */
const struct openssl_library *openssl_library(struct err *err);

#endif
