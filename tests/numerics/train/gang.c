#include "tests/numerics/train/gang.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/limits.h"
#include "common/msg.h"
#include "common/msg_version.h"
#include "tests/lib/test.h"
#include "worker/data/fileio.h"

enum { JOB_ID = 77 };

static char output[1 << 20];
static size_t output_bytes;

const char *gang_output(void)
{
    return output;
}

static void set_number(const char *name, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    (void)setenv(name, text, 1); /* NOLINT(concurrency-mt-unsafe): in the child */
}

static void set_place(const struct gang *gang, uint32_t rank, int shim_fd)
{
    (void)setenv("OMP_NUM_THREADS", "1", 1); /* NOLINT(concurrency-mt-unsafe): in the child */
    if (!gang->has_shim)
        return;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", gang->world);
    set_number("LOCAL_WORLD_SIZE", gang->world);
    set_number("DDP_JOB_ID", JOB_ID);
    set_number("DDP_GENERATION", gang->generation);
    set_number("DDP_SHIM_FD", (uint64_t)shim_fd);
    set_number("DDP_SHIM_PROTOCOL", PROTOCOL_VERSION);
    (void)setenv("DDP_NODE_ADDRESS", "127.0.0.1", 1); /* NOLINT(concurrency-mt-unsafe): as above */
}

const char *gang_last_args;

__attribute__((noreturn)) static void run_child(const struct gang *gang, uint32_t rank, int shim_fd,
                                                int output_fd, const char *args)
{
    static char words[4096];
    char *argv[GANG_ARGS_MAX + 2], *rest = words, *word;
    int argc = 0;

    (void)snprintf(words, sizeof words, "%s %s", args,
                   gang_last_args != NULL && rank + 1 == gang->world ? gang_last_args : "");
    for (char *mark = words; (mark = strstr(mark, "%R")) != NULL;) {
        *mark = (char)('0' + rank);
        (void)memmove(mark + 1, mark + 2, strlen(mark + 2) + 1);
    }
    argv[argc++] = (char[]){DDP_WORKER};
    while (argc <= GANG_ARGS_MAX && (word = strtok_r(argc == 1 ? words : NULL, " ", &rest)) != NULL)
        argv[argc++] = word;
    argv[argc] = NULL;
    set_place(gang, rank, shim_fd);
    if (shim_fd >= 0)
        (void)fcntl(shim_fd, F_SETFD, 0);
    (void)dup2(output_fd, STDOUT_FILENO);
    (void)dup2(output_fd, STDERR_FILENO);
    (void)execv(argv[0], argv);
    _exit(127);
}

static void start_rank(struct gang *gang, uint32_t rank, const char *args)
{
    int shim[2] = {-1, -1}, out[2];

    CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    if (gang->has_shim)
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, shim), 0);
    gang->pids[rank] = fork();
    CHECK(gang->pids[rank] >= 0);
    if (gang->pids[rank] == 0)
        run_child(gang, rank, shim[1], out[1], args);
    (void)close(out[1]);
    if (gang->has_shim)
        (void)close(shim[1]);
    gang->fds[rank] = shim[0];
    gang->outputs[rank] = out[0];
}

void gang_start(struct gang *gang, uint32_t world, bool has_shim, uint32_t generation,
                const char *args)
{
    CHECK(world <= GANG_RANKS_MAX && (world == 1 || has_shim));
    *gang = (struct gang){.world = world, .generation = generation, .has_shim = has_shim};
    output_bytes = 0;
    output[0] = '\0';
    for (uint32_t rank = 0; rank < world; rank++)
        start_rank(gang, rank, args);
}

/* -- as the shim -- */

