/* Each broken input of tests/fuzz/malformed.c is refused with an error text; the valid messages
 * that they were made from are accepted. */
#include "tests/fuzz/malformed.h"

#include <stdio.h>
#include <string.h>

#include "common/arena.h"
#include "common/frame.h"
#include "common/limits.h"
#include "common/msg.h"
#include "tests/lib/test.h"

#define NAMES_MAX 2000

struct seen {
    char names[NAMES_MAX][64];
    size_t count, refused;
};

/* Processes the stream as a server does; returns the status of the first failure. */
static enum status take(const struct malformed *input, struct err *err)
{
    struct arena arena = {0};
    size_t payload_bytes;
    const char *payload;
    struct msg msg;
    enum status status = frame_next(input->bytes, input->byte_count, FRAME_LARGE_BYTES_MAX,
                                    &payload, &payload_bytes, err);

    if (status == STATUS_OK)
        status = msg_decode(payload, payload_bytes, &arena, &msg, err);
    arena_reset(&arena);
    return status;
}

static void check(const struct malformed *input, void *context)
{
    struct seen *seen = context;
    struct err err = {.text = ""};
    enum status status = take(input, &err);

    CHECK(seen->count < NAMES_MAX && strlen(input->name) < sizeof seen->names[0]);
    CHECK_EQ(strspn(input->name, "abcdefghijklmnopqrstuvwxyz0123456789_.-"), strlen(input->name));
    for (size_t i = 0; i < seen->count; i++)
        if (strcmp(seen->names[i], input->name) == 0)
            FAIL("%s is there twice", input->name);
    (void)snprintf(seen->names[seen->count++], sizeof seen->names[0], "%s", input->name);
    if (input->is_cut) {
        CHECK_EQ(status, STATUS_BUSY);
        return;
    }
    if (status != STATUS_BAD_INPUT && status != STATUS_TOO_BIG)
        FAIL("%s: %s", input->name, status_name(status));
    if (strlen(err.text) < 10)
        FAIL("%s: \"%s\" says too little", input->name, err.text);
    seen->refused++;
}

TEST(each_is_refused_with_a_sentence)
{
    static struct seen seen;
    size_t count = malformed_each(check, &seen);

    CHECK_EQ(count, seen.count);
    (void)printf("# %zu inputs refused\n", seen.refused);
    CHECK(seen.refused >= 300);
}

TEST(what_they_were_made_from_is_taken)
{
    static const char *const good[] = {
        "{\"type\":\"client_hello\",\"protocol\":1,\"version\":\"\\ud83d\\ude00\"}",
        " {\"type\" : \"node_list\",\r\n\t\"all\":true,\"node\":\"\",\"after\":\"\",\"limit\":1} ",
        "{\"type\":\"beat\",\"sent_us\":\"1\",\"shims\":[{\"job_id\":\"1\","
        "\"generation\":1,\"phase\":\"running\",\"slot_mask\":\"1\",\"unseen\":false}],\"closed\":["
        "],\"leaving\":"
        "false,\"warm\":[{\"job_id\":\"1\",\"state\":\"ready\"}],\"silent\":[]}",
        "{\"type\":\"submit\",\"request_id\":\"0123456789abcdef0123456789abcdef\","
        "\"name\":\"r50\",\"nodes\":1,\"nproc_per_node\":1,\"max_restarts\":0,"
        "\"restarts_given\":true,\"grace_us\":\"1\","
        "\"time_limit_us\":\"0\",\"priority\":0,\"wait_for_nodes\":false,"
        "\"nodes_min\":0,\"spares\":0,\"replace_stragglers\":false,\"hang_timeout_us\":\"0\","
        "\"warn_us\":\"0\",\"warn_signal\":0,\"requeue_at_limit\":false,\"after\":\"\",\"array\":"
        "\"\","
        "\"cwd\":\"/\","
        "\"argv\":[\"true\"],\"env\":{\"A\":\"1\"},\"launch\":{\"role\":\"x\"}}",
        "{\"type\":\"world\",\"job_id\":\"1\",\"generation\":1,\"blob\":\"QUJD\"}",
        "{\"type\":\"cancel\",\"job\":\"1\",\"signal\":15,\"grace_us\":\"-1\"}",
    };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct err err = {.text = ""};
        struct arena arena = {0};
        struct msg msg;

        if (msg_decode(good[i], strlen(good[i]), &arena, &msg, &err) != STATUS_OK)
            FAIL("%s: %s", good[i], err.text);
        arena_reset(&arena);
    }
}

TEST_MAIN
