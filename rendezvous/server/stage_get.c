/* A node reads an archive (stage.h in common), piece after piece. The hash is computed as it reads: an archive that was
 * damaged on this server's disk is removed, so that the next submit sends it anew, and the jobs that wait for it on this node
 * are told why they cannot start (stage_lost.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/stage.h"
#include "rendezvous/server/internal.h"
#include "rendezvous/server/stage_files.h"
#include "rendezvous/server/stage_work.h"

#define GETS_MAX 4u /* reads of one node at a time; it needs one */
#define GONE "the server does not have it any more: submit again with --stage"
#define DAMAGED "the archive on the server was damaged, and is removed: submit again with --stage"

static void answer(struct peer *peer, const struct stage_files *files, const char *problem)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_DATA};
    struct msg_stage_data *data = &msg.stage_data;

    data->hash = files->hash;
    data->offset = files->offset;
    data->problem = problem;
    if (problem[0] == '\0') {
        data->total = files->total;
        data->bytes = (struct msg_bytes){.items = files->bytes, .count = files->byte_count};
    }
    peer_send(peer, &msg);
}

/* Why this node never gets the archive; NULL: it may. */
static const char *why_lost(const struct stage_files *files)
{
    if (files->outcome == STAGE_DAMAGED)
        return DAMAGED;
    return files->outcome == STAGE_MISSING ? GONE : NULL;
}

static void on_got(struct file_work *work, const char *late)
{
    struct stage_files *files = (struct stage_files *)work;
    struct server *server = files->owner;
    struct peer *peer = peer_find(server, files->peer_id);
    const char *lost = late != NULL ? NULL : why_lost(files);
    char problem[REASON_BYTES_MAX] = "";

    stage_note_disk(server, late);
    if (late == NULL && files->outcome == STAGE_DAMAGED)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s/%s.tar was damaged, and is removed: look after its disk", server->stage_dir,
                 files->hash);
    if (peer == NULL)
        return;
    peer->stage_gets--;
    if (late == NULL && peer->reading == NULL) {
        peer->reading = files->reading;
        files->reading = NULL;
    }
    if (late != NULL)
        (void)snprintf(problem, sizeof problem, "the server: %.240s", late);
    else if (files->outcome == STAGE_FAILED)
        (void)snprintf(problem, sizeof problem, "the server: %s: %.180s", files->doing,
                       strerror(files->code));
    else if (lost != NULL)
        (void)snprintf(problem, sizeof problem, "%s", lost);
    answer(peer, files, problem);
    if (lost != NULL)
        files->lost(server, files->peer_id, files->hash, lost);
}

/* What the peer has read up to there; NULL: not known. */
static struct stage_reading *take_reading(struct peer *peer, const struct msg_stage_get *get)
{
    struct stage_reading *reading = peer->reading;

    peer->reading = NULL;
    if (get->offset > 0 && reading != NULL && reading->have == get->offset &&
        strcmp(reading->hash, get->hash) == 0)
        return reading;
    stage_reading_free(reading);
    reading = get->offset == 0 ? calloc(1, sizeof *reading) : NULL;
    if (reading != NULL)
        (void)snprintf(reading->hash, sizeof reading->hash, "%s", get->hash);
    return reading;
}

void stage_get(struct peer *peer, const struct msg_stage_get *get, stage_on_lost *lost)
{
    struct stage_files refused = {.offset = get->offset};
    struct stage_files *files = NULL;

    (void)snprintf(refused.hash, sizeof refused.hash, "%s", get->hash);
    if (!stage_is_hash(get->hash)) {
        answer(peer, &refused, GONE);
        return;
    }
    if (peer->stage_gets < GETS_MAX)
        files = stage_work_new(peer->server, peer->id, get->hash, stage_files_get);
    if (files != NULL) {
        files->offset = get->offset;
        files->reading = take_reading(peer, get);
        files->lost = lost;
        files->work.done = on_got;
    }
    peer->stage_gets++;
    if (files != NULL && file_work_start(peer->server->files, &files->work))
        return;
    peer->stage_gets--;
    answer(peer, &refused, "too much waits for the server's disk already");
}
