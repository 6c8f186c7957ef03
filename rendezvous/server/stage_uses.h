/* Which user has sent or named which archive (stage.c) of late: for as long as an archive that no job names cannot be
 * removed, it counts for those users. In the server's memory: after a restart such archives count for nobody. For the loop
 * only. */
#ifndef RENDEZVOUS_SERVER_STAGE_USES_H
#define RENDEZVOUS_SERVER_STAGE_USES_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/store.h"

/* Of all users. No user has more than half of what the others leave. */
#define STAGE_USES_MAX 8192u

struct stage_use {
    uint64_t at_us; /* clock_boot_us */
    char user[USER_NAME_BYTES_MAX];
    char hash[STAGE_HASH_CHARS + 1];
};

/* Zeroed: none. */
struct stage_uses {
    struct stage_use *items;
    uint32_t count, room;
};

/* Notes that the user has used the archive now. False: it is not noted, the user has too many, or there is no memory. */
bool stage_uses_note(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us);
/* Whether stage_uses_note would do it, but for the memory. */
bool stage_uses_takes(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us);
/* Whether such a use is noted. */
bool stage_uses_has(struct stage_uses *uses, const char *user, const char *hash, uint64_t now_us);
/* Adds what is noted to what store_staged has returned for the same user. The list, still ascending, may have moved. False: no memory,
 * and the list is as before. */
bool stage_uses_add(struct stage_uses *uses, const char *user, uint64_t now_us,
                    struct store_staged **used, uint32_t *count);
void stage_uses_free(struct stage_uses *uses);

#endif
