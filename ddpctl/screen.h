/* The output of ddpctl: results on stdout; messages and errors, as text or JSON, on stderr; and a
 * progress line, which is wiped before anything else is written. */
#ifndef DDPCTL_SCREEN_H
#define DDPCTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "ddpctl/output.h"

struct screen {
    bool json, quiet;
    bool color, err_color; /* of stdout, of stderr */
    bool out_is_tty, err_is_tty;
    bool line_shown;      /* the progress line is visible */
    bool err_is_mid_line; /* the last output on stderr had no line feed */
    bool is_mid_line;     /* the last output had no line feed: show no progress line after it */
    bool out_failed;      /* writes to stdout fail: a closed pipe, a full disk */
    bool is_lost;         /* what was written is lost for another reason than a closed pipe */
    bool is_raw;          /* the terminal is in raw mode: our lines need a carriage return */
    bool err_failed;      /* the same of stderr */
    struct buf line;      /* what the progress line shows */
};

/* `color`: auto, always, never, or NULL. NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM=dumb apply to auto.
 * STATUS_BAD_INPUT. */
enum status screen_open(struct screen *screen, bool json, bool quiet, const char *color,
                        struct err *err);
void screen_close(struct screen *screen);
struct output_style screen_style(const struct screen *screen);

/* Writes `out` to stdout and empties it. STATUS_IO once stdout fails; the first time that is said on stderr, but not
 * of a closed pipe: its reader has wanted no more. */
enum status screen_out(struct screen *screen, struct buf *out);
/* The same to stderr, for a job's stderr; not suppressed by -q. */
enum status screen_err_out(struct screen *screen, struct buf *out);
/* A message on stderr; nothing with -q or --json. */
void screen_message(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "ddpctl: MESSAGE" and the hint, or the JSON error object with `code`. */
void screen_error(struct screen *screen, const char *code, const char *message, const char *hint);
/* Whether a progress line can be shown: stdout and stderr are terminals that can wipe a line. Then
 * it does not get into a file. */
bool screen_has_line(const struct screen *screen);
uint32_t screen_columns(void);
/* Shows `text` as the progress line, if there can be one. NULL: wipes it. */
void screen_line(struct screen *screen, const char *text);

#endif
