/* ddp-worker's options: names of PyTorch's ImageNet example and of Apex, one table. */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/options.h"
#include "common/status.h"
#include "worker/graph/amp.h"
#include "worker/net/elastic_lr.h"
#include "worker/net/optim.h"
#include "worker/net/schedule.h"

/* Texts are borrowed from argv or constant. */
/* How pictures become images, and what their bytes mean. */
enum options_augment { AUGMENT_USUAL, AUGMENT_IMAGENET, AUGMENT_CIFAR, AUGMENT_CROP, AUGMENT_NONE };
#define OPTIONS_COLOURS 3
struct options_images {
    const char *augment_text, *scale_text, *ratio_text, *mean_text, *std_text; /* as typed */
    uint32_t resize; /* 0: the size's usual */
    bool dct_scaling, allow_empty, strict;
    const char *cache; /* NULL: none */
    bool cache_rebuild;
    uint32_t shuffle_window; /* of samples in shards */
    /* What the options above resolve to. */
    enum options_augment augment;
    double scale[2], ratio[2];      /* 0: torchvision's */
    uint32_t mean_count, std_count; /* 0: the data's usual; else 1 or 3 */
    float mean[OPTIONS_COLOURS], std[OPTIONS_COLOURS];
};

/* Options of other programs that were given, see options_foreign.h. */
struct options_foreign {
    uint64_t left_out; /* a bit for each row of their table */
    uint32_t world;    /* --world-size; 0: not given */
    const char *gpu;   /* --gpu, as --device has it; NULL: not given */
};

#define OPTIONS_USUAL_THREADS UINT32_MAX /* as many as the kind of data needs */

struct options {
    const char *data; /* folder with IDX files; NULL: the built-in digits */
    const char *arch;
    uint32_t epochs;
    uint32_t batch; /* images per rank and step */
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    const char *elastic_lr; /* as typed; NULL: not given */
    enum elastic_lr elastic_lr_rule;
    const char *optimizer, *betas, *lookahead, *lookahead_variant; /* as typed; NULL: not given */
    float eps, trust;                                              /* 0: the default */
    struct optim optim; /* what the options above resolve to */
    float label_smoothing;
    uint32_t accumulation_steps;           /* batches that make one step, at least 1 */
    float clip_grad_norm, clip_grad_value; /* 0: not */
    float predivide;                       /* 0: the world size */
    bool scale_lr;      /* --lr is meant for 256 images a step: scaled by batch * world / 256 */
    bool keep_momentum; /* onecycle */
    const char *lr_schedule, *plateau_metric;
    struct schedule_options schedule; /* base_lr and the sizes are filled in by training */
    const char *early_stop_metric;    /* NULL: never */
    uint32_t early_stop_patience;
    double early_stop_delta;
    uint64_t seed;
    uint32_t loader_threads; /* 0: batches are gathered between the steps; OPTIONS_USUAL_THREADS */
    uint32_t print_freq;     /* steps */
    uint32_t max_steps;      /* 0: no limit but the epochs */
    const char *resume; /* "none", "auto", "best", a file or a folder; NULL: auto after a restart */
    bool take_over, from_start_if_damaged;
    const char *fetch, *mirror; /* NULL: not given */
    uint32_t fetch_timeout_s;
    bool evaluate;
    bool dummy;
    uint32_t image_size, class_count; /* 0: the model's usual; the data's */
    struct options_images images;
    uint32_t data_parallel; /* replicas in this process; 0: just the net */
    bool sync_bn, channels_last;
    bool zero_init_residual;
    const char *pretrained; /* NULL: none */
    bool new_classifier;    /* ... whose last linear layer is left out */
    const char *device, *comm;
    const char *opt_level, *half_type, *loss_scale, *keep_batchnorm_fp32; /* as typed */
    float init_loss_scale, min_loss_scale, max_loss_scale;                /* 0: the default */
    uint32_t max_skipped_steps; /* in a row, before training stops */
    bool allreduce_always_fp32;
    bool print_graph;
    uint32_t profile_steps;   /* 0: no profile */
    const char *profile_json; /* NULL: none */
    struct amp amp;           /* what the options above resolve to */
    bool deterministic, tf32;
    float tune_seconds; /* below 0: not given */
    bool tune;
    uint32_t threads;           /* of a rank on the CPU; 0: not given */
    const char *checkpoint_dir; /* NULL: none */
    uint32_t checkpoint_every;  /* steps; 0: at the end of epochs alone */
    uint32_t checkpoint_keep;
    const char *best_metric;            /* "none", or as options_metric_named */
    const char *checkpoint_copies_text; /* as typed; NULL: all */
    uint32_t checkpoint_copies;         /* on that many other nodes; UINT32_MAX: on all */
    bool delay_allreduce;
    uint32_t nccl_max_ctas;  /* 0: NCCL's choice */
    float bucket_cap_mb;     /* MiB; 0: the default */
    const char *loss_log;    /* "%r" in it is the rank; NULL: none */
    const char *metrics;     /* JSON lines; NULL: none */
    const char *tensorboard; /* a run directory; NULL: none */
    bool tb_histograms;
    uint32_t tb_images;              /* of a batch */
    const char *sample_log;          /* as loss_log */
    const char *trace, *trace_steps; /* the steps as typed; NULL: the usual */
    uint32_t trace_from, trace_to;   /* steps of this run, counted from 1 */
    struct options_foreign foreign;
    bool help, version;
    bool is_given[OPTION_ROWS_MAX]; /* by row of the table */
};