/* Reads exactly one message. False at the end of the stream. */
static bool read_message(int fd, struct arena *arena, struct msg *msg)
{
    static char bytes[FRAME_HEAD_BYTES + FRAME_BYTES_MAX];
    struct msg_protocols protocols = {PROTOCOL_VERSION, 1}; /* a worker does not say its version */
    const char *payload;
    size_t have = 0, payload_bytes;
    struct err err = {0};
    enum status status;

    while ((status = frame_next(bytes, have, FRAME_BYTES_MAX, &payload, &payload_bytes, &err)) ==
           STATUS_BUSY) {
        size_t want = have < FRAME_HEAD_BYTES ? FRAME_HEAD_BYTES - have : 1;
        ssize_t n = recv(fd, bytes + have, want, 0);
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    if (status != STATUS_OK ||
        msg_decode_between(payload, payload_bytes, &protocols, arena, msg, &err) != STATUS_OK)
        FAIL("a message of the worker: %s", err.text);
    return true;
}

static void send_world(const struct gang *gang, const uint8_t *blob, uint32_t blob_bytes)
{
    struct msg msg = {.type = MSG_TYPE_WORLD};
    struct buf out = {0};

    msg.world.job_id = JOB_ID;
    msg.world.generation = gang->generation;
    msg.world.blob = (struct msg_bytes){blob, blob_bytes};
    CHECK_EQ(msg_encode(&msg, &out, NULL), STATUS_OK);
    for (uint32_t rank = 0; rank < gang->world; rank++)
        CHECK_EQ(send(gang->fds[rank], out.bytes, out.byte_count, MSG_NOSIGNAL), out.byte_count);
    buf_free(&out);
}

bool gang_meet(struct gang *gang)
{
    uint8_t blob[BLOB_BYTES_MAX];
    uint32_t blob_bytes = 0;

    for (uint32_t rank = 0; rank < gang->world; rank++) {
        struct arena arena = {0};
        struct msg msg;
        if (!read_message(gang->fds[rank], &arena, &msg))
            return false;
        CHECK_EQ(msg.type, MSG_TYPE_WORKER_JOIN);
        CHECK_EQ(msg.worker_join.rank, rank);
        CHECK_EQ(msg.worker_join.generation, gang->generation);
        if (rank == 0) {
            blob_bytes = msg.worker_join.blob.count;
            memcpy(blob, msg.worker_join.blob.items, blob_bytes);
        }
        arena_reset(&arena);
    }
    send_world(gang, blob, blob_bytes);
    return true;
}

/* -- output -- */

/* False: that rank's output is at its end. */
static bool read_output(const struct gang *gang, uint32_t rank)
{
    static char ignored[4096];
    char *into = rank == 0 ? output + output_bytes : ignored;
    size_t room = rank == 0 ? sizeof output - 1 - output_bytes : sizeof ignored;
    ssize_t n = read(gang->outputs[rank], into, room);

    if (n <= 0)
        return false;
    if (rank == 0) {
        output_bytes += (size_t)n;
        output[output_bytes] = '\0';
    } else {
        (void)fwrite(ignored, 1, (size_t)n, stderr);
    }
    return true;
}

bool gang_wait_line(struct gang *gang, const char *line)
{
    while (strstr(output, line) == NULL)
        if (!read_output(gang, 0))
            return false;
    return true;
}

static void take_messages(struct gang *gang, uint32_t rank)
{
    struct arena arena = {0};
    struct msg msg;

    while (gang->has_shim && read_message(gang->fds[rank], &arena, &msg)) {
        if (msg.type == MSG_TYPE_PROGRESS) {
            gang->progress_count++;
            gang->progress_step = msg.progress.step;
            CHECK_EQ(msg.progress.job_id, JOB_ID);
            CHECK_EQ(msg.progress.rank, rank);
        } else if (msg.type == MSG_TYPE_WORKER_ERROR) {
            (void)snprintf(gang->error, sizeof gang->error, "%s", msg.worker_error.text);
        }
        arena_reset(&arena);
    }
}

int gang_finish(struct gang *gang)
{
    int first = 0;

    for (uint32_t rank = 0; rank < gang->world; rank++) {
        int ended;
        while (read_output(gang, rank))
            ;
        take_messages(gang, rank);
        CHECK_EQ(waitpid(gang->pids[rank], &ended, 0), gang->pids[rank]);
        int code = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
        if (first == 0)
            first = code;
        (void)close(gang->outputs[rank]);
        if (gang->fds[rank] >= 0)
            (void)close(gang->fds[rank]);
    }
    return first;
}

int gang_run(uint32_t world, const char *args)
{
    struct gang gang;
    int code;

    gang_start(&gang, world, world > 1, 1, args);
    if (world > 1)
        (void)gang_meet(&gang);
    code = gang_finish(&gang);
    if (code != 0)
        (void)fprintf(stderr, "%s", output);
    return code;
}

/* The two checkpoints' files of this kind, "safetensors" or "json". */
static void check_files(const char *a, const char *b, uint32_t step, const char *kind)
{
    char path[512], sums[2][65];
    const char *names[] = {a, b};
    uint64_t bytes[2];
    struct err err = {0};

    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/step-%08u.%s", test_dir(), names[i], step, kind);
        if (fileio_sha256(path, sums[i], &bytes[i], &err) != STATUS_OK)
            FAIL("%s\n%s", err.text, gang_output());
    }
    if (bytes[0] != bytes[1] || strcmp(sums[0], sums[1]) != 0)
        FAIL("step %u: the .%s of %s and %s differ", step, kind, a, b);
}

void gang_check_same(const char *a, const char *b, uint32_t step)
{
    check_files(a, b, step, "safetensors");
}

static void run_part(const struct gang_resume *resume, const char *folder, const char *more)
{
    char args[2048];

    (void)snprintf(args, sizeof args, "%s --checkpoint-dir %s/%s-%s %s", resume->args, test_dir(),
                   resume->name, folder, more);
    if (gang_run(resume->world, args) != 0)
        FAIL("%s", args);
}

void gang_check_resume(const struct gang_resume *resume)
{
    char more[256], folders[2][64];
    uint32_t done = 0;

    assert(resume->cuts[0] > 0 && resume->end_step > resume->cuts[0]);
    run_part(resume, "whole", resume->end_args);
    for (size_t i = 0; done != resume->end_step; i++) {
        const uint32_t cut = i < sizeof resume->cuts / sizeof resume->cuts[0] ? resume->cuts[i] : 0;

        if (cut != 0)
            (void)snprintf(more, sizeof more, "--resume auto --max-steps %u", cut);
        else
            (void)snprintf(more, sizeof more, "--resume auto %s", resume->end_args);
        run_part(resume, "cut", more);
        (void)snprintf(more, sizeof more, "resumed at step %u", done);
        if (done != 0 && strstr(gang_output(), more) == NULL)
            FAIL("not %s: %s", more, gang_output());
        done = cut != 0 ? cut : resume->end_step;
    }
    (void)snprintf(folders[0], sizeof folders[0], "%s-whole", resume->name);
    (void)snprintf(folders[1], sizeof folders[1], "%s-cut", resume->name);
    gang_check_same(folders[0], folders[1], resume->end_step);
    check_files(folders[0], folders[1], resume->end_step, "json");
}
