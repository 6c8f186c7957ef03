#include "launcherd/shim/store_child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/stop_signal.h"
#include "common/launch.h"
#include "launcherd/c10d/store_main.h"
#include "launcherd/core/shim.h"
#include "launcherd/process/doing.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/spawn.h"

#define PATIENCE_MS 1000u
#define MEMORY_BYTES_MAX (4ull * 1024 * 1024 * 1024)

bool store_child_is_wanted(const struct msg_start *start)
{
    const char *store = launch_value(&start->launch, LAUNCH_STORE);

    return store != NULL && strcmp(store, "on") == 0;
}

void store_child_init(struct store_child *store, uv_loop_t *loop)
{
    *store = (struct store_child){.status_fd = -1};
    (void)uv_timer_init(loop, &store->patience);
    store->patience.data = store;
}

/* The thread that is its parent may end, and nobody need wait for it. */
static void release_parent(struct store_child *store)
{
    if (!store->has_parent)
        return;
    uv_sem_post(&store->may_end);
    (void)uv_thread_join(&store->parent);
    uv_sem_destroy(&store->may_end);
    store->has_parent = false;
}

void store_child_close(struct store_child *store)
{
    release_parent(store);
    uv_close((uv_handle_t *)&store->patience, NULL);
    if (store->status_fd >= 0)
        close(store->status_fd);
    store->status_fd = -1;
}

enum status store_child_listen(int listen_fd, struct err *err)
{
    if (listen(listen_fd, SOMAXCONN) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, errno, "cannot listen on the job's port: %s",
                   strerror(errno));
}

/* A quarter of the memory that the job may use or the machine has, at most MEMORY_BYTES_MAX. */
static uint64_t memory_of(const struct store_child_order *order)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 ? (uint64_t)pages * (uint64_t)page_bytes : MEMORY_BYTES_MAX;

    if (order->cgroup_bytes > 0 && order->cgroup_bytes < bytes)
        bytes = order->cgroup_bytes;
    bytes /= 4;
    return bytes < MEMORY_BYTES_MAX ? bytes : MEMORY_BYTES_MAX;
}

/* "launcherd --store BYTES NAME ADDRESS ...", which the caller frees. NULL: no memory. */
static char **make_argv(const struct store_child_order *order, char memory[24])
{
    static char program[] = "launcherd", mode[] = STORE_ARGUMENT;
    char **argv = calloc(2 * (size_t)order->nodes->count + 4, sizeof *argv);

    if (argv == NULL)
        return NULL;
    (void)snprintf(memory, 24, "%llu", (unsigned long long)memory_of(order));
    argv[0] = program;
    argv[1] = mode;
    argv[2] = memory;
    for (uint32_t i = 0; i < order->nodes->count; i++) {
        argv[3 + 2 * i] = (char *)(uintptr_t)order->nodes->items[i].name;
        argv[4 + 2 * i] = (char *)(uintptr_t)order->nodes->items[i].value;
    }
    return argv;
}

/* What the dynamic loader needs to find launcherd's libraries again: "LD_LIBRARY_PATH=...". NULL:
 * launcherd was started without. */
static char *library_path(void)
{
    for (char **entry = environ; *entry != NULL; entry++)
        if (strncmp(*entry, "LD_LIBRARY_PATH=", 16) == 0)
            return *entry;
    return NULL;
}

struct spawning {
    const struct spawn_order *order;
    struct store_child *store;
    uv_sem_t is_done;
    enum status status;
    struct err *err;
};

static void be_parent(void *argument)
{
    struct spawning *spawning = argument;
    struct store_child *store = spawning->store;
    int exit_code;

    spawning->status = spawn_process(spawning->order, &store->pid, &exit_code, spawning->err);
    uv_sem_post(&spawning->is_done); /* from here on it may be gone */
    uv_sem_wait(&store->may_end);
}

