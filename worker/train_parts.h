/* What the files of training share; private to worker/train*.c. */
#ifndef WORKER_TRAIN_PARTS_H
#define WORKER_TRAIN_PARTS_H

#include <stdio.h>

#include "worker/checkpoint.h"
#include "worker/backend/cuda/module_nccl.h"
#include "worker/comm/comm.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/ddp.h"
#include "worker/device.h"
#include "worker/graph.h"
#include "worker/model_file.h"
#include "worker/net.h"
#include "worker/profile.h"
#include "worker/progress.h"
#include "worker/sampler.h"
#include "worker/train.h"

/* A step that is on its way: what its line says, until the device has its outcome. */
struct train_queued {
    uint32_t epoch, step_in_epoch, step; /* step counts from 1 */
    double lr;
    struct net_result sums; /* over its batches; one batch: the images alone */
    bool is_summed;
};

struct train {
    const struct options *options;
    const struct agent_place *place;
    struct agent *agent;

    struct dataset *train_set, *validation_set;
    struct loader *loader, *validation_loader;
    struct sampler sampler;
    int64_t *indices;            /* [sampler.count] of this epoch */
    int64_t *validation_indices; /* [validation_count] of this rank */
    size_t validation_count;

    struct device device;
    bool uses_nccl;
    uint8_t nccl_id[NCCL_ID_BYTES];
    struct model_file *model_file; /* NULL: the model has a name */
    char model_identity[CHECKPOINT_TEXT_BYTES];
    struct net *net;
    struct comm *comm;             /* NULL: alone */
    struct ddp *ddp;               /* NULL: alone */
    struct nccl_link *nccl_link;   /* NULL: gradients do not travel by NCCL */
    struct nccl_guard *nccl_guard; /* NULL with it */

    struct checkpoint_dir *dir;    /* rank 0 with --checkpoint-dir, else NULL */
    struct checkpoint_state state; /* where training stands, and what identifies it */
    struct schedule_options schedule;
    struct train_queued queued[NET_OUTCOMES]; /* the oldest first */
    uint32_t queued_count;
    bool is_stopped_early;
    bool is_resumed;
    int64_t saved_step; /* newest committed by this run or resumed from; -1: none */
    uint32_t steps_per_epoch;
    int64_t begun_us; /* when this began to get ready, monotonic */
    struct profile_stage stages[PROFILE_STAGES_MAX];
    uint32_t stage_count;
    uint64_t profile_wait_us, profile_comm_us, profile_exposed_us; /* over all steps so far */

    struct progress progress;
    FILE *loss_log; /* NULL: none */
};

/* train.c: one step, queued; what came of it may still be on its way. */
enum status train_step(struct train *train, struct err *err);
/* Finishes the steps whose outcomes are there; `all`: waits for the others too. The newest may stay
 * under way, so that the device always has work. */
enum status train_settle(struct train *train, bool all, struct err *err);

/* train_profile.c: --profile in the place of training; rank 0 prints. A stage is a part of the time
 * before the first step; one of the name of the last is added to it. */
enum status train_profile(struct train *train, const volatile bool *stop, struct err *err);
void train_stage_add(struct train *train, const char *name, uint64_t us);

/* train_group.c: gradients of one step, reduced: of one batch, or of the --accumulation-steps
 * batches (fewer at the end of an epoch) that make one. Each image counts the same. `queued` gets
 * the sums over them; of one batch nothing but the images, so that nobody waits for the device.
 * `wait_us` is the time spent waiting for images. */
enum status train_group(struct train *train, struct train_queued *queued, uint64_t *wait_us,
                        struct err *err);
/* net_forward of a batch of the loader. */
enum status train_forward(struct train *train, const struct loader_batch *batch, bool training,
                          struct net_result *result, struct err *err);
/* Images of this rank in a whole step. */
size_t train_group_images(const struct train *train);

/* train_model.c */

/* Reads the file where --arch is one. */
enum status train_model_open(struct train *train, struct err *err);
/* Images that --dummy draws for this model. */
struct dataset_shape train_model_dummy(const struct train *train);
/* The graph for data of this shape, owned by the caller, and train->model_identity. */
enum status train_model_build(struct train *train, const struct dataset_shape *data,
                              struct graph **graph, struct err *err);
/* What parameters begin with: drawn, then --zero-init-residual, then --pretrained. */
enum status train_model_init(struct train *train, const struct graph *graph, struct err *err);

/* train_nccl.c: gradients by NCCL, where ranks have a GPU each and --comm does not say gloo; else
 * all of these do nothing. choose: before the net is made. pack: rank 0 adds the unique id to the
 * blob that goes to all ranks; unpack: every rank takes it off again. */
enum status train_nccl_choose(struct train *train, struct err *err);
enum status train_nccl_pack(struct train *train, struct comm_blob *blob, struct err *err);
enum status train_nccl_unpack(struct train *train, struct comm_blob *blob, struct err *err);
enum status train_nccl_open(struct train *train, struct err *err);
void train_nccl_close(struct train *train);
/* See nccl_guard.h. */
void train_nccl_progress(struct train *train);
void train_nccl_rest(struct train *train);
enum status train_nccl_verdict(struct train *train, struct err *err);

/* train_state.c: between the net and the checkpoints. */

/* Rank 0 looks for the checkpoint that is asked for; every rank gets its state, and what ddp_new
 * does not broadcast comes with train_share_optim after it. Without a checkpoint the state
 * stays. */
enum status train_resume(struct train *train, struct err *err);
enum status train_share_optim(struct train *train, struct err *err);
/* The loss scale and the optimizer's count of steps of the resumed state into the net. */
void train_load_scaler(struct train *train);
/* Rank 0: takes the folder. */
enum status train_open_dir(struct train *train, struct err *err);
/* Rank 0 with a folder: commits where training stands, once per step. A full disk is a warning;
 * STATUS_CONFLICT when a newer generation has taken over. */
enum status train_save(struct train *train, struct err *err);

#endif
