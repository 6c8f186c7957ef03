/* --duplicate-stdout-filters and --duplicate-stderr-filters: lines that are shown and have one of these words are
 * also written to filtered_stdout.log and filtered_stderr.log. */
#ifndef DDPCTL_DUPLICATE_H
#define DDPCTL_DUPLICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

#define DUPLICATE_WORDS_MAX 64u
#define DUPLICATE_LINE_BYTES_MAX (256u * 1024u) /* a longer line is taken in pieces */

struct duplicate_filter {
    struct buf text;                       /* the words, one after another */
    uint32_t offsets[DUPLICATE_WORDS_MAX]; /* [count]: where each begins in `text` */
    uint32_t lengths[DUPLICATE_WORDS_MAX];
    uint32_t count; /* 0: nothing is written */
    int fd;
};

struct duplicate {
    struct duplicate_filter filters[2]; /* stdout, stderr */
    struct buf *lines;                  /* [2 * rank_count]: what has not ended yet */
    uint32_t rank_count;
};

/* Reads "apple,orange": words with commas between them; two commas are one in a word. STATUS_TOO_BIG. */
enum status duplicate_parse(struct duplicate_filter *filter, const char *words, struct err *err);
bool duplicate_matches(const struct duplicate_filter *filter, const char *line, size_t byte_count);
/* Makes the files in `folder`. `words`: of stdout, of stderr; NULL: none. duplicate_close follows in any case;
 * `duplicate` was zeroed. STATUS_IO, STATUS_MEMORY. */
enum status duplicate_open(struct duplicate *duplicate, const char *folder,
                           const char *const words[2], uint32_t rank_count, struct err *err);
/* Takes bytes of a rank's stream, in order. `prefix` comes before each line. */
void duplicate_bytes(struct duplicate *duplicate, uint32_t rank, bool is_error, const char *prefix,
                     const void *bytes, size_t byte_count);
/* The stream has ended. */
void duplicate_end(struct duplicate *duplicate, uint32_t rank, bool is_error, const char *prefix);
void duplicate_close(struct duplicate *duplicate);

#endif
