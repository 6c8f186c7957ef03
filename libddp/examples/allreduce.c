/* All ranks add up a vector, through NCCL where there are GPUs and through Gloo where not:
 *
 *     ddpctl run --standalone -n 4 -- allreduce [STEPS]
 *
 * The ranks meet by libddp: rank 0's NCCL id goes to all with ddp_join, Gloo's addresses go through the
 * store. A stop ends the program after the same step on every rank. */
#include <stdio.h>
#include <stdlib.h>

#include <ddp.h>

#include "reduce.h"

#define COUNT 1024
#define LIMIT_S 120.0

static int fail(struct ddp *ddp, const char *text)
{
    (void)fprintf(stderr, "allreduce: %s\n", text);
    if (ddp != NULL)
        (void)ddp_fail(ddp, text, NULL);
    return 1;
}

/* Returns 0 when all ranks have done all steps, or stopped together; else 1 with `error`. */
static int train(struct ddp *ddp, struct reduce *reduce, uint64_t steps, struct ddp_error *error)
{
    const struct ddp_place *place = ddp_get_place(ddp);
    float values[COUNT];
    int stop = 0;

    for (uint64_t step = 1; step <= steps && !stop; step++) {
        const float expected = (float)place->world * (float)(place->world + 1) / 2 * (float)step;

        for (size_t i = 0; i < COUNT; i++)
            values[i] = (float)(place->rank + 1) * (float)step;
        if (!reduce_sum(reduce, values, COUNT, error->text, sizeof error->text))
            return 1;
        if (values[0] != expected || values[COUNT - 1] != expected) {
            (void)snprintf(error->text, sizeof error->text, "step %llu: the sum is %g, expected %g",
                           (unsigned long long)step, (double)values[0], (double)expected);
            return 1;
        }
        if (place->rank == 0)
            (void)ddp_report(ddp, &(struct ddp_progress){.step = step, .steps = steps}, NULL);
        if (ddp_any(ddp, ddp_should_stop(ddp, NULL) != DDP_GO_ON, &stop, LIMIT_S, error) != DDP_OK)
            return 1;
    }
    if (place->rank == 0)
        (void)printf("%u ranks, %s: %s\n", place->world, reduce_name(reduce),
                     stop ? "stopped" : "all sums are right");
    return 0;
}

static int run(struct ddp *ddp, uint64_t steps)
{
    char blob[DDP_BLOB_BYTES_MAX];
    size_t blob_bytes = 0;
    struct ddp_error error = {.text = ""};
    struct reduce *reduce;
    int failed;

    if (ddp_catch_signals(ddp, &error) != DDP_OK)
        return fail(ddp, error.text);
    reduce = reduce_new(ddp_get_place(ddp), blob, &blob_bytes, error.text, sizeof error.text);
    if (reduce == NULL)
        return fail(ddp, error.text);
    failed = ddp_join(ddp, blob, &blob_bytes, sizeof blob, LIMIT_S, &error) != DDP_OK ||
             !reduce_connect(reduce, ddp, blob, blob_bytes, error.text, sizeof error.text) ||
             train(ddp, reduce, steps, &error) != 0;
    reduce_free(reduce);
    return failed ? fail(ddp, error.text) : 0;
}

int main(int argc, char **argv)
{
    const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    struct ddp_error error;
    struct ddp *ddp;
    int code;

    if (ddp_open(&ddp, &error) != DDP_OK)
        return fail(NULL, error.text);
    if (!ddp_get_place(ddp)->has_launcher)
        (void)fprintf(stderr, "allreduce: no launcher: a world of %u\n", ddp_get_place(ddp)->world);
    code = run(ddp, steps);
    ddp_leave(&ddp);
    return code;
}
