/* What threads do with the archives of staged working directories (stage.c), on a disk that may never answer. */
#ifndef RENDEZVOUS_SERVER_STAGE_FILES_H
#define RENDEZVOUS_SERVER_STAGE_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/io/file_work.h"
#include "common/stage.h"

#define STAGE_TOTAL_BYTES_MAX (8ull << 30) /* of all archives; further uploads are refused */

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

/* How a piece of work has ended. */
enum stage_outcome {
    STAGE_MISSING,  /* there is no such archive */
    STAGE_COMPLETE, /* the archive is there */
    STAGE_TAKEN,    /* the bytes are written, or the upload has begun */
    STAGE_WANTS,    /* `used` is needed first */
    STAGE_FULL,     /* no room */
    STAGE_OTHER,    /* the bytes are not those of the hash */
    STAGE_UNBEGUN,  /* these bytes belong to no upload */
    STAGE_FAILED,   /* `doing` and `code` */
};

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
    uint64_t total, serial, bytes_to_come;
    uint8_t *bytes; /* to be written, or as read */
    uint32_t byte_count;
    uint64_t held_bytes; /* what the work holds of the server's memory */
    /* The archives of jobs that have not ended, ascending; NULL: not asked for yet. */
    char (*used)[STAGE_HASH_CHARS + 1];
    uint32_t used_count;
    uint64_t offset; /* of a read */
    void *context;   /* of a check */
    /* The result. */
    enum stage_outcome outcome;
    const char *doing;
    int code;
    struct err err; /* of stage_files_open */
};

/* Makes the folder, and removes what an earlier server has left of uploads. `err` says whether it failed. */
void stage_files_open(struct file_work *work);
/* Takes a piece of an upload: begins one if there are no bytes; publishes the archive with the last byte. An archive that is
 * there already is COMPLETE. */
void stage_files_put(struct file_work *work);
/* Ends an upload that is not published, and removes its file. */
void stage_files_abandon(struct file_work *work);
/* Reads a piece of an archive. */
void stage_files_get(struct file_work *work);
/* Whether the archive is there. This counts as a use. */
void stage_files_check(struct file_work *work);
/* Closes and frees an upload; its file stays. */
void stage_upload_free(struct stage_upload *upload);

#endif
