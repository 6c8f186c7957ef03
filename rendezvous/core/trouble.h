/* A node that is up and does not carry out its orders: connections that do not hold, deadlines that pass. People are
 * told, and it is shown until a start goes on there. */
#ifndef RENDEZVOUS_CORE_TROUBLE_H
#define RENDEZVOUS_CORE_TROUBLE_H

#include "rendezvous/core/job.h"

#define TROUBLE_RECONNECTS 3u /* after this many in a row people are told */

struct trouble {
    uint64_t hello_at_us;          /* its newest hello */
    uint32_t reconnects;           /* of one process, in a row, each soon after the hello before */
    uint64_t since_us;             /* reconnects > 0: since when */
    bool is_quiet;                 /* its connection has closed, and people were not told */
    bool is_overdue;               /* it has let a deadline pass, and no start has gone on since */
    char text[REASON_BYTES_MAX];   /* for people; empty: nothing is wrong */
    char silent[REASON_BYTES_MAX]; /* of shims there that do not answer, for people; or empty */
};

/* It says hello. `is_same`: the process that said the last one. */
void trouble_hello(struct rdzv *rdzv, struct trouble *trouble, const char *node, bool is_same);
void trouble_beat(struct rdzv *rdzv, struct trouble *trouble, const char *node);
/* Its connection has closed, and it is heard again. True: people are to be told. Once they know that its connection does
 * not hold, that is counted: thousands of lines an hour would drive out all other events. */
bool trouble_closed(struct trouble *trouble);
bool trouble_back(struct trouble *trouble);
/* It has let a deadline pass, as `cause` says. */
void trouble_overdue(struct trouble *trouble, const char *cause);
/* A start has gone on there, or an operator says that the node is well. */
void trouble_clear(struct trouble *trouble);
/* A part has reported. If its end is not stored on its node (the end counts all the same), people are told. */
void trouble_end(struct rdzv *rdzv, const struct job *job, uint32_t part,
                 const struct msg_shim_report *report);

#endif
