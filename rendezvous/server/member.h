/* The server of a process: the only one; or, with a store on etcd, one of several. Such a one stands by until it is elected
 * and leads then. When it has led and must not act any more, the process starts anew as a standby (again.h): so nothing of
 * what it knew, and nothing that it was about to send, is left. */
#ifndef RENDEZVOUS_SERVER_MEMBER_H
#define RENDEZVOUS_SERVER_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "rendezvous/server/server.h"
#include "rendezvous/store/etcd_place.h"
#include "rendezvous/store/store.h"

struct member_options {
    struct server_options server;
    struct etcd_settings etcd; /* without a URL: the state is in server.state_dir */
    uint64_t leader_lease_us;
    uint64_t etcd_quota_bytes; /* etcd's --quota-backend-bytes */
};

/* Zero it first. */
struct member {
    const struct member_options *options; /* borrowed */
    uv_loop_t *loop;
    struct server *server;
    struct election *election; /* NULL: the only server */
    struct etcd_client *etcd;  /* of the loop; likewise */
    struct store_copy *copy;   /* of a standby; likewise */
    struct store_lead lead;
    uv_timer_t keys_timer; /* of a standby */
    uint32_t key_failures; /* in a row */
    int lock_fd;           /* of the state directory; 0: none */
    struct etcd_place place;
    char bound[4200];       /* of TCP; a port that was free is used again */
    char problem[256];      /* of etcd, said last */
    uint64_t problem_at_us; /* when it was said */
    char leader[320];       /* likewise */
    bool is_ending;
};

/* Listens, as a standby where there are several. Errors: as server_open, election_open, etcd_place_make. */
enum status member_open(struct member *member, uv_loop_t *loop,
                        const struct member_options *options, struct err *err);
/* Serves until member_stop. Errors: as server_open; then it has failed to lead. */
enum status member_run(struct member *member, struct err *err);
void member_stop(struct member *member);
/* After member_open, whatever it returned; the loop is to run until it is empty. */
void member_close(struct member *member);

#endif
