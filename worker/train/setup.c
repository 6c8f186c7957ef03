/* Set-up: data, net, world, checkpoint, in this order. Failures that concern a single rank come
 * before that rank joins the others. */
#include "worker/train/internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/log.h"
#include "worker/graph/graph.h"
#include "worker/metrics/append.h"
#include "worker/net/profile.h"
#include "worker/net/replicas.h"
#include "worker/net/state.h"
#include "worker/profile/print_graph.h"

enum {
    TIMEOUT_S = 60, /* for the connections, and for a collective without progress */
    BUSY_S = 600,   /* more, while the missing rank saves or loads: --hang-first of the server */
    TIMEOUT_S_MAX = 86400
};

/* The rate of this world, and the length of the schedule. */
static enum status make_schedule(struct train *train, struct err *err)
{
    const struct options *options = train->options;
    struct schedule_options *schedule = &train->schedule;

    *schedule = options->schedule;
    train_set_base_rate(train);
    schedule->base_momentum = optim_uses(&options->optim, OPTIM_MOMENTUM)
                                  ? (double)options->optim.momentum
                                  : options->optim.beta1;
    schedule->steps_per_epoch = train->steps_per_epoch;
    return options->evaluate ? STATUS_OK : schedule_check(schedule, err);
}

static enum status sum_over_ranks(void *user, double *values, size_t count, struct err *err)
{
    struct train *train = user;

    return train->ddp != NULL ? ddp_sum(train->ddp, values, count, err) : STATUS_OK;
}

/* Images of an epoch's last step if they are fewer; 0: they are not, or that step never comes. */
static uint32_t last_batch(const struct train *train)
{
    const uint32_t rest = (uint32_t)(train->sampler.count % train->options->batch);
    const bool comes =
        train->options->max_steps == 0 || train->options->max_steps >= train->steps_per_epoch;

    return comes ? rest : 0;
}

/* Threads of each rank. With several ranks one each, so that neither their placement nor the
 * machine changes the order of sums. A single rank uses all, unless its results must be
 * bit-identical everywhere. 0: OpenMP's choice. */
static uint32_t threads_of(const struct train *train)
{
    const struct options *options = train->options;
    /* before any thread is started: NOLINTNEXTLINE(concurrency-mt-unsafe) */
    const char *asked = getenv("OMP_NUM_THREADS");

    if (options->threads > 0)
        return options->threads;
    if (asked != NULL && asked[0] != '\0')
        return 0;
    return train->place->world > 1 || options->deterministic ? 1 : 0;
}

/* How long a start may time engines, where --tune-seconds does not say it. */
enum { TUNE_S = 2 };

static uint64_t tune_us(const struct options *options)
{
    if (options->tune)
        return NET_TUNE_ALL;
    return options->tune_seconds < 0 ? (uint64_t)TUNE_S * 1000000
                                     : (uint64_t)((double)options->tune_seconds * 1e6);
}

static enum status make_net(struct train *train, struct err *err)
{
    const struct options *options = train->options;
    struct dataset_shape shape = train->validation_set->shape;
    struct net_memory grad_memory;
    const struct net_options net_options = {
        .batch_max = train_parallel_part(train, options->batch),
        .profile = options->profile_steps > 0,
        .bucket_bytes = (uint64_t)((double)options->bucket_cap_mb * 1024 * 1024),
        .evaluate_only = options->evaluate && train->place->world == 1,
        .deterministic = options->deterministic,
        .threads = threads_of(train),
        .tf32 = options->tf32,
        .label_smoothing = options->label_smoothing,
        .accumulate = options->accumulation_steps > 1,
        .amp = &options->amp,
        .optim = &options->optim,
        .norm_sum = options->sync_bn && train->place->world > 1 ? sum_over_ranks : NULL,
        .norm_sum_user = train,
        .batch_last = train_parallel_part(train, last_batch(train)),
        .tune_us = tune_us(options),
        .tunes_cold = options->tune || options->tune_seconds >= 0,
        .collective_sms = train_nccl_sms(train),
        .grad_memory = train_nccl_memory(train, &grad_memory) ? &grad_memory : NULL,
        .image_channels = shape.channels,
        .backend = train->device->backend,
        .graph_seen = options->print_graph ? print_graph_pass : NULL,
        .graph_seen_user = stdout,
    };
    struct graph *graph = NULL;
    enum status status;

    shape.classes = train_data_classes(train);
    status = train_model_build(train, &shape, &graph, err);

    if (status == STATUS_OK)
        status = net_new(&train->net, graph, &net_options, err);
    if (status == STATUS_OK)
        net_profile_set(train->net, false); /* train_profile turns it on */
    if (status == STATUS_OK)
        status = train_parallel_open(train, graph, &net_options, err);
    if (status == STATUS_OK)
        status = train_model_init(train, graph, err);
    graph_free(&graph);
    return status;
}

