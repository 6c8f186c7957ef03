/* Checkpoint folders on several nodes: which ranks share one, which checkpoint all resume from
 * (agree.h decides), and copies on nodes that do not share rank 0's folder. Rank 0 writes a
 * checkpoint; a copy has the same bytes. One rank for each folder reads and writes there. */
#include "worker/train/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "worker/checkpoint/copy.h"

enum {
    CHUNK_BYTES = 4 << 20,
    BARRIER_CHUNKS = 8, /* ranks that get nothing wait no longer than for this many chunks */
    NAMES_BYTES = 160
};

/* What all ranks know of a checkpoint that is about to be sent. */
struct parcel {
    bool is_there; /* false: there is nothing to send */
    uint32_t step, state_bytes;
    uint64_t tensor_bytes;
};

/* -- who shares a folder -- */

static bool is_first_of_node(const struct train *train)
{
    return train->place->local_rank == 0;
}

static bool is_one_node(const struct train *train)
{
    return train->place->local_world == train->place->world;
}

/* Whether this rank speaks for a folder. */
static bool has_folder(const struct train *train)
{
    return train->reports != NULL &&
           train->reports[train->place->rank].folder == train->place->rank;
}

/* The first rank whose token is seen here: the first rank of each node leaves one in its folder.
 * Looks tokens up by name, which works even where directory listings are cached. */
static uint32_t first_seen(const struct train *train, uint64_t meeting)
{
    uint32_t rank = 0;

    while (rank < train->place->rank &&
           !checkpoint_token_found(train->options->checkpoint_dir, meeting, rank))
        rank++;
    return rank;
}

static enum status find_folder(struct train *train, uint64_t *meeting, struct agree_report *report,
                               struct err *err)
{
    const char *path = train->options->checkpoint_dir;
    struct err why = {0};
    enum status status;

    if (getrandom(meeting, sizeof *meeting, 0) != sizeof *meeting)
        return err_set(err, STATUS_SYSTEM, errno, "no random number: %s", strerror(errno));
    status = comm_broadcast(train->comm, meeting, sizeof *meeting, 0, err);
    if (status == STATUS_OK && is_first_of_node(train) &&
        checkpoint_token_leave(path, *meeting, train->place->rank, &why) == STATUS_OK)
        report->folder = train->place->rank;
    if (status == STATUS_OK && why.status != STATUS_OK && train->place->rank == 0)
        return err_set(err, why.status, why.code, "%s", why.text);
    if (why.status != STATUS_OK)
        log_line(LOG_WARNING, train_log_about(train), "no copies on this node: %s", why.text);
    if (status == STATUS_OK)
        status = comm_barrier(train->comm, err);
    if (status == STATUS_OK && report->folder != AGREE_NO_FOLDER)
        report->folder = first_seen(train, *meeting);
    return status;
}

/* -- what this rank has -- */

static bool is_resume_auto(const struct train *train)
{
    return train->options->resume != NULL && strcmp(train->options->resume, "auto") == 0;
}

bool train_resumes_from_dir(const struct train *train)
{
    const struct options *options = train->options;

    if (options->checkpoint_dir == NULL || options->evaluate)
        return false;
    if (options->resume != NULL && strcmp(options->resume, "none") == 0)
        return false;
    return is_resume_auto(train) || train->place->generation > 1; /* restarted */
}

/* Once a job has committed a checkpoint, its own have priority. A restarted job without --resume
 * auto never resumes from another job's. Errors: those of checkpoint_open_newest. */
static enum status look(struct train *train, struct agree_report *report, struct err *err)
{
    struct checkpoint_choice choice = {.like = &train->state,
                                       .job_id = train->state.job_id,
                                       .skipped = train_note_skipped,
                                       .user = train};
    const bool takes_any = is_resume_auto(train);
    struct checkpoint found;
    enum status status = STATUS_NOT_FOUND;

