/* Checks that etcd still has the history from which the rows of a copy were read. When etcd is restored
 * from a snapshot, its revisions go back. A watch from a revision that etcd does not have yet then waits
 * for it, and its changes belong to another history. */
#include "rendezvous/store/remote_history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/remote_internal.h"

bool remote_take_point(struct remote_point *point, const struct etcd_row *row)
{
    char text[24], *end = NULL;

    (void)snprintf(text, sizeof text, "%.*s", (int)row->value.byte_count, row->value.bytes);
    if (text[0] < '0' || text[0] > '9' || row->value.byte_count >= sizeof text)
        return false;
    *point = (struct remote_point){.commit = strtoull(text, &end, 10), .at = row->modified};
    return *end == '\0';
}

static enum status went_back(int64_t revision, const struct remote_point *point, struct err *err)
{
    return err_set(err, STATUS_NOT_FOUND, ETCD_WENT_BACK,
                   "etcd does not have commit %" PRIu64 " at revision %lld any more, which this "
                   "server has seen",
                   point->commit, (long long)revision);
}

enum status remote_check_history(struct etcd_client *client, const char *prefix, int64_t revision,
                                 const struct remote_point *point, uint64_t deadline_us,
                                 int64_t *now, struct err *err)
{
    char key[REMOTE_KEY_BYTES_MAX];
    struct etcd_op range = {.kind = ETCD_RANGE, .revision = revision};
    struct etcd_answer answer;
    struct remote_point found = {.commit = 0};
    struct arena arena = {0};
    enum status status;

    (void)snprintf(key, sizeof key, "%sseq", prefix);
    range.key = etcd_text(key);
    status = etcd_range(client, &range, deadline_us, &arena, &answer, err);
    if ((status == STATUS_NOT_FOUND && err->code == ETCD_FUTURE) ||
        (status == STATUS_OK &&
         (answer.row_count != 1 || !remote_take_point(&found, &answer.rows[0]) ||
          found.commit != point->commit || found.at != point->at)))
        status = went_back(revision, point, err);
    *now = status == STATUS_OK ? answer.revision : 0;
    arena_reset(&arena);
    return status;
}
