/* Replicas of a net in one process. See replicas.h. */
#include "worker/net/replicas.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "worker/net/state.h"

/* What a replica's thread does next. */
enum command { COMMAND_MAKE, COMMAND_COPY, COMMAND_FORWARD, COMMAND_BACKWARD, COMMAND_END };

struct replica {
    struct replicas *all;
    uint32_t index; /* from 1: the net itself is 0 */
    pthread_t thread;
    bool has_thread;
    struct net *net; /* its thread's alone */
    float *grads;    /* all buckets, one after the other */
    uint32_t first, n;
    struct net_result result;
    bool is_busy; /* guarded by all->mutex; the rest is the thread's while it is set */
    enum command command;
    enum status status;
    struct err err;
};

struct replicas {
    struct net *net;
    struct replicas_options options;
    struct replica *others; /* [options.count - 1] */
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    /* The current command; written while no replica is busy. */
    const struct graph *graph;
    const struct net_options *net_options;
    struct net_view source; /* COPY */
    struct scaler scaler;
    struct net_images images; /* FORWARD */
    const int64_t *labels;
    bool training;
    uint32_t n, first_n; /* of the batch, of the net's own part */
    float grad_scale;    /* BACKWARD */
};

uint32_t replicas_part(uint32_t n, uint32_t count, uint32_t index, uint32_t *first)
{
    const uint64_t size = ((uint64_t)n + count - 1) / count, begin = size * index;

    assert(n > 0 && index < count);
    *first = begin < n ? (uint32_t)begin : n;
    return n - *first < size ? n - *first : (uint32_t)size;
}

/* -- on a replica's thread -- */

static size_t grad_count(const struct net *net)
{
    size_t count = 0;

    for (uint32_t b = 0; b < net_bucket_count(net); b++)
        count += net_bucket(net, b).count;
    return count;
}

static enum status make(struct replica *replica, struct err *err)
{
    const struct replicas *all = replica->all;
    uint8_t mine[32], theirs[32];
    enum status status;

    if (all->options.choose_device != NULL)
        all->options.choose_device(replica->index);
    status = net_new(&replica->net, all->graph, all->net_options, err);
    if (status != STATUS_OK)
        return status;
    replica->grads = calloc(grad_count(replica->net) + 1, sizeof *replica->grads);
    if (replica->grads == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for its gradients");
    net_hash(all->net, UINT32_MAX, theirs);
    net_hash(replica->net, UINT32_MAX, mine);
    return memcmp(mine, theirs, sizeof mine) == 0
               ? STATUS_OK
               : err_set(
                     err, STATUS_CONFLICT, 0,
                     "it keeps tensors in another layout than replica 0: are the devices of one "
                     "kind?");
}

static enum status copy(struct replica *replica, struct err *err)
{
    const struct replicas *all = replica->all;
    struct net_view view;
    enum status status = net_state_open(replica->net, NET_PARAMS, &view, err);

    if (status != STATUS_OK)
        return status;
    assert(view.count == all->source.count);
    memcpy(view.values, all->source.values, view.count * sizeof *view.values);
    status = net_state_close(replica->net, NET_PARAMS, &view, err);
    net_scaler_write(replica->net, &all->scaler);
    return status;
}

static struct net_images part_of(const struct replicas *all, uint32_t first)
{
    const size_t at = first * all->options.image_elements;

    return (struct net_images){.floats =
                                   all->images.floats != NULL ? all->images.floats + at : NULL,
                               .bytes = all->images.bytes != NULL ? all->images.bytes + at : NULL,
                               .normal = all->images.normal};
}

static enum status forward(struct replica *replica, struct err *err)
{
    const struct replicas *all = replica->all;
    const struct net_images images = part_of(all, replica->first);

    return net_forward_images(replica->net, &images, all->labels + replica->first, replica->n,
                              all->training, &replica->result, err);
}

/* A part's share of the mean over the whole batch. */
static float share(const struct replicas *all, uint32_t n)
{
    return all->grad_scale * ((float)n / (float)all->n);
}

static enum status backward(struct replica *replica, struct err *err)
{
    struct net *net = replica->net;
    enum status status = net_backward(net, share(replica->all, replica->n), err);
    size_t at = 0;