/* Fills `options` from the command line. With help or version set nothing else was checked. Errors:
 * STATUS_BAD_INPUT (err names the option, the reason and, for an unknown one, the nearest that
 * exists), STATUS_UNSUPPORTED (not in this build). */
enum status options_read(struct options *options, int argc, char *const *argv, struct err *err);
/* The arguments of Apex's amp.initialize. */
struct amp_request options_amp(const struct options *options);
/* options.opt_level points here where --opt-level was not given: then no banner is printed. */
extern const char options_default_level[];
#define OPTIONS_PATH_BYTES 1024u
/* `name` with the rank for "%r": "loss-%r.txt" is "loss-2.txt". Errors: STATUS_TOO_BIG, naming
 * `option`. */
enum status options_rank_path(const char *option, const char *name, uint32_t rank,
                              char path[OPTIONS_PATH_BYTES], struct err *err);
/* Prints --help. */
void options_print_help(FILE *out);
/* Prints what --help=man, bash, zsh or fish asks for; false: none of these was given. */
bool options_print_docs(FILE *out, int argc, char *const *argv);

/* Appends NAME NUL VALUE NUL for each option that all ranks must have alike. */
void options_list_equal(const struct options *options, struct buf *out);
/* Takes what depends on the number of ranks: --gpu and --world-size of other programs. Errors:
 * STATUS_BAD_INPUT. */
enum status options_take_world(struct options *options, uint32_t world, struct err *err);
/* What is known once the data is open. */
struct options_facts {
    uint32_t world;
    bool has_pictures; /* files that are decoded: in a folder, or in shards */
    bool has_shards, is_on_gpu;
};
#define OPTIONS_IDLE_BYTES 320
/* The next option that was given and has no effect with the others, as a sentence. `at`: 0 at first.
 * False: there is none. */
bool options_next_idle(const struct options *options, const struct options_facts *facts,
                       uint32_t *at, char text[OPTIONS_IDLE_BYTES]);

/* Of val_loss, val_acc1, val_acc5; -1: there is no such metric. */
enum options_metric { METRIC_VAL_LOSS, METRIC_VAL_ACC1, METRIC_VAL_ACC5 };
int options_metric_named(const char *name);

#endif
