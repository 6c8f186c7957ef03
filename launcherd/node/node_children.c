#include "launcherd/node/node_children.h"

#include <stdio.h>
#include <stdlib.h>

#include "launcherd/process/proc.h"

#define NUMBER_MS 5u /* a process that is being made soon has its number */

void node_children_init(struct node_children *children, uv_loop_t *loop,
                        void (*on_over)(void *owner), void *owner)
{
    *children = (struct node_children){.on_over = on_over, .owner = owner};
    (void)uv_timer_init(loop, &children->timer);
    children->timer.data = children;
}

struct node_child *node_child_use(struct node_child *child)
{
    (void)atomic_fetch_add(&child->users, 1);
    return child;
}

void node_child_release(struct node_child *child)
{
    if (child != NULL && atomic_fetch_sub(&child->users, 1) == 1)
        free(child);
}

pid_t node_child_pid(const struct node_child *child)
{
    return spawn_watch_pid(&child->watch);
}

bool node_child_over(const struct node_child *child)
{
    const unsigned state = atomic_load(&child->watch.state);

    return child->has_ended || state == SPAWN_REFUSED ||
           (state == SPAWN_OVER && node_child_pid(child) == 0);
}

/* Takes those out of the list that nobody asks about any more. */
static void collect(struct node_children *children)
{
    for (struct node_child **at = &children->first; *at != NULL;) {
        struct node_child *child = *at;

        if (!child->is_dropped || (child->is_cancelled && !node_child_over(child))) {
            at = &child->next;
            continue;
        }
        *at = child->next;
        node_child_release(child);
    }
}

void node_children_close(struct node_children *children)
{
    children->closed = true;
    uv_close((uv_handle_t *)&children->timer, NULL);
    while (children->first != NULL) {
        struct node_child *child = children->first;

        children->first = child->next;
        node_child_release(child);
    }
}

struct node_child *node_child_new(struct node_children *children)
{
    struct node_child *child = calloc(1, sizeof *child);

    if (child == NULL)
        return NULL;
    collect(children);
    atomic_init(&child->users, 2);
    child->next = children->first;
    children->first = child;
    return child;
}

/* Not reaped, so the number is still its own. */
static void kill_child(const struct node_child *child)
{
    const pid_t pid = node_child_pid(child);

    if (pid > 0 && !child->has_ended)
        (void)kill(pid, SIGKILL);
}

static void on_timer(uv_timer_t *timer)
{
    struct node_children *children = timer->data;
    bool waits = false;

    for (const struct node_child *child = children->first; child != NULL; child = child->next)
        if (child->is_cancelled && !node_child_over(child)) {
            kill_child(child);
            waits = waits || node_child_pid(child) == 0;
        }
    if (waits)
        (void)uv_timer_start(timer, on_timer, NUMBER_MS, 0);
    children->on_over(children->owner);
    collect(children);
}

bool node_child_cancel(struct node_children *children, struct node_child *child)
{
    if (spawn_refuse(&child->watch) || node_child_over(child))
        return true;
    child->is_cancelled = true;
    kill_child(child);
    if (node_child_pid(child) == 0 && !children->closed)
        (void)uv_timer_start(&children->timer, on_timer, NUMBER_MS, 0);
    return false;
}

void node_child_drop(struct node_children *children, struct node_child **child)
{
    struct node_child *dropped = *child;

    *child = NULL;
    if (dropped == NULL)
        return;
    dropped->is_dropped = true;
    collect(children);
    node_child_release(dropped);
}

const char *node_child_explain(const struct node_child *child, const char *late, char *text,
                               size_t text_bytes)
{
    const pid_t pid = node_child_pid(child);

    if (child->has_ended || pid == 0 || !proc_is_stopped(pid))
        return late;
    (void)snprintf(text, text_bytes,
                   "its new process %d was stopped (SIGSTOP, or a debugger) before it ran "
                   "launcherd's program",
                   (int)pid);
    return text;
}

/* One that is being made may have a number that is not known here yet. */
bool node_children_have(const struct node_children *children, pid_t pid)
{
    for (const struct node_child *child = children->first; child != NULL; child = child->next) {
        const pid_t number = node_child_pid(child);

        if ((number == pid && !child->has_ended) ||
            (number == 0 && atomic_load(&child->watch.state) == SPAWN_BEGINS))
            return true;
    }
    return false;
}

void node_children_reaped(struct node_children *children, const siginfo_t *info)
{
    for (struct node_child *child = children->first; child != NULL; child = child->next)
        if (!child->has_ended && node_child_pid(child) == info->si_pid) {
            child->has_ended = true;
            child->info = *info;
        }
    collect(children);
}
