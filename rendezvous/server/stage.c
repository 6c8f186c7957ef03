/* The archives of staged working directories (common/stage.h): files STATE_DIR/stage/HASH.tar. A
 * client sends an archive in pieces over one connection. Each upload has a file of its own,
 * HASH-NUMBER.part, also while it is being synced and the connection begins another one. The file
 * becomes HASH.tar once all bytes are there, have that hash and are on the disk. Nodes
 * read it in pieces. An archive that no active job names is removed when the next upload begins, a day
 * after its last use, or sooner if there is no room. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"
#include "common/stage.h"
#include "rendezvous/server/internal.h"

#define KEEP_MS (24 * 3600 * (int64_t)1000)
#define KEEP_FULL_MS (600 * (int64_t)1000) /* its submit follows within moments */
#define TOTAL_BYTES_MAX (8ull << 30)       /* of all archives; further uploads are refused */
#define SUFFIX ".tar"

/* One upload. It belongs to its connection until all bytes have come. */
struct stage_upload {
    struct server *server;
    uint64_t peer_id;
    int fd;
    uint64_t total, have;
    struct stage_digest *digest;
    char hash[STAGE_HASH_CHARS + 1];
    char path[4200]; /* of the .part file */
    uv_fs_t sync;
};

static void archive_path(const struct server *server, const char *hash, char path[4200])
{
    (void)snprintf(path, 4200, "%.4000s/%s" SUFFIX, server->stage_dir, hash);
}

/* True: the archive exists. This counts as a use. */
static bool touch(const struct server *server, const char *hash)
{
    char path[4200];
    struct err none;
    bool is_touched;
    int fd;

    archive_path(server, hash, path);
    if (own_file_open(path, 1, O_RDONLY, 0, &fd, &none) != STATUS_OK)
        return false;
    is_touched = futimens(fd, NULL) == 0;
    (void)close(fd);
    return is_touched;
}

/* Whether the name is a hash and then `suffix`. */
static bool has_suffix(const char *name, const char *suffix)
{
    char hash[STAGE_HASH_CHARS + 1];

    (void)snprintf(hash, sizeof hash, "%.*s", (int)STAGE_HASH_CHARS, name);
    return stage_is_hash(hash) && strcmp(name + STAGE_HASH_CHARS, suffix) == 0;
}

/* Whether it is the name of an unfinished upload: HASH-NUMBER.part */
static bool is_part(const char *name)
{
    const size_t at = STAGE_HASH_CHARS;
    size_t digits;

    if (strlen(name) < at + 2 || name[at] != '-')
        return false;
    digits = strspn(name + at + 1, "0123456789");
    return digits > 0 && strcmp(name + at + 1 + digits, ".part") == 0;
}

enum status stage_open(struct server *server, const char *state_dir, struct err *err)
{
    enum status status;
    struct dirent *entry;
    DIR *dir;
    int fd;

    (void)snprintf(server->stage_dir, sizeof server->stage_dir, "%.4000s/stage", state_dir);
    status = own_folder_make(server->stage_dir, 1, 0700, &fd, err);
    if (status != STATUS_OK)
        return status;
    dir = own_folder_list(fd);
    (void)close(fd);
    if (dir == NULL)
        return err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", server->stage_dir,
                       strerror(errno));
    while ((entry = readdir(dir)) != NULL) /* an earlier server's unfinished uploads */
        if (is_part(entry->d_name))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)closedir(dir);
    return STATUS_OK;
}

/* Removes archives that nobody has used for that time. Returns the bytes of the others. */
static uint64_t collect(struct server *server, int64_t keep_ms)
{
    const int64_t oldest_ms = clock_wall_ms() - keep_ms;
    char cwd[STAGE_CWD_BYTES_MAX + 8];
    struct dirent *entry;
    struct stat info;
    uint64_t total = 0;
    struct err none;
    DIR *dir = NULL;
    int fd;

    if (own_folder_open(server->stage_dir, 1, &fd, &none) == STATUS_OK) {
        dir = own_folder_list(fd);
        (void)close(fd);
    }
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(info.st_mode))
            continue;
        (void)snprintf(cwd, sizeof cwd, STAGE_PREFIX "%.*s", (int)STAGE_HASH_CHARS, entry->d_name);
        if ((int64_t)info.st_mtime * 1000 < oldest_ms && has_suffix(entry->d_name, SUFFIX) &&
            !store_cwd_is_used(server->store, cwd))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        else
            total += (uint64_t)info.st_size;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return total;
}

