/* Shared by the tests of the shim's core: one shim of job 7, generation 2; its events and
 * actions. */
#ifndef TESTS_UNIT_LAUNCHERD_SHIM_TOOLS_H
#define TESTS_UNIT_LAUNCHERD_SHIM_TOOLS_H

#include "launcherd/core/shim.h"

#define SECOND_US 1000000u
#define LEASE_US (60u * SECOND_US)
#define GRACE_US (30u * SECOND_US)

extern struct shim shim;
extern struct shim_actions actions;

/* Then the end is not stored until the test says so. Else that is done at once, and is in no text. */
extern bool disk_hangs;

/* The actions of one event, as text: "kill report(stopping)". */
const char *step(uint64_t now_us, struct shim_event event);
const char *event(uint64_t now_us, enum shim_event_type type);
const char *message(uint64_t now_us, struct msg *msg);
const char *spawned(uint64_t now_us, uint32_t local);
const char *exited(uint64_t now_us, uint32_t local, int32_t code, uint32_t signal);
const char *go(uint64_t now_us, uint32_t generation);
const char *stop(uint64_t now_us, uint32_t signal, uint64_t grace_us);
const char *forget(uint64_t now_us);
const char *ack(uint64_t now_us, uint32_t revision);
struct msg_shim_report report(uint64_t now_us);
void begin(uint32_t rank_base, uint32_t local_count);
/* Ready, with launcherd connected and the port reserved. */
void ready(uint32_t local_count);
void running(uint32_t local_count);

#endif
