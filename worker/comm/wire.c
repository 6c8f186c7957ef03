/* Encoders and decoders of the messages between ranks. See wire.h. */
#include "worker/comm/wire.h"

#include <assert.h>
#include <string.h>

#define BLOB_MAGIC 0x42504444U  /* "DDPB" */
#define HELLO_MAGIC 0x48504444U /* "DDPH" */
#define NOTE_MAGIC 0xd4U
#define WIRE_VERSION 2U
#define BLOB_FIXED_BYTES 40 /* without the address */

/* A position in a buffer whose size the caller has checked. */
struct cursor {
    uint8_t *out;
    const uint8_t *in;
};

static void put(struct cursor *cursor, uint64_t value, uint32_t byte_count)
{
    for (uint32_t i = 0; i < byte_count; i++)
        *cursor->out++ = (uint8_t)(value >> (8 * i));
}

static uint64_t take(struct cursor *cursor, uint32_t byte_count)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < byte_count; i++)
        value |= (uint64_t)*cursor->in++ << (8 * i);
    return value;
}

static void put_bytes(struct cursor *cursor, const void *bytes, size_t byte_count)
{
    memcpy(cursor->out, bytes, byte_count);
    cursor->out += byte_count;
}

static void take_bytes(struct cursor *cursor, void *bytes, size_t byte_count)
{
    memcpy(bytes, cursor->in, byte_count);
    cursor->in += byte_count;
}

/* Whether `host` has only characters of a numeric address, perhaps with a zone. */
static bool is_host(const char *host, size_t length)
{
    static const char allowed[] = "0123456789abcdefABCDEF:.";

    if (length == 0 || length >= COMM_HOST_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (host[i] == '\0' || strchr(allowed, host[i]) == NULL)
            return false;
    return true;
}

void comm_blob_encode(const struct comm_identity *identity, const struct comm_place *place,
                      struct comm_blob *blob)
{
    struct cursor cursor = {.out = blob->bytes};
    size_t length = strlen(place->host);

    assert(is_host(place->host, length));
    memset(blob, 0, sizeof *blob);
    put(&cursor, BLOB_MAGIC, 4);
    put(&cursor, WIRE_VERSION, 2);
    put(&cursor, place->port, 2);
    put(&cursor, identity->job_id, 8);
    put(&cursor, identity->generation, 4);
    put(&cursor, identity->world, 4);
    put_bytes(&cursor, identity->secret, COMM_SECRET_BYTES);
    put_bytes(&cursor, place->host, length);
    blob->byte_count = (uint32_t)(cursor.out - blob->bytes);
}

enum status comm_blob_decode(const struct comm_blob *blob, struct comm_identity *identity,
                             struct comm_place *place, struct err *err)
{
    struct cursor cursor = {.in = blob->bytes};
    size_t length;
    uint64_t version;

    if (blob->byte_count <= BLOB_FIXED_BYTES || blob->byte_count > sizeof blob->bytes ||
        take(&cursor, 4) != BLOB_MAGIC)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the meeting point that rank 0 announced is not one (%u bytes)",
                       blob->byte_count);
    version = take(&cursor, 2);
    if (version != WIRE_VERSION)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "rank 0 announced its meeting point in version %u, this program knows %u: "
                       "run the same program on all nodes",
                       (unsigned)version, WIRE_VERSION);
    place->port = (uint16_t)take(&cursor, 2);
    identity->job_id = take(&cursor, 8);
    identity->generation = (uint32_t)take(&cursor, 4);
    identity->world = (uint32_t)take(&cursor, 4);
    take_bytes(&cursor, identity->secret, COMM_SECRET_BYTES);
    length = blob->byte_count - BLOB_FIXED_BYTES;
    if (place->port == 0 || identity->world == 0 || identity->world > COMM_WORLD_MAX ||
        !is_host((const char *)cursor.in, length))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the meeting point that rank 0 announced has a field out of range");
    memset(place->host, 0, sizeof place->host);
    take_bytes(&cursor, place->host, length);
    return STATUS_OK;
}

void comm_place_encode(const struct comm_place *place, uint8_t bytes[COMM_PLACE_BYTES])
{
    struct cursor cursor = {.out = bytes};

    put(&cursor, place->port, 2);
    put_bytes(&cursor, place->host, COMM_HOST_BYTES);
}

