/* The wire format of comm: encoded data decodes to the same; changed data is refused and never
 * crashes. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/comm/wire.h"

static struct comm_identity identity_of(void)
{
    struct comm_identity identity = {
        .job_id = UINT64_C(0xfedcba9876543210), .generation = 42, .world = 8};

    for (uint32_t i = 0; i < COMM_SECRET_BYTES; i++)
        identity.secret[i] = (uint8_t)(i * 17 + 1);
    return identity;
}

TEST(blob_there_and_back)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "10.200.30.4",
                                        "2001:0db8:1111:2222:3333:4444:255.255.255.255"};

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct comm_identity identity = identity_of(), decoded;
        struct comm_place place = {.port = 65535}, decoded_place;
        struct comm_blob blob;

        (void)snprintf(place.host, sizeof place.host, "%s", hosts[i]);
        comm_blob_encode(&identity, &place, &blob);
        CHECK(blob.byte_count <= COMM_BLOB_BYTES_MAX);
        CHECK_EQ(comm_blob_decode(&blob, &decoded, &decoded_place, NULL), STATUS_OK);
        CHECK(comm_identity_equal(&identity, &decoded));
        CHECK_STR(decoded_place.host, hosts[i]);
        CHECK_EQ(decoded_place.port, 65535);
    }
}

TEST(bent_blobs_are_refused)
{
    struct comm_identity identity = identity_of(), decoded;
    struct comm_place place = {.host = "127.0.0.1", .port = 1}, decoded_place;
    struct comm_blob blob, bent;
    struct err err;

    comm_blob_encode(&identity, &place, &blob);
    for (uint32_t length = 0; length <= 40; length++) {
        bent = blob;
        bent.byte_count = length;
        CHECK_EQ(comm_blob_decode(&bent, &decoded, &decoded_place, &err), STATUS_BAD_INPUT);
    }
    bent = blob;
    bent.byte_count = COMM_BLOB_BYTES_MAX + 1;
    CHECK_EQ(comm_blob_decode(&bent, &decoded, &decoded_place, &err), STATUS_BAD_INPUT);
    bent.byte_count = COMM_BLOB_BYTES_MAX; /* an address that is too long */
    CHECK_EQ(comm_blob_decode(&bent, &decoded, &decoded_place, &err), STATUS_BAD_INPUT);
    for (uint32_t i = 0; i < blob.byte_count;
         i++) { /* any value, no crash; a decoded one is in range */
        bent = blob;
        for (uint32_t value = 0; value < 256; value++) {
            bent.bytes[i] = (uint8_t)value;
            if (comm_blob_decode(&bent, &decoded, &decoded_place, &err) == STATUS_OK)
                CHECK(decoded.world >= 1 && decoded.world <= COMM_WORLD_MAX &&
                      decoded_place.port != 0 && strlen(decoded_place.host) > 0);
        }
    }
    bent = blob;
    bent.bytes[4] = 1; /* without `busy` in notes */
    CHECK_EQ(comm_blob_decode(&bent, &decoded, &decoded_place, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "version 1") != NULL);
}

TEST(hello_there_and_back)
{
    struct comm_hello hello = {.kind = COMM_HELLO_MESH,
                               .rank = 7,
                               .identity = identity_of(),
                               .place = {.host = "::1", .port = 3000}};
    struct comm_hello decoded;
    uint8_t bytes[COMM_HELLO_BYTES];

    comm_hello_encode(&hello, bytes);
    CHECK(comm_hello_decode(bytes, &decoded));
    CHECK(comm_identity_equal(&hello.identity, &decoded.identity));
    CHECK_EQ(decoded.kind, COMM_HELLO_MESH);
    CHECK_EQ(decoded.rank, 7);
    CHECK_STR(decoded.place.host, "::1");
    CHECK_EQ(decoded.place.port, 3000);
    hello.rank = 8; /* = world */
    comm_hello_encode(&hello, bytes);
    CHECK(!comm_hello_decode(bytes, &decoded));
    memset(bytes, 0xff, sizeof bytes);
    CHECK(!comm_hello_decode(bytes, &decoded));
}

TEST(identities_differ_in_each_field)
{
    for (uint32_t i = 0; i < 4 + COMM_SECRET_BYTES; i++) {
        struct comm_identity a = identity_of(), b = identity_of();

        CHECK(comm_identity_equal(&a, &b));
        if (i == 0)
            b.job_id++;
        else if (i == 1)
            b.generation++;
        else if (i == 2)
            b.world++;
        else if (i >= 4)
            b.secret[i - 4] ^= 1;
        CHECK_EQ(comm_identity_equal(&a, &b), i == 3);
    }
}

TEST(notes_there_and_back)
{
    for (uint32_t type = 0; type < COMM_NOTE_TYPES; type++) {
        struct comm_note note = {.type = (enum comm_note_type)type,
                                 .why = COMM_WHY_STALLED,
                                 .rank = type == 0 ? COMM_RANK_NONE : 3,
                                 .seq = UINT64_MAX - type,
                                 .busy = type % 2 == 0};
        struct comm_note decoded;
        uint8_t bytes[COMM_NOTE_BYTES];

        comm_note_encode(&note, bytes);
        CHECK(comm_note_decode(bytes, &decoded));
        CHECK_EQ(decoded.type, note.type);
        CHECK_EQ(decoded.why, note.why);
        CHECK_EQ(decoded.rank, note.rank);
        CHECK_EQ(decoded.seq, note.seq);
        CHECK_EQ(decoded.busy, note.busy);
        bytes[16] = 2;
        CHECK(!comm_note_decode(bytes, &decoded));
        bytes[16] = 0;
        bytes[1] = COMM_NOTE_TYPES;
        CHECK(!comm_note_decode(bytes, &decoded));
        bytes[1] = 0;
        bytes[2] = COMM_WHYS;
        CHECK(!comm_note_decode(bytes, &decoded));
        bytes[2] = 0;
        bytes[0] ^= 1;
        CHECK(!comm_note_decode(bytes, &decoded));
    }
}

TEST_MAIN
