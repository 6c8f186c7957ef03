/* What a user may have of the room for staged directories: what stage.c asks and says about that, on the loop. */
#ifndef RENDEZVOUS_SERVER_STAGE_SHARE_H
#define RENDEZVOUS_SERVER_STAGE_SHARE_H

#include "rendezvous/server/internal.h"
#include "rendezvous/server/stage_files.h"

/* For work that asks for room: whose it is, and what is to come of other uploads. */
void stage_set_user(struct stage_files *files, struct peer *peer);
/* Whether what this user sends or names can be counted. False: it was answered. */
bool stage_may_use(struct peer *peer, const char *hash);
/* Answers that there is no room, or none for this user. */
void stage_tell_full(struct peer *peer, const struct stage_files *files);

#endif
