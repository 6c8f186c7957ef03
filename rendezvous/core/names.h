/* Listing of node names, for people. */
#ifndef RENDEZVOUS_CORE_NAMES_H
#define RENDEZVOUS_CORE_NAMES_H

#include <stdint.h>

/* Writes "gpu[1-3],gpu7" for [count] names in that order. Names that do not fit are counted: "...
 * and 5 more". */
void names_list(const char *const *names, uint32_t count, char *out, uint32_t byte_count);

#endif
