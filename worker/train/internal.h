/* What the files of this folder share; private to it. */
#ifndef WORKER_TRAIN_INTERNAL_H
#define WORKER_TRAIN_INTERNAL_H

#include <stdatomic.h>
#include <stdio.h>

#include "common/io/mono.h"
#include "common/log.h"
#include "worker/backend/cuda/nccl/nccl.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/comm.h"
#include "worker/comm/ddp.h"
#include "worker/data/picture/picture.h"
#include "worker/data/loader.h"
#include "worker/data/sampler.h"
#include "worker/data/source.h"
#include "worker/device.h"
#include "worker/graph/graph.h"
#include "worker/metrics/trace.h"
#include "worker/model/file.h"
#include "worker/net/net.h"
#include "worker/profile/profile.h"
#include "worker/train/agree.h"
#include "worker/train/progress.h"
#include "worker/train/train.h"

struct checkpoint_writer;
struct train_snapshot;
struct replicas;

/* A queued step whose outcome the device does not have yet: what its report needs. */
struct train_pending {
    uint32_t epoch, step_in_epoch, step; /* all from 1 */
    double lr;
    bool is_summed;         /* sums has the results of all batches */
    struct net_result sums; /* otherwise only .images is set; the rest comes with the outcome */
    struct progress_times times;
};

/* A finished step. */
struct train_report {
    const struct train_pending *pending;
    double loss;      /* mean over this rank's images */
    float loss_scale; /* after the step */
};

/* Times of the steps since the last report. The server uses them to find slow ranks. */
struct train_timed {
    uint32_t steps;
    uint64_t step_us, data_us, compute_us, update_us, wait_us;
};

struct train_metrics;

struct train {
    const struct options *options;
    const struct agent_place *place;
    struct agent *agent;
    struct train_timed timed;
    uint64_t update_us; /* the optimizer's time in the newest step */

    struct source *train_set, *validation_set; /* train_set: NULL with --evaluate */
    struct net_normal normal;                  /* of their bytes */
    const struct source *shards;               /* the training set, where it is in shards */
    const char *data_kind;                     /* "folder" */
    bool has_pictures;
    struct {
        uint64_t training, validation;
    } unreadable; /* samples of this rank, in this epoch */
    struct loader *loader, *validation_loader;
    struct sampler sampler;
    int64_t *indices;            /* [sampler.count] of this epoch */
    int64_t *validation_indices; /* [validation_count] of this rank */
    size_t validation_count;

    const struct device *device;
    bool uses_nccl;
    uint8_t nccl_id[NCCL_ID_BYTES];
    struct model_file *model_file; /* NULL: the model has a name */
    char model_identity[CHECKPOINT_TEXT_BYTES];
    char lone_norm[GRAPH_NAME_MAX]; /* a batch norm that cannot train on a single image; "": none */
    struct net *net;
    struct replicas *replicas;     /* of --data-parallel; NULL: none */
    struct comm *comm;             /* NULL: alone */
    struct ddp *ddp;               /* NULL: alone */
    _Atomic(struct ddp *) ddp_now; /* the same, for the thread of train_now */
    struct nccl_link *nccl_link;   /* NULL: gradients are not reduced by NCCL */
    struct nccl_guard *nccl_guard; /* NULL as nccl_link */

    struct checkpoint_writer *writer; /* rank 0 with --checkpoint-dir, else NULL */
    struct train_snapshot *snapshot;  /* what it writes; as writer */
    int64_t saving_step;              /* the checkpoint that is being written; -1: none */
    int64_t asked_step;               /* rank 0: the one that SIGUSR1 asked for; -1: none */
    bool has_best;                    /* best is known */
    struct checkpoint_best best;
    bool is_best_wanted; /* best_wanted is better, and becomes the best once it is marked */
    struct checkpoint_best best_wanted;
    struct err skipped;           /* the newest checkpoint that is of another training */
    uint32_t skipped_count;       /* how many are */
    uint32_t unsaved_count;       /* checkpoints in a row that could not be written */
    struct checkpoint_dir *dir;   /* where this rank writes checkpoints or copies; or NULL */
    struct agree_report *reports; /* [world] with --checkpoint-dir, else NULL */
    uint32_t *copy_ranks;         /* rank 0, then the copy_count ranks that get each checkpoint */
    uint32_t copy_count;
    bool has_copies;               /* of some checkpoint: a restart on other nodes finds one */
    struct checkpoint_state state; /* the position, and what identifies this training */
    struct schedule_options schedule;
    struct train_pending pending[NET_OUTCOMES]; /* the oldest first */
    uint32_t pending_count;
    bool is_stopped_early;
    bool is_resumed;
    bool is_from_file;        /* from what --resume names, not from what the ranks agreed on */
    int64_t saved_step;       /* newest in --checkpoint-dir that a restart finds; -1: none */
    uint64_t told_step;       /* what train_told_step() was in the last report */
    uint32_t steps_per_epoch; /* for an epoch that this world does alone */
    uint32_t epoch_steps;     /* of this epoch; another world may have done its first steps */
    uint64_t begun_us;        /* when setting up began: mono_us() */
    struct profile_stage stages[PROFILE_STAGES_MAX];
    uint32_t stage_count;
    uint64_t profile_wait_us, profile_comm_us, profile_exposed_us; /* over all steps so far */

