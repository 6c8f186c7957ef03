/* Messages between ranks outside the collectives: the blob with the address of rank 0, the hello
 * that opens every connection, and the notes on the star. Pure encoders and decoders; every field
 * is checked. Integers are little-endian. */
#ifndef WORKER_COMM_WIRE_H
#define WORKER_COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"

#define COMM_WORLD_MAX 1024
#define COMM_RANK_NONE UINT32_MAX
#define COMM_SECRET_BYTES 16
#define COMM_HOST_BYTES 46 /* the longest numeric address with its NUL, INET6_ADDRSTRLEN */
#define COMM_HELLO_BYTES 92
#define COMM_NOTE_BYTES 20
#define COMM_PLACE_BYTES 48

/* Two ranks may communicate only if all of this is equal. */
struct comm_identity {
    uint8_t secret[COMM_SECRET_BYTES];
    uint64_t job_id;
    uint32_t generation;
    uint32_t world; /* 1 to COMM_WORLD_MAX */
};

/* Where a rank listens: a numeric address and a port above 0. */
struct comm_place {
    char host[COMM_HOST_BYTES];
    uint16_t port;
};

enum comm_hello_kind {
    COMM_HELLO_STAR, /* to rank 0: bring-up, then liveness */
    COMM_HELLO_MESH  /* between any two: carries collectives */
};

/* The first message on every connection, sent by the side that connects. */
struct comm_hello {
    enum comm_hello_kind kind;
    uint32_t rank; /* the sender, below world */
    struct comm_identity identity;
    struct comm_place place; /* of the sender's own mesh listener */
};

enum comm_note_type {
    /* Heartbeat, both ways, every second.
     *   to rank 0:   the sender `rank` has begun `seq` collectives
     *   from rank 0: `rank` has begun the fewest collectives, `seq` of them
     * `busy`: that rank is in a phase without steps (comm_busy). */
    COMM_NOTE_BEAT,
    /* From rank 0: `rank` is the world size; that many places follow, by rank. */
    COMM_NOTE_ROSTER,
    /* From rank 0, which then closes: the hello was not accepted, see `why`. */
    COMM_NOTE_REFUSED,
    /* From rank 0, which then closes: `seq` ranks did not connect in time, `rank` is the first. */
    COMM_NOTE_ABSENT,
    /* `rank` is lost. From rank 0 to all, or to rank 0 from a rank whose collective timed out.
     * `busy`: as above. */
    COMM_NOTE_LOST,
    /* `rank` leaves in order; it has completed `seq` collectives. */
    COMM_NOTE_LEFT,
    COMM_NOTE_TYPES
};

enum comm_why {
    COMM_WHY_NONE,
    COMM_WHY_CLOSED,   /* the connection was closed by its process or host */
    COMM_WHY_SILENT,   /* no sign of life for COMM_SILENT_US */
    COMM_WHY_STALLED,  /* alive, but did not take part in a collective in time */
    COMM_WHY_STRANGER, /* wrong secret, job, generation or world */
    COMM_WHY_TAKEN,    /* another process has that rank */
    COMM_WHYS
};

struct comm_note {
    enum comm_note_type type;
    enum comm_why why;
    uint32_t rank;
    uint64_t seq;
    bool busy;
};

/* `place` is rank 0's listener. */
void comm_blob_encode(const struct comm_identity *identity, const struct comm_place *place,
                      struct comm_blob *blob);
/* STATUS_BAD_INPUT: not a blob, cut, of another version, or with a field out of range. */
enum status comm_blob_decode(const struct comm_blob *blob, struct comm_identity *identity,
                             struct comm_place *place, struct err *err);

void comm_hello_encode(const struct comm_hello *hello, uint8_t bytes[COMM_HELLO_BYTES]);
/* false: not a hello of this version, or a field out of range. */
bool comm_hello_decode(const uint8_t bytes[COMM_HELLO_BYTES], struct comm_hello *hello);

void comm_note_encode(const struct comm_note *note, uint8_t bytes[COMM_NOTE_BYTES]);
bool comm_note_decode(const uint8_t bytes[COMM_NOTE_BYTES], struct comm_note *note);

void comm_place_encode(const struct comm_place *place, uint8_t bytes[COMM_PLACE_BYTES]);
bool comm_place_decode(const uint8_t bytes[COMM_PLACE_BYTES], struct comm_place *place);

/* The time does not depend on where the secrets differ, so they cannot be guessed byte by byte. */
bool comm_identity_equal(const struct comm_identity *a, const struct comm_identity *b);

#endif
