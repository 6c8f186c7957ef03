#include "launcherd/inspect/inspect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/arena.h"
#include "common/json_strict.h"
#include "common/msg.h"
#include "launcherd/inspect/dials.h"
#include "launcherd/inspect/pyspy.h"
#include "launcherd/inspect/stack.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"

#define STORE_MS 5000
#define STORE_TOKENS_MAX 400000u

static int complain(const char *text)
{
    (void)printf("%s", text);
    return 1;
}

/* -- the stack --------------------------------------------------------------------------------- */

static const char *path_of(const struct msg_start *start)
{
    for (uint32_t i = 0; i < start->env.count; i++)
        if (strcmp(start->env.items[i].name, "PATH") == 0)
            return start->env.items[i].value;
    return NULL;
}

static void add_python(char *const *arguments, pid_t pid, const struct rundir_shim *shim,
                       const struct msg_start *start, cJSON *out)
{
    const struct account_policy policy = {.node = arguments[INSPECT_ARG_NODE],
                                          .allow_root =
                                              strcmp(arguments[INSPECT_ARG_ALLOW_ROOT], "1") == 0};
    const char *node_path = getenv("PATH");
    struct account own = {0}, account = {0};
    static char text[PYSPY_BYTES_MAX];
    char problem[400] = "";
    bool as_self = false;
    struct err err = {.text = ""};
    struct pyspy_order order = {.pid = stack_find_python(pid),
                                .cgroup = shim->cgroup[0] != '\0' ? shim->cgroup : NULL,
                                .job_path = path_of(start),
                                .node_path = node_path != NULL ? node_path : "/usr/bin:/bin"};

    if (order.pid == 0) {
        (void)cJSON_AddStringToObject(out, "python_problem",
                                      "neither it nor a process below it is a Python");
        return;
    }
    (void)cJSON_AddNumberToObject(out, "python_pid", order.pid);
    if (account_own(&own, &err) != STATUS_OK ||
        account_choose(&policy, &own, start->user, &account, &as_self, &err) != STATUS_OK) {
        (void)cJSON_AddStringToObject(out, "python_problem", err.text);
        return;
    }
    order.user = as_self ? NULL : &account;
    if (pyspy_dump(&order, text, problem, sizeof problem))
        (void)cJSON_AddStringToObject(out, "python", text);
    else
        (void)cJSON_AddStringToObject(out, "python_problem", problem);
    account_free(&account);
    account_free(&own);
}

static void add_dial(pid_t pid, cJSON *out)
{
    struct dial dial;

    if (!dials_find(pid, &dial))
        return;
    (void)cJSON_AddNumberToObject(out, "dial_pid", dial.pid);
    (void)cJSON_AddStringToObject(out, "dial_to", dial.to);
}

static int print_json(const cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    const bool fits = text != NULL && strlen(text) < INSPECT_BYTES_MAX;
    const bool done = fits && fwrite(text, 1, strlen(text), stdout) == strlen(text);

    cJSON_free(text);
    return done ? 0 : complain("no memory for the answer");
}

static int show_stack(char *const *arguments)
{
    const pid_t pid = (pid_t)strtol(arguments[INSPECT_ARG_PID], NULL, 10);
    struct rundir_shim shim;
    struct arena arena = {0};
    char boot_id[sizeof shim.boot_id], pid_ns[sizeof shim.pid_ns];
    struct msg start;
    struct err err;
    int code;

    proc_boot_id(boot_id, sizeof boot_id);
    if (rundir_read_shim(arguments[INSPECT_ARG_RUN_DIR], &shim, &err) != STATUS_OK ||
        rundir_read_msg(arguments[INSPECT_ARG_RUN_DIR], "start.msg", &arena, &start, &err) !=
            STATUS_OK ||
        start.type != MSG_TYPE_START)
        return complain("its generation has ended on this node");
    proc_pid_ns(pid_ns);
    if (strcmp(shim.boot_id, boot_id) == 0 && shim.pid_ns[0] != '\0' && pid_ns[0] != '\0' &&
        strcmp(shim.pid_ns, pid_ns) != 0)
        return complain("its shim runs in another PID namespace (another container), so its "
                        "processes cannot be seen from here");
    if (strcmp(shim.boot_id, boot_id) != 0 || proc_start_ticks(shim.pid) != shim.start_ticks)
        return complain("its shim has ended");
    cJSON *out = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(out, "schema", "ddp.stack.v1");
    (void)cJSON_AddNumberToObject(out, "rank", strtod(arguments[INSPECT_ARG_RANK], NULL));
    if (stack_describe(pid, shim.pid, out)) {
        add_dial(pid, out);
        add_python(arguments, pid, &shim, &start.start, out);
        code = print_json(out);
    } else {
        code = complain("its process has ended");
    }
    cJSON_Delete(out);
    arena_reset(&arena);
    return code;
}

/* -- the store --------------------------------------------------------------------------------- */

static bool wait_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, STORE_MS) > 0;
}

/* Enters the folder first: the whole path may be too long for a socket address. */
static int dial_store(const char *run_dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "store.sock"};
    int fd =
        chdir(run_dir) == 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int show_store(char *const *arguments)
{
    const struct json_limits limits = {.depth_max = 8, .token_max = STORE_TOKENS_MAX};
    static char bytes[INSPECT_BYTES_MAX];
    size_t used = 0;
    ssize_t got = 1;
    struct err err;
    int fd = dial_store(arguments[INSPECT_ARG_RUN_DIR]);

    if (fd < 0)
        return complain(errno == ENOENT   ? "this generation has no store here"
                        : errno == EAGAIN ? "its store takes no more questions now; ask again"
                                          : "its store does not answer");
    while (got > 0 && used < sizeof bytes && wait_readable(fd)) {
        got = read(fd, bytes + used, sizeof bytes - used);
        used += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (got != 0)
        return complain(used == sizeof bytes ? "the answer of its store is longer than 1 MiB"
                                             : "its store does not answer");
    if (used == 0 || bytes[0] != '{' || json_validate(bytes, used, &limits, &err) != STATUS_OK)
        return complain("the answer of its store is no JSON object");
    return fwrite(bytes, 1, used, stdout) == used ? 0 : 1;
}

int inspect_main(char *const *arguments)
{
    if (strcmp(arguments[INSPECT_ARG_WHAT], log_kind_name(LOG_STORE)) == 0)
        return show_store(arguments);
    return show_stack(arguments);
}
