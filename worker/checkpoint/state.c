/* The .json of a checkpoint: one table of fields for printing and parsing. */
#include "worker/checkpoint/internal.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/limits.h"
#include "worker/data/fileio.h"

static const char *const schema = "ddp.checkpoint.v1";

enum field_type {
    FIELD_TEXT,
    FIELD_U32,
    FIELD_U64,
    FIELD_BOOL,
    FIELD_F32, /* above 0 */
    FIELD_F64
};

static const struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    uint32_t min, max; /* of FIELD_U32 */
} fields[] = {
#define AT(member) offsetof(struct checkpoint_state, member)
    {"job_id", FIELD_TEXT, AT(job_id), 0, 0},
    {"generation", FIELD_U32, AT(generation), 0, UINT32_MAX},
    {"epoch", FIELD_U32, AT(epoch), 0, UINT32_MAX - 1},
    {"step_in_epoch", FIELD_U32, AT(step_in_epoch), 0, UINT32_MAX - 1},
    {"step", FIELD_U32, AT(step), 0, CHECKPOINT_STEP_MAX},
    {"arch", FIELD_TEXT, AT(arch), 0, 0},
    {"data", FIELD_TEXT, AT(data), 0, 0},
    {"image_count", FIELD_U32, AT(image_count), 1, UINT32_MAX},
    {"world", FIELD_U32, AT(world), 1, RANKS_PER_JOB_MAX},
    {"batch", FIELD_U32, AT(batch), 1, UINT32_MAX},
    {"seed", FIELD_U64, AT(seed), 0, 0}, /* a decimal string: JSON numbers are doubles */
    {"has_momentum", FIELD_BOOL, AT(has_momentum), 0, 0},
    /* Optional from here on (FIRST_FIELDS): added by later versions. checkpoint_state_parse() sets
     * defaults for files without them. */
    {"opt_level", FIELD_TEXT, AT(opt_level), 0, 0},
    {"loss_scale", FIELD_F32, AT(loss_scale), 0, 0},
    {"unskipped", FIELD_U32, AT(unskipped), 0, UINT32_MAX},
    {"skipped_in_a_row", FIELD_U32, AT(skipped_in_a_row), 0, UINT32_MAX},
    {"accumulation_steps", FIELD_U32, AT(accumulation_steps), 1, UINT32_MAX},
    {"applied", FIELD_U32, AT(applied), 0, CHECKPOINT_STEP_MAX},
    {"plateau_lr", FIELD_F64, AT(schedule.plateau_lr), 0, 0},
    {"plateau_best", FIELD_F64, AT(schedule.plateau_best), 0, 0},
    {"plateau_has_best", FIELD_BOOL, AT(schedule.plateau_has_best), 0, 0},
    {"plateau_bad", FIELD_U32, AT(schedule.plateau_bad), 0, UINT32_MAX},
    {"plateau_cooldown", FIELD_U32, AT(schedule.plateau_cooldown), 0, UINT32_MAX},
    {"early_has_best", FIELD_BOOL, AT(early_has_best), 0, 0},
    {"early_best", FIELD_F64, AT(early_best), 0, 0},
    {"early_count", FIELD_U32, AT(early_count), 0, UINT32_MAX},
    {"optimizer", FIELD_TEXT, AT(optimizer), 0, 0},
    {"data_hash", FIELD_U64, AT(data_hash), 0, 0},
    {"image_rules", FIELD_U64, AT(image_rules), 0, 0},
    {"training_rules", FIELD_U64, AT(training_rules), 0, 0},
    {"threads", FIELD_U32, AT(threads), 0, UINT32_MAX},
    {"base_images", FIELD_U64, AT(base_images), 0, 0},
    {"schedule_kind", FIELD_TEXT, AT(schedule_kind), 0, 0},
    {"schedule_epochs", FIELD_U32, AT(schedule_epochs), 0, UINT32_MAX},
#undef AT
};
/* FIRST_FIELDS: required. OTHER_FIELDS: schema, safetensors_bytes, safetensors_sha256. Beside these
 * there may be parts_name and sum_name. */
