/* Which errors end the process, and which do not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

void store_fail(struct store *store, const char *doing)
{
    int code = store->checkpoint_code;

    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "cannot %s %s: %s (SQLite %d, errno %d: %s); stopping, for after a failed write only "
             "the disk knows what is stored. Free the disk or mend it, then start again: nothing "
             "that was acknowledged is lost",
             doing, store->path, code != 0 ? sqlite3_errstr(code) : sqlite3_errmsg(store->db),
             code != 0 ? code : sqlite3_extended_errcode(store->db),
             sqlite3_system_errno(store->db), strerror(sqlite3_system_errno(store->db)));
    store->disk->end(store, STORE_EXIT_CODE);
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
