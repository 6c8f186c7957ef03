#include "common/node_facts.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <string.h>

#include "common/json_strict.h"
#include "common/utf8.h"

/* One row of a declaration: a number where `bytes` is 0. */
struct row {
    const char *name;
    size_t offset, bytes;
};

struct rows {
    const struct row *items;
    size_t count, struct_bytes;
};

#define ROW_TABLE(tag, ROWS)                                                                       \
    static const struct row tag##_items[] = {ROWS(ROW_NUMBER, ROW_TEXT)};                          \
    static const struct rows tag##_rows = {                                                        \
        tag##_items, sizeof tag##_items / sizeof tag##_items[0], sizeof(struct tag)};

#define ROW_NUMBER(member) {#member, offsetof(struct node_facts, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct node_facts, member), size},
ROW_TABLE(node_facts, NODE_FACTS)
#undef ROW_NUMBER
#undef ROW_TEXT
#define ROW_NUMBER(member) {#member, offsetof(struct disk_facts, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct disk_facts, member), size},
ROW_TABLE(disk_facts, DISK_FACTS)
#undef ROW_NUMBER
#undef ROW_TEXT
#define ROW_NUMBER(member) {#member, offsetof(struct gpu_health, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct gpu_health, member), size},
ROW_TABLE(gpu_health, GPU_FACTS)
#undef ROW_NUMBER
#undef ROW_TEXT
#define ROW_NUMBER(member) {#member, offsetof(struct fabric_facts, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct fabric_facts, member), size},
ROW_TABLE(fabric_facts, FABRIC_FACTS)
#undef ROW_NUMBER
#undef ROW_TEXT
#define ROW_NUMBER(member) {#member, offsetof(struct name_facts, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct name_facts, member), size},
ROW_TABLE(name_facts, NAME_FACTS)
#undef ROW_NUMBER
#undef ROW_TEXT
#define ROW_NUMBER(member) {#member, offsetof(struct gap_facts, member), 0},
#define ROW_TEXT(member, size) {#member, offsetof(struct gap_facts, member), size},
ROW_TABLE(gap_facts, GAP_FACTS)

static void *at_row(void *object, const struct row *row)
{
    return (char *)object + row->offset;
}

static void init_rows(void *object, const struct rows *rows)
{
    const int64_t unknown = FACT_UNKNOWN;

    memset(object, 0, rows->struct_bytes);
    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].bytes == 0)
            memcpy(at_row(object, &rows->items[i]), &unknown, sizeof unknown);
}

void node_facts_init(struct node_facts *facts)
{
    init_rows(facts, &node_facts_rows);
}

#define ADD(list, tag, ROWS, most)                                                                 \
    struct tag *node_facts_add_##list(struct node_facts *facts)                                    \
    {                                                                                              \
        struct tag *row = &facts->list[facts->list##_count];                                       \
                                                                                                   \
        if (facts->list##_count == (most))                                                         \
            return NULL;                                                                           \
        facts->list##_count++;                                                                     \
        init_rows(row, &tag##_rows);                                                               \
        return row;                                                                                \
    }
FACT_LISTS(ADD)

/* -- to JSON -- */

static void write_rows(const void *object, const struct rows *rows, cJSON *json)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        const char *value = (const char *)object + row->offset;
        int64_t number;
        char text[512];

        if (row->bytes > 0) {
            utf8_printable(value, strlen(value), text, sizeof text);
            if (text[0] != '\0')
                (void)cJSON_AddStringToObject(json, row->name, text);
            continue;
        }
        memcpy(&number, value, sizeof number);
        if (number >= 0)
            (void)cJSON_AddNumberToObject(json, row->name, (double)number);
    }
}

void node_facts_write(const struct node_facts *facts, struct buf *out)
{
    cJSON *json = cJSON_CreateObject();
    char *text;

    (void)cJSON_AddStringToObject(json, "schema", FACTS_SCHEMA);
    write_rows(facts, &node_facts_rows, json);
#define WRITE(list, tag, ROWS, most)                                                               \
    cJSON *list##_json = facts->list##_count > 0 ? cJSON_AddArrayToObject(json, #list) : NULL;     \
    for (uint32_t i = 0; i < facts->list##_count; i++) {                                           \
        cJSON *row = cJSON_CreateObject();                                                         \
                                                                                                   \
        write_rows(&facts->list[i], &tag##_rows, row);                                             \
        (void)cJSON_AddItemToArray(list##_json, row);                                              \
    }
    FACT_LISTS(WRITE)
    text = cJSON_PrintUnformatted(json);
    if (text != NULL)
        buf_add_text(out, text);
    else
        out->failed = true;
    cJSON_free(text);
    cJSON_Delete(json);
}

/* -- from JSON -- */

static void read_rows(const cJSON *json, const struct rows *rows, void *object)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        const cJSON *value = json_member(json, row->name);
        char text[512];
        int64_t number;

        if (row->bytes > 0 && cJSON_IsString(value)) {
            utf8_printable(value->valuestring, strlen(value->valuestring), text,
                           row->bytes < sizeof text ? row->bytes : sizeof text);
            memcpy(at_row(object, row), text, strlen(text) + 1);
        } else if (row->bytes == 0 && cJSON_IsNumber(value) && value->valuedouble >= 0 &&
                   value->valuedouble <= (double)FACT_UNLIMITED) {
            number = (int64_t)value->valuedouble;
            memcpy(at_row(object, row), &number, sizeof number);
        }
    }
}

enum status node_facts_read(struct node_facts *facts, const char *json, size_t byte_count,
                            struct err *err)
{
    cJSON *root;
    enum status status = json_strict_parse(json, byte_count, NULL, &root, err);

    if (status != STATUS_OK)
        return status;
    read_rows(root, &node_facts_rows, facts);
#define READ(list, tag, ROWS, most)                                                                \
    const cJSON *list##_json = json_member(root, #list), *list##_row;                              \
    if (cJSON_IsArray(list##_json)) {                                                              \
        cJSON_ArrayForEach(list##_row, list##_json)                                                \
        {                                                                                          \
            struct tag *row = node_facts_add_##list(facts);                                        \
                                                                                                   \
            if (row != NULL)                                                                       \
                read_rows(list##_row, &tag##_rows, row);                                           \
        }                                                                                          \
    }
    FACT_LISTS(READ)
    cJSON_Delete(root);
    return STATUS_OK;
}
