/* A store in the test's own directory. */
#ifndef TESTS_UNIT_RENDEZVOUS_STORE_TOOLS_H
#define TESTS_UNIT_RENDEZVOUS_STORE_TOOLS_H

#include "rendezvous/store/store.h"

/* Fails the test with the store's own error. */
struct store *open_or_fail(const char *dir);
/* From now on this boot of the machine knows of no state (store/witness.h). Returns its folder, which is removed at the end.
 * For states whose cluster has the same id in each test. */
const char *forget_boot(void);
/* Runs SQL on the state of test_dir(), by another connection. */
void execute(const char *sql);

#endif
