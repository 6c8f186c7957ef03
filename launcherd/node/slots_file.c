#include "launcherd/node/slots_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/arena.h"
#include "common/frame.h"
#include "common/io/own_path.h"
#include "common/options.h"
#include "common/utf8.h"
#include "launcherd/process/rundir.h"

#define SLOTS_VERSION 1
#define SLOTS_NAME "slots.json"
#define SLOTS_NAME_OLD "slots.msg" /* a frame: 4 bytes of length, then the message slots_kept */

static enum status damaged(struct err *err, const char *what)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "the record of the slots is damaged: %s", what);
}

/* These leave `*out` unchanged if the field is missing. False: the field has another type or an
 * invalid value. */
static bool take_bool(const cJSON *object, const char *name, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (item == NULL)
        return true;
    *out = cJSON_IsTrue(item);
    return cJSON_IsBool(item);
}

static bool take_u32(const cJSON *object, const char *name, uint32_t max, uint32_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (item == NULL)
        return true;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= (double)max))
        return false;
    *out = (uint32_t)item->valuedouble;
    return *out == item->valuedouble;
}

static bool take_u64(const cJSON *object, const char *name, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    struct err err;
    if (item == NULL)
        return true;
    return cJSON_IsString(item) &&
           options_parse_number(name, item->valuestring, 0, UINT64_MAX, out, &err) == STATUS_OK;
}

/* A text that fits and that a message can carry: UTF-8 without control characters. */
static bool take_line(const cJSON *object, const char *name, char *out, size_t out_bytes)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (item == NULL)
        return true;
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= out_bytes)
        return false;
    const char *text = item->valuestring;
    const size_t byte_count = strlen(text);
    for (size_t at = 0, step; at < byte_count; at += step) {
        step = utf8_next(text + at, byte_count - at);
        if (step == 0 || utf8_is_control(text + at, byte_count - at))
            return false;
    }
    memcpy(out, text, byte_count + 1);
    return true;
}

static enum status decode_slot(const cJSON *item, struct slots_record *record, struct err *err)
{
    struct slot_record *slot = &record->slots[record->count];
    *slot = (struct slot_record){.slot = UINT32_MAX};
    if (!cJSON_IsObject(item))
        return damaged(err, "a slot is not an object");
    if (!take_u32(item, "slot", SLOTS_PER_NODE_MAX - 1, &slot->slot) || slot->slot == UINT32_MAX)
        return damaged(err, "a slot has no number");
    for (uint32_t i = 0; i < record->count; i++)
        if (record->slots[i].slot == slot->slot)
            return damaged(err, "a slot is there twice");
    if (!take_u64(item, "incident", &slot->incident) ||
        !take_line(item, "reason", slot->reason, sizeof slot->reason) ||
        !take_bool(item, "has_baseline", &slot->has_baseline) ||
        !take_u64(item, "baseline_bytes", &slot->baseline_bytes) ||
        !take_bool(item, "has_ecc", &slot->has_ecc) ||
        !take_u64(item, "ecc_uncorrected", &slot->ecc_uncorrected) ||
        !take_bool(item, "remap_failed", &slot->remap_failed))
        return damaged(err, "a field of a slot has another type or range");
    record->count++;
    return STATUS_OK;
}

