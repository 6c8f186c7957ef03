/* The planner of a step's memory on random instances: what lives at once never overlaps, the arena
 * is no smaller than it must be, and how much larger than the best is known. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/net/memory_plan.h"
#include "common/draw.h"

#define ITEMS_MAX 40
#define TIMES_MAX 30
#define TINY 6 /* 720 orders */
#define ALIGN 64U
#define GUARD 0xdeadbeefU

static size_t room(const struct memory_plan_item *item)
{
    return (item->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool live_together(const struct memory_plan_item *a, const struct memory_plan_item *b)
{
    for (uint32_t t = 0; t < TIMES_MAX; t++)
        if (a->birth <= t && t <= a->death && b->birth <= t && t <= b->death)
            return true;
    return false;
}

static size_t highest_end(const struct memory_plan_item *items, uint32_t count)
{
    size_t end = 0;

    for (uint32_t i = 0; i < count; i++)
        if (items[i].offset + room(&items[i]) > end)
            end = items[i].offset + room(&items[i]);
    return end;
}

/* No arena is smaller than what lives at one time. */
static size_t lower_bound(const struct memory_plan_item *items, uint32_t count)
{
    size_t most = 0;

    for (uint32_t t = 0; t < TIMES_MAX; t++) {
        size_t sum = 0;

        for (uint32_t i = 0; i < count; i++)
            sum += items[i].birth <= t && t <= items[i].death ? room(&items[i]) : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

static uint32_t draw_items(uint64_t seed, struct memory_plan_item *items, uint32_t count_max)
{
    struct draw draw = draw_begin(77, seed);
    const uint32_t count = draw_below(&draw, count_max + 1);
    const uint32_t times = 1 + draw_below(&draw, TIMES_MAX);
    const uint32_t size_max = seed % 3 == 0 ? 4 * ALIGN : 40 * ALIGN; /* some with equal sizes */

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t a = draw_below(&draw, times), b = draw_below(&draw, times);

        items[i] = (struct memory_plan_item){.bytes = draw_below(&draw, size_max),
                                             .birth = a < b ? a : b,
                                             .death = a < b ? b : a,
                                             .offset = 12345}; /* any content */
    }
    return count;
}

/* A plan with guards around what it may write. */
static size_t plan(struct memory_plan_item *items, uint32_t count)
{
    uint32_t scratch[2 * ITEMS_MAX + 2];
    struct memory_plan_item before[ITEMS_MAX];
    size_t bytes;

    if (count > 0)
        memcpy(before, items, count * sizeof *items);
    scratch[0] = scratch[2 * count + 1] = GUARD;
    bytes = memory_plan(items, count, scratch + 1);
    CHECK(scratch[0] == GUARD && scratch[2 * count + 1] == GUARD);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(items[i].bytes, before[i].bytes);
        CHECK_EQ(items[i].birth, before[i].birth);
        CHECK_EQ(items[i].death, before[i].death);
    }
    return bytes;
}

static void check_plan(uint64_t seed, const struct memory_plan_item *items, uint32_t count,
                       size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(items[i].offset % ALIGN, 0);
        for (uint32_t k = 0; k < i; k++)
            if (live_together(&items[i], &items[k]) &&
                items[i].offset < items[k].offset + items[k].bytes &&
                items[k].offset < items[i].offset + items[i].bytes)
                FAIL("seed %llu: items %u and %u overlap", (unsigned long long)seed, k, i);
    }
    CHECK_EQ(bytes, highest_end(items, count));
    CHECK(bytes >= lower_bound(items, count));
}

TEST(nothing_that_lives_at_once_overlaps)
{
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct memory_plan_item items[ITEMS_MAX];
        const uint32_t count = draw_items(seed, items, ITEMS_MAX);
        const size_t bytes = plan(items, count);

        check_plan(seed, items, count, bytes);
    }
}

/* Each item in turn as low as those before it let it: a definition, not the code of memory_plan. */
static void place_half(struct memory_plan_item *items, const uint32_t *order, uint32_t at)
{
    struct memory_plan_item *item = &items[order[at]];
    bool fits = false;

    for (item->offset = 0; !fits; item->offset += fits ? 0 : ALIGN) {
        fits = true;
        for (uint32_t k = 0; k < at && fits; k++) {
            const struct memory_plan_item *other = &items[order[k]];

            fits = !live_together(item, other) || item->offset >= other->offset + room(other) ||
                   other->offset >= item->offset + room(item);
        }
    }
}

/* The smallest arena of all orders, which is the smallest of all: take the best plan, place its
 * items by rising offset, and none comes to lie higher. */
static size_t best_of_orders(struct memory_plan_item *items, uint32_t count, uint32_t *order,
                             uint32_t at)
{
    size_t best = SIZE_MAX;

    if (at == count)
        return highest_end(items, count);
    for (uint32_t i = at; i < count; i++) {
        const uint32_t kept = order[at];
        size_t bytes;

        order[at] = order[i];
        order[i] = kept;
        place_half(items, order, at);
        bytes = best_of_orders(items, count, order, at + 1);
        best = bytes < best ? bytes : best;
        order[i] = order[at];
        order[at] = kept;
    }
    return best;
}

/* Largest first is a rule of thumb: measured over these instances, 2517 of 2564 get the smallest
 * arena, the mean is 1.002 of it and the worst 1.29. */
TEST(tiny_plans_are_close_to_the_best)
{
    double sum = 0.0, worst = 1.0;
    uint32_t instances = 0, exact = 0;

    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct memory_plan_item items[TINY];
        uint32_t order[TINY] = {0, 1, 2, 3, 4, 5};
        const uint32_t count = draw_items(seed, items, TINY);
        const size_t bytes = plan(items, count);
        const size_t best = best_of_orders(items, count, order, 0);
        double ratio;

        CHECK(bytes >= best && best >= lower_bound(items, count));
        if (best == 0)
            continue;
        ratio = (double)bytes / (double)best;
        instances++;
        exact += bytes == best;
        sum += ratio;
        worst = ratio > worst ? ratio : worst;
    }
    (void)printf("# %u instances, %u with the smallest arena, mean %.4f, worst %.4f of it\n",
                 instances, exact, sum / instances, worst);
    CHECK(worst <= 1.3);
    CHECK(sum / instances <= 1.01);
}

TEST(nothing_wanted_takes_nothing)
{
    struct memory_plan_item item = {.bytes = 0, .birth = 3, .death = 3};

    CHECK_EQ(plan(NULL, 0), 0);
    CHECK_EQ(plan(&item, 1), 0);
    item.bytes = 1;
    CHECK_EQ(plan(&item, 1), ALIGN);
    CHECK_EQ(item.offset, 0);
}

TEST_MAIN
