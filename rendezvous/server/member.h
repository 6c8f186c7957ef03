/* The server of a process: the only one, or with a store on etcd one of several. One of several
 * stands by until it is elected, and then leads. When it must not lead any more, the process starts
 * anew as a standby (again.h), so that nothing it knew or was about to send is left.
 *
 * An etcd that is empty although this server has seen a state there (store/seen.h) has lost its data, or is another
 * one. No such server leads there until an administrator restores a backup or makes a new cluster. */
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
    struct loop_watch *watch;
    struct election *election; /* NULL: the only server */
    struct etcd_client *etcd;  /* used on the loop's thread; NULL likewise */
    struct store_copy *copy;   /* while it stands by; NULL likewise */
    struct store_lead lead;
    uv_timer_t timer;        /* of a standby: reads keys; of a leader: shows that it leads */
    uint32_t key_failures;   /* in a row */
    struct folder_lock lock; /* of the state directory */
    struct etcd_place place;
    struct seen_keeper *seen; /* of the file of store/seen.h; NULL likewise */
    char bound[4200];         /* the TCP address, so that the same port is used again */
    char problem[256];        /* the last logged problem with etcd */
    uint64_t problem_at_us;   /* when it was logged */
    char leader[320];         /* the last logged leader */
    uint64_t cert_at_us;      /* when the end of our certificate was last checked; 0: never */
    bool is_ending;
    char lost[256];      /* etcd has lost its state: the words for people; empty: no */
    uint64_t lost_at_us; /* when that was logged */
};

/* Starts to listen; as a standby if there are several servers. Errors: as server_open,
 * election_open, etcd_place_make. */
enum status member_open(struct member *member, uv_loop_t *loop,
                        const struct member_options *options, struct err *err);
/* Serves until member_stop. Errors: as server_open, if it was elected and could not lead. */
enum status member_run(struct member *member, struct err *err);
void member_stop(struct member *member);
/* Call after member_open, whatever it returned; then run the loop until it is empty. */
void member_close(struct member *member);

#endif