/* Of the uploads that have begun. */
static uint64_t bytes_to_come(const struct server *server)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (server->peers[i] != NULL && server->peers[i]->upload != NULL)
            bytes += server->peers[i]->upload->total - server->peers[i]->upload->have;
    return bytes;
}

/* Archives may have half of the disk that they and the free space make up, so that there is room left for
 * jobs and keys. */
static bool has_room(struct server *server, uint64_t byte_count)
{
    const int64_t keep_ms[] = {KEEP_MS, KEEP_FULL_MS};
    struct statvfs disk;

    byte_count += bytes_to_come(server);
    for (size_t i = 0; i < sizeof keep_ms / sizeof keep_ms[0]; i++) {
        const uint64_t has = collect(server, keep_ms[i]), wanted = has + byte_count;

        if (statvfs(server->stage_dir, &disk) < 0)
            return true; /* writing it will tell */
        if (wanted <= TOTAL_BYTES_MAX &&
            wanted <= (has + (uint64_t)disk.f_bavail * disk.f_frsize) / 2)
            return true;
    }
    return false;
}

static void upload_free(struct stage_upload *upload)
{
    struct err none;

    if (upload->fd >= 0)
        (void)close(upload->fd);
    if (upload->path[0] != '\0')
        (void)own_file_remove(upload->path, 1, &none);
    stage_digest_free(&upload->digest);
    free(upload);
}

void stage_drop(struct peer *peer)
{
    if (peer->upload != NULL)
        upload_free(peer->upload);
    peer->upload = NULL;
}

static void answer_state(struct peer *peer, const char *hash, uint64_t have, bool is_complete)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_STATE};

    msg.stage_state.hash = hash;
    msg.stage_state.have = have;
    msg.stage_state.is_complete = is_complete;
    peer_send(peer, &msg);
}

static void tell_failed(struct peer *peer, const char *doing, int code)
{
    peer_error(peer, "internal", "the server's disk may be full", "the staged directory: %s: %s",
               doing, strerror(code));
}

static void fail(struct peer *peer, const char *doing, int code)
{
    tell_failed(peer, doing, code);
    stage_drop(peer);
}

static void begin(struct peer *peer, const struct msg_stage_put *put)
{
    struct server *server = peer->server;
    struct stage_upload *upload;
    struct err err;

    stage_drop(peer);
    if (!has_room(server, put->total)) {
        peer_error(peer, "full", "wait for jobs to end: their archives go ten minutes after that",
                   "the server has all the staged directories that it keeps: %llu GiB, or half of "
                   "its disk",
                   TOTAL_BYTES_MAX >> 30);
        return;
    }
    upload = calloc(1, sizeof *upload);
    if (upload == NULL) {
        fail(peer, "no memory", ENOMEM);
        return;
    }
    peer->upload = upload;
    *upload =
        (struct stage_upload){.server = server, .peer_id = peer->id, .fd = -1, .total = put->total};
    memcpy(upload->hash, put->hash, sizeof upload->hash);
    (void)snprintf(upload->path, sizeof upload->path, "%.4000s/%s-%llu.part", server->stage_dir,
                   put->hash, (unsigned long long)++server->upload_serial);
    if (own_file_open(upload->path, 1, O_RDWR | O_CREAT | O_EXCL, 0600, &upload->fd, &err) !=
        STATUS_OK) {
        upload->path[0] = '\0'; /* what has that name is not ours */
        fail(peer, "cannot make a file", err.code != 0 ? err.code : EPERM);
    } else if (stage_digest_new(&upload->digest, NULL) != STATUS_OK) {
        fail(peer, "cannot make a digest", ENOMEM);
    }
}

static void publish(struct stage_upload *upload, int code)
{
    struct server *server = upload->server;
    struct peer *peer = peer_find(server, upload->peer_id);
    char path[4200];
    struct err err;
    int dir_fd;

    archive_path(server, upload->hash, path);
    if (code == 0 && own_file_rename(upload->path, path, 1, &err) != STATUS_OK)
        code = err.code != 0 ? err.code : EPERM;
    if (code == 0) {
        upload->path[0] = '\0';
        dir_fd = open(server->stage_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir_fd < 0 || (server->survives_power && fsync(dir_fd) < 0))
            code = errno;
        if (dir_fd >= 0)
            (void)close(dir_fd);
    }
    if (peer != NULL && code == 0)
        answer_state(peer, upload->hash, upload->total, true);
    else if (peer != NULL)
        tell_failed(peer, "cannot write it to the disk", code);
    upload_free(upload);
}

