/* Where a state on etcd is, as given by options: the URL, TLS files, a user. */
#ifndef RENDEZVOUS_STORE_ETCD_PLACE_H
#define RENDEZVOUS_STORE_ETCD_PLACE_H

#include "rendezvous/store/etcd_client.h"

#define ETCD_PASSWORD_BYTES_MAX 256u

struct etcd_settings {
    const char *url; /* NULL: none */
    /* TLS. NULL: the system's certificate authorities; no client certificate. */
    const char *ca_path, *cert_path, *key_path;
    const char *user, *password_path; /* both or neither */
};

#define ETCD_URL_ONCE "name all members of etcd in one, with commas: etcd://h1,h2,h3"

/* Rows for an option table: --store-ca and so on. `field` of `type` is a struct etcd_settings. */
#define ETCD_OPTION_ROWS(type, field)                                                              \
    {.name = "store-ca",                                                                           \
     .kind = OPTION_TEXT,                                                                          \
     .value = "FILE",                                                                              \
     OPTION_INTO(type, field.ca_path),                                                             \
     .help = "with etcds://: certificates of the authorities that sign etcd's (default: the "      \
             "system's)"},                                                                         \
        {.name = "store-cert",                                                                     \
         .kind = OPTION_TEXT,                                                                      \
         .value = "FILE",                                                                          \
         OPTION_INTO(type, field.cert_path),                                                       \
         .help = "with etcds://: this server's certificate"},                                      \
        {.name = "store-key",                                                                      \
         .kind = OPTION_TEXT,                                                                      \
         .value = "FILE",                                                                          \
         OPTION_INTO(type, field.key_path),                                                        \
         .help = "with etcds://: the private key of --store-cert"},                                \
        {.name = "store-user",                                                                     \
         .kind = OPTION_TEXT,                                                                      \
         .value = "NAME",                                                                          \
         OPTION_INTO(type, field.user),                                                            \
         .help = "with --store: a user of etcd that may read and write all keys under the "        \
                 "prefix, for an etcd that asks for one"},                                         \
    {                                                                                              \
        .name = "store-password-file", .kind = OPTION_TEXT, .value = "FILE",                       \
        OPTION_INTO(type, field.password_path),                                                    \
        .help = "the first line of FILE is the password of --store-user; only you may read it"     \
    }

struct etcd_place {
    struct etcd_options options;
    char prefix[ETCD_PREFIX_BYTES_MAX];
    char password[ETCD_PASSWORD_BYTES_MAX];
};

/* Makes the client's options. `place->options` borrows from `settings` and from `place`. Errors:
 * STATUS_BAD_INPUT; STATUS_REFUSED: others may read the password file. */
enum status etcd_place_make(struct etcd_place *place, const struct etcd_settings *settings,
                            struct err *err);
/* Checks that the TLS files exist and fit together. Errors: STATUS_BAD_INPUT. */
enum status etcd_files_check(const struct etcd_options *options, struct err *err);

#endif
