/* A store in the test's own directory. */
#ifndef TESTS_UNIT_RENDEZVOUS_STORE_TOOLS_H
#define TESTS_UNIT_RENDEZVOUS_STORE_TOOLS_H

#include "rendezvous/store/store.h"

/* Fails the test with the store's own error. */
struct store *open_or_fail(const char *dir);
/* Runs SQL on the state of test_dir(), by another connection. */
void execute(const char *sql);

#endif