static void on_synced(uv_fs_t *request)
{
    struct stage_upload *upload = request->data;
    const int code = request->result < 0 ? (int)-request->result : 0;

    uv_fs_req_cleanup(request);
    publish(upload, code);
}

/* All bytes have come. Syncing is done by a thread, so that the loop does not wait. */
static void finish(struct peer *peer)
{
    struct stage_upload *upload = peer->upload;
    char hash[STAGE_HASH_CHARS + 1];

    stage_digest_end(&upload->digest, hash);
    if (strcmp(hash, upload->hash) != 0) {
        peer_error(peer, "bad_request", "send it again",
                   "the staged directory: its bytes do not have the hash %.16s...", upload->hash);
        stage_drop(peer);
        return;
    }
    peer->upload = NULL;
    upload->sync.data = upload;
    if (!peer->server->survives_power)
        publish(upload, 0);
    else if (uv_fs_fsync(peer->server->loop, &upload->sync, upload->fd, on_synced) < 0)
        publish(upload, EIO);
}

static void take_bytes(struct peer *peer, const struct msg_stage_put *put)
{
    struct stage_upload *upload = peer->upload;
    const struct msg_bytes *bytes = &put->bytes;
    ssize_t written;

    if (upload == NULL || strcmp(upload->hash, put->hash) != 0 || put->total != upload->total ||
        put->offset != upload->have || bytes->count > upload->total - upload->have) {
        peer_error(peer, "bad_request", "", "stage_put: these are not the next bytes");
        stage_drop(peer);
        return;
    }
    written = pwrite(upload->fd, bytes->items, bytes->count, (off_t)upload->have);
    if (written != (ssize_t)bytes->count) {
        fail(peer, "cannot write it to the disk", written < 0 ? errno : ENOSPC);
        return;
    }
    stage_digest_add(upload->digest, bytes->items, bytes->count);
    upload->have += bytes->count;
    if (upload->have == upload->total)
        finish(peer);
    else
        answer_state(peer, put->hash, upload->have, false);
}

void stage_put(struct peer *peer, const struct msg_stage_put *put)
{
    if (!stage_is_hash(put->hash)) {
        peer_error(peer, "bad_request", "", "stage_put: the hash is not SHA-256 in hex");
        return;
    }
    if (touch(peer->server, put->hash)) {
        stage_drop(peer);
        answer_state(peer, put->hash, put->total, true);
        return;
    }
    if (put->bytes.count > 0) {
        take_bytes(peer, put);
        return;
    }
    begin(peer, put);
    if (peer->upload != NULL)
        answer_state(peer, put->hash, 0, false);
}

void stage_get(struct peer *peer, const struct msg_stage_get *get)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_DATA};
    struct msg_stage_data *data = &msg.stage_data;
    uint8_t *bytes = malloc(STAGE_CHUNK_BYTES_MAX);
    struct stat info = {0};
    struct err none;
    char path[4200];
    ssize_t got = -1;
    int fd = -1;

    archive_path(peer->server, get->hash, path);
    if (bytes != NULL && stage_is_hash(get->hash) && touch(peer->server, get->hash))
        (void)own_file_open(path, 1, O_RDONLY, 0, &fd, &none);
    if (fd >= 0 && fstat(fd, &info) == 0)
        got = pread(fd, bytes, STAGE_CHUNK_BYTES_MAX, (off_t)get->offset);
    data->hash = get->hash;
    data->offset = get->offset;
    data->problem = got < 0 ? "the server does not have the staged directory any more" : "";
    if (got >= 0) {
        data->total = (uint64_t)info.st_size;
        data->bytes = (struct msg_bytes){.items = bytes, .count = (uint32_t)got};
    }
    peer_send(peer, &msg);
    if (fd >= 0)
        (void)close(fd);
    free(bytes);
}

bool stage_check_cwd(struct peer *peer, const char *cwd)
{
    char hash[STAGE_HASH_CHARS + 1];

    if (cwd[0] == '/')
        return true;
    if (!stage_of_cwd(cwd, hash))
        peer_error(peer, "bad_request", "give an absolute path",
                   "the working directory '%.200s' is not an absolute path", cwd);
    else if (!touch(peer->server, hash))
        peer_error(peer, "not_found", "submit with --stage DIR, which sends it",
                   "the server does not have the staged directory %.16s... of this job", hash);
    else
        return true;
    return false;
}
