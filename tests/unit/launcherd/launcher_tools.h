/* The launcher's core under test: one core, its last actions, and each step as text. "1.1" is job 1,
 * generation 1. */
#ifndef TESTS_UNIT_LAUNCHERD_LAUNCHER_TOOLS_H
#define TESTS_UNIT_LAUNCHERD_LAUNCHER_TOOLS_H

#include "launcherd/core/launcher.h"

#define SECOND_US 1000000u
#define BEAT_US SECOND_US
#define JOB_GRACE_US (7 * SECOND_US)
#define LEASE_US (60u * SECOND_US)

extern struct launcher launcher;
extern struct launcher_actions actions; /* of the last step */
extern char trace[8192];                /* its text */

const char *step(uint64_t now_us, struct launcher_event event);
const char *event(uint64_t now_us, enum launcher_event_type type);
const char *server(uint64_t now_us, const struct msg *msg);
const char *shim_event(uint64_t now_us, enum launcher_event_type type, uint64_t job_id,
                       uint32_t generation, const struct msg *msg, const char *text);
const char *welcome(uint64_t now_us, const char *cluster);
const char *beat_ack(uint64_t now_us, uint64_t sent_us);
const char *start(uint64_t now_us, uint64_t job_id, uint32_t generation, uint64_t slot_mask);
const char *order(uint64_t now_us, enum msg_type type, uint64_t job_id, uint32_t generation);
const char *shim_open(uint64_t now_us, uint64_t job_id, uint32_t generation, enum shim_phase phase);
const char *shim_reports(uint64_t now_us, uint64_t job_id, uint32_t generation,
                         enum shim_phase phase);
const char *adopt(uint64_t job_id, const char *cluster, bool alive, const struct msg *end);
void begin(void);
void connected(void);
void with_shim(void);

#endif
