/* The file of a job's specification: refused with a sentence that names it, or a request that the wire
 * carries as it is. */
#include <string.h>

#include "common/arena.h"
#include "common/buf.h"
#include "ddpctl/spec.h"
#include "tests/fuzz/target.h"

void fuzz_corpus(fuzz_add *add)
{
    static const char *const examples[] = {
        "{\"name\":\"r50\",\"nodes\":2,\"argv\":[\"python3\",\"a b\"],\"env\":{\"A\":\"1\"}}",
        "{\"argv\":[\"x\"],\"cwd\":\"/x\",\"max_restarts\":0,\"grace\":\"5m\",\"time\":1.5}",
        "{\"argv\":[\"x\"],\"priority\":-5,\"wait_for_nodes\":true,\"schema\":\"ddp.v1\"}",
        "{\"argv\":[],\"nodes\":\"1:1\"}",
        "{\n\"argv\": [\"/bin/true\", \"\xc3\xa9\"],\n\"time\": \"2d\",\n\"nodez\": 1}",
        "{\"argv\":[\"x\"],\"env\":{\"DDP_JOB_ID\":\"1\"}}",
    };

    for (size_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        const char *text = examples[i % (sizeof examples / sizeof examples[0])];

        add(text, strlen(text));
    }
}

static void check_request(const struct spec *spec, struct arena *arena)
{
    struct msg msg = {.type = MSG_TYPE_SUBMIT}, again;
    struct buf out = {0};
    struct err err = {.text = ""};

    if (spec_request(spec, "0123456789abcdef0123456789abcdef", "job", "/", &msg.submit, &err) !=
        STATUS_OK) {
        FUZZ_CHECK(err.text[0] != '\0');
        return;
    }
    if (msg_encode(&msg, &out, &err) == STATUS_OK) {
        FUZZ_CHECK(msg_decode(out.bytes + 4, out.byte_count - 4, arena, &again, &err) == STATUS_OK);
        FUZZ_CHECK(again.submit.nodes == msg.submit.nodes &&
                   again.submit.argv.count == msg.submit.argv.count &&
                   again.submit.time_limit_us == msg.submit.time_limit_us);
    } else {
        FUZZ_CHECK(err.text[0] != '\0');
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static struct arena arena;
    struct spec spec;
    struct err err = {.text = ""};

    spec_init(&spec);
    if (spec_parse(&spec, &arena, "job.json", (const char *)data, byte_count, &err) == STATUS_OK)
        check_request(&spec, &arena);
    else
        FUZZ_CHECK(strncmp(err.text, "job.json", strlen("job.json")) == 0);
    arena_reset(&arena);
    return 0;
}
