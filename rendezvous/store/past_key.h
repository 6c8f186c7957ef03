/* The key PREFIX "past" on etcd: somebody knows that etcd was put back to an earlier state.
 *
 * A server that stands by and has seen a later state than etcd has (seen.h) writes there what it has seen, since the server that
 * leads may not know it, and would give numbers a second time. Each commit of a leader compares that the key is not
 * there (remote.c). So the commit that would give such a number is not made, and the leader starts again as a standby. The next leader
 * reads the key before its first commit, which leaves those numbers out and removes the key.
 *
 * Value: "ID TEXT": the seen_id of the state that is of the past, and the text of a file of seen.h. If the state has another
 * id by now, the next commit only removes the key. */
#ifndef RENDEZVOUS_STORE_PAST_KEY_H
#define RENDEZVOUS_STORE_PAST_KEY_H

#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/seen.h"

struct store;

struct past_key {
    int64_t at; /* etcd's revision at which it was written; 0: there is no such key */
    char of[SEEN_ID_BYTES];
    struct seen seen;
};

/* What the row of the key says; NULL: there is none. What cannot be understood is of no state. */
void past_key_take(struct past_key *past, const struct etcd_row *row);
enum status past_key_read(struct etcd_client *client, const char *prefix, uint64_t deadline_us,
                          struct past_key *past, struct err *err);

/* What a standby finds. */
struct past_look {
    bool is_past; /* etcd has an earlier state, and the key says so now */
    struct seen now;
};

/* Reads how far the state is, with a few requests, and writes the key if that is earlier than `before`. Does not know
 * the number of the newest job. STATUS_NOT_FOUND: etcd has no state; those of etcd_client.h. */
enum status past_key_look(struct etcd_client *client, const char *prefix, const struct seen *before,
                          struct past_look *look, struct err *err);
/* The same with all rows, which were read as of the revision of store->remote. */
enum status past_key_look_at(struct etcd_client *client, struct store *store,
                             const struct seen *before, struct past_look *look, struct err *err);

#endif