    struct progress progress;
    struct train_metrics *metrics; /* rank 0's; else NULL */
    struct trace *trace;           /* NULL: none, or over */
    struct reducer reducer;        /* with a trace: what the net's reducer calls */
    uint64_t saving_us;            /* when the checkpoint of saving_step was begun; 0: no trace */
    uint32_t trace_step;           /* steps begun by this run */
    bool trace_has_failed;         /* writing it failed, and a warning was printed */
    FILE *loss_log;                /* NULL: none */
    FILE *sample_log;              /* NULL: none */
};

static inline struct log_about train_log_about(const struct train *train)
{
    return (struct log_about){.job_id = train->place->job_id,
                              .generation = train->place->generation,
                              .rank = (int32_t)train->place->rank};
}

/* -- state.c: checkpoints that were passed over -- */

/* A checkpoint_choice.skipped; user: the training. */
void train_note_skipped(void *user, const struct err *why);
/* Another one is used: tells what train_note_skipped has kept. */
void train_tell_skipped(struct train *train);

/* -- position.c: the position in the data -- */

/* Steps of this epoch that were done with another world or batch size. */
uint32_t train_steps_before(const struct train *train);
/* Makes the order of what is left of this epoch, and sets epoch_steps. Errors: STATUS_BAD_INPUT
 * (the state's numbers are impossible). */
enum status train_begin_order(struct train *train, struct err *err);
/* Images of this rank in a full step, one that does not end the epoch. */
size_t train_group_images(const struct train *train);
/* Images of this rank in the next step. */
size_t train_step_images(const struct train *train);
/* Optimizer steps of the whole training, --max-steps taken into account. */
uint64_t train_total_steps(const struct train *train);
/* Learning rate and momentum of the next step. */
struct schedule_now train_rate(const struct train *train);
/* Takes the position of a checkpoint that another world may have made. `from`: the state from its
 * file. Errors: STATUS_BAD_INPUT, STATUS_TOO_BIG (the world changed too often within this
 * epoch). */
enum status train_take_position(struct train *train, const struct checkpoint_state *from,
                                const char *path, struct err *err);
/* --sample-log: logs the images of the next step. */
void train_log_samples(struct train *train);

/* -- now.c -- */

/* An agent_probe: what this rank is doing right now, as far as the host knows. `user`: the
 * training. Reports nothing before the net and the world exist or after they are gone. */
void train_now(void *user, struct agent_now *now);

/* -- step.c -- */

/* Queues one step, then finishes earlier ones as train_settle does without `all`. */
enum status train_step(struct train *train, struct err *err);
/* Finishes pending steps: reports those whose outcomes have arrived; with `all`, waits for the
 * others too. Without `all` the newest may stay pending, so that the device always has work. */
enum status train_settle(struct train *train, bool all, struct err *err);

/* -- metrics.c: --metrics, DDP_METRICS, --tensorboard; only rank 0 writes -- */

/* Call when it is known whether this run resumes. Errors: those of line_file_open and
 * board_open. */
enum status train_metrics_open(struct train *train, struct err *err);
void train_metrics_close(struct train *train);
/* `is_due`: the step is also printed; otherwise it is only written if nothing has been written for
 * long. Call before the printing, which begins a new window. */
void train_metrics_step(struct train *train, const struct train_report *report, bool is_due);
/* Writes a new checkpoint, if there is one. */
void train_metrics_checkpoint(struct train *train);
/* sums: over all ranks; us: the validation's time */
void train_metrics_validation(struct train *train, const struct net_result *sums, uint64_t us);
void train_metrics_epoch_begin(struct train *train);
/* For the next step: --tb-images shows the first one of an epoch. Errors: those of picture_png. */
enum status train_metrics_batch(struct train *train, const struct loader_batch *batch,
                                struct err *err);
