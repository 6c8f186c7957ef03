/* A model of what a store must contain after commits: jobs, drains, principals, events. Changes are
 * made to a store and to the model alike and compared after a restart. */
#ifndef TESTS_LIB_STORE_MODEL_H
#define TESTS_LIB_STORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/store/store.h"

#define MODEL_JOBS_MAX 48
#define MODEL_DRAINS_MAX 6
#define MODEL_PRINCIPALS_MAX 6

struct model_job {
    uint64_t job_id; /* 0: none */
    uint64_t step;
    uint32_t generation, env_bytes;
    int32_t exit_code; /* of all its ranks, once the job has ended */
    enum job_state state;
};

struct model {
    struct model_job jobs[MODEL_JOBS_MAX];
    uint64_t drain_at_ms[MODEL_DRAINS_MAX];           /* node "dI" */
    uint64_t principal_made_ms[MODEL_PRINCIPALS_MAX]; /* "pI"; 0: none */
    uint32_t drain_count;
    uint64_t next_job_id, last_event_id;
};

struct model_random {
    uint64_t state;
};
uint64_t model_draw(struct model_random *random, uint64_t limit);

void model_init(struct model *model);
/* Makes one random change, also in the store's open transaction. `big`: sometimes a job with an
 * environment of 200 KB. */
void model_change(struct model *model, struct model_random *random, struct store *store, bool big);
/* Whether the store has exactly the model's content; otherwise `text` has the first difference. */
bool model_matches(const struct model *model, struct store *store, char *text, size_t text_bytes);

#endif