    if (!takes_any || train->place->checkpoint_step > 0)
        status = checkpoint_open_newest(&found, train->options->checkpoint_dir, &choice, err);
    report->is_of_job = status == STATUS_OK;
    choice.job_id = NULL;
    if ((status == STATUS_NOT_FOUND || status == STATUS_BAD_INPUT) && takes_any) {
        train->skipped_count = 0;
        status = checkpoint_open_newest(&found, train->options->checkpoint_dir, &choice, err);
    }
    if (status != STATUS_OK)
        return status;
    train_tell_skipped(train);
    report->has_checkpoint = true;
    report->step = found.state.step;
    checkpoint_close(&found);
    return STATUS_OK;
}

/* `conflict` gets the reason why rank 0's checkpoints do not fit, if there is no other. */
static enum status look_if_asked(struct train *train, struct agree_report *report,
                                 struct err *conflict, struct err *err)
{
    struct err why = {0};
    enum status status;

    if (report->folder != train->place->rank || !train_resumes_from_dir(train))
        return STATUS_OK;
    status = look(train, report, &why);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        return STATUS_OK;
    report->is_damaged = status == STATUS_BAD_INPUT;
    if (status == STATUS_BAD_INPUT)
        return STATUS_OK; /* some other node may have a whole one */
    if (status == STATUS_CONFLICT)
        *conflict = why;
    else if (train->place->rank == 0)
        return err_set(err, status, why.code, "%s", why.text);
    if (train->place->rank > 0) /* rank 0's is told with what the ranks agree on */
        log_line(LOG_WARNING, train_log_about(train), "%s", why.text);
    return STATUS_OK;
}

static enum status gather(struct train *train, const struct agree_report *mine, struct err *err)
{
    const uint32_t world = train->place->world;

    train->reports = calloc(world, sizeof *train->reports);
    train->copy_ranks = calloc((size_t)world + 1, sizeof *train->copy_ranks);
    if (train->reports == NULL || train->copy_ranks == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", world);
    if (train->comm != NULL)
        return comm_all_gather(train->comm, mine, sizeof *mine, train->reports, err);
    train->reports[0] = *mine;
    return STATUS_OK;
}

static struct agree_question question_of(const struct train *train)
{
    return (struct agree_question){.reports = train->reports,
                                   .world = train->place->world,
                                   .path = train->options->checkpoint_dir,
                                   .copies = train->options->checkpoint_copies,
                                   .starts_if_damaged = train->options->from_start_if_damaged,
                                   .known_step = train->place->checkpoint_step};
}

/* "a, c", and " and 3 more" where there is no room. */
static const char *node_names(const struct train *train, const uint32_t *ranks, uint32_t count,
                              char text[NAMES_BYTES])
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const char *name = train->reports[ranks[i]].node;

        if (used + strlen(name) + 24 > NAMES_BYTES) {
            (void)snprintf(text + used, NAMES_BYTES - used, " and %u more", count - i);
            break;
        }
        used += (size_t)snprintf(text + used, NAMES_BYTES - used, "%s%s", i > 0 ? ", " : "", name);
    }
    return text;
}

static void announce(const struct train *train)
{
    const char *path = train->options->checkpoint_dir;
    uint32_t folders = 0;
    char names[NAMES_BYTES];

    for (uint32_t i = 0; i < train->place->world; i++)
        folders += train->reports[i].folder == i;
    if (train->place->rank != 0 || folders < 2)
        return;
    if (train->copy_count == 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "%s is not shared by all nodes and --checkpoint-copies is 0: if rank 0 moves to "
                 "another node, the job cannot resume",
                 path);
    else
        log_line(LOG_INFO, train_log_about(train),
                 "%s is not shared by all nodes: each checkpoint is copied to %s %s", path,
                 train->copy_count == 1 ? "node" : "nodes",
                 node_names(train, train->copy_ranks + 1, train->copy_count, names));
}

enum status train_meet_folders(struct train *train, struct err *conflict, struct err *err)
{
    struct agree_report mine;
    struct agree_question question;
    uint64_t meeting = 0;
    const bool alone = is_one_node(train);
    enum status status = STATUS_OK;

