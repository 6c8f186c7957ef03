/* Ordering and listing of node names, for people. */
#ifndef RENDEZVOUS_CORE_NAMES_H
#define RENDEZVOUS_CORE_NAMES_H

#include <stdint.h>

/* Compares names with digits as numbers: node2 comes before node10. 0 only for equal names. */
int names_compare(const char *a, const char *b);
/* Writes "gpu[1-3],gpu7" for [count] names in that order. Names that do not fit are counted: "...
 * and 5 more". */
void names_list(const char *const *names, uint32_t count, char *out, uint32_t byte_count);

#endif