bool comm_place_decode(const uint8_t bytes[COMM_PLACE_BYTES], struct comm_place *place)
{
    struct cursor cursor = {.in = bytes};

    place->port = (uint16_t)take(&cursor, 2);
    take_bytes(&cursor, place->host, COMM_HOST_BYTES);
    return place->port != 0 && is_host(place->host, strnlen(place->host, COMM_HOST_BYTES));
}

void comm_hello_encode(const struct comm_hello *hello, uint8_t bytes[COMM_HELLO_BYTES])
{
    struct cursor cursor = {.out = bytes};

    put(&cursor, HELLO_MAGIC, 4);
    put(&cursor, WIRE_VERSION, 2);
    put(&cursor, (uint64_t)hello->kind, 2);
    put(&cursor, hello->rank, 4);
    put(&cursor, hello->identity.world, 4);
    put(&cursor, hello->identity.job_id, 8);
    put(&cursor, hello->identity.generation, 4);
    put_bytes(&cursor, hello->identity.secret, COMM_SECRET_BYTES);
    assert(cursor.out + COMM_PLACE_BYTES == bytes + COMM_HELLO_BYTES);
    comm_place_encode(&hello->place, cursor.out);
}

bool comm_hello_decode(const uint8_t bytes[COMM_HELLO_BYTES], struct comm_hello *hello)
{
    struct cursor cursor = {.in = bytes};
    uint64_t kind;

    if (take(&cursor, 4) != HELLO_MAGIC || take(&cursor, 2) != WIRE_VERSION)
        return false;
    kind = take(&cursor, 2);
    hello->kind = kind == COMM_HELLO_MESH ? COMM_HELLO_MESH : COMM_HELLO_STAR;
    hello->rank = (uint32_t)take(&cursor, 4);
    hello->identity.world = (uint32_t)take(&cursor, 4);
    hello->identity.job_id = take(&cursor, 8);
    hello->identity.generation = (uint32_t)take(&cursor, 4);
    take_bytes(&cursor, hello->identity.secret, COMM_SECRET_BYTES);
    return kind <= COMM_HELLO_MESH && hello->identity.world <= COMM_WORLD_MAX &&
           hello->rank < hello->identity.world && comm_place_decode(cursor.in, &hello->place);
}

void comm_note_encode(const struct comm_note *note, uint8_t bytes[COMM_NOTE_BYTES])
{
    struct cursor cursor = {.out = bytes};

    put(&cursor, NOTE_MAGIC, 1);
    put(&cursor, (uint64_t)note->type, 1);
    put(&cursor, (uint64_t)note->why, 2);
    put(&cursor, note->rank, 4);
    put(&cursor, note->seq, 8);
    put(&cursor, note->busy, 4);
    assert(cursor.out == bytes + COMM_NOTE_BYTES);
}

bool comm_note_decode(const uint8_t bytes[COMM_NOTE_BYTES], struct comm_note *note)
{
    struct cursor cursor = {.in = bytes};
    uint64_t magic = take(&cursor, 1);
    uint64_t type = take(&cursor, 1);
    uint64_t why = take(&cursor, 2), busy;

    note->rank = (uint32_t)take(&cursor, 4);
    note->seq = take(&cursor, 8);
    busy = take(&cursor, 4);
    if (magic != NOTE_MAGIC || type >= COMM_NOTE_TYPES || why >= COMM_WHYS || busy > 1 ||
        (note->rank > COMM_WORLD_MAX && note->rank != COMM_RANK_NONE))
        return false;
    note->type = (enum comm_note_type)type;
    note->why = (enum comm_why)why;
    note->busy = busy != 0;
    return true;
}

bool comm_identity_equal(const struct comm_identity *a, const struct comm_identity *b)
{
    volatile uint8_t difference = 0;

    for (size_t i = 0; i < COMM_SECRET_BYTES; i++)
        difference |= (uint8_t)(a->secret[i] ^ b->secret[i]);
    return difference == 0 && a->job_id == b->job_id && a->generation == b->generation &&
           a->world == b->world;
}
