/* How a person or a signal ends an attached verb: detach, cancel the job, kill it at once. An edge:
 * the signals, the question on Ctrl-C, and the connection on which the job is cancelled.
 *
 *   Ctrl-C         asks, where the job can go on without us and a terminal is there; else each one goes a
 *                  step further: SIGINT to every rank (or --signal), SIGTERM, SIGKILL; then no more
 *                  waiting
 *   SIGTERM        the same, from SIGTERM on
 *   SIGHUP         detaches where the job can go on without us: a closed laptop never kills it; else as
 *                  SIGTERM. Ignored where it was when we began (nohup) */
#ifndef DDPCTL_INTERRUPT_H
#define DDPCTL_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ddpctl/client.h"
#include "ddpctl/ctl.h"

struct interrupt_options {
    struct ctl *ctl;
    uv_loop_t *loop;
    uint64_t patience_us;
    bool is_on;            /* false: signals keep their default, and nothing here happens */
    bool can_detach;       /* the job goes on without us */
    bool keyboard_is_used; /* by the job: Ctrl-C is not asked about */
    bool term_is_final;    /* SIGTERM may come several times, and kills nothing: --slurm */
    uint32_t first_signal; /* of the first Ctrl-C; 0: SIGINT */
    void *owner;
    /* It is over; the owner calls interrupt_close. */
    void (*on_stop)(void *owner, int exit_code);
};

struct interrupt {
    struct interrupt_options options;
    struct client client; /* to cancel on */
    uv_signal_t signals[3];
    bool is_watched[3]; /* the others stay ignored */
    uv_poll_t keyboard;
    bool client_open, keyboard_open, is_closed;
    bool job_ended;
    enum interrupt_step {
        INTERRUPT_NONE,
        INTERRUPT_FIRST, /* first_signal, then the job's grace */
        INTERRUPT_TERM,  /* SIGTERM, then the job's grace */
        INTERRUPT_KILL
    } requested,
        sent;
    int count;         /* of signals since the last answer */
    int signal_number; /* of the first one that cancelled; 0: none */
    char job[24];      /* its number; empty: not known yet */
};

void interrupt_open(struct interrupt *interrupt, const struct interrupt_options *options);
/* The handles are free after the loop's next turn. */
void interrupt_close(struct interrupt *interrupt);
/* What the owner learns about the job. A cancel that was requested before is sent now. */
void interrupt_job_known(struct interrupt *interrupt, uint64_t job_id);
void interrupt_job_ended(struct interrupt *interrupt);
/* As SIGTERM, which may come here and in other ways: the second one does nothing. */
void interrupt_term(struct interrupt *interrupt);
/* Cancels the job, as a signal does, but without a line for people. */
void interrupt_cancel(struct interrupt *interrupt);

#endif
