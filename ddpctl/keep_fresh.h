/* Keeps cleaners of temporary folders (systemd-tmpfiles, tmpreaper, tmpwatch) away from a folder that is in use
 * for days and in which little is written. */
#ifndef DDPCTL_KEEP_FRESH_H
#define DDPCTL_KEEP_FRESH_H

#include <stdbool.h>
#include <stdint.h>

/* Until this process ends: holds the folder's lock, which systemd-tmpfiles looks at (tmpfiles.d(5)), and
 * gives the files in it new times once an hour, from a thread of its own. Not `now`: a few seconds
 * later, when sockets have been made in it: who makes one waits for that lock. */
void keep_fresh_begin(const char *dir, bool now);
/* Gives everything of ours under `dir` that is older than `age_s` the present time. */
void keep_fresh_touch(const char *dir, int64_t age_s);

#endif