    if (train->options->checkpoint_dir == NULL || train->options->evaluate)
        return STATUS_OK;
    memset(&mine, 0, sizeof mine); /* it is sent as bytes, padding included */
    (void)snprintf(mine.node, sizeof mine.node, "%s", train->place->node);
    mine.folder = alone && train->place->rank == 0 ? 0 : AGREE_NO_FOLDER;
    if (!alone)
        status = find_folder(train, &meeting, &mine, err);
    if (status == STATUS_OK)
        status = look_if_asked(train, &mine, conflict, err);
    if (status == STATUS_OK)
        status = gather(train, &mine, err); /* and all have looked for the tokens */
    if (!alone && is_first_of_node(train))
        checkpoint_token_remove(train->options->checkpoint_dir, meeting, train->place->rank);
    if (status != STATUS_OK)
        return status;
    question = question_of(train);
    train->copy_count = agree_copies(&question, train->copy_ranks + 1);
    announce(train);
    return STATUS_OK;
}

/* -- opening -- */

enum status train_open_dir(struct train *train, struct err *err)
{
    const struct checkpoint_options options = {
        .path = train->options->checkpoint_dir,
        .job_id = train->state.job_id,
        .cluster = train->place->cluster,
        .takes_over = train->options->take_over && train->place->generation == 1,
        .generation = train->place->generation,
        .keep = train->options->checkpoint_keep,
        .step = train->is_resumed ? (int64_t)train->state.step : -1,
        /* --resume FILE and best may name another job's checkpoint there, and the next restart too. */
        .only_job = train->place->generation > 1 && !is_resume_auto(train) && !train->is_from_file,
    };
    struct err notice, why;
    enum status status;

    if (train->dir != NULL || !has_folder(train))
        return STATUS_OK;
    status = checkpoint_dir_open(&train->dir, &options, &notice, &why);
    if (status == STATUS_OK && notice.text[0] != '\0')
        log_line(LOG_WARNING, train_log_about(train), "%s", notice.text);
    if (status == STATUS_OK)
        return STATUS_OK;
    if (train->place->rank == 0)
        return err_set(err, status, why.code, "%s", why.text);
    log_line(LOG_WARNING, train_log_about(train), "no copies on this node: %s", why.text);
    return STATUS_OK;
}

/* -- sending -- */

static uint32_t place_in(const uint32_t *ranks, uint32_t count, uint32_t rank)
{
    uint32_t at = 0;

    while (at < count && ranks[at] != rank)
        at++;
    return at;
}

/* Sends zeros for bytes that cannot be read: the receivers then find a wrong checksum. */
static void read_chunk(struct train *train, const struct checkpoint_source *source, uint64_t offset,
                       uint8_t *chunk, size_t byte_count)
{
    struct err why;

    if (checkpoint_source_read(source, offset, chunk, byte_count, &why) == STATUS_OK)
        return;
    memset(chunk, 0, byte_count);
    log_line(LOG_WARNING, train_log_about(train), "cannot send a checkpoint: %s", why.text);
}

/* `source` on the first of `ranks`, `copy` on the others where they can write it, else NULL. */
static enum status send_tensors(struct train *train, const struct parcel *parcel,
                                const struct checkpoint_source *source,
                                struct checkpoint_copy *copy, const uint32_t *ranks, uint32_t count,
                                struct err *err)
{
    const bool takes_part = place_in(ranks, count, train->place->rank) < count;
    uint8_t *chunk = takes_part ? malloc(CHUNK_BYTES) : NULL;
    enum status status = STATUS_OK;
    uint32_t chunks = 0;

