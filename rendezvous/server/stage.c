/* The archives of staged working directories (common/stage.h): files STATE_DIR/stage/HASH.tar. A
 * client sends an archive in pieces over one connection. Each upload has a file of its own,
 * HASH-NUMBER.part, also while it is being synced and the connection begins another one. The file
 * becomes HASH.tar once all bytes are there, have that hash and are on the disk. Nodes
 * read it in pieces (stage_get.c). An archive that no active job names is removed when the next upload begins, a day
 * after its last use, or sooner if there is no room. What a user may have is limited: what the user's active jobs name, what the
 * user has sent or named of late (stage_uses.h), and the uploads that have begun.
 *
 * All that touches the disk is work for a thread with a deadline (stage_files.c, common/io/file_work.h). Until it is done
 * nothing more is read from the client, so it can have one piece in memory here. A node goes on to be heard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/log.h"
#include "common/stage.h"
#include "rendezvous/server/internal.h"
#include "rendezvous/server/stage_files.h"
#include "rendezvous/server/stage_share.h"
#include "rendezvous/server/stage_work.h"

#define WAITING_BYTES_MAX (64ull << 20)      /* of what waits for the disk, from all clients */
#define WAITING_USER_BYTES_MAX (32ull << 20) /* from those of one user */
#define REMEDY "look at that disk of the server; what runs goes on"

/* -- work ----------------------------------------------------------------------------------------- */

static void abandon(struct server *server, struct stage_upload *upload);

/* On the loop's thread, or on another one when the loop has ended. */
static void drop(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    struct stage_upload *upload = files->upload;
    const bool has_loop = pthread_equal(files->loop_thread, pthread_self()) != 0;

    if (has_loop)
        ((struct server *)files->owner)->stage_bytes -= files->held_bytes;
    if (upload != NULL && upload->is_orphan && (upload->path[0] != '\0' || upload->fd >= 0) &&
        has_loop && work->run != stage_files_abandon)
        abandon(files->owner, upload);
    else if (upload != NULL && upload->is_orphan)
        stage_upload_free(upload); /* a file that stays is removed at the next start */
    stage_reading_free(files->reading);
    free(files->bytes);
    free(files->used);
    free(files);
}

struct stage_files *stage_work_new(struct server *server, uint64_t peer_id, const char *hash,
                                   void (*run)(struct file_work *work))
{
    struct stage_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_STAGE;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.run = run;
    files->work.drop = drop;
    files->owner = server;
    files->loop_thread = pthread_self();
    files->peer_id = peer_id;
    files->survives_power = server->survives_power;
    (void)snprintf(files->dir, sizeof files->dir, "%s", server->stage_dir);
    (void)snprintf(files->hash, sizeof files->hash, "%s", hash);
    return files;
}

/* Removes what has come of the upload, however long that takes. */
static void abandon(struct server *server, struct stage_upload *upload)
{
    struct stage_files *files = stage_work_new(server, 0, upload->hash, stage_files_abandon);

    upload->is_orphan = true;
    if (files == NULL) {
        stage_upload_free(upload);
        return;
    }
    files->upload = upload;
    files->work.limit_ms = 0;
    (void)file_work_start(server->files, &files->work);
}

void stage_drop(struct peer *peer)
{
    struct stage_upload *upload = peer->upload;

    stage_reading_free(peer->reading);
    peer->reading = NULL;
    peer->upload = NULL;
    if (upload != NULL && upload->is_busy)
        upload->is_orphan = true;
    else if (upload != NULL)
        abandon(peer->server, upload);
}

/* -- opening -------------------------------------------------------------------------------------- */

static void on_opened(struct file_work *work, const char *late)
{
    struct stage_files *files = (struct stage_files *)work;
    struct server *server = files->owner;

    if (late != NULL)
        (void)err_set(&server->stage_err, STATUS_TIMEOUT, 0, "%s", late);
    else
        server->stage_err = files->err;
    if (server->stage_err.status != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "no staged directories: %s", server->stage_err.text);
}

/* The only server waits, since a folder that cannot be used is a reason not to start. One of several goes on at once: it has
 * little time to begin to lead. */
enum status stage_open(struct server *server, const char *state_dir, bool waits, struct err *err)
{
    struct stage_files *files;
    enum status status;

