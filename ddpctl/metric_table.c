#include "ddpctl/metric_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/escape.h"

#define FIELDS_DEFAULT "loss,lr,images_per_s,acc1,acc5"
#define CELL_COLUMNS 12

/* The columns before the fields. In JSON our own keys replace fields of the same name. */
static const char *const heads[] = {"generation", "time", "kind", "epoch", "step"};
static const char *const reserved[] = {"schema", "type", "job_id", "generation", "rank"};

static enum status take_fields(struct metric_table *table, const char *fields, struct err *err)
{
    while (*fields != '\0') {
        size_t length = strcspn(fields, ",");

        if (length == 0 || length >= METRIC_NAME_BYTES ||
            (fields[length] == ',' && !fields[length + 1]))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--field: '%.60s' should be like loss,samples_per_s", fields);
        if (table->field_count == METRIC_COLUMNS_MAX)
            return err_set(err, STATUS_BAD_INPUT, 0, "--field: at most %d names",
                           METRIC_COLUMNS_MAX);
        memcpy(table->fields[table->field_count], fields, length);
        table->fields[table->field_count++][length] = '\0';
        fields += length + (fields[length] == ',');
    }
    return STATUS_OK;
}

enum status metric_table_init(struct metric_table *table, const char *format, const char *fields,
                              struct err *err)
{
    *table = (struct metric_table){.is_chosen = fields != NULL};
    if (format == NULL || strcmp(format, "table") == 0)
        table->form = METRIC_TABLE;
    else if (strcmp(format, "csv") == 0)
        table->form = METRIC_CSV;
    else if (strcmp(format, "json") == 0)
        table->form = METRIC_JSON;
    else
        return err_set(err, STATUS_BAD_INPUT, 0, "--format: '%.40s' should be table, csv or json",
                       format);
    return take_fields(table, fields != NULL ? fields : FIELDS_DEFAULT, err);
}

static bool has_field(const struct metric_table *table, const struct metric_line *line)
{
    struct buf text = {0};
    bool found = !table->is_chosen;

    for (uint32_t i = 0; !found && i < table->field_count; i++)
        found = metric_shown(line->object, table->fields[i], &text);
    buf_free(&text);
    return found;
}

/* A right-aligned cell, at least `columns` wide. */
static void table_cell(const char *text, size_t byte_count, int columns, struct buf *out)
{
    struct buf shown = {0};

    escape_text(text, byte_count, &shown);
    if (shown.byte_count == 0)
        buf_add_text(&shown, "-");
    buf_printf(out, "%*s", (int)shown.byte_count < columns ? columns - (int)shown.byte_count : 0,
               "");
    if (!shown.failed)
        buf_add(out, shown.bytes, shown.byte_count);
    buf_free(&shown);
}

/* A cell of RFC 4180. A text that a spreadsheet would take for a formula gets an apostrophe before
 * it. */
static void csv_cell(const char *text, size_t byte_count, bool is_text, struct buf *out)
{
    struct buf shown = {0};
    bool is_quoted;

    escape_text(text, byte_count, &shown);
    is_quoted = shown.byte_count > 0 && (memchr(shown.bytes, '"', shown.byte_count) != NULL ||
                                         memchr(shown.bytes, ',', shown.byte_count) != NULL);
    buf_add_text(out, is_quoted ? "\"" : "");
    if (is_text && shown.byte_count > 0 && shown.bytes[0] != '\0' &&
        strchr("=+-@\t", shown.bytes[0]) != NULL)
        buf_add_text(out, "'");
    for (size_t i = 0; i < shown.byte_count; i++) {
        if (shown.bytes[i] == '"')
            buf_add_text(out, "\"");
        buf_add(out, &shown.bytes[i], 1);
    }
    buf_add_text(out, is_quoted ? "\"" : "");
    buf_free(&shown);
}

static int width_of(size_t column)
{
    static const int widths[] = {3, 24, 10, 5, 8};

    return column < sizeof widths / sizeof widths[0] ? widths[column] : CELL_COLUMNS;
}

static void put_cell(const struct metric_table *table, size_t column, const char *text,
                     size_t byte_count, bool is_text, struct buf *out)
{
    if (column > 0)
        buf_add_text(out, table->form == METRIC_CSV ? "," : "  ");
    if (table->form == METRIC_CSV)
        csv_cell(text, byte_count, is_text, out);
    else
        table_cell(text, byte_count, width_of(column), out);
}

static void put_head(const struct metric_table *table, struct buf *out)
{
    size_t column = 0;

    for (; column < sizeof heads / sizeof heads[0]; column++) {
        const char *name = column == 0 && table->form == METRIC_TABLE ? "gen" : heads[column];

        put_cell(table, column, name, strlen(name), true, out);
    }
    for (uint32_t i = 0; i < table->field_count; i++)
        put_cell(table, column++, table->fields[i], strlen(table->fields[i]), true, out);
    buf_add_text(out, "\n");
}

static void put_field(const struct metric_table *table, size_t column, const char *name,
                      const struct metric_line *line, struct buf *out)
{
    double number = metric_number(line->object, name);
    bool is_text = metric_text(line->object, name) != NULL;
    struct buf text = {0};

    if (column == 0)
        buf_printf(&text, "%u", line->generation);
    else if (table->form == METRIC_TABLE && column >= sizeof heads / sizeof heads[0] &&
             !isnan(number))
        buf_printf(&text, "%.6g", number);
    else
        (void)metric_shown(line->object, name, &text);
    put_cell(table, column, text.bytes, text.failed ? 0 : text.byte_count, is_text, out);
    buf_free(&text);
}

static bool is_wanted(const struct metric_table *table, const char *name)
{
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strcmp(name, reserved[i]) == 0)
            return false;
    if (!table->is_chosen)
        return true;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strcmp(name, heads[i]) == 0)
            return true;
    for (uint32_t i = 0; i < table->field_count; i++)
        if (strcmp(name, table->fields[i]) == 0)
            return true;
    return false;
}

static void put_json(const struct metric_table *table, const struct metric_line *line,
                     struct buf *out)
{
    cJSON *object = cJSON_CreateObject();
    const cJSON *item;
    char *text;

    (void)cJSON_AddStringToObject(object, "schema", "ddp.v1");
    (void)cJSON_AddStringToObject(object, "type", "metrics");
    (void)cJSON_AddNumberToObject(object, "job_id", (double)table->job_id);
    (void)cJSON_AddNumberToObject(object, "generation", line->generation);
    (void)cJSON_AddNumberToObject(object, "rank", line->rank);
    cJSON_ArrayForEach(item, line->object)
    {
        if (is_wanted(table, item->string))
            (void)cJSON_AddItemToObject(object, item->string, cJSON_Duplicate(item, false));
    }
    text = cJSON_PrintUnformatted(object);
    if (text != NULL)
        buf_printf(out, "%s\n", text);
    else
        out->failed = true;
    cJSON_free(text);
    cJSON_Delete(object);
}

void metric_table_line(struct metric_table *table, const struct metric_line *line, struct buf *out)
{
    size_t column = 0;

    if (!has_field(table, line))
        return;
    if (table->form == METRIC_JSON) {
        put_json(table, line, out);
        return;
    }
    if (!table->has_head)
        put_head(table, out);
    table->has_head = true;
    for (; column < sizeof heads / sizeof heads[0]; column++)
        put_field(table, column, heads[column], line, out);
    for (uint32_t i = 0; i < table->field_count; i++)
        put_field(table, column++, table->fields[i], line, out);
    buf_add_text(out, "\n");
}
