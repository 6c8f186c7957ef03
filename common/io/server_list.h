/* The addresses of the servers of one cluster: "ADDRESS,ADDRESS,...", each unix:PATH or HOST:PORT. One server leads, and
 * the others refer to it (error `standby`). A client connects to the leader if it was referred to one, otherwise to one
 * address after another. Its owner decides how long to wait between attempts.
 *
 * A comma in the path of a unix socket belongs to the path unless an address follows it. */
#ifndef COMMON_IO_SERVER_LIST_H
#define COMMON_IO_SERVER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define SERVER_LIST_BYTES_MAX 8192u
/* How many successive referrals are followed at once. A leader that has just ended is still named
 * for a while. */
#define SERVER_LIST_HASTE 2u

struct server_list {
    uint32_t count, current;
    uint32_t failures; /* attempts since the last success */
    uint32_t refused;  /* bit i: the i-th address has refused for good since the last success */
    uint32_t referrals;
    bool is_referred;                      /* the next attempt goes to `leader` */
    char leader[SERVER_ADDRESS_BYTES_MAX]; /* as named by a server */
    uint32_t starts[SERVERS_MAX];          /* of the addresses in `text` */
    char text[SERVER_LIST_BYTES_MAX];      /* with a NUL after each address */
};

/* STATUS_BAD_INPUT: `err` says which address is invalid; STATUS_TOO_BIG. */
enum status server_list_parse(struct server_list *list, const char *text, struct err *err);
/* The address to connect to now. Valid until the next call with this list. */
const char *server_list_address(const struct server_list *list);
/* The i-th address, i < `count`. */
const char *server_list_at(const struct server_list *list, uint32_t i);
/* Whether the current address came from a server and is not among those that a person gave. */
bool server_list_is_foreign(const struct server_list *list);
/* What is at this address, or at the one that it referred to, said that trying again cannot help. Call it before
 * server_list_failed. True: for the first time since the last success. */
bool server_list_refused(struct server_list *list);
/* Whether every address has said that since the last success. One that is silent has not: it may be the right one. */
bool server_list_all_refused(const struct server_list *list);
/* The attempt failed or the connection ended: moves on to the next address. */
void server_list_failed(struct server_list *list);
/* The server is a standby and names the leader, or none (""). True: connect to the leader at
 * once. */
bool server_list_referred(struct server_list *list, const char *leader);
/* The server at this address is working. */
void server_list_reached(struct server_list *list);
/* Whether every address was tried since the last success. */
bool server_list_all_failed(const struct server_list *list);
/* Whether `address` is one of those in `text`. */
bool server_list_has(const char *text, const char *address);

#endif