/* After the last step of an epoch or of training, before the validation. Errors: those of
 * net_tensor_read. */
enum status train_metrics_epoch_end(struct train *train, struct err *err);

/* -- trace.c -- */

/* Collective with --trace, when the world has met. Errors: STATUS_IO, STATUS_TOO_BIG,
 * STATUS_MEMORY, those of the collectives. */
enum status train_trace_open(struct train *train, struct err *err);
/* A step begins. After the last step to trace, calls train_trace_end. */
enum status train_trace_step(struct train *train, struct err *err);
/* Collective; all ranks call it between the same steps. Collects the spans of all ranks and ends
 * the trace. Errors: those of the collectives. */
enum status train_trace_end(struct train *train, struct err *err);
/* Closes this rank's trace without the other ranks. */
void train_trace_close(struct train *train);
/* For ddp_options.reduced; `user` is the training. */
void train_trace_reduced(void *user, uint32_t bucket, uint64_t begun_us);
/* Wraps the host's reducer so that it also records how long a step waits for it. */
void train_trace_reducer(struct train *train, struct reducer *reducer);

/* -- profile.c -- */

/* --profile instead of training; rank 0 prints. */
enum status train_profile(struct train *train, const atomic_bool *stop, struct err *err);
/* Adds a part of the time before the first step. If it has the name of the last part, the time is
 * added to that. */
void train_stage_add(struct train *train, const char *name, uint64_t us);

/* -- accumulate.c -- */

/* Queues the gradients of one step, reduced over all ranks: those of one batch, or of the
 * --accumulation-steps batches (fewer at the end of an epoch) that make one. Each image counts the
 * same.
 *   pending: gets sums and is_summed; for a single batch only the images, so that the host need
 *            not wait for the device
 *   wait_us: is increased by the time spent waiting for the loader */
enum status train_group(struct train *train, struct train_pending *pending, uint64_t *wait_us,
                        struct err *err);
/* Forward of a batch of the loader, see net_forward_images. */
enum status train_forward(struct train *train, const struct loader_batch *batch, bool training,
                          struct net_result *result, struct err *err);
/* sums += result */
void train_add_result(struct net_result *sums, const struct net_result *result);

/* -- data.c -- */

/* Opens the training and the validation set. */
enum status train_data_open(struct train *train, struct err *err);
/* Determines which images this rank sees; sets steps_per_epoch. */
enum status train_data_share(struct train *train, struct err *err);
/* The number of threads from -j. */
uint32_t train_data_threads(const struct train *train);
/* The number of classes of the net. */
uint32_t train_data_classes(const struct train *train);

/* -- data_rules.c -- */

/* How decoded pictures are transformed. Errors: STATUS_BAD_INPUT (--resize). */
enum status train_data_rules(const struct train *train, bool is_training,
                             struct picture_rules *rules, struct err *err);
/* Hashes that checkpoints keep to detect a change: of what is done to all images, and of what is
 * done only to training images. Never 0. */
uint64_t train_data_image_rules(const struct train *train);
uint64_t train_data_training_rules(const struct train *train);
/* The images of one step over all ranks of that world. */
uint64_t train_world_images(const struct checkpoint_state *state);
/* Sets the schedule's base rate: --lr, adjusted for this world and those that the checkpoint
 * describes. */
void train_set_base_rate(struct train *train);

/* -- data_shards.c -- */

/* Whether DATA is a pattern for shards or a folder with shards. */
bool train_shards_are_in(const char *dir);
enum status train_shards_open(struct train *train, const char *dir, bool is_training,
                              struct source **set, struct err *err);
/* The make_order of a sampler; user: the training. */
void train_shards_order(void *user, uint64_t epoch, int64_t *order, size_t image_count);
/* --cache and --augment crop: puts a cache in front of both sets. Errors: those of cache_open(). */
enum status train_cache_open(struct train *train, struct err *err);

/* -- loading.c -- */

/* The loaders of both sets; batches are in memory of the net's backend. */
enum status train_loaders_make(struct train *train, struct err *err);
/* Calls loader_next and logs samples that cannot be read. */
enum status train_next_batch(struct train *train, struct loader *loader, struct loader_batch *batch,
                             struct err *err);
/* Prints one line about samples that could not be read, over all ranks; and collective, where there are some, one
 * about classes that lost many. Errors: those of the collectives, STATUS_MEMORY. */
enum status train_tell_unreadable(const struct train *train, double training, double validation,
                                  struct err *err);
