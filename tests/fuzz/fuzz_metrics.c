/* The metrics of a job, that any program may have written: the same lines whatever the pieces that they come in, and a
 * page and a table in which nothing of them is markup, a control character or no number. */
#include <string.h>

#include "common/arena.h"
#include "ddpctl/metric_table.h"
#include "ddpctl/report_page.h"
#include "tests/fuzz/target.h"

struct taken {
    struct report_data data;
    struct metric_table table;
    struct buf out;
};

void fuzz_corpus(fuzz_add *add)
{
    static const char *const examples[] = {
        "{\"kind\":\"step\",\"time\":\"2026-11-22T17:55:29.000Z\",\"epoch\":1,\"step\":10,\"loss\":"
        "2.3,\"acc1\":10,"
        "\"lr\":0.1,\"images_per_s\":5e3,\"step_ms\":20,\"data_ms\":0,\"exposed_ms\":1,\"loss_"
        "scale\":65536}\n"
        "{\"kind\":\"step\",\"epoch\":1,\"step\":20,\"loss\":0.0023,\"lr\":0.1}\n",
        "{\"kind\":\"step\",\"step\":1,\"loss\":1}\n{\"kind\":\"resume\",\"step\":0}\n{\"loss\":2}"
        "\n{\"loss\":1e-9}",
        "{\"kind\":\"validation\",\"epoch\":1,\"step\":2,\"loss\":1,\"acc1\":5,\"acc5\":9}\n{"
        "\"kind\":\"epoch\",\"step\":2}",
        "{\"kind\":\"checkpoint\",\"step\":5}\n{\"kind\":\"restart\",\"step\":5}\n\n{\"note\":\"<"
        "script>\\u001b\"}\n",
        "{\"step\":-1e308,\"loss\":1e308}\n{\"step\":1e308,\"loss\":-1e308}\n{\"step\":5e-324,"
        "\"lr\":-0.0}\n",
    };

    for (size_t i = 0; i < 600; i++) {
        const char *text = examples[i % (sizeof examples / sizeof examples[0])];

        add(text, strlen(text));
    }
}

static void on_line(void *owner, const struct metric_line *line)
{
    struct taken *taken = owner;

    report_data_take(&taken->data, line);
    metric_table_line(&taken->table, line, &taken->out);
}

/* In pieces of `piece` bytes; the second half is another generation. */
static void take(struct taken *taken, const uint8_t *bytes, size_t byte_count, size_t piece,
                 struct metric_lines *lines)
{
    const size_t half = byte_count / 2;

    for (size_t at = 0; at < byte_count;) {
        const uint32_t generation = at < half ? 1 : 2;
        const size_t end = at < half ? half : byte_count,
                     count = end - at < piece ? end - at : piece;

        metric_lines_take(lines, generation, 0, bytes + at, count, at + count == end);
        at += count;
    }
    FUZZ_CHECK(taken->data.epoch_count <= REPORT_EPOCHS_MAX);
}

static void check_page(const struct taken *taken, const struct metric_lines *lines)
{
    static struct cause items[REPORT_CAUSES_MAX];
    const struct part_job job = {.job_id = 1,
                                 .name = "job",
                                 .generation = 2,
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .user = "",
                                 .where = "",
                                 .reason = ""};
    const struct msg_job_info info = {
        .jobs = {&job, 1}, .failed_rank = -1, .failed_node = "", .tail = "", .cwd = ""};
    struct causes causes;
    struct buf out = {0};
    const struct report_page page = {.info = &info,
                                     .data = &taken->data,
                                     .lines = lines->good,
                                     .bad_lines = lines->bad,
                                     .causes = &causes,
                                     .now_ms = 1};

    causes_init(&causes, items, REPORT_CAUSES_MAX, job.name, job.job_id);
    report_page_write(&page, &out);
    buf_add(&out, "", 1);
    FUZZ_CHECK(!out.failed && strlen(out.bytes) == out.byte_count - 1);
    FUZZ_CHECK(strstr(out.bytes, "<script") == NULL && strstr(out.bytes, "nan") == NULL &&
               strstr(out.bytes, "inf") == NULL && strchr(out.bytes, '\x1b') == NULL);
    FUZZ_CHECK(out.byte_count < 1u << 20);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    static struct taken whole, pieces; /* too big for the stack */
    struct metric_lines lines = {.take = on_line, .owner = &whole};
    struct metric_lines again = {.take = on_line, .owner = &pieces};

    memset(&whole, 0, sizeof whole);
    memset(&pieces, 0, sizeof pieces);
    FUZZ_CHECK(metric_table_init(&whole.table, "csv", NULL, NULL) == STATUS_OK);
    FUZZ_CHECK(metric_table_init(&pieces.table, "csv", NULL, NULL) == STATUS_OK);
    take(&whole, data, byte_count, byte_count + 1, &lines);
    take(&pieces, data, byte_count, 1 + byte_count % 7, &again);
    FUZZ_CHECK(lines.good == again.good && lines.bad == again.bad);
    FUZZ_CHECK(whole.out.byte_count == pieces.out.byte_count &&
               (whole.out.byte_count == 0 ||
                memcmp(whole.out.bytes, pieces.out.bytes, whole.out.byte_count) == 0));
    for (size_t i = 0; i < whole.out.byte_count; i++)
        FUZZ_CHECK(whole.out.bytes[i] == '\n' || whole.out.bytes[i] == '\t' ||
                   (unsigned char)whole.out.bytes[i] >= ' ');
    check_page(&whole, &lines);
    metric_lines_close(&lines);
    metric_lines_close(&again);
    report_data_free(&whole.data);
    report_data_free(&pieces.data);
    buf_free(&whole.out);
    buf_free(&pieces.out);
    return 0;
}