enum { FIELD_COUNT = sizeof fields / sizeof fields[0], FIRST_FIELDS = 12, OTHER_FIELDS = 3 };

static const char parts_name[] = "epoch_parts"; /* [[world, batch, accumulation, steps], ...] */
static const char sum_name[] = "state_sha256";  /* of all else, as sum_of() prints it */

/* -- printing -- */

/* The SHA-256 of the object without white space, so without the field that will hold it. */
static bool sum_of(const cJSON *json, char sha256[65])
{
    char *text = cJSON_PrintUnformatted(json);
    const bool done =
        text != NULL && fileio_sha256_bytes(text, strlen(text), sha256, NULL) == STATUS_OK;

    cJSON_free(text);
    return done;
}

static bool add_parts(cJSON *json, const struct checkpoint_state *state)
{
    cJSON *parts = cJSON_AddArrayToObject(json, parts_name);
    bool added = parts != NULL;

    for (uint32_t i = 0; added && i < state->part_count; i++) {
        const struct sampler_part *part = &state->parts[i];
        const double numbers[] = {part->world, part->batch, part->accumulation_steps, part->steps};

        added = cJSON_AddItemToArray(parts, cJSON_CreateDoubleArray(numbers, 4));
    }
    return added;
}

static cJSON *add_field(cJSON *json, const struct field *field,
                        const struct checkpoint_state *state)
{
    const char *at = (const char *)state + field->offset;
    char digits[24];

    switch (field->type) {
    case FIELD_TEXT:
        return cJSON_AddStringToObject(json, field->name, at);
    case FIELD_U32:
        return cJSON_AddNumberToObject(json, field->name, *(const uint32_t *)(const void *)at);
    case FIELD_U64:
        (void)snprintf(digits, sizeof digits, "%" PRIu64, *(const uint64_t *)(const void *)at);
        return cJSON_AddStringToObject(json, field->name, digits);
    case FIELD_BOOL:
        return cJSON_AddBoolToObject(json, field->name, *(const bool *)(const void *)at);
    case FIELD_F32: /* cJSON prints enough digits to read the same value back */
        return cJSON_AddNumberToObject(json, field->name, (double)*(const float *)(const void *)at);
    case FIELD_F64:
        return cJSON_AddNumberToObject(json, field->name, *(const double *)(const void *)at);
    }
    return NULL;
}

/* cJSON leaves out digits if a double differs only in its last bit, but that bit can decide about
 * ties. Readers compute the checksum from the numbers as cJSON prints them, so these digits are
 * added after it. */
cJSON *checkpoint_exact_number(double number)
{
    char digits[32];

    (void)snprintf(digits, sizeof digits, "%.17g", number);
    return isfinite(number) ? cJSON_CreateRaw(digits) : cJSON_CreateNumber(number);
}

static bool make_exact(cJSON *json, const struct checkpoint_state *state)
{
    bool done = true;

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const void *at = (const char *)state + fields[i].offset;

        if (fields[i].type == FIELD_F64)
            done = done &&
                   cJSON_ReplaceItemInObjectCaseSensitive(
                       json, fields[i].name, checkpoint_exact_number(*(const double *)at)) != 0;
    }
    return done;
}

char *checkpoint_state_print(const struct checkpoint_state *state, uint64_t tensor_bytes,
                             const char *sha256)
{
    cJSON *json = cJSON_CreateObject();
    bool added = cJSON_AddStringToObject(json, "schema", schema) != NULL;
    char *text, sum[65];

    assert(strlen(sha256) == 64 && state->step <= CHECKPOINT_STEP_MAX && state->world > 0);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        added = added && add_field(json, &fields[i], state) != NULL;
    added = added &&
            cJSON_AddNumberToObject(json, "safetensors_bytes", (double)tensor_bytes) != NULL &&
            cJSON_AddStringToObject(json, "safetensors_sha256", sha256) != NULL &&
            (state->part_count == 0 || add_parts(json, state)) && sum_of(json, sum) &&
            cJSON_AddStringToObject(json, sum_name, sum) != NULL && make_exact(json, state);
    text = added ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    return text;
}

/* -- parsing -- */

