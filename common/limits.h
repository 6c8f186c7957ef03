/* Every cap in one place. Full is an answer, not a surprise. */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#define PROTOCOL_VERSION 1

/* frames: what a connection buffers before it looks at a message */
#define FRAME_BYTES_MAX (64u * 1024u)          /* every message, but for these: */
#define FRAME_SUBMIT_BYTES_MAX (1024u * 1024u) /* submit */
/* what carries a submit and more (start, job_info); lists to a client */
#define FRAME_LARGE_BYTES_MAX (1536u * 1024u)
#define JSON_DEPTH_MAX 16u
#define JSON_TOKENS_MAX 40000u
#define CONN_QUEUE_BYTES_MAX                                                                       \
    (4u * 1024u * 1024u) /* output waiting for a slow reader; then disconnect */
#define CONNS_MAX 1024u
#define HELLO_TIMEOUT_US (5u * 1000000u)

#define NODES_MAX 256u
#define SLOTS_PER_NODE_MAX 64u
#define NODES_PER_JOB_MAX 64u
#define RANKS_PER_JOB_MAX 1024u
#define JOBS_ACTIVE_MAX 512u /* queued, starting, running, restarting */
#define SHIMS_PER_NODE_MAX 128u
#define SLOTS_LISTED_MAX 1024u /* closed slots in one list of nodes */
#define DRAINS_MAX 512u        /* nodes and slots that operators drained */

#define NODE_NAME_BYTES_MAX 64u /* with the final NUL, as all below */
#define JOB_NAME_BYTES_MAX 64u
#define USER_NAME_BYTES_MAX 64u
#define ADDRESS_BYTES_MAX 64u
#define REASON_BYTES_MAX 256u
#define TAIL_BYTES_MAX 2048u /* the last lines of a failed rank */
#define BLOB_BYTES_MAX 512u  /* rank 0's blob: NCCL's unique id is 128 */
#define REQUEST_ID_CHARS 32u /* 128 bits in hex, chosen by the client */
#define ARGS_MAX 4096u
#define ENV_MAX 1024u
#define LOG_CHUNK_BYTES_MAX (32u * 1024u)

/* times; sources: shared agreement on heartbeats and leases, docs/architecture.md */
#define BEAT_INTERVAL_US 1000000u
#define NODE_SUSPECT_US 5000000u
#define NODE_LOST_US 15000000u
#define LEASE_DEFAULT_US 60000000u
#define GRACE_DEFAULT_US 10000000u

#endif
