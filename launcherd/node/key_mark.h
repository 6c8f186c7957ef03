/* STATE/key-of says that the state directory had a key, and of which node: "gpu01\n". A launcherd that has lost its key must
 * not go on as a node without one, with the host's name and the server of this machine. */
#ifndef LAUNCHERD_NODE_KEY_MARK_H
#define LAUNCHERD_NODE_KEY_MARK_H

#include "common/status.h"

/* Makes the file if it is not there, beside the key. Without it a lost key is not noticed, so a failure does no harm. Waits for the disk. */
void key_mark_write(const char *state_dir, const char *node);
/* For a start without a key. STATUS_NOT_FOUND: there was one. Waits for the disk. */
enum status key_mark_check(const char *state_dir, struct err *err);

#endif