    status = file_works_open(&server->files, server->loop, "", state_dir, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(server->stage_dir, sizeof server->stage_dir, "%.4000s/stage", state_dir);
    files = stage_work_new(server, 0, "", stage_files_open);
    if (files == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for staged directories");
    files->work.done = on_opened;
    if (waits)
        file_work_wait(server->files, &files->work);
    else
        (void)file_work_start(server->files, &files->work);
    if (server->stage_err.status != STATUS_OK && err != NULL)
        *err = server->stage_err;
    return server->stage_err.status;
}

void stage_stop(struct server *server)
{
    if (server->files != NULL)
        file_works_close(server->files);
}

/* -- waiting for a thread -------------------------------------------------------------------------- */

static uint64_t user_bytes(const struct peer *peer)
{
    const struct server *server = peer->server;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (server->peers[i] != NULL && server->peers[i]->stage_bytes > 0 &&
            peer_user_key(server->peers[i]) == peer_user_key(peer))
            bytes += server->peers[i]->stage_bytes;
    return bytes;
}

/* Whether the server may hold that much more while it waits for the disk. False: it was answered. */
static bool may_hold(struct peer *peer, uint64_t bytes)
{
    const uint64_t all = peer->server->stage_bytes;

    if (all + bytes <= WAITING_BYTES_MAX && (all + bytes <= WAITING_USER_BYTES_MAX ||
                                             user_bytes(peer) + bytes <= WAITING_USER_BYTES_MAX))
        return true;
    peer_error(peer, "full", "try again later; is the disk of the server's state directory slow?",
               "the staged directory: %.1f MB wait already to be written to %s", (double)all / 1e6,
               peer->server->stage_dir);
    return false;
}

/* Starts work of a client, from which nothing is read until it is done. False: it was answered. */
static bool start(struct peer *peer, struct stage_files *files, uint64_t held_bytes,
                  void (*done)(struct file_work *work, const char *late))
{
    struct stage_upload *upload = files->upload;

    files->work.done = done;
    files->held_bytes = held_bytes;
    peer->server->stage_bytes += held_bytes;
    peer->stage_bytes = held_bytes;
    peer->is_staging = true;
    if (upload != NULL)
        upload->is_busy = upload->is_orphan = true; /* if it is not taken, it ends */
    if (file_work_start(peer->server->files, &files->work)) {
        if (upload != NULL)
            upload->is_orphan = false;
        conn_pause(&peer->conn);
        return true;
    }
    peer->is_staging = false;
    peer->stage_bytes = 0;
    peer_error(peer, "full", "try again later", "the staged directory: too much waits for %s",
               peer->server->stage_dir);
    return false;
}

/* Once per hang: each client that waits is told by its answer. */
void stage_note_disk(struct server *server, const char *late)
{
    if (late != NULL && !server->stage_is_late)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "staged directories fail: %s", late);
    else if (late == NULL && server->stage_is_late)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "the disk of staged directories answers again");
    server->stage_is_late = late != NULL;
}

/* The peer whose work is done; NULL: it is gone. Call go_on once it has its answer. */
static struct peer *take_done(const struct stage_files *files, const char *late)
{
    struct peer *peer = peer_find(files->owner, files->peer_id);

    stage_note_disk(files->owner, late);
    if (peer != NULL)
        peer->stage_bytes = 0;
    return peer;
}

static void go_on(struct peer *peer)
{
    peer->heard_us = clock_boot_us();
    peer->is_staging = false;
    if (!peer->is_held)
        conn_resume(&peer->conn);
}

static void tell_failed(struct peer *peer, const char *doing, int code)
{
    peer_error(peer, "internal", "the server's disk may be full", "the staged directory: %s: %s",
               doing, strerror(code));
}

static void tell_late(struct peer *peer, const char *late)
{
    peer_error(peer, "internal", REMEDY, "the staged directory: %s", late);
}

/* -- room ------------------------------------------------------------------------------------------ */

static void note_use(struct server *server, const struct stage_files *files)
{
    (void)stage_uses_note(&server->stage_uses, files->user, files->hash, clock_boot_us());
}

/* The thread has to know which archives jobs use, and which of them those of this user. The work begins anew, and the peer
 * goes on to wait. */