static void describe(struct train *train)
{
    const struct options *options = train->options;
    struct checkpoint_state *state = &train->state;

    *state = (struct checkpoint_state){
        .generation = train->place->generation,
        .image_count = (uint32_t)train->sampler.options.image_count,
        .data_hash = train->train_set != NULL ? train->train_set->hash : 0,
        .image_rules = train_data_image_rules(train),
        .training_rules = train_data_training_rules(train),
        .world = train->place->world,
        .batch = options->batch,
        .accumulation_steps = options->accumulation_steps,
        .seed = options->seed,
        .loss_scale = net_scaler(train->net).scale,
        .threads = net_threads(train->net),
        .schedule_epochs = options->epochs,
    };
    (void)snprintf(state->schedule_kind, sizeof state->schedule_kind, "%s", options->lr_schedule);
    state->base_images = train_world_images(state);
    (void)snprintf(state->opt_level, sizeof state->opt_level, "O%u%s", options->amp.level,
                   options->amp.half == GRAPH_BF16 ? " bf16" : "");
    (void)snprintf(state->optimizer, sizeof state->optimizer, "%s%s",
                   optim_kind_name(options->optim.kind),
                   options->optim.lookahead == OPTIM_LOOKAHEAD_NONE    ? ""
                   : options->optim.lookahead == OPTIM_LOOKAHEAD_PAPER ? " + lookahead (paper)"
                                                                       : " + lookahead (seed)");
    if (train->place->job_id != 0)
        (void)snprintf(state->job_id, sizeof state->job_id, "%" PRIu64, train->place->job_id);
    (void)snprintf(state->arch, sizeof state->arch, "%s", train->model_identity);
    (void)snprintf(state->data, sizeof state->data, "%s", train->data_kind);
}

/* DDP_GLOO_TIMEOUT, in seconds. */
static enum status read_timeout(uint64_t *timeout_us, struct err *err)
{
    const char *text = getenv("DDP_GLOO_TIMEOUT"); /* NOLINT(concurrency-mt-unsafe): only read */
    char *end = NULL;
    const long seconds = text == NULL || text[0] == '\0' ? TIMEOUT_S : strtol(text, &end, 10);

    if (seconds < 1 || seconds > TIMEOUT_S_MAX || (end != NULL && *end != '\0'))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: DDP_GLOO_TIMEOUT=%.40s: expected seconds, 1 to %d", text,
                       TIMEOUT_S_MAX);
    *timeout_us = (uint64_t)seconds * 1000000;
    return STATUS_OK;
}

/* Rank 0 sends its address through the shims; then all ranks connect to one another. */
static enum status meet(struct train *train, struct err *err)
{
    struct comm_options options = {
        .rank = train->place->rank,
        .world = train->place->world,
        .job_id = train->place->job_id,
        .generation = train->place->generation,
        .address = train->place->address,
        .busy_us = (uint64_t)BUSY_S * 1000000,
    };
    const struct device_sharing sharing = device_sharing(train->device, train->options->comm);
    struct comm_blob blob = {.byte_count = 0};
    enum status status = read_timeout(&options.timeout_us, err);

    if (status == STATUS_OK && options.world > 1 && options.rank == 0)
        status = comm_open(&train->comm, &options, &blob, err);
    if (status == STATUS_OK && options.rank == 0)
        status = train_nccl_pack(train, &blob, err);
    if (status == STATUS_OK)
        status = agent_join(train->agent, &blob, err);
    if (status == STATUS_OK)
        status = train_nccl_unpack(train, &blob, err);
    if (status == STATUS_OK && options.world > 1)
        status = comm_connect(&train->comm, &options, &blob, err);
    if (status == STATUS_OK)
        status = agent_begin_telling(train->agent, train_now, train, err);
    if (status == STATUS_OK)
        train_pause(train, AGENT_PREPARING, "before the first step");
    if (status == STATUS_OK && options.world > 1)
        status = device_check(train->device, train->comm, options.world, &sharing, err);
    return status == STATUS_OK ? train_nccl_open(train, err) : status;
}

/* Decides which reducer averages the gradients of all ranks; none if there is one rank. Nothing
 * else decides this. */
static enum status choose_reducer(struct train *train, struct err *err)
{
    struct reducer reducer;
    enum status status;

    assert((train->place->world > 1) == (train->ddp != NULL));
    if (train->ddp == NULL || train->options->evaluate)
        return STATUS_OK;
    status = train->uses_nccl ? train_nccl_reducer(train, &reducer, err)
                              : ddp_reducer(train->ddp, &reducer, err);
    if (status != STATUS_OK)
        return status;
    train_trace_reducer(train, &reducer);
    net_set_reducer(train->net, &reducer);
    return status;
}

