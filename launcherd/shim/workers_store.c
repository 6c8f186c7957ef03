#include "launcherd/shim/workers_store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/shim/master_port.h"

static void post(struct shim_workers *workers, struct shim_event event)
{
    workers->options.post(workers->options.owner, event);
}

void workers_store_reserve_port(struct shim_workers *workers)
{
    struct shim_event event = {.type = SHIM_EVENT_PORT};
    static char text[REASON_BYTES_MAX];
    struct err err;
    workers->port_fd = master_port_bind(workers->node_address, &event.port);
    if (workers->port_fd >= 0 && workers->has_store &&
        store_child_listen(workers->port_fd, &err) != STATUS_OK) {
        (void)snprintf(text, sizeof text, "node %s: %.100s", workers->options.node_name, err.text);
        event.text = text;
        event.port = 0;
    } else if (workers->port_fd < 0) {
        (void)snprintf(
            text, sizeof text, "no port could be reserved on %s, the address of node %s: %s%s",
            workers->node_address, workers->options.node_name, strerror(errno),
            errno == EADDRNOTAVAIL ? "; start its launcherd with --address or --interface" : "");
        event.text = text;
    }
    post(workers, event);
}

enum status workers_store_spawn(struct shim_workers *workers, int log_fd, struct err *err)
{
    const struct store_child_order order = {
        .nodes = &workers->options.start->nodes,
        .user = workers->as_self ? NULL : &workers->account,
        .cgroup = workers->has_cgroup ? workers->options.cgroup : NULL,
        .cgroup_bytes = workers->memory_bytes,
        .token = workers->options.token,
        .listen_fd = workers->port_fd,
        .log_fd = log_fd,
    };
    enum status status = store_child_spawn(&workers->store, &order, err);
    if (status == STATUS_OK)
        post(workers, (struct shim_event){.type = SHIM_EVENT_STORE_STARTED});
    return status;
}

void workers_store_end(struct shim_workers *workers)
{
    store_child_end(&workers->store);
}

void workers_store_exited(struct shim_workers *workers, const siginfo_t *info, const char *oom)
{
    struct shim_event event = {.type = SHIM_EVENT_STORE_EXITED};
    char text[REASON_BYTES_MAX];

    event.text = store_child_ended(&workers->store, info);
    if (info->si_code != CLD_EXITED && info->si_status == SIGKILL && oom != NULL) {
        (void)snprintf(text, sizeof text, "%s: %s", event.text, oom);
        event.text = text;
        event.code = 1;
    }
    workers->options.step(workers->options.owner, event);
}

static void on_unreached(void *owner, const char *text)
{
    struct shim_workers *workers = owner;

    workers->options.step(workers->options.owner,
                          (struct shim_event){.type = SHIM_EVENT_STORE_UNREACHED, .text = text});
}

void workers_store_probe(struct shim_workers *workers)
{
    const struct msg_start *start = workers->options.start;
    const struct store_probe_way way = {
        .node = workers->options.node_name,
        .address = workers->node_address,
        .master = start->nodes.count > 0 ? start->nodes.items[0].name : "0",
        .master_addr = workers->master_addr,
        .port = workers->master_port,
        .is_guess = strcmp(workers->node_address, workers->options.node_address) != 0,
    };

    if (start->node_rank == 0 || !store_child_is_wanted(start))
        return;
    workers->probe.owner = workers;
    workers->probe.on_failed = on_unreached;
    store_probe_begin(&workers->probe, workers->options.loop, &way, STORE_PROBE_MS);
}
