/* Which errors end the process, and which do not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

#define REASON_BYTES 4600 /* with the path of the folder */
#define MIB ((uint64_t)1 << 20)

bool store_is_damage(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

static bool is_failed_sync(int code)
{
    return code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC;
}

/* SQLite keeps no errno of a failed sync, so this is what else can be known: a full disk shows. */
static void write_failed_sync(const struct store *store, char *text, size_t byte_count)
{
    const uint64_t free_bytes = store->disk->free_bytes(store->path);
    const char *end = strrchr(store->path, '/');
    const int dir_bytes = end != NULL ? (int)(end - store->path) : 0;
    const int length =
        snprintf(text, byte_count,
                 "): what was written has not reached the disk, and SQLite keeps no errno");

    if (free_bytes != UINT64_MAX)
        (void)snprintf(text + length, byte_count - (size_t)length,
                       "; the file system of %.*s has %llu MiB free", dir_bytes, store->path,
                       (unsigned long long)(free_bytes / MIB));
}

/* What SQLite says; the system's reason follows only where the system has given one. */
static void write_reason(const struct store *store, int code, char text[REASON_BYTES])
{
    const int number = sqlite3_system_errno(store->db);
    const char *says =
        store->checkpoint_code != 0 ? sqlite3_errstr(code) : sqlite3_errmsg(store->db);
    const int length = snprintf(text, REASON_BYTES, "%.160s (SQLite %d", says, code);

    if (is_failed_sync(code)) /* `number` is of an earlier error */
        write_failed_sync(store, text + length, REASON_BYTES - (size_t)length);
    else
        (void)snprintf(text + length, REASON_BYTES - (size_t)length,
                       number != 0 ? ", errno %d: %s)" : ")", number, strerror(number));
}

/* What is the matter, and what to do. */
static const char *advice(int code)
{
    if (store_is_damage(code))
        return "the file is damaged. The next start looks through it and mends it, if that "
               "concerns single jobs only; otherwise restore a backup (ddpctl restore)";
    if (code == SQLITE_IOERR_READ || code == SQLITE_IOERR_SHORT_READ)
        return "its disk has failed a read. Mend the disk, then start again";
    if ((code & 0xff) == SQLITE_NOMEM)
        return "there is no memory. What was acknowledged is stored: start again";
    return "after a failed write only the disk knows what is stored. Free the disk or mend it, "
           "then start again: nothing that was acknowledged is lost";
}

void store_fail(struct store *store, const char *doing)
{
    const int code =
        store->checkpoint_code != 0 ? store->checkpoint_code : sqlite3_extended_errcode(store->db);
    char reason[REASON_BYTES];

    write_reason(store, code, reason);
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "cannot %s %s: %s; stopping: %s", doing, store->path,
             reason, advice(code));
    store->disk->end(store, store_is_damage(code) ? STORE_DAMAGED_EXIT_CODE : STORE_EXIT_CODE);
    abort();
}

bool store_is_passing(const struct store *store, int code)
{
    int kind = code & 0xff, number = sqlite3_system_errno(store->db);

    if (kind == SQLITE_FULL || kind == SQLITE_BUSY || kind == SQLITE_LOCKED)
        return true;
    return kind == SQLITE_IOERR && !is_failed_sync(code) && (number == ENOSPC || number == EDQUOT);
}