static enum status make_equal(struct train *train, struct err *err)
{
    const struct ddp_options options = {
        .delay_allreduce = train->options->delay_allreduce,
        .predivide = train->options->predivide,
        .broadcast_buffers = true,
        .allreduce_always_fp32 = train->options->allreduce_always_fp32,
        .reduced = train->trace != NULL ? train_trace_reduced : NULL,
        .reduced_user = train,
    };
    enum status status = train_resume(train, err);

    if (status == STATUS_OK)
        train_load_scaler(train);
    if (status == STATUS_OK && train->comm != NULL)
        status = ddp_new(&train->ddp, train->comm, train->net, train->place->rank,
                         train->place->world, &options, err);
    if (status == STATUS_OK)
        atomic_store(&train->ddp_now, train->ddp);
    if (status == STATUS_OK)
        status = train_share_optim(train, err);
    if (status == STATUS_OK)
        status = train_open_dir(train, err);
    if (status == STATUS_OK)
        status = train_save_open(train, err);
    if (status == STATUS_OK)
        status = train_best_open(train, err);
    return status;
}

/* Whether another process has this file as its log; else it is this one's from now on. */
static bool is_taken(int fd)
{
    struct stat now;

    return fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && flock(fd, LOCK_EX | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK;
}

/* `option`: its name, `name`: its value, or NULL. `taken` is increased where another rank has the file. */
static enum status open_log(struct train *train, const char *option, const char *name, FILE **log,
                            double *taken, struct err *err)
{
    char path[OPTIONS_PATH_BYTES];
    struct append_file file;
    struct err why;
    enum status status;

    if (name == NULL)
        return STATUS_OK;
    status = options_rank_path(option, name, train->place->rank, path, err);
    if (status != STATUS_OK)
        return status;
    status = append_open(&file, path, train->is_resumed ? APPEND_KEEP : APPEND_REPLACE, &why);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "%s %s: %.80s", option, path, why.text);
    if (train->place->world > 1)
        *taken += is_taken(file.fd);
    *log = fdopen(file.fd, "a");
    if (*log == NULL) {
        append_close(&file);
        return err_set(err, STATUS_MEMORY, 0, "no memory for %s", option);
    }
    (void)setvbuf(*log, NULL, _IOLBF, 0);
    return STATUS_OK;
}

/* All ranks tell of a file that two of them would write: which one comes second is a matter of luck. */
static enum status open_logs(struct train *train, struct err *err)
{
    const struct options *options = train->options;
    double taken = 0;
    enum status status =
        open_log(train, "--loss-log", options->loss_log, &train->loss_log, &taken, err);

    if (status == STATUS_OK)
        status =
            open_log(train, "--sample-log", options->sample_log, &train->sample_log, &taken, err);
    if (status == STATUS_OK && train->comm != NULL)
        status = comm_all_reduce_sum_f64(train->comm, &taken, 1, err);
    if (status != STATUS_OK || taken == 0)
        return status;
    return err_set(err, STATUS_BAD_INPUT, EWOULDBLOCK,
                   "--%s: another rank writes into this file: put %%r, the rank, into its name",
                   options->loss_log != NULL ? "loss-log" : "sample-log");
}

/* How this CPU emulates 16-bit types. */
static void announce_half(const struct train *train)
{
    const char *type = graph_dtype_name(train->options->amp.half);
    uint32_t computed = 0, count = 0;

    for (struct net_half_layer half; net_half_layer(train->net, count, &half); count++)
        computed += half.is_computed;
    if (computed == 0)
        (void)printf("%s is rounded, not computed, on this CPU: the numbers are those of %s, the "
                     "speed is not\n",
                     type, type);
    else
        (void)printf(
            "%s is computed by this CPU in %u of %u convolutions and linear layers; everything "
            "else is rounded to it\n",
            type, computed, count);
}

/* Apex's banner, and how this backend does what it announces. */
static void announce_amp(const struct train *train)
{
    const struct options *options = train->options;
    const struct amp_request request = options_amp(options);

    if (train->place->rank != 0 || options->opt_level == options_default_level)
        return;
    amp_print_banner(&request, &options->amp, stdout);
    if (options->amp.level > 0 && train->device->backend == &backend_cpu)
        announce_half(train);
    (void)fflush(stdout);
}

