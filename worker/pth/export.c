/* `ddp-worker export`. See export.h. */
#include "worker/pth/export.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/option_docs.h"
#include "common/options.h"
#include "common/text.h"
#include "common/utf8.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/fileio.h"
#include "worker/pth/pth.h"

enum { PATH_BYTES = 4096, EXIT_BAD_USAGE = 2 };

/* -- the command line -- */

static const struct option_row rows[] = {
    {.name = "from",
     .kind = OPTION_TEXT,
     OPTION_INTO(struct export_request, from),
     .value = "PATH",
     .help = "a folder of checkpoints (.), or a .safetensors file",
     .min = 1},
    {.name = "which",
     .kind = OPTION_TEXT,
     OPTION_INTO(struct export_request, which),
     .value = "WHAT",
     .help = "of a folder: latest (default), best, or the step of a checkpoint",
     .min = 1},
};
static const char *const examples[] = {
    "ddp-worker export --from ckpt model.pth          the newest checkpoint in ckpt",
    "ddp-worker export --from ckpt --which best model.pth      that of the best validation",
    "ddp-worker export --from ckpt --which 1200 model.pth",
    "ddp-worker export --from model.safetensors model.pth",
    NULL,
};
static const struct option_table table = {
    .program = "ddp-worker export",
    .usage = "[options] FILE.pth",
    .summary = "Writes the weights of a checkpoint so that torch.load(FILE, weights_only=True)\n"
               "reads them and load_state_dict(strict=True) takes them.",
    .examples = examples,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

bool export_read(struct export_request *request, int argc, char *const *argv, struct buf *out,
                 int *code, struct err *err)
{
    const struct option_docs docs = {.table = &table};
    struct option_result result;
    enum option_form form;

    *request = (struct export_request){.from = ".", .which = "latest"};
    *code = 0;
    if (option_docs_asked(argc, argv, &form)) {
        option_docs_write(&docs, form, out);
        return false;
    }
    if (options_parse(&table, argc, argv, NULL, request, &result, err) != STATUS_OK) {
        *code = EXIT_BAD_USAGE;
        return false;
    }
    if (result.wants_help || result.wants_version) {
        if (result.wants_help)
            options_help(&table, out);
        else
            buf_printf(out, "ddp-worker %s\n", DDP_VERSION);
        return false;
    }
    if (result.positional_count + result.rest_count != 1) {
        *code = EXIT_BAD_USAGE;
        (void)err_set(err, STATUS_BAD_INPUT, 0,
                      "export writes one file: ddp-worker export [--from PATH] FILE.pth");
        return false;
    }
    request->to = result.positional_count == 1 ? result.positionals[0] : result.rest[0];
    return true;
}

/* -- where the weights come from -- */

struct origin {
    struct checkpoint checkpoint; /* of a bare .safetensors file only .tensors is filled */
    bool has_state;
    char name[120];
};

static void passed_over(void *user, const struct err *why)
{
    struct err *newest = user;

    if (newest->status == STATUS_OK)
        *newest = *why;
}

static enum status open_best(struct origin *origin, const struct export_request *request,
                             struct err *err)
{
    char path[PATH_BYTES];

    if (snprintf(path, sizeof path, "%s/best.json", request->from) >= (int)sizeof path)
        return err_set(err, STATUS_TOO_BIG, 0, "--from %.80s...: the path is too long",
                       request->from);
    if (access(path, F_OK) != 0)
        return err_set(err, STATUS_NOT_FOUND, errno,
                       "%.150s has no best checkpoint: training writes best.json after a "
                       "validation, unless --best none",
                       request->from);
    return checkpoint_open(&origin->checkpoint, path, err);
}

static enum status open_folder(struct origin *origin, const struct export_request *request,
                               struct err *err)
{
    struct err skipped = {.status = STATUS_OK};
    const struct checkpoint_choice choice = {.skipped = passed_over, .user = &skipped};
    uint64_t step = 0;
    enum status status;

    origin->has_state = true;
    if (strcmp(request->which, "best") == 0)
        return open_best(origin, request, err);
    if (strcmp(request->which, "latest") != 0) {
        status =
            options_parse_number("--which", request->which, 0, CHECKPOINT_STEP_MAX, &step, err);
        return status == STATUS_OK
                   ? checkpoint_open_step(&origin->checkpoint, request->from, (uint32_t)step, err)
                   : status;
    }
    status = checkpoint_open_newest(&origin->checkpoint, request->from, &choice, err);
    if (status != STATUS_OK && skipped.status != STATUS_OK)
        return err_set(err, status, 0, "%s", skipped.text);
    if (status == STATUS_OK && skipped.status != STATUS_OK) {
        char text[sizeof skipped.text];

        utf8_printable(skipped.text, strlen(skipped.text), text, sizeof text);
        (void)fprintf(stderr, "ddp-worker: warning: passed over: %s\n", text);
    }
    return status;
}

/* A .safetensors with a .json beside it is a checkpoint, whose sum is checked. */
static bool is_checkpoint(const char *path)
{
    char state[PATH_BYTES];
    const size_t bytes = strlen(path), ending = strlen(".safetensors");

    if (text_ends_with(path, ".json"))
        return true;
    return text_ends_with(path, ".safetensors") && bytes < sizeof state &&
           snprintf(state, sizeof state, "%.*s.json", (int)(bytes - ending), path) > 0 &&
           access(state, F_OK) == 0;
}

static enum status open_origin(struct origin *origin, const struct export_request *request,
                               struct err *err)
{
    struct stat found;

    *origin = (struct origin){.checkpoint = {.tensors = {.fd = -1}}};
    if (stat(request->from, &found) == 0 && S_ISDIR(found.st_mode))
        return open_folder(origin, request, err);
    if (strcmp(request->which, "latest") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--which %.40s: --from %.100s is no folder",
                       request->which, request->from);
    origin->has_state = is_checkpoint(request->from);
    return origin->has_state ? checkpoint_open(&origin->checkpoint, request->from, err)
                             : safetensors_open(&origin->checkpoint.tensors, request->from, err);
}

/* -- what is written -- */

struct source {
    const struct safetensors_tensor *tensor; /* NULL: num_batches_tracked */
};

struct listed {
    struct pth_out *out;    /* [count] */
    struct source *sources; /* [count] */
    char (*names)[SAFETENSORS_NAME_BYTES_MAX + 1];
    size_t count;
    const struct safetensors *file;
    int64_t batches; /* that a batch norm has seen */
};

static const enum pth_type types[] = {
    [SAFETENSORS_F32] = PTH_F32, [SAFETENSORS_F16] = PTH_F16, [SAFETENSORS_BF16] = PTH_BF16,
    [SAFETENSORS_F64] = PTH_F64, [SAFETENSORS_I64] = PTH_I64, [SAFETENSORS_U8] = PTH_U8,
};

static int by_begin(const void *a, const void *b)
{
    const struct safetensors_tensor *x = ((const struct source *)a)->tensor;
    const struct safetensors_tensor *y = ((const struct source *)b)->tensor;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void add_tensor(struct listed *listed, const struct safetensors_tensor *tensor)
{
    struct pth_out *out = &listed->out[listed->count];

    *out = (struct pth_out){.name = tensor->name,
                            .type = types[tensor->type],
                            .dim_count = tensor->dim_count,
                            .byte_count = tensor->byte_count};
    memcpy(out->dims, tensor->dims, sizeof out->dims);
    listed->sources[listed->count++].tensor = tensor;
}

/* After the last tensor of a batch norm, its counter, if the file has none. */
static void add_counter(struct listed *listed, const struct safetensors_tensor *tensor)
{
    static const char last[] = "running_var", counter[] = "num_batches_tracked";
    const size_t bytes = strlen(tensor->name);
    char *name = listed->names[listed->count];

    if (!text_ends_with(tensor->name, last) ||
        bytes - strlen(last) + strlen(counter) > SAFETENSORS_NAME_BYTES_MAX)
        return;
    (void)snprintf(name, sizeof listed->names[0], "%.*s%s", (int)(bytes - strlen(last)),
                   tensor->name, counter);
    if (safetensors_find(listed->file, name) != NULL)
        return;
    listed->out[listed->count] =
        (struct pth_out){.name = name, .type = PTH_I64, .byte_count = sizeof listed->batches};
    listed->sources[listed->count++].tensor = NULL;
}

static void listed_free(struct listed *listed)
{
    free(listed->out);
    free(listed->sources);
    free(listed->names);
}

static enum status list(struct listed *listed, const struct origin *origin, struct err *err)
{
    const struct safetensors *file = &origin->checkpoint.tensors;
    const size_t room = 2 * file->tensor_count + 1;
    struct source *sorted = calloc(room, sizeof *sorted);

    *listed = (struct listed){calloc(room, sizeof *listed->out),
                              calloc(room, sizeof *listed->sources),
                              calloc(room, sizeof *listed->names),
                              0,
                              file,
                              0};
    if (sorted == NULL || listed->out == NULL || listed->sources == NULL || listed->names == NULL) {
        free(sorted);
        return err_set(err, STATUS_MEMORY, 0, "no memory to list %zu tensors", file->tensor_count);
    }
    if (origin->has_state)
        listed->batches =
            (int64_t)origin->checkpoint.state.step * origin->checkpoint.state.accumulation_steps;
    for (size_t i = 0; i < file->tensor_count; i++)
        sorted[i].tensor = &file->tensors[i];
    if (file->tensor_count > 0)
        qsort(sorted, file->tensor_count, sizeof *sorted, by_begin);
    for (size_t i = 0; i < file->tensor_count; i++) {
        if (strncmp(sorted[i].tensor->name, "optimizer.", strlen("optimizer.")) == 0)
            continue;
        add_tensor(listed, sorted[i].tensor);
        add_counter(listed, sorted[i].tensor);
    }
    free(sorted);
    return listed->count > 0
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, 0, "%.200s has no weights", origin->name);
}

static enum status read_values(void *user, size_t index, void *bytes, struct err *err)
{
    const struct listed *listed = user;

    if (listed->sources[index].tensor != NULL)
        return safetensors_read(listed->file, listed->sources[index].tensor, bytes, err);
    memcpy(bytes, &listed->batches, sizeof listed->batches);
    return STATUS_OK;
}

/* -- the file -- */

/* The folder of a path, for the sync of the rename. */
static void folder_of(const char *path, char folder[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        (void)snprintf(folder, PATH_BYTES, ".");
    else if (slash == path)
        (void)snprintf(folder, PATH_BYTES, "/");
    else
        (void)snprintf(folder, PATH_BYTES, "%.*s", (int)(slash - path), path);
}

static enum status write_file(const char *path, struct listed *listed, struct err *err)
{
    const struct pth_content content = {listed->out, listed->count, read_values, listed};
    char temp[PATH_BYTES], folder[PATH_BYTES];
    struct stat now;
    enum status status;
    int fd;

    if (stat(path, &now) == 0 && !S_ISREG(now.st_mode) &&
        !S_ISDIR(now.st_mode)) /* the rename would replace a device, too */
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.200s is no ordinary file: give the name of one, or a new name", path);
    if (snprintf(temp, sizeof temp, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temp)
        return err_set(err, STATUS_TOO_BIG, 0, "%.80s...: the path is too long", path);
    folder_of(path, folder);
    status = fileio_create(temp, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = pth_write(fd, &content, err);
    if (status == STATUS_OK)
        status = fileio_finish(fd, temp, err);
    else
        (void)close(fd);
    if (status == STATUS_OK)
        status = fileio_rename(temp, path, folder, err);
    if (status != STATUS_OK)
        (void)unlink(temp);
    return status;
}

static void say(const struct origin *origin, const struct listed *listed,
                const struct export_request *request, struct err *said)
{
    const struct checkpoint_state *state = &origin->checkpoint.state;

    if (origin->has_state)
        (void)err_set(said, STATUS_OK, 0, "%.150s: %zu tensors of %s, step %u of %.80s",
                      request->to, listed->count, state->arch, state->step, request->from);
    else
        (void)err_set(said, STATUS_OK, 0, "%.150s: %zu tensors of %.80s", request->to,
                      listed->count, request->from);
}

enum status export_run(const struct export_request *request, struct err *said, struct err *err)
{
    struct origin origin;
    struct listed listed = {.count = 0};
    struct err why;
    enum status status = open_origin(&origin, request, &why);

    if (status != STATUS_OK)
        return err_set(err, status, why.code, "export: %s", why.text);
    (void)snprintf(origin.name, sizeof origin.name, "%s", request->from);
    status = list(&listed, &origin, &why);
    if (status == STATUS_OK)
        status = write_file(request->to, &listed, &why);
    if (status == STATUS_OK)
        say(&origin, &listed, request, said);
    else
        (void)err_set(err, status, why.code, "export: %s", why.text);
    listed_free(&listed);
    safetensors_close(&origin.checkpoint.tensors);
    return status;
}
