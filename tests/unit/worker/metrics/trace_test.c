/* A trace is JSON: whole, cut where a process was killed, gathered from two ranks, full. */
#include "worker/metrics/trace.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "tests/lib/test.h"

enum { SPANS = 50000 };

static struct err err;
static char path[512];
static struct trace_options options = {.node = "a \"node\"\n\\", .label = "label"};

static struct trace *open_one(uint32_t rank)
{
    struct trace *trace;

    (void)snprintf(path, sizeof path, "%s/trace.json", test_dir());
    options.rank = rank;
    options.path = rank == 0 ? path : NULL;
    CHECK_EQ(trace_open(&trace, &options, &err), STATUS_OK);
    trace_set(trace, true);
    return trace;
}

/* The events of the file; `cut`: with the bracket that is missing. */
static cJSON *read_events(bool cut)
{
    static char text[16 << 20];
    FILE *file = fopen(path, "re");
    size_t n;
    cJSON *events;

    CHECK(file != NULL);
    n = fread(text, 1, sizeof text - 2, file);
    (void)fclose(file);
    if (cut)
        text[n++] = ']';
    text[n] = '\0';
    events = cJSON_ParseWithOpts(text, NULL, 1);
    CHECK(cJSON_IsArray(events));
    return events;
}

/* How many spans of that name and rank there are; NULL: of any name. */
static int count_of(const cJSON *events, const char *name, int rank)
{
    const cJSON *event;
    int count = 0;

    cJSON_ArrayForEach(event, events)
    {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") == 0 &&
            cJSON_GetObjectItem(event, "pid")->valueint == rank &&
            (name == NULL || strcmp(cJSON_GetObjectItem(event, "name")->valuestring, name) == 0))
            count++;
    }
    return count;
}

TEST(a_span_has_its_time_and_value)
{
    struct trace *trace;
    const uint64_t begun_us = mono_us();
    const cJSON *event;
    cJSON *events;
    double ts, dur;

    options.shift_us = 1000;
    trace = open_one(0);
    options.shift_us = 0;
    trace_span(trace, TRACE_REDUCTION, "bucket 1", begun_us, "elements", 123);
    trace_close(&trace);
    events = read_events(false);
    event = cJSON_GetArrayItem(events, cJSON_GetArraySize(events) - 1);
    ts = cJSON_GetObjectItem(event, "ts")->valuedouble;
    dur = cJSON_GetObjectItem(event, "dur")->valuedouble;
    CHECK_STR(cJSON_GetObjectItem(event, "name")->valuestring, "bucket 1");
    CHECK(ts == (double)begun_us + 1000);
    CHECK(dur >= 0 && ts + dur <= (double)mono_us() + 1000);
    CHECK_EQ(cJSON_GetObjectItem(event, "tid")->valueint, TRACE_REDUCTION);
    CHECK_EQ(cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), "elements")->valueint, 123);
    cJSON_Delete(events);
}

TEST(nothing_while_it_is_off)
{
    struct trace *trace = open_one(0);
    cJSON *events;

    trace_set(trace, false);
    CHECK_EQ(trace_now(trace), 0);
    trace_span(trace, TRACE_TRAINING, "off", 1, NULL, 0);
    trace_set(trace, true);
    CHECK(trace_now(trace) > 0);
    trace_span(trace, TRACE_TRAINING, "begun while off", 0, NULL, 0);
    trace_close(&trace);
    events = read_events(false);
    CHECK_EQ(count_of(events, NULL, 0), 0);
    cJSON_Delete(events);
    CHECK_EQ(trace_now(NULL), 0);
    trace_span(NULL, TRACE_TRAINING, "none", 1, NULL, 0);
    trace_close(&trace);
}

TEST(a_killed_run_lacks_the_bracket_alone)
{
    struct trace *trace = open_one(0);
    cJSON *events;

    for (int i = 0; i < 3; i++) {
        trace_span(trace, TRACE_TRAINING, "step", trace_now(trace), NULL, 0);
        CHECK_EQ(trace_write(trace, &err), STATUS_OK);
        events = read_events(true);
        CHECK_EQ(count_of(events, "step", 0), i + 1);
        cJSON_Delete(events);
    }
    trace_close(&trace);
}

TEST(two_ranks_in_one_file)
{
    struct trace *first = open_one(0), *second = open_one(1);
    size_t byte_count;
    cJSON *events;
    char *text;

    trace_span(first, TRACE_TRAINING, "forward", trace_now(first), NULL, 0);
    trace_span(second, TRACE_TRAINING, "forward", trace_now(second), NULL, 0);
    trace_span(second, TRACE_TRAINING, "backward", trace_now(second), NULL, 0);
    CHECK_EQ(trace_write(first, &err), STATUS_OK);
    text = trace_take(second, &byte_count);
    CHECK_EQ(trace_add(first, text, byte_count, &err), STATUS_OK);
    free(text);
    trace_close(&second);
    trace_close(&first);
    events = read_events(false);
    CHECK_EQ(count_of(events, "forward", 0), 1);
    CHECK_EQ(count_of(events, "forward", 1), 1);
    CHECK_EQ(count_of(events, "backward", 1), 1);
    cJSON_Delete(events);
}

TEST(a_full_trace_says_so)
{
    struct trace *trace;
    cJSON *events;
    int count;

    options.bytes_limit = 4096;
    trace = open_one(0);
    options.bytes_limit = 0;
    for (int i = 0; i < 1000; i++) {
        trace_span(trace, TRACE_TRAINING, "step", trace_now(trace), "step", 1);
        CHECK_EQ(trace_write(trace, &err), STATUS_OK);
    }
    trace_close(&trace);
    events = read_events(false);
    count = count_of(events, "step", 0);
    CHECK(count > 20 && count < 80);
    CHECK_EQ(count_of(events, "the trace is full: later spans are left out", 0), 1);
    cJSON_Delete(events);
}

static void *span_often(void *user)
{
    struct trace *trace = user;

    for (int i = 0; i < SPANS; i++)
        trace_span(trace, TRACE_REDUCTION, "bucket", trace_now(trace), "elements", 5);
    return NULL;
}

TEST(two_threads)
{
    struct trace *trace = open_one(0);
    pthread_t thread;
    cJSON *events;

    CHECK_EQ(pthread_create(&thread, NULL, span_often, trace), 0);
    for (int i = 0; i < SPANS; i++) {
        trace_span(trace, TRACE_TRAINING, "step", trace_now(trace), NULL, 0);
        if (i % 100 == 0)
            CHECK_EQ(trace_write(trace, &err), STATUS_OK);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    trace_close(&trace);
    events = read_events(false);
    CHECK_EQ(count_of(events, "step", 0), SPANS);
    CHECK_EQ(count_of(events, "bucket", 0), SPANS);
    cJSON_Delete(events);
}

TEST(a_folder_that_is_not_there)
{
    struct trace *trace;

    options.path = "/none/at/all.json";
    CHECK_EQ(trace_open(&trace, &options, &err), STATUS_IO);
    CHECK(trace == NULL && strstr(err.text, "cannot open: ") != NULL);
}

TEST_MAIN