static enum status decode_object(const cJSON *object, struct slots_record *record, struct err *err)
{
    const cJSON *slots = cJSON_GetObjectItemCaseSensitive(object, "slots");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    const cJSON *item;
    uint32_t version = 0;
    if (!cJSON_IsObject(object))
        return damaged(err, "it is not a JSON object");
    if (!take_u32(object, "version", UINT32_MAX, &version) || (version == 0 && type == NULL))
        return damaged(err, "it has no version");
    if (!take_line(object, "boot_id", record->boot_id, sizeof record->boot_id) ||
        record->boot_id[0] == '\0')
        return damaged(err, "it has no boot_id");
    if (!take_u32(object, "gpus", SLOTS_PER_NODE_MAX, &record->gpus))
        return damaged(err, "the number of GPUs");
    if (slots != NULL && !cJSON_IsArray(slots))
        return damaged(err, "slots is not a list");
    if (cJSON_GetArraySize(slots) > (int)SLOTS_PER_NODE_MAX)
        return damaged(err, "it has too many slots");
    cJSON_ArrayForEach(item, slots)
    {
        enum status status = decode_slot(item, record, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status slots_file_decode(const char *bytes, size_t byte_count, struct slots_record *record,
                              struct err *err)
{
    memset(record, 0, sizeof *record);
    cJSON *object = cJSON_ParseWithLength(bytes, byte_count);
    if (object == NULL)
        return damaged(err, "it is not JSON");
    enum status status = decode_object(object, record, err);
    cJSON_Delete(object);
    return status;
}

static bool add_u64(cJSON *object, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddStringToObject(object, name, text) != NULL;
}

static bool add_slot(cJSON *list, const struct slot_record *slot)
{
    cJSON *item = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(list, item))
        return false;
    return cJSON_AddNumberToObject(item, "slot", slot->slot) != NULL &&
           add_u64(item, "incident", slot->incident) &&
           cJSON_AddStringToObject(item, "reason", slot->reason) != NULL &&
           cJSON_AddBoolToObject(item, "has_baseline", slot->has_baseline) != NULL &&
           add_u64(item, "baseline_bytes", slot->baseline_bytes) &&
           cJSON_AddBoolToObject(item, "has_ecc", slot->has_ecc) != NULL &&
           add_u64(item, "ecc_uncorrected", slot->ecc_uncorrected) &&
           cJSON_AddBoolToObject(item, "remap_failed", slot->remap_failed) != NULL;
}

enum status slots_file_encode(const struct slots_record *record, struct buf *out, struct err *err)
{
    assert(record->boot_id[0] != '\0' && record->count <= SLOTS_PER_NODE_MAX);
    cJSON *object = cJSON_CreateObject(), *list = NULL;
    bool done = cJSON_AddNumberToObject(object, "version", SLOTS_VERSION) != NULL &&
                cJSON_AddStringToObject(object, "boot_id", record->boot_id) != NULL &&
                cJSON_AddNumberToObject(object, "gpus", record->gpus) != NULL &&
                (list = cJSON_AddArrayToObject(object, "slots")) != NULL;
    for (uint32_t i = 0; done && i < record->count; i++)
        done = add_slot(list, &record->slots[i]);
    char *text = done ? cJSON_PrintUnformatted(object) : NULL;
    if (text != NULL)
        buf_printf(out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(object);
    if (text == NULL || out->failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the record of the slots");
    return STATUS_OK;
}

enum status slots_file_read(const char *state_dir, struct slots_record *record, struct err *err)
{
    struct arena arena = {0};
    char *bytes = NULL;
    size_t byte_count = 0, head_bytes = 0;

    enum status status = rundir_read_state(state_dir, SLOTS_NAME, &arena, &bytes, &byte_count, err);
    if (status == STATUS_NOT_FOUND) {
        status = rundir_read_state(state_dir, SLOTS_NAME_OLD, &arena, &bytes, &byte_count, err);
        head_bytes = byte_count < FRAME_HEAD_BYTES ? byte_count : FRAME_HEAD_BYTES;
    }
    if (status == STATUS_OK)
        status = slots_file_decode(bytes + head_bytes, byte_count - head_bytes, record, err);
    arena_reset(&arena);
    return status;
}

enum status slots_file_write(const char *state_dir, const struct slots_record *record,
                             struct err *err)
{
    struct buf buf = {0};
    char old[PATH_MAX];
    struct err none;
    enum status status = slots_file_encode(record, &buf, err);
    if (status == STATUS_OK)
        status = rundir_write_state(state_dir, SLOTS_NAME, buf.bytes, buf.byte_count, err);
    buf_free(&buf);
    rundir_join(old, state_dir, SLOTS_NAME_OLD);
    if (status == STATUS_OK)
        (void)own_file_remove(old, 0, &none); /* slots.json is newer from now on */
    return status;
}