static enum status spawn_in_thread(struct store_child *store, const struct spawn_order *order,
                                   struct err *err)
{
    struct spawning spawning = {.order = order, .store = store, .err = err};
    int rc = uv_sem_init(&spawning.is_done, 0);

    assert(!store->has_parent);
    if (rc != 0)
        return err_set(err, STATUS_SYSTEM, rc, "no semaphore: %s", uv_strerror(rc));
    rc = uv_sem_init(&store->may_end, 0);
    if (rc == 0 && (rc = uv_thread_create(&store->parent, be_parent, &spawning)) != 0)
        uv_sem_destroy(&store->may_end);
    store->has_parent = rc == 0;
    if (rc == 0) {
        doing_set(DOING_STORE, 0);
        uv_sem_wait(&spawning.is_done);
        doing_set(DOING_NOTHING, 0);
    } else {
        spawning.status = err_set(err, STATUS_SYSTEM, rc, "no thread: %s", uv_strerror(rc));
    }
    uv_sem_destroy(&spawning.is_done);
    if (spawning.status != STATUS_OK)
        release_parent(store);
    return spawning.status;
}

enum status store_child_spawn(struct store_child *store, const struct store_child_order *order,
                              struct err *err)
{
    char token[sizeof PROC_TOKEN_NAME + PROC_TOKEN_CHARS + 2], memory[24];
    static char in_step[] = STOP_SIGNAL_VARIABLE "=1";
    char *envp[4] = {token}; /* and NULL at the end */
    uint32_t env_count = 1;
    char **argv = make_argv(order, memory);
    struct spawn_order spawn = {
        .path = "/proc/self/exe",
        .argv = argv,
        .envp = envp,
        .user = order->user,
        .cgroup = order->cgroup,
        .stdin_fd = order->listen_fd, /* STORE_LISTEN_FD */
        .stdout_fd = order->log_fd,
        .stderr_fd = order->log_fd,
        .extra_fd = store->status_fd, /* STORE_STATUS_FD */
        .is_job = true,
        .dies_with_parent = true,
    };
    enum status status;
    struct err why = {0};

    static_assert(STORE_LISTEN_FD == 0 && STORE_STATUS_FD == SPAWN_EXTRA_FD, "as spawned");
    if (argv == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory to start the job's c10d store");
    if (order->nodes->count == 0) {
        free(argv);
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "the job's c10d store: the server did not name the job's nodes; it is of an "
                       "older version: upgrade it, or submit with --no-store");
    }
    (void)snprintf(token, sizeof token, "%s=%s", PROC_TOKEN_NAME, order->token);
    if (stop_signal_is_in_step())
        envp[env_count++] = in_step;
    if (library_path() != NULL)
        envp[env_count++] = library_path();
    status = spawn_in_thread(store, &spawn, &why);
    free(argv);
    if (status == STATUS_OK)
        return STATUS_OK;
    store->pid = 0;
    return err_set(err, status, why.code, "the job's c10d store: %.200s", why.text);
}

static void on_impatient(uv_timer_t *timer)
{
    const struct store_child *store = timer->data;

    if (store->pid > 0)
        kill(store->pid, SIGKILL);
}

void store_child_end(struct store_child *store)
{
    if (store->pid <= 0)
        return;
    kill(store->pid, stop_signal());
    (void)uv_timer_start(&store->patience, on_impatient, PATIENCE_MS, 0);
}

const char *store_child_ended(struct store_child *store, const siginfo_t *info)
{
    const char *name;

    (void)uv_timer_stop(&store->patience);
    release_parent(store);
    if (info->si_code == CLD_EXITED) {
        (void)snprintf(store->text, sizeof store->text, "process %d exited with code %d",
                       (int)store->pid, info->si_status);
    } else {
        name = shim_signal_name((uint32_t)info->si_status);
        (void)snprintf(store->text, sizeof store->text, "process %d was killed by signal %d (%s)",
                       (int)store->pid, info->si_status, name != NULL ? name : "?");
    }
    store->pid = 0;
    return store->text;
}
