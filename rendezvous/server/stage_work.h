/* Work of threads on staged directories: what stage.c and stage_get.c share, on the loop. */
#ifndef RENDEZVOUS_SERVER_STAGE_WORK_H
#define RENDEZVOUS_SERVER_STAGE_WORK_H

#include "rendezvous/server/internal.h"
#include "rendezvous/server/stage_files.h"

/* NULL: no memory. */
struct stage_files *stage_work_new(struct server *server, uint64_t peer_id, const char *hash,
                                   void (*run)(struct file_work *work));
/* Logs once per hang that the disk does not answer: `late`; NULL: it does. */
void stage_note_disk(struct server *server, const char *late);

#endif
