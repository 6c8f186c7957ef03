/* The messages between a client and the server: fields, types, ranges. Included only by msg.h,
 * which explains the declarations and makes the structs. */
#ifndef COMMON_MSG_CLIENT_H
#define COMMON_MSG_CLIENT_H

/* clang-format off */

/* -- a client and the server ------------------------------------------------------------------- */

/* how one generation failed */
#define PART_FAILURE(F, E, L)                                                                      \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(I64, failed_ms, 0, TIME_US_MAX)            /* wall clock */                                  \
    F(I64, ran_us, -1, TIME_US_MAX)              /* since all ranks ran; -1: they never did */     \
    F(I64, alone_us, -1, TIME_US_MAX)            /* until the next rank failed; -1: none did */    \
    E(class, failure_class, FAILURE_CLASS_TABLE)                                                   \
    F(I32, rank, -1, RANKS_PER_JOB_MAX - 1)      /* that failed first; -1: no rank did */          \
    F(U32, local_rank, 0, SLOTS_PER_NODE_MAX - 1)                                                  \
    F(LINE, node, 0, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(I32, exit_code, 0, 255)                                                                      \
    F(U32, signal, 0, 64)                                                                          \
    F(BOOL, oom, 0, 0)                           /* the kernel killed it as memory ran out */      \
    F(LINE, core, 0, REASON_BYTES_MAX - 1)       /* where its core file is, or who has it */       \
    F(LINE, cause, 0, REASON_BYTES_MAX - 1)                                                        \
    F(TEXT, tail, 0, TAIL_BYTES_MAX - 1)         /* its last lines */                              \
    F(TEXT, error, 0, TAIL_BYTES_MAX - 1)        /* its exception: message, end of the traceback */ \
    F(TEXT, stacks, 0, STACKS_BYTES_MAX - 1)     /* of a hang: where the ranks stood */            \
    F(U64, step, 0, JOB_ID_MAX)                  /* newest progress of the job; 0: none */         \
    F(U64, resumed_step, 0, JOB_ID_MAX)          /* the checkpoint that it began from; 0: none */  \
    F(U64, checkpoint_step, 0, JOB_ID_MAX)       /* newest when it had failed; 0: none */          \
    F(U32, world, 1, RANKS_PER_JOB_MAX)                                                            \
    F(U32, failed_too, 0, RANKS_PER_JOB_MAX)     /* other ranks that failed by themselves */       \
    F(U32, left, 0, RANKS_PER_JOB_MAX)           /* ranks that had ended well, with code 0 */      \
    F(I32, left_rank, -1, RANKS_PER_JOB_MAX - 1) /* the first of these */                          \
    F(U32, stopped, 0, RANKS_PER_JOB_MAX)        /* ranks that were stopped because of it */       \
    F(U32, lost, 0, RANKS_PER_JOB_MAX)           /* ranks on nodes that were lost */               \
    F(LINE, decision, 0, REASON_BYTES_MAX - 1)   /* "restarted at once"; empty: not yet made */
/* one rank of a failed generation that failed by itself */
#define PART_FAILED_RANK(F, E, L)                                                                  \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(LINE, node, 0, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(I32, exit_code, 0, 255)                                                                      \
    F(U32, signal, 0, 64)                                                                          \
    F(I64, after_us, -1, TIME_US_MAX)            /* the first failure; -1: not known */
/* one rank of a running generation that has reported progress */
#define PART_RANK_MOVE(F, E, L)                                                                    \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(I64, age_us, 0, TIME_US_MAX)               /* since its newest progress */

/* client -> server, first; requests may follow at once */
#define MSG_CLIENT_HELLO(F, E, L)                                                                  \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(LINE, version, 0, 31)                                                                        \
    F(LINE, schema, 0, SCHEMA_BYTES_MAX - 1)     /* of its messages: common/msg_schema.h */

/* server -> client */
#define MSG_CLIENT_WELCOME(F, E, L)                                                                \
    F(LINE, version, 0, 31)                                                                        \
    F(NAME, cluster, 1, 32)                                                                        \
    F(U32, protocol, 0, UINT32_MAX)              /* the server's */                                \
    F(LINE, schema, 0, SCHEMA_BYTES_MAX - 1)     /* the server's */

/* client -> server; answer: submitted or error */
#define MSG_SUBMIT(F, E, L)                                                                        \
    F(NAME, request_id, REQUEST_ID_CHARS, REQUEST_ID_CHARS) /* the same id is the same job */      \
    F(NAME, name, 1, JOB_NAME_BYTES_MAX - 1)                                                       \
    F(U32, nodes, 1, NODES_PER_JOB_MAX)                                                            \
    F(U32, nproc_per_node, 1, SLOTS_PER_NODE_MAX)                                                  \
    F(U32, max_restarts, 0, 1000)                                                                  \
    F(BOOL, restarts_given, 0, 0)                /* max_restarts is the user's; false: the default */ \
    F(U64, grace_us, 0, DURATION_US_MAX)                                                           \
    F(U64, time_limit_us, 0, DURATION_US_MAX)    /* of running; 0: none */                         \
    F(I32, priority, PRIORITY_MIN, PRIORITY_MAX) /* above 0: admins alone */                       \
    F(BOOL, wait_for_nodes, 0, 0)                /* queue it even if no known node can run it */   \
    F(U32, nodes_min, 0, NODES_PER_JOB_MAX)      /* it may run on so few; 0: on `nodes` alone */   \
    F(U32, spares, 0, NODES_PER_JOB_MAX)         /* nodes held beside `nodes` */                   \
    F(BOOL, replace_stragglers, 0, 0)            /* by spares */                                   \
    F(U64, hang_timeout_us, 0, TIME_US_MAX)      /* 0: by its steps; TIME_US_MAX: never */         \
    F(U64, warn_us, 0, DURATION_US_MAX)          /* before the end of its time; 0: no warning */   \
    F(U32, warn_signal, 0, 64)                                                                     \
    F(BOOL, requeue_at_limit, 0, 0)              /* when time_limit_us is over, if it has a newer checkpoint */ \
    F(LINE, after, 0, AFTER_SPEC_BYTES_MAX - 1)  /* common/after_spec.h; "": it waits for none */  \
    F(LINE, array, 0, ARRAY_SPEC_BYTES_MAX - 1)  /* common/array_spec.h; "": one job */            \
    F(TEXT, cwd, 1, 4095)                        /* an absolute path, or "stage:HASH" */          \
    F(TEXTS, argv, 1, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)                                                                      \
    F(PAIRS, launch, 0, LAUNCH_MAX)              /* common/launch.h */

/* server -> client: it is durable */
#define MSG_SUBMITTED(F, E, L)                                                                     \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(BOOL, is_new, 0, 0)                        /* false: this request id was known */

/* client -> server; answer: job or error */
#define MSG_JOB_GET(F, E, L)                                                                       \
    F(LINE, job, 1, JOB_NAME_BYTES_MAX - 1)      /* number, name (newest of it) or @last */        \
    F(U64, after_version, 0, UINT64_MAX)         /* answer when it is greater; 0: now */           \
    F(U64, wait_us, 0, 60000000)                 /* ... or after this long */                      \
    F(U32, first_rank, 0, RANKS_PER_JOB_MAX - 1) /* the answer lists ranks from this one on */

/* server -> client */
#define MSG_JOB_INFO(F, E, L)                                                                      \
    F(U64, version, 1, UINT64_MAX)                                                                 \
    L(jobs, job, 1)                                                                                \
    L(ranks, job_rank, RANKS_LISTED_MAX)                                                           \
    F(BOOL, more_ranks, 0, 0)                    /* there are ranks after the last of these */     \
    F(I32, failed_rank, -1, RANKS_PER_JOB_MAX - 1) /* of the last failed generation */             \
    F(LINE, failed_node, 0, NODE_NAME_BYTES_MAX - 1)                                               \
    F(TEXT, tail, 0, TAIL_BYTES_MAX - 1)                                                           \
    F(TEXTS, argv, 0, ARGS_MAX)                                                                    \
    F(TEXT, cwd, 0, 4095)                                                                          \
    F(U32, crashed_generation, 0, GENERATION_MAX) /* the newest in which a rank failed; 0: none */ \
    F(U32, crashed_rank, 0, RANKS_PER_JOB_MAX - 1) /* the first of it to fail */

/* client -> server; answer: why_info or error */
#define MSG_WHY_GET(F, E, L)                                                                       \
    F(LINE, job, 1, JOB_NAME_BYTES_MAX - 1)      /* number, name (newest of it) or @last */        \
    F(U32, ranks_of, 0, GENERATION_MAX)          /* this generation; 0: the newest that failed */

/* server -> client: the failures that are kept, by generation */
#define MSG_WHY_INFO(F, E, L)                                                                      \
    L(jobs, job, 1)                                                                                \
    L(failures, failure, FAILURES_KEPT_MAX)                                                        \
    F(U32, ranks_of, 0, GENERATION_MAX)          /* the generation of the ranks; 0: none */                       \
    L(ranks, failed_rank, FAILED_RANKS_MAX)      /* those that failed by themselves, by time */    \
    F(I64, ran_us, -1, TIME_US_MAX)              /* since all ranks run; -1: they do not */        \
    L(moves, rank_move, FAILED_RANKS_MAX)        /* of ranks that run: the longest ago first */    \
    F(LINE, avoided, 0, AVOIDED_BYTES_MAX - 1)   /* nodes that it does not use now: "gpu02 gpu07" */

/* client -> server; answer: jobs, newest last */
#define MSG_JOB_LIST(F, E, L)                                                                      \
    F(BOOL, all, 0, 0)                           /* ended ones too */                              \
    F(U64, after_id, 0, JOB_ID_MAX)                                                                \
    F(U32, limit, 1, 500)

#define MSG_JOBS(F, E, L)                                                                          \
    L(jobs, job, 500)                                                                              \
    F(BOOL, more, 0, 0)

/* client -> server; answer: job_info; again is the same */
#define MSG_CANCEL(F, E, L)                                                                        \
    F(LINE, job, 1, JOB_NAME_BYTES_MAX - 1)                                                        \
    F(U32, signal, 1, 64)                                                                          \
    F(I64, grace_us, -1, DURATION_US_MAX)        /* -1: the job's own */

/* client -> server; answer: nodes */
#define MSG_NODE_LIST(F, E, L)                                                                     \
    F(BOOL, all, 0, 0)                           /* lost ones too */                               \
    F(LINE, node, 0, NODE_NAME_BYTES_MAX - 1)    /* not empty: of that one, with all its slots */  \
    F(LINE, after, 0, NODE_NAME_BYTES_MAX - 1)   /* those after this name; empty: from the first */ \
    F(U32, limit, 1, NODES_LISTED_MAX)

/* server -> client: a page of the list, by name. It ends early where the slots of the next node have
 * no room. */
#define MSG_NODES(F, E, L)                                                                         \
    L(nodes, node, NODES_LISTED_MAX)                                                               \
    L(slots, slot, SLOTS_LISTED_MAX)             /* of these nodes: closed ones; all of a named node */ \
    F(BOOL, more, 0, 0)                          /* there are nodes after the last of these */

/* client -> server: no new ranks there; answer: nodes or error */
#define MSG_NODE_DRAIN(F, E, L)                                                                    \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U64, slot_mask, 0, UINT64_MAX)             /* 0: the node as a whole */                      \
    F(LINE, reason, 1, REASON_BYTES_MAX - 1)

/* client -> server; answer: nodes or error */
#define MSG_NODE_RESUME(F, E, L)                                                                   \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U64, slot_mask, 0, UINT64_MAX)             /* 0: whatever was drained there */

/* client -> server; answer: events */
#define MSG_EVENT_LIST(F, E, L)                                                                    \
    F(U64, job_id, 0, JOB_ID_MAX)                /* 0: of all */                                   \
    F(U64, after_id, 0, JOB_ID_MAX)                                                                \
    F(U32, limit, 1, 200)                                                                          \
    F(U64, wait_us, 0, 60000000)                 /* answer once there is one, or after this long */

#define MSG_EVENTS(F, E, L)                                                                        \
    L(events, event, 200)

/* client -> server -> node: bytes of one rank's log, by cursor. To a node the last byte of request_id is the same for all
 * requests of one user, and mostly another for others: the node takes turns between them. */
#define MSG_LOG_READ(F, E, L)                                                                      \
    F(U64, request_id, 0, UINT64_MAX)            /* comes back in log_data */                      \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U64, offset, 0, TIME_US_MAX)                                                                 \
    F(U32, tail_lines, 0, 1000000)               /* > 0: from that many lines before the end */    \
    F(U32, bytes_max, 1, LOG_CHUNK_BYTES_MAX)                                                      \
    F(U64, wait_us, 0, 60000000)                 /* answer with bytes, at the log's end, or then */ \
    E(what, log_kind, LOG_KIND_TABLE)            /* its output, its metrics, ... */                \
    F(I64, submitted_ms, 0, TIME_US_MAX)         /* of the job: set by the server; 0: not known */

