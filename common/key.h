/* The key of a principal (a node or a user): its name, its secret, and where its server is.
 *
 * A key travels as one string, which `ddpctl node add` prints once:
 *     ddp://HOST:PORT/NAME#SECRET
 *   HOST:PORT  the server, as others reach it; an IPv6 address in brackets; several with commas between them
 *   NAME       [A-Za-z0-9._-]+, unique among nodes and users
 *   SECRET     43 characters: 32 random bytes in base64url without padding (RFC 4648, section 5)
 * Whoever has the string is the principal. It is never an argument of a program (other users see
 * those), never in an environment, a log or an error text: texts made here name the principal only.
 */
#ifndef COMMON_KEY_H
#define COMMON_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define KEY_SECRET_BYTES 32
#define KEY_SECRET_CHARS 43
#define KEY_ID_CHARS 16
#define KEY_HOST_BYTES_MAX 256                         /* a host name has at most 253 characters */
#define KEY_SERVERS_BYTES_MAX (KEY_HOST_BYTES_MAX + 8) /* HOST:PORT,HOST:PORT,... */
#define KEY_URL_BYTES_MAX                                                                          \
    (sizeof "ddp://" + KEY_SERVERS_BYTES_MAX + NODE_NAME_BYTES_MAX + 1 + KEY_SECRET_CHARS)
/* "NAME:ID": how a client identifies itself in the TLS handshake, unencrypted. */
#define KEY_IDENTITY_BYTES_MAX (NODE_NAME_BYTES_MAX + 1 + KEY_ID_CHARS)

struct key {
    char server[KEY_SERVERS_BYTES_MAX]; /* HOST:PORT, or several: server_list.h */
    char name[NODE_NAME_BYTES_MAX];
    uint8_t secret[KEY_SECRET_BYTES];
};

/* Parses the whole `text`; white space around it is allowed. STATUS_BAD_INPUT: not a key; `err`
 * says which part is wrong and never repeats the secret. */
enum status key_parse(const char *text, struct key *key, struct err *err);
/* `url`: [KEY_URL_BYTES_MAX]. */
void key_format(const struct key *key, char *url);
/* Erases the secret in a way that the compiler does not optimise away. */
void key_forget(struct key *key);

/* A new secret from the kernel's random source. STATUS_SYSTEM: it failed. */
enum status key_secret_new(uint8_t secret[KEY_SECRET_BYTES], struct err *err);
/* Tells a principal's secrets apart, so that an old and a new one can both be valid for a while:
 * the first 64 bits of SHA-256("ddp key id" || secret), in hex. It reveals nothing about the
 * secret, which has 256 random bits. */
enum status key_id(const uint8_t secret[KEY_SECRET_BYTES], char id[KEY_ID_CHARS + 1],
                   struct err *err);
/* "NAME:ID"; `identity`: [KEY_IDENTITY_BYTES_MAX]. */
enum status key_identity(const struct key *key, char *identity, struct err *err);
/* Splits an identity that came over the wire; `name`: [NODE_NAME_BYTES_MAX]. STATUS_BAD_INPUT:
 * malformed. */
enum status key_identity_split(const char *identity, size_t byte_count, char *name,
                               char id[KEY_ID_CHARS + 1], struct err *err);

#endif
