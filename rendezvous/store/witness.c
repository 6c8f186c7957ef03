/* The memory of witness.h: no file is touched here. */
#include <stdio.h>

#include "rendezvous/store/witness_page.h"

bool witness_get(const struct witness *witness, struct witness_facts *facts)
{
    *facts = witness->page->facts;
    facts->history[sizeof facts->history - 1] = '\0';
    return witness->page->magic == WITNESS_MAGIC;
}

void witness_set(struct witness *witness, const struct witness_facts *facts)
{
    struct witness_page *page = witness->page;

    /* the number of commits last: a kill in between leaves one that is too small, which proves less */
    (void)snprintf(page->facts.history, sizeof page->facts.history, "%s", facts->history);
    page->facts.job_id = facts->job_id;
    page->facts.event_id = facts->event_id;
    page->facts.lease_us = facts->lease_us;
    page->facts.alive_us = facts->alive_us;
    __atomic_store_n(&page->facts.commits, facts->commits, __ATOMIC_RELEASE);
    __atomic_store_n(&page->magic, WITNESS_MAGIC, __ATOMIC_RELEASE);
}

void witness_alive(struct witness *witness, uint64_t now_us)
{
    __atomic_store_n(&witness->page->facts.alive_us, now_us, __ATOMIC_RELEASE);
}
