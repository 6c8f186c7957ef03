/* Writes and reads the file of seen.h on a thread of its own, for a server that must not wait for the disk of its state
 * directory. Of what is to be written only the newest waits. */
#ifndef RENDEZVOUS_STORE_SEEN_KEEPER_H
#define RENDEZVOUS_STORE_SEEN_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/seen.h"

struct seen_keeper;

/* Reads the file, and waits for that. STATUS_MEMORY, STATUS_SYSTEM. */
enum status seen_keeper_open(struct seen_keeper **keeper, const char *path, struct err *err);
/* Waits a second at most for what is to be written. A thread that hangs keeps what it needs. */
void seen_keeper_close(struct seen_keeper **keeper);

/* No function below waits for the disk; all may be called from any thread.
 *
 * seen_write, soon. Logs once when writing fails or takes longer than SEEN_LATE_US, and when it works again. */
#define SEEN_LATE_US 10000000u
void seen_keeper_note(struct seen_keeper *keeper, const struct seen *seen);
/* seen_read, soon: somebody may have changed the file. */
void seen_keeper_look(struct seen_keeper *keeper);
/* What the file had when it was last read, or what was noted since: seen_read's status and result. */
enum status seen_keeper_last(struct seen_keeper *keeper, struct seen *seen, struct err *err);
/* The same as seen_text. */
bool seen_keeper_describe(struct seen_keeper *keeper, char text[SEEN_TEXT_BYTES]);
const char *seen_keeper_path(const struct seen_keeper *keeper);
/* Waits until all is written, `limit_ms` at most. False: it is not. */
bool seen_keeper_wait(struct seen_keeper *keeper, uint32_t limit_ms);

#endif
