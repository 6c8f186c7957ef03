/* The addresses of the servers of one cluster: "ADDRESS,ADDRESS,...", each unix:PATH or HOST:PORT. One of them leads, the
 * others refer to it (error `standby`). A client goes to the leader where it was referred to one, else from address to
 * address; how long to wait between two attempts is up to its owner.
 *
 * A comma in the path of a unix socket belongs to the path unless an address follows it. */
#ifndef COMMON_IO_SERVER_LIST_H
#define COMMON_IO_SERVER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define SERVER_LIST_BYTES_MAX 8192u
/* Referrals that are followed at once, one after the other. A server that has just ended is still named for a while. */
#define SERVER_LIST_HASTE 2u

struct server_list {
    uint32_t count, current;
    uint32_t failures; /* attempts since the last success */
    uint32_t referrals;
    bool is_referred;                      /* the next attempt goes to `leader` */
    char leader[SERVER_ADDRESS_BYTES_MAX]; /* named by a server */
    uint32_t starts[SERVERS_MAX];          /* of the addresses in `text` */
    char text[SERVER_LIST_BYTES_MAX];      /* NUL after each */
};

/* STATUS_BAD_INPUT: `err` says which address is none; STATUS_TOO_BIG. */
enum status server_list_parse(struct server_list *list, const char *text, struct err *err);
/* Where to connect now. Valid until the next call about the list. */
const char *server_list_address(const struct server_list *list);
/* The address at that place, below `count`. */
const char *server_list_at(const struct server_list *list, uint32_t i);
/* Whether it was named by a server, and is not among the addresses that a person gave. */
bool server_list_is_foreign(const struct server_list *list);
/* The attempt failed, or the connection ended: the next one goes to the next address. */
void server_list_failed(struct server_list *list);
/* What is there stands by and names the leader, or nobody (""). True: try that at once. */
bool server_list_referred(struct server_list *list, const char *leader);
/* The server at this address does its work. */
void server_list_reached(struct server_list *list);
/* Every address was tried since the last success. */
bool server_list_all_failed(const struct server_list *list);
/* Whether `address` is one of those in `text`. */
bool server_list_has(const char *text, const char *address);

#endif