    if (takes_part && chunk == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to send a checkpoint");
    for (uint64_t at = 0; status == STATUS_OK && at < parcel->tensor_bytes; at += CHUNK_BYTES) {
        const uint64_t left = parcel->tensor_bytes - at;
        const size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;

        if (source != NULL && chunk != NULL)
            read_chunk(train, source, at, chunk, n);
        status = comm_multicast(train->comm, chunk, n, ranks, count, err);
        if (status == STATUS_OK && copy != NULL)
            checkpoint_copy_add(copy, chunk, n);
        if (status == STATUS_OK && ++chunks % BARRIER_CHUNKS == 0)
            status = comm_barrier(train->comm, err);
    }
    free(chunk);
    return status;
}

/* On the ranks that receive. `*why`: the reason why there is no copy; that is no error of the
 * collective. */
static enum status receive(struct train *train, const struct parcel *parcel, const uint32_t *ranks,
                           uint32_t count, struct err *why, struct err *err)
{
    struct checkpoint_copy *copy = NULL;
    char *state = malloc((size_t)parcel->state_bytes + 1);
    enum status status;

    if (state == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state of a checkpoint");
    if (train->dir == NULL)
        (void)err_set(why, STATUS_IO, 0, "the folder cannot be used");
    else
        (void)checkpoint_copy_begin(&copy, train->dir, parcel->step, why);
    status = comm_multicast(train->comm, state, parcel->state_bytes, ranks, count, err);
    if (status == STATUS_OK)
        status = send_tensors(train, parcel, NULL, copy, ranks, count, err);
    if (copy != NULL && status == STATUS_OK)
        (void)checkpoint_copy_end(&copy, state, parcel->state_bytes, why);
    else if (copy != NULL)
        checkpoint_copy_drop(&copy);
    free(state);
    return status;
}

static enum status send_parcel(struct train *train, const struct parcel *parcel,
                               struct checkpoint_source *source, const uint32_t *ranks,
                               uint32_t count, struct err *err)
{
    char *state = source != NULL ? source->state : NULL;
    enum status status = comm_multicast(train->comm, state, parcel->state_bytes, ranks, count, err);

    return status == STATUS_OK ? send_tensors(train, parcel, source, NULL, ranks, count, err)
                               : status;
}

/* Sends the checkpoint of `step` from ranks[0] to the other ranks of ranks[count]; all ranks call.
 * If ranks[0] cannot read it, nothing is sent, and all ranks learn that. `*why`, on a rank that
 * receives: why it has no copy; status STATUS_OK if it has one. */
static enum status deliver(struct train *train, uint32_t step, const uint32_t *ranks,
                           uint32_t count, struct err *why, struct err *err)
{
    const uint32_t at = place_in(ranks, count, train->place->rank);
    struct checkpoint_source source = {.fd = -1};
    struct parcel parcel;
    struct err unreadable = {0};
    enum status status;

    memset(&parcel, 0, sizeof parcel);
    if (at == 0 && checkpoint_source_open(&source, train->options->checkpoint_dir, step,
                                          &unreadable) == STATUS_OK)
        parcel = (struct parcel){true, step, source.state_bytes, source.tensor_bytes};
    if (unreadable.status != STATUS_OK)
        log_line(LOG_WARNING, train_log_about(train), "cannot send a checkpoint: %s",
                 unreadable.text);
    status = comm_broadcast(train->comm, &parcel, sizeof parcel, ranks[0], err);
    if (status == STATUS_OK && !parcel.is_there)
        (void)err_set(why, STATUS_NOT_FOUND, 0, "it was not sent");
    else if (status == STATUS_OK && (at == 0 || at == count))
        status = send_parcel(train, &parcel, at == 0 ? &source : NULL, ranks, count, err);
    else if (status == STATUS_OK)
        status = receive(train, &parcel, ranks, count, why, err);
    checkpoint_source_close(&source);
    return status;
}

enum status train_copy(struct train *train, uint32_t step, struct err *err)
{
    struct err why = {0};
    enum status status;

    assert(train->copy_count > 0);
    status = deliver(train, step, train->copy_ranks, 1 + train->copy_count, &why, err);
    if (status != STATUS_OK || why.status == STATUS_OK || why.status == STATUS_NOT_FOUND)
        return status;
    if (why.status == STATUS_CONFLICT)
        return err_set(err, why.status, why.code, "%s", why.text);
    log_line(LOG_WARNING, train_log_about(train),
             "no copy of checkpoint step %u on this node: %s; training goes on, the earlier "
             "copies stand",
             step, why.text);
    return STATUS_OK;
}

/* -- going on -- */

static void report_answer(const struct train *train, const struct agree_answer *answer)
{
    char names[NAMES_BYTES];

    if (train->place->rank != 0)
        return;
    if (answer->receiver_count > 0)
        log_line(LOG_INFO, train_log_about(train),
                 "checkpoint step %u sent from rank %u (node %s) to %s %s", answer->step,
                 answer->source, train->reports[answer->source].node,
                 answer->receiver_count == 1 ? "node" : "nodes",
                 node_names(train, answer->receivers, answer->receiver_count, names));
    if (answer->is_older)
        log_line(LOG_WARNING, train_log_about(train),
                 "PROGRESS LOST: this job has committed step %llu, but the newest checkpoint that "
                 "any rank finds in %s is step %u: training resumes there",
                 (unsigned long long)train->place->checkpoint_step, train->options->checkpoint_dir,
                 answer->step);
}

/* A restarted job begins again. The generation before may have left a checkpoint on another node, without copies, of
 * which the server was not told. */
static void report_none(const struct train *train)
{
    if (train->place->rank == 0 && train->place->generation > 1 && train->copy_count > 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "PROGRESS LOST: no rank finds a checkpoint of this job in %s, and none had "
                 "copies: what generation %u did is done again",
                 train->options->checkpoint_dir, train->place->generation - 1);
}

/* ranks: [world + 1]; the sender, then the receivers. */
static enum status fetch(struct train *train, const struct agree_answer *answer, uint32_t *ranks,
                         struct err *err)
{
    struct err why = {0};
    const uint32_t own = train->place->rank;
    enum status status;

    assert(answer->receivers == ranks + 1);
    if (answer->receiver_count == 0)
        return STATUS_OK;
    ranks[0] = answer->source;
    status = deliver(train, answer->step, ranks, 1 + answer->receiver_count, &why, err);
    if (status != STATUS_OK || why.status == STATUS_OK ||
        place_in(answer->receivers, answer->receiver_count, own) == answer->receiver_count)
        return status;
    if (own == 0 || why.status == STATUS_CONFLICT)
        return err_set(err, why.status, why.code,
                       "checkpoint step %u of rank %u (node %.40s) did not arrive: %.120s",
                       answer->step, answer->source, train->reports[answer->source].node, why.text);
    log_line(LOG_WARNING, train_log_about(train), "no copy of checkpoint step %u on this node: %s",
             answer->step, why.text);
    return STATUS_OK;
}

enum status train_agree(struct train *train, const struct err *conflict, struct err *err)
{
    const struct agree_question question = question_of(train);
    uint32_t *ranks = calloc((size_t)train->place->world + 1, sizeof *ranks);
    struct agree_answer answer = {.receivers = ranks != NULL ? ranks + 1 : NULL};
    enum status status;

    if (ranks == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a world of %u", train->place->world);
    status = agree(&question, &answer, err);
    if (conflict->status != STATUS_OK && !answer.resumes && train->place->rank == 0)
        status = err_set(err, conflict->status, conflict->code, "%s", conflict->text);
    if (status == STATUS_OK && !answer.resumes)
        report_none(train);
    if (status == STATUS_OK && answer.resumes) {
        if (conflict->status != STATUS_OK && train->place->rank == 0)
            log_line(LOG_WARNING, train_log_about(train), "%s", conflict->text);
        train->has_copies = true; /* fetch() makes those that are missing */
        train->is_resumed = true; /* its state is read next, by rank 0 */
        train->state.step = answer.step;
        status = train_open_dir(train, err);
        if (status == STATUS_OK)
            status = fetch(train, &answer, ranks, err);
        if (status == STATUS_OK)
            report_answer(train, &answer);
    }
    free(ranks);
    return status;
}
