/* What threads do with the archives of staged working directories (stage.c), on a disk that may never answer. */
#ifndef RENDEZVOUS_SERVER_STAGE_FILES_H
#define RENDEZVOUS_SERVER_STAGE_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/io/file_work.h"
#include "common/stage.h"
#include "rendezvous/store/store.h"

#define STAGE_TOTAL_BYTES_MAX (8ull << 30) /* of all archives; further uploads are refused */
/* An archive that no job names is kept that long after its last use: its submit follows within moments. */
#define STAGE_KEEP_FULL_MS (600 * (int64_t)1000)

/* One upload. While a thread has it (`is_busy`), the loop only reads `hash`, `total` and `have`. */
struct stage_upload {
    int fd;
    uint64_t total, have;
    struct stage_digest *digest;
    char hash[STAGE_HASH_CHARS + 1];
    char path[4200]; /* of the .part file; empty: there is none */
    bool is_busy;
    bool is_orphan; /* its connection has dropped it: whoever has it ends it */
};

/* What a node reads, piece after piece. While a thread has it, the loop does not. */
struct stage_reading {
    char hash[STAGE_HASH_CHARS + 1];
    uint64_t have;
    struct stage_digest *digest; /* of these bytes; NULL: not made yet */
};

/* How a piece of work has ended. */
enum stage_outcome {
    STAGE_MISSING,  /* there is no such archive */
    STAGE_COMPLETE, /* the archive is there */
    STAGE_TAKEN,    /* the bytes are written, or the upload has begun */
    STAGE_WANTS,    /* `used` is needed first */
    STAGE_FULL,     /* no room, or none for this user: `is_share` */
    STAGE_OTHER,    /* the bytes are not those of the hash */
    STAGE_DAMAGED,  /* the archive did not have its hash; it is removed */
    STAGE_UNBEGUN,  /* these bytes belong to no upload */
    STAGE_FAILED,   /* `doing` and `code` */
};

struct server;

/* One piece of work; copies what it needs of the server. */
struct stage_files {
    struct file_work work;
    void *owner; /* the server: for the loop only */
    pthread_t loop_thread;
    uint64_t peer_id;
    char dir[4200];
    char hash[STAGE_HASH_CHARS + 1];
    bool survives_power;
    /* The upload; NULL: none. */
    struct stage_upload *upload;
    uint64_t total, serial;
    /* Whose it is, and what the other uploads that have begun have: of this user, of the others, and of all what is not written yet. */
    char user[USER_NAME_BYTES_MAX];
    uint64_t begun_bytes, begun_others_bytes, bytes_to_come;
    uint8_t *bytes; /* to be written, or as read */
    uint32_t byte_count;
    uint64_t held_bytes; /* what the work holds of the server's memory */
    /* The archives of jobs that have not ended, and of stage_uses.h, ascending; NULL: not asked for yet. */
    struct store_staged *used;
    uint32_t used_count;
    uint64_t offset;               /* of a read */
    struct stage_reading *reading; /* what was read before; NULL: not known */
    bool is_counted;               /* of a check: the archive counts as this user's already */
    void (*lost)(struct server *server, uint64_t peer_id, const char *hash, const char *why);
    /* The result. */
    enum stage_outcome outcome;
    bool is_share;                   /* FULL: this user has too much */
    uint64_t has_bytes, wants_bytes; /* then: what the user has, and the archive */
    uint64_t most_bytes;             /* and what one may have */
    const char *doing;
    int code;
    struct err err; /* of stage_files_open */
};

/* Makes the folder, and removes what an earlier server has left of uploads. `err` says whether it failed. */
void stage_files_open(struct file_work *work);
/* Takes a piece of an upload: begins one if there are no bytes; publishes the archive with the last byte. An archive that is
 * there already is COMPLETE, if this user may have it, too. */
void stage_files_put(struct file_work *work);
/* Ends an upload that is not published, and removes its file. */
void stage_files_abandon(struct file_work *work);
/* Reads a piece of an archive. With the last one it is known whether the archive has its hash: DAMAGED instead of that piece,
 * and the archive is removed, so that it can be sent anew. */
void stage_files_get(struct file_work *work);
/* Whether the archive is there, and this user may have it. Then this counts as a use. */
void stage_files_check(struct file_work *work);
void stage_reading_free(struct stage_reading *reading); /* may be NULL */
/* Closes and frees an upload; its file stays. */
void stage_upload_free(struct stage_upload *upload);

#endif
