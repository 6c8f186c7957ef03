/* All limits in one place. When one is reached, the request is refused with an error. */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#define PROTOCOL_VERSION 4 /* of the messages, see common/msg_version.h */

/* Frames: how much a connection buffers before a message is decoded. */
#define FRAME_BYTES_MAX (64u * 1024u)           /* most messages */
#define FRAME_CHUNK_BYTES_MAX (1024u * 1024u)   /* with a part of a file, or an answer of a node */
#define FRAME_SUBMIT_BYTES_MAX (3072u * 1024u)  /* submit: what execve takes (2 MiB), in JSON */
#define FRAME_LARGE_BYTES_MAX (3584u * 1024u)   /* with a submit (start, job_info), lists */
#define FRAME_LARGE_BYTES_MAX_3 (1536u * 1024u) /* as peers of protocol 3 take them, */
#define ENV_MAX_3 1024u                         /* and so many variables */
#define JSON_DEPTH_MAX 16u
#define JSON_TOKENS_MAX 140000u
#define CONN_QUEUE_BYTES_MAX (8u * 1024u * 1024u) /* output to a slow reader; more disconnects it */
#define CONN_HANDSHAKE_BYTES_MAX (16u * 1024u)    /* from a peer that has not proved a key yet */
#define CONNS_MAX 16000u
#define HELLO_TIMEOUT_US (5u * 1000000u)

#define NODES_MAX 4096u
#define NODES_LISTED_MAX 256u /* in one page of the list of nodes */

#define SLOTS_PER_NODE_MAX 64u
#define NODES_PER_JOB_MAX 4096u
#define RANKS_PER_JOB_MAX 32768u
#define RANKS_LISTED_MAX 1024u  /* in one page of the ranks of a job */
#define JOBS_ACTIVE_MAX 100000u /* queued, starting, running, restarting */

#define PRIORITY_MIN (-1000) /* of a job; a point is worth a minute of waiting time */
#define PRIORITY_MAX 1000
#define ARRAY_JOBS_MAX 1000u /* of one --array */
#define ARRAY_INDEX_MAX 999999u
#define ARRAY_SPEC_BYTES_MAX 256u
#define AFTER_MAX 16u /* jobs and arrays that one job waits for */
#define AFTER_SPEC_BYTES_MAX 1152u
#define QUEUED_PER_USER_DEFAULT 1000u          /* waiting jobs of one user */
#define STORED_PER_USER_DEFAULT (256ull << 20) /* bytes of one user's jobs in the store */
#define SHIMS_PER_NODE_MAX 128u
#define SHIMS_SILENT_MAX 32u   /* that a beat lists as not answering */
#define SLOTS_LISTED_MAX 1024u /* in one page of the list of nodes */
#define DRAINS_MAX 512u        /* nodes and slots that operators drained */

#define PRINCIPALS_MAX 8192u         /* nodes and users with a key */
#define SECRETS_PER_PRINCIPAL_MAX 2u /* the new one, and during a rotation the old one */

#define PRINCIPAL_URL_BYTES_MAX 384u  /* ddp://HOST:PORT,.../NAME#SECRET, see common/key.h */
#define SERVERS_MAX 9u                /* rendezvous of one cluster */
#define SERVER_ADDRESS_BYTES_MAX 320u /* of a server, in messages: HOST:PORT or unix:PATH */
#define NODE_NAME_BYTES_MAX 64u       /* including the final NUL, as all below */
#define JOB_NAME_BYTES_MAX 64u
#define USER_NAME_BYTES_MAX 64u
#define ADDRESS_BYTES_MAX 64u
#define REASON_BYTES_MAX 256u
#define SCHEMA_BYTES_MAX 17u       /* 16 hexadecimal digits */
#define BOOT_ID_UNKNOWN "unknown"  /* what a node says that cannot read the id of its boot */
#define IDENTITY_BYTES_MAX 65u     /* of a machine, of a state directory */
#define CLUSTERS_SEEN_MAX 8u       /* clusters whose newest job a node remembers */
#define AVOIDED_BYTES_MAX 512u     /* names of nodes that a job does not use now */
#define FAILURES_FIRST_MAX 2u      /* of each job the first failures are kept, */
#define FAILURES_KEPT_MAX 32u      /* and the newest, so many in all */
#define FAILED_RANKS_MAX 64u       /* of one generation, shown to a client */
#define DOING_BYTES_MAX 64u        /* what a rank does, in words */
#define STACKS_BYTES_MAX 3072u     /* where the ranks of a hung generation were */
#define LOOK_STACK_BYTES_MAX 2048u /* of one rank */
#define LOOK_WHERE_BYTES_MAX 128u
#define TAIL_BYTES_MAX 2048u /* the last lines of a failed rank */
#define BLOB_BYTES_MAX 512u  /* rank 0's blob: NCCL's unique id is 128 */
#define REQUEST_ID_CHARS 32u /* 128 bits in hex, chosen by the client */
#define ARGS_MAX 4096u
#define ENV_MAX 65536u
#define ENV_TEXT_BYTES_MAX 131072u            /* "NAME=VALUE" with its NUL: of execve */
#define LAUNCH_MAX 32u                        /* launch options of a job */
#define STAGE_BYTES_MAX (64u * 1024u * 1024u) /* the archive of a staged working directory */
#define STAGE_CHUNK_BYTES_MAX (512u * 1024u)  /* of such an archive, in one message */
#define STAGE_HASH_CHARS 64u                  /* SHA-256 in hex */
#define LOG_CHUNK_BYTES_MAX (32u * 1024u)
#define NODE_PEERS_ASKED_MAX 64u           /* other nodes in one question to a node */
#define NODE_DATA_BYTES_MAX (256u * 1024u) /* its answer */
#define LOG_RUNS_MAX 128u                  /* runs of stdout and stderr in one log_data */
#define STDIN_BYTES_MAX (16u * 1024u)      /* of one input */

/* Times. A node that misses a few beats gets no new jobs (suspect); after a dozen its jobs restart
 * elsewhere (lost). The lease is longer than both: when it ends, a node that cannot reach the
 * server kills its workers. A restarted server waits that long for the nodes of its stored jobs. */
#define BEAT_INTERVAL_US 1000000u
#define NODE_SUSPECT_US 5000000u
#define NODE_LOST_US 15000000u
#define GROW_US 60000000u /* --grow-after: how long a generation runs before the job may grow */
#define LEASE_DEFAULT_US 60000000u
/* How long after the end of a lease ranks are killed, and by whom: by their shim at once; by launcherd, if the shim has
 * not said that it does; by the guard of the shim (launcherd/shim/guard.h). After LEASE_MARGIN_US the server counts on it
 * that none runs. What is left of it is the time that SIGKILL takes. */
#define LEASE_LAUNCHER_US 500000u
#define LEASE_GUARD_US 750000u
#define LEASE_MARGIN_US 1500000u
#define GRACE_DEFAULT_US 30000000u /* from a stop's signal to SIGKILL; torchrun's default */

/* The schema version of the server's store (rendezvous/store). ddpctl upgrade compares it with the
 * server's. */
#define STORE_SCHEMA_VERSION 10

#endif
