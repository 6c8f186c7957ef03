/* Lists come in pages; each begins after the last entry of the page before. A page that does not go on from there is the
 * last one, whatever the server says: it would be asked for again and again. Pure. */
#ifndef DDPCTL_PAGE_H
#define DDPCTL_PAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether to ask for the next page. `before`: the last entry before this page, 0 for none; `last`: of this page;
 * `more`: what the server says. */
bool page_goes_on(bool more, uint64_t before, uint64_t last);
/* The same for a list by names; "" for none. */
bool page_goes_on_by_name(bool more, const char *before, const char *last);

#endif
