/* What ended processes have left in /dev/shm. A killed process leaves its segments there; after some restarts the folder is
 * full. Blocks as long as reading /proc takes; for a thread.
 *
 * That no process has a file open proves nothing: a script may keep its data set there for its next generation. So a file is
 * removed only if its name says that it was made by a process of which the caller knows that it has ended; all others are
 * named to people. */
#ifndef LAUNCHERD_PROCESS_SHM_FOLDER_H
#define LAUNCHERD_PROCESS_SHM_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHM_FOLDER "/dev/shm"
#define SHM_SEEN_MAX 8192u /* entries; of a folder with more nothing is known */
#define SHM_LEFT_MAX 256u
#define SHM_NAME_BYTES 256u

/* The entries of a folder at some time. */
struct shm_seen {
    bool is_known;
    uint32_t count;
    ino_t inodes[SHM_SEEN_MAX];
};

struct shm_file {
    char name[SHM_NAME_BYTES];
    ino_t inode;
    uint64_t bytes; /* that it takes */
    bool is_folder, is_used, is_removed;
};

struct shm_left {
    uint32_t count;
    struct shm_file files[SHM_LEFT_MAX];
};

void shm_seen_read(const char *folder, struct shm_seen *seen);
/* Files of this user that are in the folder and not in `seen`, the largest first, without those that a process has open or
 * mapped. `seen` NULL: of whatever time. */
void shm_left_read(const char *folder, const struct shm_seen *seen, uid_t user,
                   struct shm_left *left);
/* The process that made a file of this name: a segment of PyTorch's, of multiprocessing's or loky's, OpenMP's registration. 0: the
 * name does not say. */
pid_t shm_maker(const char *name);
/* Removes those of `left` whose maker is one of these processes, and which are still what they were. Returns how many. */
uint32_t shm_left_remove(const char *folder, struct shm_left *left, uid_t user, const pid_t *ended,
                         uint32_t ended_count);
/* "seg-a (24 MiB), b (1 KiB) and 3 more": those that were removed, or the others. Returns how many. */
uint32_t shm_left_list(const struct shm_left *left, bool removed, char *text, uint32_t text_bytes);

#endif
