/* `ddp-worker export`: a checkpoint, or any safetensors file, as a .pth for torch.load. */
#ifndef WORKER_PTH_EXPORT_H
#define WORKER_PTH_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

struct export_request {
    const char *from;  /* a folder of checkpoints, FILE.safetensors, or a checkpoint's .json */
    const char *which; /* of a folder: "latest", "best", or a step */
    const char *to;    /* FILE.pth, replaced whole or not at all */
};

/* Weights and buffers alone, in the file's order and types, contiguous; batch norms get
 * num_batches_tracked, so that load_state_dict(strict=True) finds all that it looks for.
 * `said` gets a line that says what was written. Errors: those of checkpoint_open_newest,
 * safetensors_open and pth_write; STATUS_BAD_INPUT (nothing to write). */
enum status export_run(const struct export_request *request, struct err *said, struct err *err);

/* The command line after the word "export"; true: `request` is filled. false: `code` is the exit
 * code, and `out` the text for standard output, such as the help. */
bool export_read(struct export_request *request, int argc, char *const *argv, struct buf *out,
                 int *code, struct err *err);

#endif