static void give_used(struct peer *peer, struct stage_files *files,
                      void (*done)(struct file_work *work, const char *late))
{
    struct server *server = peer->server;
    struct stage_files *again =
        stage_work_new(server, files->peer_id, files->hash, files->work.run);
    struct stage_upload *upload = files->upload;

    if (again != NULL)
        again->used = store_staged(server->store, peer_user(peer), &again->used_count);
    if (again == NULL || again->used == NULL ||
        !stage_uses_add(&server->stage_uses, peer_user(peer), clock_boot_us(), &again->used,
                        &again->used_count)) {
        if (again != NULL)
            drop(&again->work);
        tell_failed(peer, "no memory", ENOMEM);
        if (upload != NULL)
            stage_drop(peer);
        files->upload = NULL;
        go_on(peer);
        return;
    }
    files->upload = NULL;
    again->upload = upload;
    again->total = files->total;
    again->serial = files->serial;
    again->bytes = files->bytes;
    again->byte_count = files->byte_count;
    files->bytes = NULL;
    stage_set_user(again, peer);
    if (!start(peer, again, files->held_bytes, done)) {
        if (upload != NULL)
            peer->upload = NULL; /* `again` has dropped it */
        go_on(peer);
    }
}

/* -- uploads --------------------------------------------------------------------------------------- */

static void answer_state(struct peer *peer, const char *hash, uint64_t have, bool is_complete)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_STATE};

    msg.stage_state.hash = hash;
    msg.stage_state.have = have;
    msg.stage_state.is_complete = is_complete;
    peer_send(peer, &msg);
}

static void answer_put(struct peer *peer, const struct stage_files *files)
{
    if (files->outcome == STAGE_COMPLETE)
        answer_state(peer, files->hash, files->total, true);
    else if (files->outcome == STAGE_TAKEN && files->upload != NULL)
        answer_state(peer, files->hash, files->upload->have, false);
    else if (files->outcome == STAGE_FULL)
        stage_tell_full(peer, files);
    else if (files->outcome == STAGE_OTHER)
        peer_error(peer, "bad_request", "send it again",
                   "the staged directory: its bytes do not have the hash %.16s...", files->hash);
    else if (files->outcome == STAGE_UNBEGUN)
        peer_error(peer, "bad_request", "", "stage_put: these are not the next bytes");
    else
        tell_failed(peer, files->doing, files->code);
}

static void on_put(struct file_work *work, const char *late)
{
    struct stage_files *files = (struct stage_files *)work;
    struct peer *peer = take_done(files, late);
    struct stage_upload *upload = files->upload;

    if (late == NULL && upload != NULL)
        upload->is_busy = false;
    if (late == NULL && (files->outcome == STAGE_TAKEN || files->outcome == STAGE_COMPLETE))
        note_use(files->owner, files); /* also if its client is gone */
    if (peer == NULL) {
        if (upload != NULL)
            upload->is_orphan = true;
        return;
    }
    if (late == NULL && files->outcome == STAGE_WANTS) {
        give_used(peer, files, on_put);
        return;
    }
    if (late == NULL && upload != NULL && files->outcome == STAGE_TAKEN)
        upload->have += files->byte_count;
    if (late != NULL)
        tell_late(peer, late);
    else
        answer_put(peer, files);
    if (upload != NULL && (late != NULL || files->outcome != STAGE_TAKEN)) {
        upload->is_orphan = true; /* `drop` ends it */
        peer->upload = NULL;
    }
    go_on(peer);
}

/* The upload that these bytes continue; NULL: none. */
static struct stage_upload *continued(const struct peer *peer, const struct msg_stage_put *put)
{
    struct stage_upload *upload = peer->upload;

    return upload != NULL && strcmp(upload->hash, put->hash) == 0 && put->total == upload->total &&
                   put->offset == upload->have && put->bytes.count <= upload->total - upload->have
               ? upload
               : NULL;
}

static struct stage_upload *new_upload(struct peer *peer, const struct msg_stage_put *put)
{
    struct stage_upload *upload = calloc(1, sizeof *upload);

    if (upload == NULL)
        return NULL;
    upload->fd = -1;
    upload->total = put->total;
    (void)snprintf(upload->hash, sizeof upload->hash, "%s", put->hash);
    peer->upload = upload;
    return upload;
}

/* The work for this piece; NULL: no memory. */
static struct stage_files *piece_work(struct peer *peer, const struct msg_stage_put *put)
{
    struct server *server = peer->server;
    struct stage_files *files = stage_work_new(server, peer->id, put->hash, stage_files_put);

