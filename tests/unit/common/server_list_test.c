#include "common/io/server_list.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static struct server_list list;
static struct err err;

static void parse(const char *text)
{
    err = (struct err){.status = STATUS_OK};
    CHECK_EQ(server_list_parse(&list, text, &err), STATUS_OK);
}

/* The next address after a failed attempt. */
static const char *next(void)
{
    server_list_failed(&list);
    return server_list_address(&list);
}

TEST(one_address_is_a_list)
{
    parse("unix:/run/ddp/rendezvous.sock");
    CHECK_EQ(list.count, 1);
    CHECK_STR(server_list_address(&list), "unix:/run/ddp/rendezvous.sock");
    CHECK_STR(next(), "unix:/run/ddp/rendezvous.sock");
}

TEST(addresses_of_all_kinds)
{
    parse("head1:7400,[2001:db8::1]:7400,unix:/run/ddp/r.sock,127.0.0.1:7401");
    CHECK_EQ(list.count, 4);
    CHECK_STR(server_list_address(&list), "head1:7400");
    CHECK_STR(next(), "[2001:db8::1]:7400");
    CHECK_STR(next(), "unix:/run/ddp/r.sock");
    CHECK(!server_list_all_failed(&list));
    CHECK_STR(next(), "127.0.0.1:7401");
    CHECK_STR(next(), "head1:7400");
    CHECK(server_list_all_failed(&list));
    server_list_reached(&list);
    CHECK(!server_list_all_failed(&list));
}

TEST(a_comma_in_a_path)
{
    parse("unix:/tmp/a,b/r.sock");
    CHECK_EQ(list.count, 1);
    parse("unix:/tmp/a,b/r.sock,unix:/tmp/c,head:7400");
    CHECK_EQ(list.count, 3);
    CHECK_STR(server_list_address(&list), "unix:/tmp/a,b/r.sock");
    CHECK_STR(next(), "unix:/tmp/c");
    CHECK_STR(next(), "head:7400");
}

TEST(what_is_no_list)
{
    static const char *const bad[] = {
        "",      "head",        "head:7400,",       ",head:7400", "a:1,,b:2",
        "a:1,b", "a:1,b:70000", "2001:db8::1:7400", "a:1, b:2x",  "head:7400,unix"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (server_list_parse(&list, bad[i], &err) != STATUS_BAD_INPUT)
            FAIL("\"%s\" was taken", bad[i]);
}

TEST(too_many_and_too_long)
{
    static char text[SERVER_LIST_BYTES_MAX + 8];

    CHECK_EQ(server_list_parse(&list, "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9", &err), STATUS_OK);
    CHECK_EQ(server_list_parse(&list, "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,b:1", &err),
             STATUS_TOO_BIG);
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "unix:/", 6);
    CHECK_EQ(server_list_parse(&list, text, &err), STATUS_TOO_BIG);
    text[SERVER_LIST_BYTES_MAX - 1] = '\0';
    CHECK_EQ(server_list_parse(&list, text, &err), STATUS_OK);
}

TEST(a_referral_goes_to_that_address)
{
    parse("a:1,b:1,c:1");
    CHECK(server_list_referred(&list, "c:1"));
    CHECK_STR(server_list_address(&list), "c:1");
    CHECK(!server_list_is_foreign(&list));
    CHECK_STR(next(), "a:1"); /* and continues from there */
}

TEST(a_referral_to_an_address_that_nobody_gave)
{
    parse("a:1,b:1");
    CHECK(server_list_referred(&list, "head.example.org:7400"));
    CHECK_STR(server_list_address(&list), "head.example.org:7400");
    CHECK(server_list_is_foreign(&list));
    CHECK_STR(next(), "b:1");
    CHECK(!server_list_is_foreign(&list));
}

/* Two servers that name each other, or a server that names one that has ended, must not make a
 * client spin. */
TEST(few_referrals_are_followed_at_once)
{
    parse("a:1,b:1");
    CHECK(server_list_referred(&list, "b:1"));
    CHECK(server_list_referred(&list, "a:1"));
    CHECK(!server_list_referred(&list, "b:1"));
    CHECK_STR(server_list_address(&list), "b:1");
    server_list_reached(&list);
    CHECK(server_list_referred(&list, "a:1"));
}

TEST(a_referral_to_nobody_goes_to_the_next)
{
    static const char *const nobody[] = {"", "no address", "a:1"};

    for (size_t i = 0; i < sizeof nobody / sizeof nobody[0]; i++) {
        parse("a:1,b:1");
        CHECK(!server_list_referred(&list, nobody[i]));
        CHECK_STR(server_list_address(&list), "b:1");
    }
}

/* One of them may be a server of another cluster. */
TEST(all_have_refused_when_each_has)
{
    parse("a:1,b:1");
    CHECK(!server_list_all_refused(&list));
    CHECK_STR(next(), "b:1"); /* the first is silent */
    CHECK(server_list_refused(&list));
    CHECK_STR(next(), "a:1");
    CHECK_STR(next(), "b:1");
    CHECK(!server_list_refused(&list)); /* again */
    CHECK(server_list_all_failed(&list) && !server_list_all_refused(&list));
    CHECK_STR(next(), "a:1");
    CHECK(server_list_refused(&list));
    CHECK(server_list_all_refused(&list));
    server_list_reached(&list);
    CHECK(!server_list_all_refused(&list));
}

TEST(a_refusal_counts_for_the_address_that_referred)
{
    parse("a:1");
    CHECK(server_list_referred(&list, "head:7400"));
    CHECK(server_list_refused(&list));
    CHECK(server_list_all_refused(&list));
}

TEST(an_address_in_a_list)
{
    CHECK(server_list_has("a:1,b:1", "b:1"));
    CHECK(!server_list_has("a:1,b:1", "b:11"));
    CHECK(!server_list_has("a:1,b:1", "a:1,b:1"));
    CHECK(!server_list_has("", "a:1"));
}

TEST_MAIN
