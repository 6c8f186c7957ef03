/* The files by which launcherd finds a shim again after a restart, with any content: refused with a
 * sentence, or what was read is written and read again as the same. The first byte says which file. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/buf.h"
#include "launcherd/process/rundir.h"
#include "tests/fuzz/msg_random.h"
#include "tests/fuzz/target.h"

static char base[64], folder[128]; /* a state directory, and a run directory in it */

static void remove_folder(void)
{
    rundir_remove_all(AT_FDCWD, base);
}

static void make_folder(void)
{
    const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* many writes */
    struct err err;

    if (folder[0] != '\0')
        return;
    (void)snprintf(base, sizeof base, "%s/ddp-fuzz-XXXXXX", top);
    FUZZ_CHECK(mkdtemp(base) != NULL);
    (void)snprintf(folder, sizeof folder, "%s/run/c-7-g1", base);
    FUZZ_CHECK(rundir_make(folder, 0700, &err) == STATUS_OK);
    FUZZ_CHECK(atexit(remove_folder) == 0);
}

static const char shim_json[] =
    "s{\"pid\":4711,\"start_ticks\":\"123456789\",\"boot_id\":\"0f1e2d3c-0000-4000-8000-"
    "1a2b3c4d5e6f\","
    "\"token\":\"0123456789abcdef0123456789abcdef\",\"cgroup\":\"/sys/fs/cgroup/ddp/c-7-g1\"}";
static const char *const shims[] = {
    shim_json,
    "s{\"pid\":1,\"start_ticks\":\"18446744073709551616\",\"boot_id\":\"\",\"token\":\"\"}",
    "s{\"pid\":2147483648,\"start_ticks\":\"1\",\"boot_id\":\"b\",\"token\":\"t\",\"cgroup\":7}",
    "s{\"pid\":1.5,\"start_ticks\":\"-1\",\"boot_id\":\"b\",\"token\":\"t\",\"other\":[{}]}",
    "s[]",
};

void fuzz_corpus(fuzz_add *add)
{
    struct random random = {.state = 12};

    for (uint32_t i = 0; i < 400; i++) {
        const char *text = shims[i % (sizeof shims / sizeof shims[0])];
        struct arena arena = {0};
        struct buf buf = {0};
        struct msg msg;

        add(text, strlen(text));
        msg_random(&random, &arena, i % 8 == 0 ? MSG_TYPE_SHIM_REPORT : MSG_TYPE_START, &msg);
        buf_add(&buf, "m", 1);
        FUZZ_CHECK(msg_encode(&msg, &buf, NULL) == STATUS_OK);
        if (buf.byte_count < 8192)
            add(buf.bytes, buf.byte_count);
        buf_free(&buf);
        arena_reset(&arena);
    }
}

static void check_shim(void)
{
    struct rundir_shim shim, again;
    struct err err = {.text = ""};

    memset(&shim, 0, sizeof shim);
    memset(&again, 0, sizeof again);
    if (rundir_read_shim(folder, &shim, &err) != STATUS_OK) {
        FUZZ_CHECK(strstr(err.text, "shim.json") != NULL);
        return;
    }
    FUZZ_CHECK(shim.pid >= 1);
    if (rundir_write_shim(folder, &shim, &err) != STATUS_OK)
        return; /* its text is no UTF-8, say */
    FUZZ_CHECK(rundir_read_shim(folder, &again, &err) == STATUS_OK);
    FUZZ_CHECK(shim.pid == again.pid && shim.start_ticks == again.start_ticks);
    FUZZ_CHECK(strcmp(shim.boot_id, again.boot_id) == 0 && strcmp(shim.token, again.token) == 0);
    FUZZ_CHECK(strcmp(shim.cgroup, again.cgroup) == 0);
}

static void check_start(void)
{
    struct arena arena = {0}, arena_again = {0};
    struct buf once = {0}, twice = {0};
    struct msg msg, again;
    struct err err = {.text = ""};

    if (rundir_read_msg(folder, "start.msg", &arena, &msg, &err) != STATUS_OK) {
        FUZZ_CHECK(err.text[0] != '\0');
    } else if (rundir_write_msg(folder, "start.msg", &msg, &err) == STATUS_OK) {
        FUZZ_CHECK(rundir_read_msg(folder, "start.msg", &arena_again, &again, &err) == STATUS_OK);
        FUZZ_CHECK(msg_encode(&msg, &once, &err) == STATUS_OK);
        FUZZ_CHECK(msg_encode(&again, &twice, &err) == STATUS_OK);
        FUZZ_CHECK(once.byte_count == twice.byte_count &&
                   memcmp(once.bytes, twice.bytes, once.byte_count) == 0);
    }
    buf_free(&once);
    buf_free(&twice);
    arena_reset(&arena);
    arena_reset(&arena_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct err err;
    bool is_shim;

    if (byte_count == 0)
        return 0;
    make_folder();
    is_shim = data[0] % 2 == 's' % 2;
    FUZZ_CHECK(rundir_write(folder, is_shim ? "shim.json" : "start.msg", data + 1, byte_count - 1,
                            &err) == STATUS_OK);
    if (is_shim)
        check_shim();
    else
        check_start();
    return 0;
}