    for (uint32_t b = 0; status == STATUS_OK && b < net_bucket_count(net); b++) {
        struct net_view view;

        status = net_bucket_open(net, b, &view, err);
        if (status != STATUS_OK)
            return status;
        memcpy(replica->grads + at, view.values, view.count * sizeof *view.values);
        at += view.count;
        status = net_bucket_close(net, b, &view, err);
    }
    return status;
}

static enum status carry_out(struct replica *replica, struct err *err)
{
    switch (replica->command) {
    case COMMAND_MAKE:
        return make(replica, err);
    case COMMAND_COPY:
        return copy(replica, err);
    case COMMAND_FORWARD:
        return forward(replica, err);
    case COMMAND_BACKWARD:
        return backward(replica, err);
    case COMMAND_END:
        net_free(&replica->net);
        return STATUS_OK;
    }
    assert(false);
    return STATUS_OK;
}

static void *run(void *argument)
{
    struct replica *replica = argument;
    struct replicas *all = replica->all;
    bool is_over = false;

    while (!is_over) {
        (void)pthread_mutex_lock(&all->mutex);
        while (!replica->is_busy)
            (void)pthread_cond_wait(&all->work, &all->mutex);
        (void)pthread_mutex_unlock(&all->mutex);
        replica->status = carry_out(replica, &replica->err);
        is_over = replica->command == COMMAND_END;
        (void)pthread_mutex_lock(&all->mutex);
        replica->is_busy = false;
        (void)pthread_cond_broadcast(&all->done);
        (void)pthread_mutex_unlock(&all->mutex);
    }
    return NULL;
}

/* -- on the caller's thread -- */

static void start(struct replica *replica, enum command command)
{
    struct replicas *all = replica->all;

    replica->command = command;
    (void)pthread_mutex_lock(&all->mutex);
    replica->is_busy = true;
    (void)pthread_cond_broadcast(&all->work);
    (void)pthread_mutex_unlock(&all->mutex);
}

static void wait_for(struct replica *replica)
{
    struct replicas *all = replica->all;

    (void)pthread_mutex_lock(&all->mutex);
    while (replica->is_busy)
        (void)pthread_cond_wait(&all->done, &all->mutex);
    (void)pthread_mutex_unlock(&all->mutex);
}

static bool has_part(const struct replica *replica, enum command command)
{
    return replica->n > 0 || command == COMMAND_MAKE || command == COMMAND_END;
}

static void start_all(struct replicas *all, enum command command)
{
    for (uint32_t i = 0; i + 1 < all->options.count; i++)
        if (has_part(&all->others[i], command))
            start(&all->others[i], command);
}

/* `status`, with its text in `err`, or the first failure of a replica. */
static enum status wait_all(struct replicas *all, enum command command, enum status status,
                            struct err *err)
{
    for (uint32_t i = 0; i + 1 < all->options.count; i++) {
        struct replica *replica = &all->others[i];

        if (!has_part(replica, command))
            continue;
        wait_for(replica);
        if (status == STATUS_OK && replica->status != STATUS_OK)
            status = err_set(err, replica->status, replica->err.code, "replica %u: %.230s",
                             replica->index, replica->err.text);
    }
    return status;
}

/* -- the net's reducer: adds what the replicas have -- */

static enum status begin_reduction(void *context, struct err *err)
{
    (void)context;
    (void)err;
    return STATUS_OK;
}

static enum status bucket_ready(void *context, uint32_t index, struct err *err)
{
    (void)context;
    (void)index;
    (void)err;
    return STATUS_OK;
}

static enum status add_gradients(struct replicas *all, struct err *err)
{
    enum status status = STATUS_OK;
    size_t at = 0;

    for (uint32_t b = 0; status == STATUS_OK && b < net_bucket_count(all->net); b++) {
        struct net_view view;

        status = net_bucket_open(all->net, b, &view, err);
        if (status != STATUS_OK)
            return status;
        for (uint32_t i = 0; i + 1 < all->options.count; i++)
            for (size_t k = 0; all->others[i].n > 0 && k < view.count; k++)
                view.values[k] += all->others[i].grads[at + k];
        at += view.count;
        status = net_bucket_close(all->net, b, &view, err);
    }
    return status;
}

static enum status finish_reduction(void *context, struct err *err)
{
    struct replicas *all = context;
    enum status status = wait_all(all, COMMAND_BACKWARD, STATUS_OK, err);

    return status == STATUS_OK ? add_gradients(all, err) : status;
}

/* -- making -- */

static enum status start_thread(struct replica *replica, struct err *err)
{
    const int code = pthread_create(&replica->thread, NULL, run, replica);

    if (code != 0)
        return err_set(err, STATUS_SYSTEM, code, "no thread for replica %u: %s", replica->index,
                       strerror(code));
    replica->has_thread = true;
    return STATUS_OK;
}

/* One after the other: what choose_device chooses is for all of the process. */
static enum status make_replicas(struct replicas *all, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i + 1 < all->options.count; i++) {
        struct replica *replica = &all->others[i];

