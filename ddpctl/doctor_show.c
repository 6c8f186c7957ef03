/* Findings as text and as JSON. The text shows each problem with its remedy, and one line for each
 * check that is ok. */
#include <cjson/cJSON.h>
#include <string.h>

#include "ddpctl/doctor.h"
#include "ddpctl/escape.h"
#include "ddpctl/output.h"

static const char *color_of(enum doctor_level level)
{
    static const char *const colors[] = {[DOCTOR_OK] = "\x1b[32m",
                                         [DOCTOR_SKIP] = "\x1b[2m",
                                         [DOCTOR_WARN] = "\x1b[33m",
                                         [DOCTOR_FAIL] = "\x1b[31m"};

    return colors[level];
}

static void add_text(struct buf *out, const char *text)
{
    escape_text(text, strlen(text), out);
}

static void add_level(enum doctor_level level, const struct output_style *style, struct buf *out)
{
    buf_printf(out, "%s%-4s%s  ", style->color ? color_of(level) : "", doctor_level_name(level),
               style->color ? "\x1b[0m" : "");
}

/* Whether two findings differ only in the node: such a problem is shown once. */
static bool is_same(const struct doctor_finding *one, const struct doctor_finding *other)
{
    return one->check == other->check && one->level == other->level &&
           strcmp(one->text, other->text) == 0;
}

static bool was_shown(const struct doctor_findings *findings, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (is_same(&findings->items[k], &findings->items[i]))
            return true;
    return false;
}

static void add_nodes(const struct doctor_findings *findings, uint32_t i, struct buf *out)
{
    const struct doctor_finding *first = &findings->items[i];
    uint32_t shown = 0, more = 0;

    for (uint32_t k = i; k < findings->count; k++) {
        const struct doctor_finding *at = &findings->items[k];

        if (!is_same(first, at) || at->node[0] == '\0')
            continue;
        if (shown == 8) {
            more++;
            continue;
        }
        buf_printf(out, "%s%s", shown > 0 ? ", " : "", at->node);
        shown++;
    }
    if (more > 0)
        buf_printf(out, " and %u more", more);
    if (shown > 0)
        buf_add_text(out, ": ");
}

static void show_bad(const struct doctor_findings *findings, enum doctor_level level,
                     const struct output_style *style, struct buf *out)
{
    for (uint32_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *at = &findings->items[i];

        if (at->level != level || was_shown(findings, i))
            continue;
        add_level(level, style, out);
        buf_printf(out, "%s: ", doctor_check_name(at->check));
        add_nodes(findings, i, out);
        add_text(out, at->text);
        buf_printf(out, "\n      fix: %s\n", doctor_check_remedy(at->check));
    }
}

/* One line for a check: the text that all its findings share, or how many findings there are.
 * A line for each node or GPU would be too much. */
static void show_good(const struct doctor_findings *findings, enum doctor_check check,
                      enum doctor_level level, const struct output_style *style, struct buf *out)
{
    const struct doctor_finding *first = NULL;
    bool is_one_text = true;
    uint32_t count = 0;

    for (uint32_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *at = &findings->items[i];

        if (at->check != check || at->level != level)
            continue;
        count++;
        if (first == NULL)
            first = at;
        is_one_text = is_one_text && strcmp(first->text, at->text) == 0;
    }
    if (first == NULL)
        return;
    add_level(level, style, out);
    buf_printf(out, "%s: ", doctor_check_name(check));
    if (is_one_text)
        add_text(out, first->text);
    else
        buf_printf(out, "%u times, as ", count);
    if (!is_one_text) {
        if (first->node[0] != '\0')
            buf_printf(out, "%s: ", first->node);
        add_text(out, first->text);
    }
    buf_add_text(out, "\n");
}

static uint32_t count_of(const struct doctor_findings *findings, enum doctor_level level)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < findings->count; i++)
        count += findings->items[i].level == level;
    return count;
}

void doctor_show(const struct doctor_findings *findings, uint32_t nodes,
                 const struct output_style *style, struct buf *out)
{
    static const enum doctor_level levels[] = {DOCTOR_OK, DOCTOR_SKIP};

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        for (uint32_t check = 0; check < DOCTOR_CHECK_COUNT; check++)
            show_good(findings, (enum doctor_check)check, levels[i], style, out);
    show_bad(findings, DOCTOR_WARN, style, out);
    show_bad(findings, DOCTOR_FAIL, style, out);
    buf_printf(out, "%u failed, %u warning%s, %u ok, %u skipped, on %u node%s\n",
               count_of(findings, DOCTOR_FAIL), count_of(findings, DOCTOR_WARN),
               count_of(findings, DOCTOR_WARN) == 1 ? "" : "s", count_of(findings, DOCTOR_OK),
               count_of(findings, DOCTOR_SKIP), nodes, nodes == 1 ? "" : "s");
}

void doctor_show_json(const struct doctor_findings *findings, struct buf *out)
{
    cJSON *root = cJSON_CreateObject(), *list;
    char *text;

    (void)cJSON_AddStringToObject(root, "schema", "ddp.v1");
    (void)cJSON_AddNumberToObject(root, "failed", count_of(findings, DOCTOR_FAIL));
    (void)cJSON_AddNumberToObject(root, "warnings", count_of(findings, DOCTOR_WARN));
    list = cJSON_AddArrayToObject(root, "findings");
    for (uint32_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *at = &findings->items[i];
        cJSON *item = cJSON_CreateObject();

        (void)cJSON_AddStringToObject(item, "check", doctor_check_name(at->check));
        (void)cJSON_AddStringToObject(
            item, "level", at->level == DOCTOR_FAIL ? "fail" : doctor_level_name(at->level));
        if (at->node[0] != '\0')
            (void)cJSON_AddStringToObject(item, "node", at->node);
        else
            (void)cJSON_AddNullToObject(item, "node");
        (void)cJSON_AddStringToObject(item, "text", at->text);
        if (at->level >= DOCTOR_WARN)
            (void)cJSON_AddStringToObject(item, "remedy", doctor_check_remedy(at->check));
        else
            (void)cJSON_AddNullToObject(item, "remedy");
        (void)cJSON_AddItemToArray(list, item);
    }
    text = cJSON_PrintUnformatted(root);
    if (text == NULL)
        out->failed = true;
    else
        buf_printf(out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(root);
}