/* node -> server -> client */
#define MSG_LOG_DATA(F, E, L)                                                                      \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    F(U64, offset, 0, TIME_US_MAX)               /* of the first byte here */                      \
    F(BYTES, bytes, 0, LOG_CHUNK_BYTES_MAX)                                                        \
    F(BOOL, is_final, 0, 0)                      /* the log has no more bytes than these */        \
    F(LINE, problem, 0, REASON_BYTES_MAX - 1)    /* not empty: why there is nothing to read */     \
    F(U64, size, 0, TIME_US_MAX)                 /* of the log, when it was read; 0: not known */  \
    L(runs, log_run, LOG_RUNS_MAX)               /* of `bytes`, in order; none: all of it stdout */

/* client -> server -> node -> shim: what a rank reads next on its stdin, from the job's owner alone. One
 * at a time; answer: input_state, when all of it was taken, or after a second */
#define MSG_INPUT(F, E, L)                                                                         \
    F(U64, request_id, 0, UINT64_MAX)            /* comes back in input_state */                   \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U64, offset, 0, TIME_US_MAX)               /* of the first byte, in all input of that rank */ \
    F(BYTES, bytes, 0, STDIN_BYTES_MAX)                                                            \
    F(BOOL, is_end, 0, 0)                        /* nothing follows these bytes */                 \
    F(U32, rows, 0, 65535)                       /* of the terminal; 0: as it is */                \
    F(U32, columns, 0, 65535)