/* Prints one line if an epoch has waited too long for images. */
void train_tell_data_bound(const struct train *train);

/* -- parallel.c: --data-parallel -- */

/* How many images of a batch the net itself gets; all without --data-parallel. */
uint32_t train_parallel_part(const struct train *train, uint32_t images);
/* Makes the replicas of the net, which was made of `graph` with `net_options`. Errors: STATUS_BAD_INPUT
 * (several ranks, too few GPUs), those of replicas_new. */
enum status train_parallel_open(struct train *train, const struct graph *graph,
                                const struct net_options *net_options, struct err *err);
/* replicas_forward for a batch of the loader. */
enum status train_parallel_forward(struct train *train, const struct net_images *images,
                                   const struct loader_batch *batch, bool training,
                                   struct net_result *result, struct err *err);

/* -- model.c -- */

/* Reads the model file if --arch names one. */
enum status train_model_open(struct train *train, struct err *err);
/* The shape of --dummy's images for this model. */
struct dataset_shape train_model_dummy(const struct train *train);
/* Makes the graph for data of this shape; the caller owns it. Also sets train->model_identity. */
enum status train_model_build(struct train *train, const struct dataset_shape *data,
                              struct graph **graph, struct err *err);
/* Initialises the parameters: random values, then --zero-init-residual, then --pretrained. */
enum status train_model_init(struct train *train, const struct graph *graph, struct err *err);

/* -- nccl.c: gradients by NCCL, if each rank has a GPU and --comm is not gloo. Otherwise uses_nccl is
 * false and all of these except train_nccl_reducer do nothing. In the order of calls: -- */

/* Sets uses_nccl, before the net is made. Errors: STATUS_UNSUPPORTED (--comm nccl on the CPU). */
enum status train_nccl_choose(struct train *train, struct err *err);
/* How many multiprocessors the collectives take beside backward; 0: there are none. */
uint32_t train_nccl_sms(const struct train *train);
/* Where the net's gradients should be allocated; false: let the backend decide. */
bool train_nccl_memory(struct train *train, struct net_memory *memory);
/* Rank 0 appends the communicator's unique id to the blob for all ranks; every rank removes it
 * again. Errors: STATUS_CONFLICT (not all ranks use NCCL), STATUS_BAD_INPUT, STATUS_TOO_BIG. */
enum status train_nccl_pack(struct train *train, struct comm_blob *blob, struct err *err);
enum status train_nccl_unpack(struct train *train, struct comm_blob *blob, struct err *err);
/* Opens the communicator, with all ranks, and the guard that ends it when a peer is lost. */
enum status train_nccl_open(struct train *train, struct err *err);
/* nccl_capture.c, used by train_nccl_open: finds out whether a collective can be captured on every
 * rank; prints a line if not. All ranks call it. */
enum status train_nccl_try_capture(struct train *train, bool *can_capture, struct err *err);
/* The net's reducer: collectives of the communicator on the device. */
enum status train_nccl_reducer(struct train *train, struct reducer *reducer, struct err *err);
/* What follows is not a step: until the next report neither NCCL's guard nor the server expects
 * one, and ranks that wait for this one in Gloo have more patience. */
void train_pause(struct train *train, enum agent_phase phase, const char *what);
/* A step has ended on the device: for the guard, and it ends a pause for the ranks that wait in
 * Gloo. */
void train_nccl_progress(struct train *train);
/* For the guard: no step is expected until the next one ends. */
void train_nccl_pause(struct train *train);
/* For the guard: this rank waits for its own next batch, not for another rank. */
void train_nccl_loading(struct train *train, bool is_loading);
/* STATUS_OK, or why the guard has ended the communicator. */
enum status train_nccl_verdict(struct train *train, struct err *err);
void train_nccl_close(struct train *train);

/* -- snapshot.c -- */

enum { TRAIN_PARAMETER = -1 }; /* beside the optimizer's states */
#define TRAIN_PREFIX_BYTES 32  /* "optimizer.exp_avg_sq." */

/* The prefix of a tensor's name in a checkpoint, by the optimizer's state; "" for the tensor itself. */
const char *train_tensor_prefix(int state, char prefix[TRAIN_PREFIX_BYTES]);
/* Memory for one copy of the net's tensors and of the optimizer's states. */
enum status train_snapshot_new(struct train *train, struct err *err);
/* Copies them. `tensors` and their values are valid until the next copy. Waits for the device. */
enum status train_snapshot_take(struct train *train, const struct safetensors_tensor **tensors,
                                size_t *tensor_count, struct err *err);
