/* How a person or a signal ends an attached verb: detach, cancel the job, or kill it. An edge: it
 * handles the signals, the question on Ctrl-C, and the connection for the cancel.
 *
 *   Ctrl-C         asks, if the job can go on without us and there is a terminal. Otherwise each one goes a step
 *                  further: SIGINT to every rank (or --signal), SIGTERM, SIGKILL; then we stop waiting
 *   Ctrl-\         the same, beginning with SIGQUIT: for programs that print their stacks then. Ignored if it was ignored at
 *                  our start
 *   SIGTERM        the same, beginning with SIGTERM
 *   SIGHUP         detaches if the job can go on without us, so that a closed laptop never kills it; otherwise like
 *                  SIGTERM. Ignored if it was ignored at our start (nohup) */
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
    bool can_detach;       /* the job can go on without us */
    bool keyboard_is_used; /* by the job: Ctrl-C asks no question */
    bool term_is_final;    /* --slurm: SIGTERM may come several times and never kills */
    uint32_t first_signal; /* what the first Ctrl-C sends; 0: SIGINT */
    void *owner;
    /* Called when we stop waiting for the job; the owner then calls interrupt_close. */
    void (*on_stop)(void *owner, int exit_code);
};

struct interrupt {
    struct interrupt_options options;
    struct client client; /* the connection for the cancel */
    uv_signal_t signals[4];
    bool is_watched[4]; /* false: the signal stays ignored */
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
    uint32_t first_signal;  /* what INTERRUPT_FIRST sends: of the options, SIGINT, or SIGQUIT */
    uint64_t refused_at_us; /* when the server first refused this cancel; 0: it has not */
    int count;              /* signals since the last answer to the question */
    int signal_number;      /* the first signal that cancelled; 0: none */
    char job[24];           /* the job's number; empty: not known yet */
};

void interrupt_open(struct interrupt *interrupt, const struct interrupt_options *options);
/* The handles are free after the loop's next turn. */
void interrupt_close(struct interrupt *interrupt);
/* The job's id is known now. A cancel that was requested before is sent. */
void interrupt_job_known(struct interrupt *interrupt, uint64_t job_id);
void interrupt_job_ended(struct interrupt *interrupt);
/* Does what a SIGTERM does. A SIGTERM may reach us in several ways; the second one does nothing. */
void interrupt_term(struct interrupt *interrupt);
/* Does what a Ctrl-C does that asks no question. */
void interrupt_key(struct interrupt *interrupt);
/* Cancels the job, beginning with this signal; if it is being cancelled, takes the next step. */
void interrupt_with(struct interrupt *interrupt, int number);
/* Cancels the job as a signal does, but prints nothing. */
void interrupt_cancel(struct interrupt *interrupt);

#endif
