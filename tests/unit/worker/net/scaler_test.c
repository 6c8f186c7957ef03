/* The loss scaler against Apex's rules written out plainly (apex/amp/scaler.py, update_scale). */
#include "worker/net/scaler.h"

#include <string.h>

#include "tests/lib/test.h"

/* Apex in doubles and bools. */
struct model {
    double scale, min, max;
    uint32_t unskipped;
};

static bool model_step(struct model *m, bool overflow)
{
    bool skip = false;

    if (overflow) {
        skip = true;
        m->scale = m->scale / 2 > m->min ? m->scale / 2 : m->min;
        m->unskipped = 0;
    } else {
        m->unskipped++;
    }
    if (m->unskipped == 2000) {
        m->scale = m->scale * 2 < m->max ? m->scale * 2 : m->max;
        m->unskipped = 0;
    }
    return skip;
}

static struct scaler fresh(void)
{
    const struct scaler_options options = {true, SCALER_INIT, SCALER_MIN, SCALER_MAX,
                                           SCALER_WINDOW};
    struct scaler scaler;

    scaler_init(&scaler, &options);
    return scaler;
}

static void step(struct scaler *scaler, bool overflow)
{
    scaler->found_inf = overflow;
    scaler_step(scaler);
    CHECK_EQ(scaler->found_inf, 0);
    CHECK_EQ(scaler->was_skipped, overflow);
}

TEST(follows_apex_through_random_overflows)
{
    for (uint32_t rarity = 1; rarity <= 4096; rarity *= 4) {
        struct scaler scaler = fresh();
        struct model model = {65536.0, 0x1p-14, 0x1p24, 0};
        uint32_t bits = 99 + rarity;

        for (int i = 0; i < 40000; i++) {
            bool overflow, skip;

            bits = bits * 1664525U + 1013904223U;
            overflow = (bits >> 8) % rarity == 0;
            skip = model_step(&model, overflow);
            step(&scaler, overflow);
            CHECK_EQ(scaler.was_skipped, skip);
            CHECK((double)scaler.scale == model.scale);
            CHECK_EQ(scaler.unskipped, model.unskipped);
        }
    }
}

TEST(grows_after_2000_clean_steps_and_not_before)
{
    struct scaler scaler = fresh();

    for (int i = 0; i < 1999; i++)
        step(&scaler, false);
    CHECK(scaler.scale == 65536.0F);
    step(&scaler, false);
    CHECK(scaler.scale == 131072.0F);
    CHECK_EQ(scaler.unskipped, 0);
}

/* With a static scale the count keeps growing; a run that resumes from it with a dynamic scale
 * continues from that count. */
TEST(more_clean_steps_than_the_window_grow_at_once)
{
    struct scaler scaler = fresh();

    scaler.unskipped = 5000;
    step(&scaler, false);
    CHECK(scaler.scale == 131072.0F);
    CHECK_EQ(scaler.unskipped, 0);
}

TEST(a_skip_at_the_2000th_step_does_not_grow)
{
    struct scaler scaler = fresh();

    for (int i = 0; i < 1999; i++)
        step(&scaler, false);
    step(&scaler, true);
    CHECK(scaler.scale == 32768.0F);
    for (int i = 0; i < 1999; i++)
        step(&scaler, false);
    CHECK(scaler.scale == 32768.0F);
    step(&scaler, false);
    CHECK(scaler.scale == 65536.0F);
}

TEST(stops_at_cap_and_floor)
{
    struct scaler scaler = fresh();

    for (int i = 0; i < 20 * 2000; i++)
        step(&scaler, false);
    CHECK(scaler.scale == 0x1p24F);
    for (uint32_t i = 1; i <= 60; i++) {
        step(&scaler, true);
        CHECK_EQ(scaler.skipped_in_a_row, i);
    }
    CHECK(scaler.scale == 0x1p-14F);
    step(&scaler, false);
    CHECK_EQ(scaler.skipped_in_a_row, 0);
}

TEST(begins_no_higher_than_its_cap)
{
    const struct scaler_options options = {true, SCALER_INIT, SCALER_MIN, 1024.0F, SCALER_WINDOW};
    struct scaler scaler;

    scaler_init(&scaler, &options);
    CHECK(scaler.scale == 1024.0F);
}

TEST(a_static_scale_stays_and_skips_nothing)
{
    const struct scaler_options options = {false, 128.0F, SCALER_MIN, SCALER_MAX, SCALER_WINDOW};
    struct scaler scaler;

    scaler_init(&scaler, &options);
    for (int i = 0; i < 5000; i++) {
        scaler.found_inf = i % 7 == 0;
        scaler_step(&scaler);
        CHECK(scaler.scale == 128.0F && !scaler.was_skipped);
    }
}

TEST(prints_as_python_does)
{
    static const struct {
        float scale;
        const char *text;
    } cases[] = {{32768.0F, "32768.0"}, {16777216.0F, "16777216.0"},   {1.0F, "1.0"},
                 {0.5F, "0.5"},         {0x1p-14F, "6.103515625e-05"}, {1000.0F, "1000.0"},
                 {2.5F, "2.5"},         {0x1p-13F, "0.0001220703125"}, {100000.0F, "100000.0"}};
    char text[AMP_SCALE_TEXT_BYTES];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_STR(amp_scale_text(cases[i].scale, text), cases[i].text);
}

TEST_MAIN
