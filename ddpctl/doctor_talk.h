/* Questions to many nodes at once, over one connection (node_read). */
#ifndef DDPCTL_DOCTOR_TALK_H
#define DDPCTL_DOCTOR_TALK_H

#include "common/arena.h"
#include "ddpctl/ctl.h"

/* One question and its answer. */
struct doctor_ask {
    struct msg_node_read read; /* request_id is set here; the texts are borrowed */
    bool is_sent, is_answered;
    uint64_t sent_us, answered_us; /* CLOCK_MONOTONIC */
    int64_t sent_ms;               /* wall clock */
    int64_t node_ms, server_ms;    /* 0: not known */
    char problem[REASON_BYTES_MAX];
    char *json; /* owned, freed by doctor_asks_free; NULL: there is a problem */
    size_t json_bytes;
};

/* Asks until every question is answered, without those that are answered already. Returns CTL_OK, or the exit code of the error that was
 * shown. `note`: if not NULL, shown as the progress line with the number of answers. */
int doctor_talk(struct ctl *ctl, struct doctor_ask *asks, uint32_t count, const char *note);
void doctor_asks_free(struct doctor_ask *asks, uint32_t count);

/* The server's round-trip time, and what it reports about itself. */
struct doctor_greeting {
    char version[32], cluster[40];
    uint32_t protocol; /* 1: the server does not report its protocol */
    uint64_t round_trip_us;
    struct err err;  /* not STATUS_OK: the server cannot be reached, or has refused us */
    bool is_refused; /* the server has answered with an error: err.text, with this hint */
    char hint[256];
};
void doctor_greet(struct ctl *ctl, struct doctor_greeting *greeting);

#endif
