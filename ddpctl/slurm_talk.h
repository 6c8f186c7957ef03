/* The lines that `run --slurm` and its tasks on the nodes exchange. Pure.
 *
 * srun carries them in both directions: the tasks' output comes out of srun's stdout, and srun's
 * stdin goes to every task. So no key is in a command line, in an environment or in a shared
 * folder. Both sides are the same program; each line is
 *
 *     ddp-slurm: WORD NODE TEXT
 *
 *   task -> ddpctl   here NODE NAME       the task runs
 *                    server 0 A,B,C       the addresses of its server, HOST:PORT, best first
 *                    key NODE URL         node 0: the key of node NODE; of node NODES: the user's
 *                    reached NODE A       the server is reached at this address
 *                    term NODE            Slurm ends the allocation: it has sent SIGTERM
 *                    note NODE TEXT       a line for people
 *                    failed NODE TEXT     it cannot go on
 *   ddpctl -> tasks  server 0 A,B,C       as node 0 said
 *                    key NODE URL         of that node
 *                    use 0 A              node 0: this one
 *                    alive 0              every second: silence means that ddpctl is gone
 *                    stop 0               the job is over
 *
 * Any other line (from a prolog, for example) is not ours, and neither is what precedes our text in a line. */
#ifndef DDPCTL_SLURM_TALK_H
#define DDPCTL_SLURM_TALK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"

#define SLURM_LINE_BYTES_MAX 4096u
#define SLURM_ADDRESSES_MAX 16u

enum slurm_word {
    SLURM_HERE,
    SLURM_SERVER,
    SLURM_KEY,
    SLURM_REACHED,
    SLURM_TERM,
    SLURM_NOTE,
    SLURM_FAILED,
    SLURM_USE,
    SLURM_ALIVE,
    SLURM_STOP,
};

struct slurm_line {
    enum slurm_word word;
    uint32_t node;
    const char *text; /* in the line; "" where there is none */
};

/* Writes a line with its end. Bytes of `text` that would end it become spaces; what does not fit is
 * cut. */
void slurm_line_add(struct buf *out, enum slurm_word word, uint32_t node, const char *text);
/* Where our line begins in `bytes`, after text that a wrapper of srun or a prolog has printed
 * without a line feed; NULL: nowhere. Never show anything from there on: it may be a key. */
const char *slurm_line_find(const char *bytes);
/* `bytes`: a line without its end, and a NUL. False: it is not one of our lines. */
bool slurm_line_parse(const char *bytes, struct slurm_line *line);

/* Collects lines from a stream. */
struct slurm_lines {
    char bytes[SLURM_LINE_BYTES_MAX];
    uint32_t byte_count;
};

/* Calls `take` for each line that is whole, without its end; a longer line comes in pieces. */
void slurm_lines_add(struct slurm_lines *lines, const char *bytes, size_t byte_count,
                     void (*take)(void *owner, const char *line), void *owner);

/* The `index`-th item of "A,B,C" into `address`. False: there is none, or it does not fit. */
bool slurm_address(const char *list, uint32_t index, char *address, size_t address_bytes);

#endif
