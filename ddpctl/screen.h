/* Where ddpctl's words go: the product on stdout, messages on stderr, errors as text or JSON, a
 * progress line that is wiped before anything else is written. */
#ifndef DDPCTL_SCREEN_H
#define DDPCTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "ddpctl/output.h"

struct screen {
    bool json, quiet, color;
    bool out_is_tty, err_is_tty;
    bool line_shown; /* the progress line stands at the terminal */
    bool out_failed; /* stdout takes no more: a closed pipe, a full disk */
    struct buf line; /* what the progress line shows */
};

/* `color`: auto, always, never, or NULL; NO_COLOR and CLICOLOR_FORCE count for auto.
 * STATUS_BAD_INPUT. */
enum status screen_open(struct screen *screen, bool json, bool quiet, const char *color,
                        struct err *err);
void screen_close(struct screen *screen);
struct output_style screen_style(const struct screen *screen);

/* Write `out` to stdout and empty it. STATUS_IO once stdout is gone. */
enum status screen_out(struct screen *screen, struct buf *out);
/* A message on stderr; nothing with -q or --json. */
void screen_note(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "ddpctl: MESSAGE" and the hint, or the error object. `code`: a word. */
void screen_error(struct screen *screen, const char *code, const char *message, const char *hint);
/* Show `text` as the progress line, at a terminal. NULL: wipe it. */
void screen_line(struct screen *screen, const char *text);

#endif
