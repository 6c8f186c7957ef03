/* What a state directory remembers of the state that its server has used, in a small file:
 *
 *   etcd-seen    of a state on etcd, its newest commit. etcd itself does not notice that it was put back to an
 *                earlier state (`etcdctl snapshot restore`, an old data folder), or that it is another, empty one.
 *   state-seen   of state.db, its cluster id: a state.db that is missing is no new cluster; and the newest numbers,
 *                which are noted before anybody is told of them: one that lacks them is a copy of before, or has lost
 *                its log. */
#ifndef RENDEZVOUS_STORE_SEEN_H
#define RENDEZVOUS_STORE_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define SEEN_ID_BYTES 33u
#define SEEN_FILE_ETCD "etcd-seen"
#define SEEN_FILE_STATE "state-seen"

#define SEEN_LINEAGE_MAX 8u
#define SEEN_LINEAGE_BYTES (SEEN_LINEAGE_MAX * SEEN_ID_BYTES)
struct seen {
    char cluster[SEEN_ID_BYTES];
    char restore[SEEN_ID_BYTES]; /* id of the restore that made this state; "-": none */
    uint64_t commit;             /* 0: of state.db */
    uint64_t job_id, event_id;   /* the last ones that were given */
    uint64_t lease_us;           /* the longest that may be out; 0: not said */
    /* Which states came before this one, by seen_id, with commas; "-": none. A state with one of these ids was put back.
     * After SEEN_LINEAGE_MAX the first one and the newest ones stay. */
    char lineage[SEEN_LINEAGE_BYTES];
};

/* `at_ms` (may be NULL): when it was written, by the wall clock. Errors: STATUS_NOT_FOUND: there is none.
 * STATUS_BAD_INPUT: a file of ours that cannot be understood. STATUS_REFUSED: no plain file of ours. STATUS_IO: it
 * cannot be read. All but the first one mean that something may have been seen. */
enum status seen_read(const char *path, struct seen *seen, int64_t *at_ms, struct err *err);
/* Does nothing if the file has a later commit of the same state, or the same, or a state that came
 * after this one. Adds to the lineage what the file has of a related state. A damaged file is renamed to
 * PATH.damaged, with a log line; what is not a file of ours, or cannot be read, is left alone. Errors: as seen_read,
 * but for STATUS_NOT_FOUND. */
enum status seen_write(const char *path, const struct seen *seen, struct err *err);
/* What seen_read gave, for people: "cluster b2c35f11... (commit 245, job 41, on 2026-11-26 20:11 UTC)", or that the file cannot be
 * understood. False: there is no file, so nothing was seen. */
#define SEEN_TEXT_BYTES 160u
bool seen_text(enum status status, const struct seen *seen, int64_t at_ms, const char *why,
               char text[SEEN_TEXT_BYTES]);
/* The id of this state among those of its cluster: it is new after each restore, move or going back. */
const char *seen_id(const struct seen *seen);
/* Whether both are of one state, so that commits can be compared. */
bool seen_is_same(const struct seen *one, const struct seen *other);
/* Whether `now` is a state from which `later` came. */
bool seen_came_before(const struct seen *now, const struct seen *later);
/* Whether `now` is an earlier state than `before`: it came before, or is the same with a lower commit, or with a lower
 * number of a job, as when others have committed to a state that was put back. No number of a job ever gets lower. */
bool seen_is_past(const struct seen *now, const struct seen *before);
/* What is to be written after `before` was: `next`, with the lineage of both if they are related. False: `before` stays. */
bool seen_follow(struct seen *next, const struct seen *before);
/* Adds `other` and its lineage to the lineage of `seen`; `other` may be `seen`. */
void seen_add_lineage(struct seen *seen, const struct seen *other);
/* Both were seen, of one state or of related ones: the later one of them, with the highest numbers and the longest lease. */
void seen_join(struct seen *seen, const struct seen *other);
/* The text of the file. It ends with a newline. */
#define SEEN_FILE_BYTES 1024u
size_t seen_encode(const struct seen *seen, char text[SEEN_FILE_BYTES]);
/* False: it is damaged. */
bool seen_decode(const char *text, struct seen *seen);

#endif