static bool read_number(const cJSON *item, double min, double max, double *number)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= min && item->valuedouble <= max))
        return false;
    *number = item->valuedouble;
    return (double)(uint64_t)*number == *number;
}

static bool read_u64(const cJSON *item, uint64_t *number)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    char *end = NULL;

    if (*text < '0' || *text > '9' || strlen(text) > 20)
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool read_text(const cJSON *item, char *out, size_t byte_limit)
{
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= byte_limit)
        return false;
    for (const char *c = item->valuestring; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    (void)snprintf(out, byte_limit, "%s", item->valuestring);
    return true;
}

static bool read_field(const cJSON *json, const struct field *field, struct checkpoint_state *state)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, field->name);
    char *at = (char *)state + field->offset;
    double number;

    switch (field->type) {
    case FIELD_TEXT:
        return read_text(item, at, CHECKPOINT_TEXT_BYTES);
    case FIELD_U32:
        if (!read_number(item, field->min, field->max, &number))
            return false;
        *(uint32_t *)(void *)at = (uint32_t)number;
        return true;
    case FIELD_U64:
        return read_u64(item, (uint64_t *)(void *)at);
    case FIELD_BOOL:
        *(bool *)(void *)at = cJSON_IsTrue(item);
        return cJSON_IsBool(item);
    case FIELD_F32:
        if (!cJSON_IsNumber(item) ||
            !((float)item->valuedouble > 0 && item->valuedouble <= (double)FLT_MAX))
            return false;
        *(float *)(void *)at = (float)item->valuedouble;
        return true;
    case FIELD_F64:
        *(double *)(void *)at = cJSON_IsNumber(item) ? item->valuedouble : 0;
        return cJSON_IsNumber(item) && isfinite(item->valuedouble);
    }
    return false;
}

/* Their steps are among those of the epoch. */
static bool read_parts(const cJSON *parts, struct checkpoint_state *state)
{
    uint64_t steps = 0;
    const cJSON *item;

    if (!cJSON_IsArray(parts) || cJSON_GetArraySize(parts) > (int)CHECKPOINT_PARTS_MAX)
        return false;
    cJSON_ArrayForEach(item, parts)
    {
        double numbers[4];

        if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 4)
            return false;
        for (int i = 0; i < 4; i++)
            if (!read_number(cJSON_GetArrayItem(item, i), 1,
                             i == 0 ? RANKS_PER_JOB_MAX : UINT32_MAX, &numbers[i]))
                return false;
        state->parts[state->part_count++] = (struct sampler_part){
            (uint32_t)numbers[0], (uint32_t)numbers[1], (uint32_t)numbers[2], (uint32_t)numbers[3]};
        steps += (uint64_t)numbers[3];
    }
    return steps <= state->step_in_epoch;
}

/* The name of the first field that is missing or out of range; NULL: there is none. */
static const char *read_fields(const cJSON *json, struct checkpoint_state *state,
                               uint64_t *tensor_bytes, char *sha256)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "schema");
    int count = OTHER_FIELDS;
    double number;

    if (!cJSON_IsString(item) || strcmp(item->valuestring, schema) != 0)
        return "schema";
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (i >= FIRST_FIELDS && !cJSON_HasObjectItem(json, fields[i].name))
            continue;
        if (!read_field(json, &fields[i], state))
            return fields[i].name;
        count++;
    }
    item = cJSON_GetObjectItemCaseSensitive(json, "safetensors_bytes");
    if (!read_number(item, 0, 0x1p53, &number))
        return "safetensors_bytes";
    *tensor_bytes = (uint64_t)number;
    item = cJSON_GetObjectItemCaseSensitive(json, "safetensors_sha256");
    if (!read_text(item, sha256, 65) || strspn(sha256, "0123456789abcdef") != 64)
        return "safetensors_sha256";
    if (cJSON_HasObjectItem(json, parts_name)) {
        if (!read_parts(cJSON_GetObjectItemCaseSensitive(json, parts_name), state))
            return parts_name;
        count++;
    }
    return cJSON_GetArraySize(json) == count ? NULL : "one that is unknown";
}