/* shim -> node -> server -> client */
#define MSG_INPUT_STATE(F, E, L)                                                                   \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    F(U64, taken, 0, TIME_US_MAX)                /* bytes, in all: the offset to go on at */       \
    F(BOOL, is_closed, 0, 0)                     /* the rank takes no more */                      \
    F(LINE, problem, 0, REASON_BYTES_MAX - 1)    /* not empty: why it was not given to the rank */

/* client -> server: a question to a node about itself; answer: node_data or error */
#define MSG_NODE_READ(F, E, L)                                                                     \
    F(U64, request_id, 0, UINT64_MAX)            /* comes back in node_data */                     \
    F(NAME, node, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    E(what, node_question, NODE_QUESTION_TABLE)                                                    \
    F(LINE, job, 0, JOB_NAME_BYTES_MAX - 1)      /* on behalf of this job; empty: of the asker */  \
    F(TEXTS, peers, 0, NODE_PEERS_ASKED_MAX)     /* names of the other nodes that it is about */   \
    F(PAIRS, args, 0, NODE_PEERS_ASKED_MAX)      /* read by the node alone */

/* server -> node: the same, with what the server knows */
#define MSG_NODE_ASK(F, E, L)                                                                      \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    E(what, node_question, NODE_QUESTION_TABLE)                                                    \
    F(PAIRS, peers, 0, NODE_PEERS_ASKED_MAX)     /* name -> address, of those that are known */    \
    F(PAIRS, args, 0, NODE_PEERS_ASKED_MAX)                                                        \
    F(LINE, user, 0, USER_NAME_BYTES_MAX - 1)    /* whose rights the answer is found with */       \
    F(U64, job_id, 0, JOB_ID_MAX)                /* 0: none, and the rest is empty */              \
    F(TEXT, cwd, 0, 4095)                                                                          \
    F(TEXTS, argv, 0, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)

/* node -> server -> client */
#define MSG_NODE_DATA(F, E, L)                                                                     \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    F(BYTES, bytes, 0, NODE_DATA_BYTES_MAX)      /* a JSON object; none where there is a problem */ \
    F(LINE, problem, 0, REASON_BYTES_MAX - 1)    /* not empty: why there is no answer */           \
    F(I64, node_ms, 0, TIME_US_MAX)              /* the node's wall clock at its answer; 0: none */ \
    F(I64, server_ms, 0, TIME_US_MAX)            /* the server's, when it passed it on */

/* client -> server: the next bytes of an archive (common/stage.h), in order, on one connection. With no
 * bytes it asks what is there. Answer: stage_state or error */
#define MSG_STAGE_PUT(F, E, L)                                                                     \
    F(NAME, hash, STAGE_HASH_CHARS, STAGE_HASH_CHARS)                                              \
    F(U64, total, 1, STAGE_BYTES_MAX)                                                              \
    F(U64, offset, 0, STAGE_BYTES_MAX)                                                             \
    F(BYTES, bytes, 0, STAGE_CHUNK_BYTES_MAX)

/* server -> client */
#define MSG_STAGE_STATE(F, E, L)                                                                   \
    F(NAME, hash, STAGE_HASH_CHARS, STAGE_HASH_CHARS)                                              \
    F(U64, have, 0, STAGE_BYTES_MAX)             /* the next offset */                             \
    F(BOOL, is_complete, 0, 0)                   /* durable: a job may name it */

/* node -> server; answer: stage_data */
#define MSG_STAGE_GET(F, E, L)                                                                     \
    F(NAME, hash, STAGE_HASH_CHARS, STAGE_HASH_CHARS)                                              \
    F(U64, offset, 0, STAGE_BYTES_MAX)

/* server -> node */
#define MSG_STAGE_DATA(F, E, L)                                                                    \
    F(NAME, hash, STAGE_HASH_CHARS, STAGE_HASH_CHARS)                                              \
    F(U64, total, 0, STAGE_BYTES_MAX)                                                              \
    F(U64, offset, 0, STAGE_BYTES_MAX)           /* of the first byte here */                      \
    F(BYTES, bytes, 0, STAGE_CHUNK_BYTES_MAX)                                                      \
    F(LINE, problem, 0, REASON_BYTES_MAX - 1)    /* not empty: why there is nothing */

/* client -> server; answer: server_info */
#define MSG_SERVER_GET(F, E, L)                                                                    \
    F(U64, request_id, 0, UINT64_MAX)            /* comes back in server_info */

/* client -> server, of an admin: the keys that the server has are the right ones, although its state went back; answer:
 * server_info */
#define MSG_KEYS_CHECKED(F, E, L)                                                                  \
    F(U64, request_id, 0, UINT64_MAX)            /* comes back in server_info */

/* server -> client: how the server does. Counts are of everybody's jobs, since it was started. */
#define MSG_SERVER_INFO(F, E, L)                                                                   \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    F(LINE, version, 0, 31)                                                                        \
    F(U64, up_us, 0, TIME_US_MAX)                                                                  \
    F(U32, jobs_active, 0, UINT32_MAX)           /* that wait and run, now */                      \
    F(U64, submitted, 0, UINT64_MAX)                                                               \
    F(U64, succeeded, 0, UINT64_MAX)                                                               \
    F(U64, failed, 0, UINT64_MAX)                                                                  \
    F(U64, cancelled, 0, UINT64_MAX)                                                               \
    F(U64, store_writes, 0, UINT64_MAX)          /* transactions */                                \
    F(BOOL, store_is_low, 0, 0)                  /* its disk is nearly full */                     \
    F(U32, connections, 0, UINT32_MAX)           /* of nodes and clients, now */                   \
    F(U64, token, 0, INT64_MAX)                  /* on etcd: rises with each new leader; else 0 */ \
    F(U32, schema, 0, UINT32_MAX)                /* of its store */                                \
    F(BOOL, is_of_past, 0, 0)                    /* more was done than its store knows */          \
    F(LINE, past_why, 0, REASON_BYTES_MAX - 1)   /* then: who knows what */                        \
    F(I64, keys_lost_ms, 0, TIME_US_MAX)         /* wall clock: its keys are of a time before; 0: no */ \
    L(servers, server, SERVERS_MAX)              /* on one etcd: that leads, then who stands by; else empty */

/* client -> server, of an admin; answer: principal_key or error */
#define MSG_PRINCIPAL_ADD(F, E, L)                                                                 \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                       \
    E(role, role, ROLE_TABLE)

/* client -> server, of an admin: a new secret; answer: principal_key or error */
#define MSG_PRINCIPAL_ROTATE(F, E, L)                                                              \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                       \
    F(BOOL, is_node, 0, 0)                       /* what the client takes it for */                \
    F(U64, overlap_us, 0, DURATION_US_MAX)       /* the old secret is valid this long beside it */

/* client -> server, of an admin: its key is void now, its connections close; answer: principals
 * (the removed one, as it was) or error */
#define MSG_PRINCIPAL_REMOVE(F, E, L)                                                              \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                       \
    F(BOOL, is_node, 0, 0)

/* client -> server, of an admin; answer: principals, by name */
#define MSG_PRINCIPAL_LIST(F, E, L)                                                                \
    F(BOOL, nodes, 0, 0)                         /* nodes; else users and admins */                \
    F(LINE, after, 0, NODE_NAME_BYTES_MAX - 1)   /* those after this name; empty: from the first */ \
    F(U32, limit, 1, 500)

#define MSG_PRINCIPALS(F, E, L)                                                                    \
    L(principals, principal, 500)                                                                  \
    F(BOOL, more, 0, 0)

/* server -> client: shown once; the server gives it out never again */
#define MSG_PRINCIPAL_KEY(F, E, L)                                                                 \
    F(LINE, url, 1, PRINCIPAL_URL_BYTES_MAX - 1) /* ddp://HOST:PORT,.../NAME#SECRET */             \
    E(role, role, ROLE_TABLE)                                                                      \
    F(I64, old_until_ms, 0, TIME_US_MAX)         /* of a rotation: the old secret's end */

/* server -> node or client, in place of a welcome: this server stands by for the one that leads; then it closes the
 * connection */
#define MSG_REFER(F, E, L)                                                                         \
    F(LINE, leader, 0, SERVER_ADDRESS_BYTES_MAX - 1) /* unix:PATH or HOST:PORT; empty: nobody leads now */ \
    F(LINE, why, 0, 255)                         /* why nobody will lead until an administrator acts; empty: no reason */

/* server -> anyone; code: bad_request not_found refused full unreachable internal; to a node also
 * busy: its name is taken, by another process or an earlier connection of its own */
#define MSG_ERROR(F, E, L)                                                                         \
    F(NAME, code, 1, 31)                         /* see above */                          \
    F(LINE, message, 1, 511)                                                                       \
    F(LINE, hint, 0, 511)

/* clang-format on */

#endif
