/* `ddpctl --slurm-node ...`: the task of `run --slurm` on one node, started by srun. It runs a
 * launcherd, and on the first node the server; slurm_talk.h describes its messages to ddpctl. It
 * ends when ddpctl tells it to. If ddpctl vanishes, or Slurm ends the allocation and with it
 * ddpctl, the task first cancels the job, so that its ranks get their grace. At the end none of its
 * processes and files is left. */
#ifndef DDPCTL_SLURM_NODE_H
#define DDPCTL_SLURM_NODE_H

#include <stdbool.h>
#include <stdint.h>

struct slurm_node_options {
    uint32_t slots;
    bool hides_gpus;              /* --nproc-per-node cpu */
    const char *state_dir;        /* kept; "": a temporary one */
    const char *log_dir, *bindir; /* "": none */
};

#define SLURM_NODE_ARGS 6u
/* The arguments of the task, after the path of our program: [SLURM_NODE_ARGS]. Numbers are written
 * into `text`. */
void slurm_node_args(const struct slurm_node_options *options, char text[16],
                     const char *args[SLURM_NODE_ARGS]);
/* Whether these are such arguments; `options` then has them, borrowed. */
bool slurm_node_asked(int argc, char *const *argv, struct slurm_node_options *options);
int slurm_node_main(const struct slurm_node_options *options);

#endif
