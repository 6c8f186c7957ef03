#include "launcherd/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/address_reach.h"
#include "common/arena.h"
#include "common/frame.h"
#include "common/io/address_toward.h"
#include "common/io/mono.h"
#include "common/io/write_all.h"
#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/shim/preflight.h"

#define PART_BYTES_MAX 65536u

/* One part: the process that collects it, and its output so far. */
struct part {
    const char *name;
    void (*collect)(const struct doctor *doctor, struct node_facts *facts);
    uint32_t patience_ms;
    pid_t pid;
    int fd;                     /* -1: over */
    struct doctor_doing *doing; /* shared with it; NULL: not known */
    struct buf answer;
};

static struct part parts[] = {
    {.name = "machine", .collect = doctor_machine, .patience_ms = 10000},
    {.name = "network", .collect = doctor_network, .patience_ms = 12000},
    {.name = "names", .collect = doctor_names, .patience_ms = 12000},
    {.name = "disks", .collect = doctor_disks, .patience_ms = 8000},
    {.name = "gpus", .collect = doctor_gpus, .patience_ms = 15000},
    {.name = "account", .collect = doctor_account, .patience_ms = 15000},
    {.name = "python", .collect = doctor_python, .patience_ms = 40000},
};
#define PART_COUNT (sizeof parts / sizeof parts[0])

static bool complain(const char *text)
{
    (void)printf("%s\n", text);
    return false;
}

/* The one message on stdin. */
static bool read_question(struct arena *arena, struct msg *msg)
{
    struct buf all = {.limit = FRAME_LARGE_BYTES_MAX + FRAME_HEAD_BYTES};
    struct err err = {0};
    const char *payload;
    size_t payload_bytes;
    char chunk[4096];
    ssize_t got;
    bool is_read;

    while ((got = read(STDIN_FILENO, chunk, sizeof chunk)) > 0)
        buf_add(&all, chunk, (size_t)got);
    is_read = frame_next(all.bytes, all.byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes,
                         &err) == STATUS_OK &&
              msg_decode(payload, payload_bytes, arena, msg, &err) == STATUS_OK &&
              msg->type == MSG_TYPE_NODE_ASK;
    buf_free(&all);
    return is_read || complain("the question of launcherd cannot be read");
}