void train_snapshot_free(struct train *train);

/* -- save.c: checkpoints while training goes on. All ranks call, between the same two steps -- */

/* Allocates memory and starts the thread, once the folder is open. */
enum status train_save_open(struct train *train, struct err *err);
/* Begins to write a checkpoint of this position, after the previous one has been written and
 * copied. */
enum status train_save(struct train *train, struct err *err);
/* Checks whether a checkpoint that is being written has been committed; then the other nodes get
 * their copies. `wait`: waits for it. A full disk is only a warning. Errors: STATUS_CONFLICT (a
 * newer generation has taken over), STATUS_BAD_INPUT (a weight is not finite), those of the
 * collectives. */
enum status train_saved(struct train *train, bool wait, struct err *err);
/* Rank 0 alone, after a signal: writes a checkpoint of this position and waits for it; without
 * copies. Errors: as above. */
enum status train_save_last(struct train *train, struct err *err);
/* All ranks: the same, then the other nodes get their copies. */
enum status train_save_last_copied(struct train *train, struct err *err);
/* Whether there should be copies, but no checkpoint has any yet. The same on all ranks. */
bool train_lacks_copies(const struct train *train);
/* The newest checkpoint that the server may hear of; 0: none. */
uint64_t train_told_step(const struct train *train);
/* Rank 0 alone, after SIGUSR1: begins to write a checkpoint of this position. If another one is
 * being written, leaves `*is_asked` set for the next step. Without copies, since the other ranks do
 * not know of it. Errors: as train_saved. */
enum status train_save_asked(struct train *train, atomic_bool *is_asked, struct err *err);
/* At the end of training: makes sure that the last checkpoint is written and all weights are
 * finite. Errors: STATUS_IO, STATUS_BAD_INPUT, STATUS_MEMORY, those of train_saved. */
enum status train_check_end(struct train *train, struct err *err);
/* Waits for a checkpoint that is being written. */
void train_save_close(struct train *train);

/* -- alike.c -- */

/* Compares options, data and model of all ranks. Errors: STATUS_CONFLICT, on every rank (the text
 * names a rank, the difference, and both values); those of the collectives. */
enum status train_check_alike(struct train *train, struct err *err);

/* -- best.c: --best. All ranks call -- */

/* Reads the best checkpoint of the folder. Errors: those of the collectives. */
enum status train_best_open(struct train *train, struct err *err);
/* Takes the value of --best's metric after a validation; NaN: there is none. Errors:
 * STATUS_CONFLICT (a newer generation has taken over). */
enum status train_best(struct train *train, double value, struct err *err);
/* Call when the checkpoint that was being written is finished or replaced by another. Errors: as
 * train_best. */
enum status train_best_saved(struct train *train, struct err *err);

/* -- state.c: from a checkpoint into the net -- */

/* Finds the checkpoint to resume from (folders.c, or what --resume names). Rank 0 reads it, and
 * every rank gets its state; without a checkpoint the state stays. ddp_new distributes the
 * parameters, train_share_optim after it the optimizer's states. */
enum status train_resume(struct train *train, struct err *err);
enum status train_share_optim(struct train *train, struct err *err);
/* Writes the resumed loss scale and count of optimizer steps into the net. */
void train_load_scaler(struct train *train);

/* -- folders.c: checkpoints on nodes that share no disk. All ranks call, in this order -- */

/* Whether training resumes from --checkpoint-dir, if there is a checkpoint. */
bool train_resumes_from_dir(const struct train *train);
/* Finds out which nodes share the folder and, if training resumes from it, what each folder has.
 * `conflict`: on rank 0 the reason why its checkpoints do not fit; status STATUS_OK if they do. */
enum status train_meet_folders(struct train *train, struct err *conflict, struct err *err);
/* Resumes from the newest checkpoint of all nodes: sets is_resumed and state.step, and sends it to
 * rank 0 if it does not have it, and to the others that should have copies. If there is none,
 * is_resumed stays false. Errors: those of agree(), of `conflict`, of the collectives. */
enum status train_agree(struct train *train, const struct err *conflict, struct err *err);
/* Opens the folder of --checkpoint-dir on the ranks that write there. */
enum status train_open_dir(struct train *train, struct err *err);
/* Copies the checkpoint of `step`, which rank 0 has committed, to the other nodes. A copy that cannot be
 * written is a warning. Errors: as train_saved. */
enum status train_copy(struct train *train, uint32_t step, struct err *err);

#endif
