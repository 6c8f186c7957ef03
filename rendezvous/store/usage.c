/* How many bytes each user has in the store, for the quota. Triggers keep a table in memory up to date,
 * so that it holds for every way in which a row is written or removed. Rows of jobs, ranks and failures
 * count with a fixed size each; the commands and environments, which may be large, with their own.
 * Events do not count: there are STORE_EVENTS_MAX of all users together. */
#include <string.h>

#include "common/log.h"
#include "rendezvous/store/internal.h"

/* What the row of a job and its request id take, and each rank of each generation. */
#define JOB_SQL(row)                                                                               \
    "(512 + 128 * " row "generation * max(" row "nodes, " row "nodes_max) * " row "nproc_per_"     \
    "node)"
#define FAILURE_SQL "8192"
#define BYTES_SQL(column) "length(CAST(" column " AS BLOB))"
#define SPEC_SQL(row)                                                                              \
    "(" BYTES_SQL(row "cwd") " + " BYTES_SQL(row "argv") " + " BYTES_SQL(                          \
        row "env") " + " BYTES_SQL(row "launch") ")"
/* Whose job it is. The first job of an array, which has its spec, may be gone before the last. */
#define USER_SQL(row)                                                                              \
    "(SELECT user FROM jobs WHERE id = " row "job_id UNION ALL"                                    \
    " SELECT user FROM jobs WHERE array_job = " row "job_id AND array_job <> 0 LIMIT 1)"
#define ADD_SQL(bytes, user) "UPDATE usage SET bytes = bytes + " bytes " WHERE user = " user ";"

static const char fill_sql[] =
    "DROP TABLE IF EXISTS temp.usage;"
    "CREATE TEMP TABLE usage (user TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO usage SELECT user, CAST(total(bytes) AS INTEGER) FROM (SELECT "
    "user, " JOB_SQL("") " AS bytes FROM main.jobs UNION ALL SELECT " USER_SQL(
        "specs.") ", " SPEC_SQL("specs.") " FROM main.specs"
                                          " UNION ALL SELECT (SELECT user FROM jobs WHERE "
                                          "id = failures.job_id), " FAILURE_SQL
                                          " FROM main.failures) WHERE user IS NOT NULL "
                                          "GROUP BY user";

/* An INSERT OR REPLACE runs no trigger for the row that it replaces: what that one had is subtracted
 * before. Nothing here may depend on a conflict, since the rule of the outer statement would hold. */
static const char triggers_sql[] =
    "CREATE TEMP TRIGGER usage_job BEFORE INSERT ON main.jobs BEGIN"
    " INSERT INTO usage SELECT NEW.user, 0 WHERE NOT EXISTS"
    " (SELECT 1 FROM usage WHERE user = NEW.user);"
    " UPDATE usage SET bytes = bytes + " JOB_SQL("NEW.") " - coalesce((SELECT " JOB_SQL(
        "") " FROM jobs WHERE id = NEW.id), 0) WHERE user = NEW.user; END;"
            "CREATE TEMP TRIGGER usage_job_gone AFTER DELETE ON main.jobs BEGIN " ADD_SQL(
                "-" JOB_SQL("OLD."),
                "OLD.user") " DELETE FROM usage WHERE user = OLD.user AND bytes <= 0; END;"
                            "CREATE TEMP TRIGGER usage_spec AFTER INSERT ON main.specs "
                            "BEGIN " ADD_SQL(
                                SPEC_SQL("NEW."),
                                USER_SQL(
                                    "NEW.")) " END;"
                                             "CREATE TEMP TRIGGER usage_spec_less AFTER UPDATE ON "
                                             "main.specs BEGIN " ADD_SQL(
                                                 SPEC_SQL("NEW.") " - " SPEC_SQL("OLD."),
                                                 USER_SQL(
                                                     "NEW.")) " END;"
                                                              "CREATE TEMP TRIGGER usage_spec_gone "
                                                              "AFTER DELETE ON main.specs "
                                                              "BEGIN " ADD_SQL(
                                                                  "-" SPEC_SQL("OLD."),
                                                                  USER_SQL(
                                                                      "OLD.")) " END;"
                                                                               "CREATE TEMP "
                                                                               "TRIGGER "
                                                                               "usage_failure "
                                                                               "BEFORE INSERT ON "
                                                                               "main.failures WHEN "
                                                                               "NOT EXISTS"
                                                                               " (SELECT 1 FROM "
                                                                               "failures WHERE "
                                                                               "job_id = "
                                                                               "NEW.job_id AND "
                                                                               "generation = "
                                                                               "NEW.generation) "
                                                                               "BEGIN " ADD_SQL(
                                                                                   FAILURE_SQL,
                                                                                   USER_SQL(
                                                                                       "NEW.")) " E"
                                                                                                "ND"
                                                                                                ";"
                                                                                                "CR"
                                                                                                "EA"
                                                                                                "TE"
                                                                                                " T"
                                                                                                "EM"
                                                                                                "P "
                                                                                                "TR"
                                                                                                "IG"
                                                                                                "GE"
                                                                                                "R "
                                                                                                "us"
                                                                                                "ag"
                                                                                                "e_"
                                                                                                "fa"
                                                                                                "il"
                                                                                                "ur"
                                                                                                "e_"
                                                                                                "go"
                                                                                                "ne"
                                                                                                " A"
                                                                                                "FT"
                                                                                                "ER"
                                                                                                " D"
                                                                                                "EL"
                                                                                                "ET"
                                                                                                "E "
                                                                                                "ON"
                                                                                                " m"
                                                                                                "ai"
                                                                                                "n."
                                                                                                "fa"
                                                                                                "il"
                                                                                                "ur"
                                                                                                "es"
                                                                                                " B"
                                                                                                "EG"
                                                                                                "IN"
                                                                                                " " ADD_SQL(
                                                                                                    "-" FAILURE_SQL,
                                                                                                    USER_SQL(
                                                                                                        "OLD.")) " END";

void store_usage_open(struct store *store)
{
    struct err err = {.text = "no memory"};

    store->usage_is_opened = true;
    if (store_execute(store, fill_sql, &err) == STATUS_OK &&
        store_execute(store, triggers_sql, &err) == STATUS_OK &&
        sqlite3_prepare_v3(store->db, "SELECT bytes FROM temp.usage WHERE user = ?", -1,
                           SQLITE_PREPARE_PERSISTENT, &store->usage, NULL) == SQLITE_OK)
        return;
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "how much each user has stored is not known, and not limited: %s", err.text);
}

uint64_t store_user_bytes(struct store *store, const char *user)
{
    int64_t bytes = 0;

    if (!store->usage_is_opened)
        store_usage_open(store);
    if (store->usage == NULL)
        return 0;
    (void)sqlite3_bind_text(store->usage, 1, user, -1, SQLITE_TRANSIENT);
    if (store_row(store, store->usage, "read what a user has in"))
        bytes = sqlite3_column_int64(store->usage, 0);
    (void)sqlite3_reset(store->usage);
    return bytes > 0 ? (uint64_t)bytes : 0;
}
