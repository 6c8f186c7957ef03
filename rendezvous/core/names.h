/* Names of nodes as people order and write them. */
#ifndef RENDEZVOUS_CORE_NAMES_H
#define RENDEZVOUS_CORE_NAMES_H

#include <stdint.h>

/* node2 before node10: digits compare as numbers. 0 for equal names alone. */
int names_compare(const char *a, const char *b);
/* "gpu[1-3],gpu7" of [count] names in that order; what does not fit is counted: "... and 5 more". */
void names_list(const char *const *names, uint32_t count, char *out, uint32_t byte_count);

#endif
