/* Which start orders warm processes can carry out, and how the order reaches them. */
#include "launcherd/shim/warm_order.h"

#include <string.h>

#include "tests/lib/test.h"

static const char *const words[] = {"ddp-worker", "-b", "4"}, *const others[] = {"ddp-worker", "-b",
                                                                                 "5"};
static const struct msg_pair pairs[] = {{"A", "1"}}, other_pairs[] = {{"A", "2"}};

static const struct msg_warm warm = {.cluster = "c",
                                     .job_id = 7,
                                     .user = "ann",
                                     .slot_mask = 6,
                                     .cwd = "/",
                                     .argv = {words, 3},
                                     .env = {pairs, 1},
                                     .launch = {NULL, 0}};

/* As the server orders the next generation. */
static struct msg_start later(void)
{
    struct msg_start start = warm_start(&warm);

    start.generation = 4;
    start.rank_base = 2;
    start.world = 8;
    start.node_rank = 1;
    start.node_count = 4;
    start.checkpoint_step = 100;
    start.restart_count = 3;
    start.name = "net";
    return start;
}

TEST(the_first_environment_is_of_the_same_slots)
{
    const struct msg_start start = warm_start(&warm);

    CHECK_EQ(start.local_count, 2);
    CHECK_EQ(start.slot_mask, 6);
    CHECK_EQ(start.job_id, 7);
    CHECK_EQ(start.argv.count, 3);
}

TEST(any_place_fits)
{
    const struct msg_start start = later();

    CHECK(warm_fits(&warm, &start));
}

#define CHECK_OTHER(field, ...)                                                                    \
    do {                                                                                           \
        struct msg_start start = later();                                                          \
        start.field = __VA_ARGS__;                                                                 \
        CHECK(!warm_fits(&warm, &start));                                                          \
    } while (0)

TEST(another_job_user_command_environment_or_slot_does_not)
{
    CHECK_OTHER(job_id, 8);
    CHECK_OTHER(cluster, "d");
    CHECK_OTHER(user, "bob");
    CHECK_OTHER(slot_mask, 3);
    CHECK_OTHER(cwd, "/tmp");
    CHECK_OTHER(argv, (struct msg_text_list){others, 3});
    CHECK_OTHER(argv, (struct msg_text_list){words, 2});
    CHECK_OTHER(env, (struct msg_pair_list){other_pairs, 1});
    CHECK_OTHER(env, (struct msg_pair_list){pairs, 0});
    CHECK_OTHER(launch, (struct msg_pair_list){pairs, 1});
}

TEST(an_order_is_read_as_it_was_built)
{
    const char *const texts[] = {"run", "", "log"};
    char *read[3];
    struct buf buf = {0};
    uint32_t byte_count;

    CHECK(warm_order_build(&buf, texts, 3));
    memcpy(&byte_count, buf.bytes, sizeof byte_count);
    CHECK_EQ(byte_count + sizeof byte_count, buf.byte_count);
    CHECK(warm_order_read(buf.bytes + sizeof byte_count, byte_count, read, 3));
    for (uint32_t i = 0; i < 3; i++)
        CHECK_STR(read[i], texts[i]);
    CHECK(!warm_order_read(buf.bytes + sizeof byte_count, byte_count, read, 2));
    CHECK(!warm_order_read(buf.bytes + sizeof byte_count, byte_count - 1, read, 3));
    CHECK(!warm_order_read(buf.bytes + sizeof byte_count, 0, read, 3));
    buf_free(&buf);
}

TEST_MAIN
