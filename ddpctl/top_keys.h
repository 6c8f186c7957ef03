/* Decodes keys from the bytes that a terminal sends. Pure. */
#ifndef DDPCTL_TOP_KEYS_H
#define DDPCTL_TOP_KEYS_H

#include <stddef.h>

enum top_key {
    TOP_KEY_NONE,
    TOP_KEY_UP,
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_FIRST,
    TOP_KEY_LAST,
    TOP_KEY_OPEN,
    TOP_KEY_BACK,
    TOP_KEY_PANE,
    TOP_KEY_SORT,
    TOP_KEY_HELP,
    TOP_KEY_QUIT,
};

/* The first key in `bytes`; `*used` gets its length, at least 1. TOP_KEY_NONE: a key without
 * meaning here. */
enum top_key top_key_read(const char *bytes, size_t byte_count, size_t *used);

#endif