static void warn_idle(const struct train *train)
{
    const struct options_facts facts = {
        .world = train->place->world,
        .has_pictures = train->has_pictures,
        .has_shards = strcmp(train->data_kind, "shards") == 0,
        .is_on_gpu = train->device->runtime != NULL,
    };
    char text[OPTIONS_IDLE_BYTES];
    uint32_t at = 0;

    while (train->place->rank == 0 && options_next_idle(train->options, &facts, &at, text))
        log_line(LOG_WARNING, train_log_about(train), "%s", text);
}

struct stage {
    enum status (*run)(struct train *train, struct err *err);
    const char *name;
};

static enum status run_stages(struct train *train, const struct stage *stages, size_t count,
                              struct err *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        const uint64_t begun_us = mono_us();

        status = stages[i].run(train, err);
        train_stage_add(train, stages[i].name, mono_us() - begun_us);
    }
    return status;
}

static enum status get_ready(struct train *train, struct err *err)
{
    static const struct stage alone[] = {
        {train_nccl_choose, "device"}, {train_model_open, "data"}, {train_data_open, "data"},
        {train_data_share, "data"},    {make_schedule, "data"},    {make_net, "net: plans, memory"},
        {train_loaders_make, "data"},
    };
    static const struct stage together[] = {
        {meet, "world"},
        {train_check_alike, "world"},
        {train_trace_open, "world"},
        {make_equal, "equal parameters"},
        {choose_reducer, "equal parameters"},
        {open_logs, "equal parameters"},
        {train_metrics_open, "equal parameters"},
    };
    enum status status = run_stages(train, alone, sizeof alone / sizeof alone[0], err);

    if (status != STATUS_OK)
        return status;
    describe(train);
    warn_idle(train);
    announce_amp(train);
    return run_stages(train, together, sizeof together / sizeof together[0], err);
}

static struct train *make(const struct train_setup *setup)
{
    struct train *train = calloc(1, sizeof *train);

    assert(setup->device->backend != NULL);
    if (train == NULL)
        return NULL;
    train->options = setup->options;
    train->place = setup->place;
    train->device = setup->device;
    train->agent = setup->agent;
    train->saved_step = -1;
    train->saving_step = train->asked_step = -1;
    train->begun_us = mono_us() - setup->device->open_us;
    train_stage_add(train, "device", setup->device->open_us);
    return train;
}

enum status train_new(struct train **out, const struct train_setup *setup, struct err *err)
{
    *out = make(setup);
    return *out != NULL ? get_ready(*out, err)
                        : err_set(err, STATUS_MEMORY, 0, "no memory to train");
}

enum status train_print_graph(const struct train_setup *setup, struct err *err)
{
    struct train *train = make(setup);
    enum status status;

    if (train == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to train");
    status = train_model_open(train, err);
    if (status == STATUS_OK)
        status = train_data_open(train, err);
    if (status == STATUS_OK)
        status = make_net(train, err);
    if (status == STATUS_OK)
        print_graph_half(stdout, train->net);
    if (status == STATUS_OK)
        print_graph_memory(stdout, train->net);
    train_free(&train);
    return status;
}

enum status train_tune(const struct train_setup *setup, struct err *err)
{
    struct train *train;
    enum status status;

    if (setup->device->runtime == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--tune times engines of a GPU, and this training is on the CPU");
    train = make(setup);
    if (train == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to train");
    status = train_nccl_choose(train, err);
    if (status == STATUS_OK)
        status = train_model_open(train, err);
    if (status == STATUS_OK)
        status = train_data_open(train, err);
    if (status == STATUS_OK)
        status = train_data_share(train, err); /* how many images the last batch has */
    if (status == STATUS_OK)
        status = make_net(train, err);
    if (status == STATUS_OK)
        log_line(LOG_INFO, train_log_about(train), "engines are chosen: training starts with them");
    train_free(&train);
    return status;
}

void train_free(struct train **out)
{
    struct train *train = *out;

    if (train == NULL)
        return;
    train_save_close(train);
    train_metrics_close(train);
    train_nccl_close(train);
    agent_end_telling(train->agent); /* it asks the two that go now: train_now */
    ddp_free(&train->ddp);
    train_trace_close(train);
    if (train->comm != NULL)
        comm_close(&train->comm);
    loader_free(&train->loader); /* its memory is the net's */
    loader_free(&train->validation_loader);
    replicas_free(&train->replicas);
    net_free(&train->net);
    model_file_free(&train->model_file);
    source_free(&train->train_set);
    source_free(&train->validation_set);
    sampler_close(&train->sampler);
    checkpoint_dir_close(&train->dir);
    free(train->reports);
    free(train->copy_ranks);
    free(train->indices);
    free(train->validation_indices);
    if (train->loss_log != NULL)
        (void)fclose(train->loss_log);
    if (train->sample_log != NULL)
        (void)fclose(train->sample_log);
    free(train);
    *out = NULL;
}
