/* What a call answers: one enum for callers to branch on, one sentence for people to read. */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

/* X(name, words) */
#define STATUS_TABLE(X)                                                                            \
    X(OK, "ok")                                                                                    \
    X(IO, "input or output failed")                                                                \
    X(SYSTEM, "a system call failed")                                                              \
    X(MEMORY, "out of memory")                                                                     \
    X(BAD_INPUT, "bad input")                                                                      \
    X(TOO_BIG, "over a limit")                                                                     \
    X(NOT_FOUND, "not found")                                                                      \
    X(CONFLICT, "in conflict with what is there")                                                  \
    X(REFUSED, "refused")                                                                          \
    X(BUSY, "busy")                                                                                \
    X(TIMEOUT, "timed out")                                                                        \
    X(CLOSED, "closed")                                                                            \
    X(PEER_LOST, "a peer was lost")                                                                \
    X(UNSUPPORTED, "not supported")                                                                \
    X(LIBRARY, "a library call failed")

enum status {
#define STATUS_ENUM(name, words) STATUS_##name,
    STATUS_TABLE(STATUS_ENUM)
#undef STATUS_ENUM
};

/* An expected failure in words. Untouched on success. */
struct err {
    enum status status;
    int code;       /* errno, uv, SQLite, oneDNN, CUDA or NCCL code; 0 when none */
    char text[256]; /* one log line: what failed, on which name, why, what to do */
};

/* "IO", "BAD_INPUT": for logs and `--json`. Never NULL. */
const char *status_name(enum status status);

/* Fill `err` (may be NULL) and give `kind`, so that `return err_set(...)` reads as one step. A
 * text that does not fit is cut. A macro, so that whoever reads the code (the analyzer too) sees
 * that the value is `kind`; it is evaluated twice. */
#define err_set(err, kind, code, ...)                                                              \
    ((enum status)(err_fill((err), (kind), (code), __VA_ARGS__), (kind)))
void err_fill(struct err *err, enum status status, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