/* Memory that the process of a part shares. NULL: none. */
static struct doctor_doing *map_doing(void)
{
    struct doctor_doing *doing =
        mmap(NULL, sizeof *doing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (doing == MAP_FAILED)
        return NULL;
    atomic_store(&doing->step, -1);
    return doing;
}

/* Never returns. */
static void run_part(const struct doctor *asked, const struct part *part, int fd)
{
    static struct node_facts facts;
    struct doctor with_doing = *asked, *doctor = &with_doing;
    struct buf json = {0};

    with_doing.doing = part->doing;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    node_facts_init(&facts);
    part->collect(doctor, &facts);
    node_facts_write(&facts, &json);
    _exit(!json.failed && write_all(fd, json.bytes, json.byte_count) ? 0 : 1);
}

static void begin(const struct doctor *doctor, struct part *part)
{
    int ends[2];

    part->fd = -1;
    part->doing = map_doing();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    part->pid = fork();
    if (part->pid == 0)
        run_part(doctor, part, ends[1]);
    (void)close(ends[1]);
    if (part->pid > 0)
        part->fd = ends[0];
    else
        (void)close(ends[0]);
}

static void add_gap(struct node_facts *facts, const struct part *part, const char *problem)
{
    struct gap_facts *gap = node_facts_add_gaps(facts);

    if (gap == NULL)
        return;
    (void)snprintf(gap->part, sizeof gap->part, "%s", part->name);
    (void)snprintf(gap->problem, sizeof gap->problem, "%.155s", problem);
}

static void end_part(struct part *part)
{
    (void)close(part->fd);
    part->fd = -1;
}

/* Takes the complete output of a part, or notes its failure. */
static void take(struct part *part, struct node_facts *facts)
{
    char chunk[4096];
    ssize_t got = read(part->fd, chunk, sizeof chunk);
    struct err err = {0};

    if (got > 0 && part->answer.byte_count < PART_BYTES_MAX) {
        buf_add(&part->answer, chunk, (size_t)got);
        return;
    }
    end_part(part);
    if (part->answer.byte_count == 0)
        add_gap(facts, part, "its process ended without an answer");
    else if (node_facts_read(facts, part->answer.bytes, part->answer.byte_count, &err) != STATUS_OK)
        add_gap(facts, part, err.text);
    buf_free(&part->answer);
}

/* The folder first, since the text is cut at its end. */
static void explain(const struct doctor *doctor, const struct part *part, char *problem,
                    size_t capacity)
{
    const struct msg_node_ask *ask = doctor->ask;
    const unsigned limit_s = part->patience_ms / 1000;
    const int step = part->doing != NULL ? atomic_load(&part->doing->step) : -1;

    if (step == PREFLIGHT_CWD)
        (void)snprintf(problem, capacity,
                       GAP_OF_DISK "%.90s (working directory) does not answer "
                                   "(%u s)",
                       ask->cwd, limit_s);
    else if (step == PREFLIGHT_PROGRAM)
        (void)snprintf(problem, capacity,
                       GAP_OF_DISK "%.60s, or of a folder in its PATH, does not answer (%u s)",
                       ask->argv.count > 0 ? ask->argv.items[0] : "the program", limit_s);
    else if (step == PREFLIGHT_ACCOUNT)
        (void)snprintf(problem, capacity,
                       "its user database does not answer: looking up %.60s "
                       "took longer than %u s",
                       ask->user, limit_s);
    else if (part->doing != NULL && part->doing->folder[0] != '\0')
        (void)snprintf(problem, capacity, GAP_OF_DISK "%.100s does not answer (%u s)",
                       part->doing->folder, limit_s);
    else
        (void)snprintf(problem, capacity, "no answer within %u s", limit_s);
}

static void give_up(const struct doctor *doctor, struct part *part, struct node_facts *facts)
{
    char problem[160];

    (void)kill(part->pid, SIGKILL); /* one that hangs in the kernel stays, and is not waited for */
    end_part(part);
    explain(doctor, part, problem, sizeof problem);
    add_gap(facts, part, problem);
}

/* Collects until every part has answered or its time is over. */
static void collect(const struct doctor *doctor, struct node_facts *facts, uint64_t begin_ms)
{
    struct pollfd polls[PART_COUNT];
    bool is_waiting = true;

    while (is_waiting) {
        uint64_t passed_ms = mono_us() / 1000 - begin_ms;
        int wait_ms = 60000;

        is_waiting = false;
        for (size_t i = 0; i < PART_COUNT; i++) {
            if (parts[i].fd >= 0 && passed_ms >= parts[i].patience_ms)
                give_up(doctor, &parts[i], facts);
            polls[i] = (struct pollfd){.fd = parts[i].fd, .events = POLLIN};
            if (parts[i].fd < 0)
                continue;
            is_waiting = true;
            if ((int)(parts[i].patience_ms - passed_ms) < wait_ms)
                wait_ms = (int)(parts[i].patience_ms - passed_ms);
        }
        if (!is_waiting || poll(polls, PART_COUNT, wait_ms) <= 0)
            continue;
        for (size_t i = 0; i < PART_COUNT; i++)
            if (parts[i].fd >= 0 && (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
                take(&parts[i], facts);
    }
}

static int answer_facts(const struct doctor *doctor)
{
    static struct node_facts facts;
    uint64_t begin_ms = mono_us() / 1000;
    struct buf json = {0};
    bool is_written;

    node_facts_init(&facts);
    for (size_t i = 0; i < PART_COUNT; i++) {
        begin(doctor, &parts[i]);
        if (parts[i].fd < 0)
            add_gap(&facts, &parts[i], "no process for it");
    }
    collect(doctor, &facts, begin_ms);
    node_facts_write(&facts, &json);
    is_written = !json.failed && write_all(STDOUT_FILENO, json.bytes, json.byte_count);
    buf_free(&json);
    return is_written ? 0 : 1;
}

static int answer(const struct doctor *doctor)
{
    if (doctor->ask->what == NODE_ASKED_LISTEN)
        return doctor_listen(doctor);
    if (doctor->ask->what == NODE_ASKED_CONNECT)
        return doctor_connect(doctor);
    return answer_facts(doctor);
}

/* On the server's machine launcherd may know only a loopback address. Then it is the one from which the others are called, as
 * for a job (shim/part_address.h). */
static void find_address(struct doctor *doctor, char address[ADDRESS_BYTES_MAX])
{
    const struct msg_pair_list *peers = &doctor->ask->peers;

    for (uint32_t i = 0; i < peers->count; i++)
        if (address_reach_of(doctor->address) != ADDRESS_FOR_OTHERS &&
            address_reach_of(peers->items[i].value) == ADDRESS_FOR_OTHERS &&
            address_toward(peers->items[i].value, address))
            doctor->address = address;
}

int doctor_main(char **args)
{
    struct doctor doctor = {.name = args[0],
                            .address = args[1],
                            .state_dir = args[2],
                            .logs_dir = args[3],
                            .slots = (uint32_t)strtoul(args[4], NULL, 10),
                            .gpus = (uint32_t)strtoul(args[5], NULL, 10),
                            .policy = {.node = args[0], .allow_root = args[6][0] != '\0'}};
    char address[ADDRESS_BYTES_MAX];
    struct arena arena = {0};
    struct msg msg;
    int code = 1;

    if (read_question(&arena, &msg)) {
        doctor.ask = &msg.node_ask;
        find_address(&doctor, address);
        code = answer(&doctor);
    }
    arena_reset(&arena);
    return code;
}
