/* Why a rank failed, by what it has printed. All of its output goes through here; what may be the cause is kept, the first
 * and the last of each kind, so that no amount of output before or after hides it. Pure, no heap. */
#ifndef LAUNCHERD_CAUSE_CAUSES_H
#define LAUNCHERD_CAUSE_CAUSES_H

#include "launcherd/cause/lines.h"
#include "launcherd/cause/reader.h"

#define CAUSE_STREAMS 2u
#define CAUSE_LAST_BYTES                                                                           \
    (4u * TAIL_BYTES_MAX) /* at least half of it is full, after so many bytes */

struct causes {
    struct cause_lines lines[CAUSE_STREAMS]; /* stdout, stderr; a terminal has the first alone */
    struct cause_reader readers[CAUSE_STREAMS];
    struct cause kept[CAUSE_KINDS][2]; /* the first and the last of each kind */
    uint64_t order, now_us;
    uint32_t stream; /* whose bytes are taken now */
    bool is_terminal, is_in_line;
    uint32_t last_bytes;
    char last[CAUSE_LAST_BYTES]; /* the last lines of both */
};

/* How the rank has ended. */
struct cause_end {
    int32_t exit_code;
    uint32_t signal; /* 0: it exited */
    bool is_running; /* it has not ended */
    bool oom;        /* the kernel killed it for want of memory */
};

/* `causes`: zeroed. `is_terminal`: the first stream has stderr, too. */
void causes_open(struct causes *causes, bool is_terminal);
/* `now_us`: any clock that does not go back. */
void causes_add(struct causes *causes, uint32_t stream, struct text bytes, uint64_t now_us);
/* The most likely cause. False: none of what it printed is one. Not for a rank that has exited with code 0. */
bool causes_best(const struct causes *causes, const struct cause_end *end, struct cause *best);
/* The last lines of its output, at most `lines_max`, as UTF-8 text without NUL; '?' replaces invalid bytes. Of a progress bar
 * only its last state is there. */
void causes_tail(const struct causes *causes, uint32_t lines_max, char out[TAIL_BYTES_MAX]);

#endif
