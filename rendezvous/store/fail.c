/* Which errors end the process, and which do not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

/* What SQLite says; the system's reason follows only where the system has given one. */
static void write_reason(const struct store *store, int code, char text[256])
{
    const int number = sqlite3_system_errno(store->db);
    int length = snprintf(text, 256, "%.160s (SQLite %d",
                          code != 0 ? sqlite3_errstr(code) : sqlite3_errmsg(store->db),
                          code != 0 ? code : sqlite3_extended_errcode(store->db));

    (void)snprintf(text + length, 256 - (size_t)length, number != 0 ? ", errno %d: %s)" : ")",
                   number, strerror(number));
}

static bool is_damaged(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

/* What is the matter, and what to do. */
static const char *advice(int code)
{
    if (is_damaged(code))
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
    char reason[256];

    write_reason(store, store->checkpoint_code, reason);
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "cannot %s %s: %s; stopping: %s", doing, store->path,
             reason, advice(code));
    store->disk->end(store, is_damaged(code) ? STORE_DAMAGED_EXIT_CODE : STORE_EXIT_CODE);
    abort();
}

bool store_is_passing(const struct store *store, int code)
{
    int kind = code & 0xff, number = sqlite3_system_errno(store->db);

    if (kind == SQLITE_FULL || kind == SQLITE_BUSY || kind == SQLITE_LOCKED)
        return true;
    return kind == SQLITE_IOERR && code != SQLITE_IOERR_FSYNC && code != SQLITE_IOERR_DIR_FSYNC &&
           (number == ENOSPC || number == EDQUOT);
}
