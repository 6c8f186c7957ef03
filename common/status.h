/* The result of a call: an enum to branch on, and a sentence for people. */
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

/* An expected failure. Not touched on success. */
struct err {
    enum status status;
    int code;       /* errno, uv, SQLite, oneDNN, CUDA or NCCL code; 0 when none */
    char text[256]; /* one log line: what failed, on which name, why, what to do */
};

/* "IO", "BAD_INPUT": for logs and `--json`. Never NULL. */
const char *status_name(enum status status);

/* Fills `err` (may be NULL) and returns `kind`, for `return err_set(...)`. Text that does not fit
 * is truncated. A macro, so that compilers and analyzers see that the result is `kind`; it is
 * evaluated twice. */
#define err_set(err, kind, code, ...)                                                              \
    ((enum status)(err_fill((err), (kind), (code), __VA_ARGS__), (kind)))
void err_fill(struct err *err, enum status status, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
