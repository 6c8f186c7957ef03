/* Children that threads start (child_files.h). To start one takes until it runs its program, which is never if somebody
 * stops it before, or if the disk of the program hangs: so the loop does not start any, and knows each one from its first
 * moment on. The loop reaps them all.
 *
 *   node_child_new     its users are the list and the owner, and then its work
 *   node_child_over    no process is left, or none was ever made
 *   node_child_cancel  nobody wants it any more: it is not made, or is killed as soon as it can be
 *   node_child_drop    its owner knows the process, or does not ask any more */
#ifndef LAUNCHERD_NODE_NODE_CHILDREN_H
#define LAUNCHERD_NODE_NODE_CHILDREN_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#include "launcherd/process/spawn.h"

struct node_child {
    struct spawn_watch watch;
    atomic_uint users;
    /* For the loop. */
    struct node_child *next;
    bool is_dropped;   /* its owner has dropped it */
    bool is_cancelled; /* to be killed when its number is known */
    bool has_ended;    /* reaped */
    siginfo_t info;    /* then: how it ended */
};

struct node_children {
    struct node_child *first;
    uv_timer_t timer; /* runs while one is to be killed that has no number yet */
    bool closed;
    void (*on_over)(void *owner); /* a cancelled one may be over without having been reaped */
    void *owner;
};

void node_children_init(struct node_children *children, uv_loop_t *loop,
                        void (*on_over)(void *owner), void *owner);
/* Forgets all of them; those that run their program go on. */
void node_children_close(struct node_children *children);

/* NULL: no memory. */
struct node_child *node_child_new(struct node_children *children);
/* One user more, one less. On any thread. */
struct node_child *node_child_use(struct node_child *child);
void node_child_release(struct node_child *child);

/* Its number; 0: it has none (yet). */
pid_t node_child_pid(const struct node_child *child);
bool node_child_over(const struct node_child *child);
/* True: no process of it is left, nor will be. False: it is killed; node_child_over tells. */
bool node_child_cancel(struct node_children *children, struct node_child *child);
/* `*child` becomes NULL. */
void node_child_drop(struct node_children *children, struct node_child **child);
/* Why it is late: it was stopped, or else `late`, the reason of its work. */
const char *node_child_explain(const struct node_child *child, const char *late, char *text,
                               size_t text_bytes);

/* Whether this child of launcherd is, or may be, one of them. */
bool node_children_have(const struct node_children *children, pid_t pid);
/* Call for each child that was reaped. */
void node_children_reaped(struct node_children *children, const siginfo_t *info);

#endif
