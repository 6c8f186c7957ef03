/* Plans on disk: a plan that was built once for a version of cuDNN, a device and a shape is read
 * the next time. Each plan is a file, named by a hash of its key; the file contains the key. Files
 * are replaced atomically; damaged files and files with another key are ignored. Several processes
 * may use one folder. */
#ifndef WORKER_BACKEND_CUDA_PLANS_PLAN_CACHE_H
#define WORKER_BACKEND_CUDA_PLANS_PLAN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_CACHE_KEY_MAX 512

struct plan_cache {
    char folder[512]; /* "": no cache */
};

/* The result of a read. */
enum plan_cache_answer { PLAN_CACHE_FOUND, PLAN_CACHE_NONE, PLAN_CACHE_DAMAGED };

/* Creates the folder (and those above it), for this user alone. folder: NULL for the user's cache
 * folder, "" for no cache. False if it cannot be used, with the reason in `why`: no home, no right
 * to write, owned by another user or writable by others. Then there is no cache. */
bool plan_cache_open(struct plan_cache *cache, const char *folder, char *why, size_t why_bytes);

/* The text under `key` (one line), malloc'ed: `*byte_count` bytes and a NUL. NULL unless FOUND. */
enum plan_cache_answer plan_cache_read(const struct plan_cache *cache, const char *key, char **text,
                                       size_t *byte_count);
/* Whether the text was written. */
bool plan_cache_write(const struct plan_cache *cache, const char *key, const char *text,
                      size_t byte_count);

/* One process at a time makes the plans of a list of requests: a lock beside the files. The kernel releases the lock
 * of a process that ends, however it ends. */
struct plan_lock {
    int fd; /* -1: not held */
};

enum plan_lock_answer {
    PLAN_LOCK_TAKEN,  /* at once */
    PLAN_LOCK_WAITED, /* and before that another process had it: the cache may have more now */
    PLAN_LOCK_BUSY,   /* another process still has it at the end of the wait */
    PLAN_LOCK_NONE    /* no cache, or its file system has no locks */
};

/* Waits up to `limit_us`. `name`: of what the lock is for. goes_on (NULL: yes) is asked every few
 * milliseconds of the wait. */
enum plan_lock_answer plan_lock_take(struct plan_lock *lock, const struct plan_cache *cache,
                                     uint64_t name, uint64_t limit_us,
                                     bool (*goes_on)(void *user, uint64_t waited_us), void *user);
void plan_lock_release(struct plan_lock *lock);

#endif