/* Takes the checksum out of the object and compares it. */
static bool is_intact(cJSON *json, struct checkpoint_state *state)
{
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, sum_name);
    char sum[65];
    bool is_same;

    state->is_unchecked = item == NULL;
    if (item == NULL)
        return true;
    is_same = cJSON_IsString(item) && sum_of(json, sum) && strcmp(sum, item->valuestring) == 0;
    cJSON_Delete(item);
    return is_same;
}

enum status checkpoint_state_parse(struct checkpoint_state *state, uint64_t *tensor_bytes,
                                   char *sha256, const char *what, const char *text,
                                   size_t text_bytes, struct err *err)
{
    cJSON *json = fileio_parse_json(text, text_bytes);
    const char *wrong;

    *state = (struct checkpoint_state){
        .opt_level = "O0",
        .loss_scale = 1.0F,
        .accumulation_steps = 1,
        .optimizer = "sgd",
    };
    if (json == NULL || !cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: torn or no checkpoint state: not JSON", what);
    }
    if (!is_intact(json, state)) {
        cJSON_Delete(json);
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: damaged or edited: it does not have the SHA-256 that it states for "
                       "itself",
                       what);
    }
    wrong = read_fields(json, state, tensor_bytes, sha256);
    cJSON_Delete(json);
    if (wrong != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: no checkpoint state of ours: field %s is missing or out of range", what,
                       wrong);
    return STATUS_OK;
}

enum status checkpoint_read_state(const char *path, struct checkpoint_state *state, uint64_t *bytes,
                                  char *sha256, struct err *err)
{
    char *text;
    uint64_t text_bytes;
    enum status status =
        fileio_read_file(path, CHECKPOINT_STATE_BYTES_MAX, &text, &text_bytes, err);

    if (status != STATUS_OK)
        return status;
    status = checkpoint_state_parse(state, bytes, sha256, path, text, text_bytes, err);
    free(text);
    return status;
}

static enum status differs_text(struct err *err, const char *what, const char *there,
                                const char *here)
{
    if (strcmp(there, here) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0, "it was made with %s %s, now it is %s", what, there,
                   here);
}

/* The arch of a model from a file is "NAME@HASH", see model_file_identity(). */
static enum status differs_arch(struct err *err, const char *there, const char *here)
{
    const char *mark = strchr(here, '@');

    if (mark != NULL && strcmp(there, here) != 0 &&
        strncmp(there, here, (size_t)(mark - here) + 1) == 0)
        return err_set(err, STATUS_CONFLICT, 0,
                       "the model file was changed since: it was made with %s, now it is %s", there,
                       here);
    return differs_text(err, "--arch", there, here);
}

/* Of the files' names, classes or labels; 0: unknown, as in older checkpoints. */
static enum status differs_data(struct err *err, uint64_t there, uint64_t here)
{
    if (there == here || there == 0 || here == 0)
        return STATUS_OK;
    return err_set(
        err, STATUS_CONFLICT, 0,
        "it was made with another training set of as many images: names, classes or labels "
        "differ");
}

static enum status differs(struct err *err, const char *what, uint64_t there, uint64_t here)
{
    if (there == here)
        return STATUS_OK;
    return err_set(err, STATUS_CONFLICT, 0, "it was made with %s %" PRIu64 ", now it is %" PRIu64,
                   what, there, here);
}

enum status checkpoint_check(const struct checkpoint_state *state,
                             const struct checkpoint_state *like, struct err *err)
{
    enum status status = differs_arch(err, state->arch, like->arch);

    assert(like->arch[0] != '\0');
    if (status == STATUS_OK)
        status = differs_text(err, "--opt-level", state->opt_level, like->opt_level);
    if (status == STATUS_OK)
        status = differs_text(err, "--optimizer", state->optimizer, like->optimizer);
    if (status == STATUS_OK)
        status = differs_text(err, "data set", state->data, like->data);
    if (status == STATUS_OK)
        status = differs(err, "a training set of size", state->image_count, like->image_count);
    if (status == STATUS_OK)
        status = differs_data(err, state->data_hash, like->data_hash);
    if (status == STATUS_OK)
        status = differs(err, "--seed", state->seed, like->seed);
    return status;
}