        replica->all = all;
        replica->index = i + 1;
        status = start_thread(replica, err);
        if (status != STATUS_OK)
            return status;
        start(replica, COMMAND_MAKE);
        wait_for(replica);
        if (replica->status != STATUS_OK)
            status = err_set(err, replica->status, replica->err.code, "replica %u: %.230s",
                             replica->index, replica->err.text);
    }
    return status;
}

enum status replicas_new(struct replicas **out, struct net *net, const struct graph *graph,
                         const struct net_options *net_options,
                         const struct replicas_options *options, struct err *err)
{
    struct net_options others = *net_options;
    struct replicas *all = calloc(1, sizeof *all);
    const struct reducer reducer = {.context = all,
                                    .begin = begin_reduction,
                                    .bucket_ready = bucket_ready,
                                    .finish = finish_reduction,
                                    .prescale = 1.0F};
    enum status status;

    assert(options->count >= 2 && options->count <= REPLICAS_MAX && options->image_elements > 0);
    assert(net_options->norm_sum == NULL);
    *out = all;
    if (all == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for replicas");
    others.graph_seen = NULL;
    others.grad_memory = NULL;
    others.accumulate = false; /* the net keeps the sums */
    others.optim = NULL;
    all->net = net;
    all->options = *options;
    all->graph = graph;
    all->net_options = &others;
    (void)pthread_mutex_init(&all->mutex, NULL);
    (void)pthread_cond_init(&all->work, NULL);
    (void)pthread_cond_init(&all->done, NULL);
    all->others = calloc(options->count - 1, sizeof *all->others);
    status = all->others == NULL ? err_set(err, STATUS_MEMORY, 0, "no memory for replicas")
                                 : make_replicas(all, err);
    all->graph = NULL;
    all->net_options = NULL;
    if (status != STATUS_OK)
        replicas_free(out);
    else if (!net_options->evaluate_only)
        net_set_reducer(net, &reducer);
    return status;
}

void replicas_free(struct replicas **replicas)
{
    struct replicas *all = *replicas;

    if (all == NULL)
        return;
    for (uint32_t i = 0; all->others != NULL && i + 1 < all->options.count; i++) {
        if (all->others[i].has_thread) {
            start(&all->others[i], COMMAND_END);
            (void)pthread_join(all->others[i].thread, NULL);
        }
        free(all->others[i].grads);
    }
    (void)pthread_cond_destroy(&all->work);
    (void)pthread_cond_destroy(&all->done);
    (void)pthread_mutex_destroy(&all->mutex);
    free(all->others);
    free(all);
    *replicas = NULL;
}

/* -- a step -- */

static void scatter(struct replicas *all, uint32_t n)
{
    uint32_t first;

    all->n = n;
    all->first_n = replicas_part(n, all->options.count, 0, &first);
    for (uint32_t i = 0; i + 1 < all->options.count; i++)
        all->others[i].n = replicas_part(n, all->options.count, i + 1, &all->others[i].first);
}

static enum status replicate(struct replicas *all, struct err *err)
{
    struct err why;
    enum status status, closed;

    all->scaler = net_scaler(all->net);
    status = net_state_open(all->net, NET_PARAMS, &all->source, err);
    if (status != STATUS_OK)
        return status;
    start_all(all, COMMAND_COPY);
    status = wait_all(all, COMMAND_COPY, STATUS_OK, err);
    closed = net_state_close(all->net, NET_PARAMS, &all->source, &why);
    if (status != STATUS_OK || closed == STATUS_OK)
        return status;
    return err_set(err, closed, why.code, "%s", why.text);
}

enum status replicas_forward(struct replicas *all, const struct net_images *images,
                             const int64_t *labels, uint32_t n, bool training,
                             struct net_result *result, struct err *err)
{
    enum status status;

    scatter(all, n);
    status = replicate(all, err);
    if (status != STATUS_OK)
        return status;
    all->images = *images;
    all->labels = labels;
    all->training = training;
    start_all(all, COMMAND_FORWARD);
    status = net_forward_images(all->net, images, labels, all->first_n, training, result, err);
    status = wait_all(all, COMMAND_FORWARD, status, err);
    for (uint32_t i = 0; status == STATUS_OK && i + 1 < all->options.count; i++) {
        const struct net_result *part = &all->others[i].result;

        if (all->others[i].n == 0)
            continue;
        result->loss_sum += part->loss_sum;
        result->images += part->images;
        result->top1 += part->top1;
        result->top5 += part->top5;
    }
    return status;
}

enum status replicas_backward(struct replicas *all, float grad_scale, struct err *err)
{
    all->grad_scale = grad_scale;
    start_all(all, COMMAND_BACKWARD);
    return net_backward_reduce(all->net, share(all, all->first_n), err);
}