    if (files == NULL)
        return NULL;
    files->total = put->total;
    files->byte_count = put->bytes.count;
    if (put->bytes.count > 0) {
        files->upload = continued(peer, put);
        files->bytes = malloc(put->bytes.count);
    } else {
        files->serial = ++server->upload_serial;
        files->upload = new_upload(peer, put);
    }
    if (put->bytes.count > 0 ? files->bytes == NULL : files->upload == NULL) {
        drop(&files->work);
        return NULL;
    }
    stage_set_user(files, peer);
    if (put->bytes.count > 0)
        memcpy(files->bytes, put->bytes.items, put->bytes.count);
    return files;
}

void stage_put(struct peer *peer, const struct msg_stage_put *put)
{
    struct stage_files *files;

    if (!stage_is_hash(put->hash)) {
        peer_error(peer, "bad_request", "", "stage_put: the hash is not SHA-256 in hex");
        return;
    }
    if (!may_hold(peer, put->bytes.count) || !stage_may_use(peer, put->hash))
        return;
    if (put->bytes.count == 0 || continued(peer, put) == NULL)
        stage_drop(peer);
    files = piece_work(peer, put);
    if (files == NULL) {
        tell_failed(peer, "no memory", ENOMEM);
        stage_drop(peer);
    } else if (!start(peer, files, put->bytes.count, on_put)) {
        peer->upload = NULL;
    }
}

/* -- submits --------------------------------------------------------------------------------------- */

static void on_checked(struct file_work *work, const char *late)
{
    struct stage_files *files = (struct stage_files *)work;
    struct peer *peer = take_done(files, late);
    const size_t head = FRAME_HEAD_BYTES;
    struct arena arena = {0};
    struct msg msg;
    struct err err;

    if (peer == NULL)
        return;
    if (late == NULL && files->outcome == STAGE_WANTS) {
        give_used(peer, files, on_checked);
        return;
    }
    if (late == NULL && files->outcome == STAGE_COMPLETE)
        note_use(files->owner, files);
    if (late != NULL)
        tell_late(peer, late);
    else if (files->outcome == STAGE_FAILED)
        tell_failed(peer, files->doing, files->code);
    else if (files->outcome == STAGE_FULL)
        stage_tell_full(peer, files);
    else if (files->outcome != STAGE_COMPLETE)
        peer_error(peer, "not_found", "submit with --stage DIR, which sends it",
                   "the server does not have the staged directory %.16s... of this job",
                   files->hash);
    else if (msg_decode((const char *)files->bytes + head, files->byte_count - head, &arena, &msg,
                        &err) == STATUS_OK)
        client_submit(peer, &msg);
    else
        peer_error(peer, "internal", "", "%s", err.text);
    arena_reset(&arena);
    go_on(peer);
}

/* The submit goes on when a thread has found the archive. */
static void check(struct peer *peer, const struct msg *submit, const char *hash)
{
    struct stage_files *files;
    struct buf frame = {0};
    struct msg copy = *submit;
    struct err err;

    if (!stage_may_use(peer, hash))
        return;
    if (msg_encode(&copy, &frame, &err) != STATUS_OK) {
        buf_free(&frame);
        peer_error(peer, "internal", "", "%s", err.text);
        return;
    }
    files = stage_work_new(peer->server, peer->id, hash, stage_files_check);
    if (files == NULL || !may_hold(peer, frame.byte_count)) {
        buf_free(&frame);
        if (files == NULL)
            tell_failed(peer, "no memory", ENOMEM);
        else
            drop(&files->work);
        return;
    }
    files->bytes = (uint8_t *)frame.bytes;
    files->byte_count = (uint32_t)frame.byte_count;
    files->is_counted = stage_uses_has(&peer->server->stage_uses, peer_user(peer), hash,
                                       clock_boot_us()); /* right after its upload */
    stage_set_user(files, peer);
    (void)start(peer, files, frame.byte_count, on_checked);
}

bool stage_takes_submit(struct peer *peer, const struct msg *submit)
{
    const char *cwd = submit->submit.cwd;
    char hash[STAGE_HASH_CHARS + 1];

    if (cwd[0] == '/')
        return false;
    if (!stage_of_cwd(cwd, hash))
        peer_error(peer, "bad_request", "give an absolute path",
                   "the working directory '%.200s' is not an absolute path", cwd);
    else
        check(peer, submit, hash);
    return true;
}
