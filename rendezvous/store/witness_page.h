/* The file of witness.h. */
#ifndef RENDEZVOUS_STORE_WITNESS_PAGE_H
#define RENDEZVOUS_STORE_WITNESS_PAGE_H

#include "rendezvous/store/witness.h"

#define WITNESS_MAGIC UINT64_C(0x326e656573706464)
#define WITNESS_BOOT_BYTES 40u

struct witness_page {
    uint64_t magic; /* 0: nothing is known yet */
    char boot[WITNESS_BOOT_BYTES];
    char state_path[4096];
    struct witness_facts facts;
};

struct witness {
    struct witness_page *page;
    int fd; /* locked, so that one server at a time uses states of the cluster on this machine */
};

#endif
