/* `node list` and `user list` with a server that gives its keys in pages. request_run is replaced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/request.h"
#include "ddpctl/verbs.h"
#include "tests/lib/test.h"

#define NAMES 1100u
#define NAME_CHARS 5u

static uint32_t asked, page_max; /* of this test's server */
static bool is_broken;           /* it says that there is more, and gives nothing new */
static char shown[NAMES * (NAME_CHARS + 1) + 1];

/* "u0000", "u0001", ... */
static const char *name_of(uint32_t number)
{
    static char names[NAMES][NAME_CHARS + 1];

    (void)snprintf(names[number], NAME_CHARS + 1, "u%04u", number % 10000);
    return names[number];
}

int __wrap_request_run(struct ctl *ctl, const struct request *request);
int __wrap_request_run(struct ctl *ctl, const struct request *request)
{
    const struct msg_principal_list *list = &request->msg->principal_list;
    struct part_principal items[NAMES];
    struct msg msg = {.type = MSG_TYPE_PRINCIPALS, .principals.principals.items = items};
    uint32_t first = 0, count = 0;

    CHECK_EQ(request->msg->type, MSG_TYPE_PRINCIPAL_LIST);
    CHECK(++asked <= NAMES && list->limit > 0);
    while (!is_broken && first < NAMES && strcmp(name_of(first), list->after) <= 0)
        first++;
    for (; count < list->limit && count < page_max && first + count < NAMES; count++)
        items[count] = (struct part_principal){.name = name_of(first + count), .role = ROLE_USER};
    msg.principals.principals.count = count;
    msg.principals.more = is_broken || first + count < NAMES;
    return request->on_answer(ctl, &msg, request->context);
}

enum status __wrap_screen_out(struct screen *screen, struct buf *out);
enum status __wrap_screen_out(struct screen *screen, struct buf *out)
{
    (void)screen;
    CHECK(out->byte_count < sizeof shown);
    (void)snprintf(shown, sizeof shown, "%.*s", (int)out->byte_count, (const char *)out->bytes);
    return STATUS_OK;
}

static void list(void)
{
    char *const words[] = {"list", NULL};
    struct ctl ctl = {.words = words, .word_count = 1, .screen.quiet = true};

    ctl.options.overlap_us = OPTION_NO_DURATION;
    asked = 0;
    CHECK_EQ(verb_user(&ctl), CTL_OK);
}

/* Each name once, in order. */
static void check_all(void)
{
    for (uint32_t i = 0; i < NAMES; i++)
        CHECK(strncmp(shown + (size_t)i * (NAME_CHARS + 1), name_of(i), NAME_CHARS) == 0);
    CHECK_EQ(strlen(shown), NAMES * (NAME_CHARS + 1));
}

TEST(all_pages_of_keys_are_shown)
{
    page_max = UINT32_MAX; /* as many as are asked for */
    list();
    check_all();
    page_max = 7;
    list();
    check_all();
}

/* It must not ask for ever. */
TEST(a_server_that_gives_the_same_page_again_ends_the_list)
{
    is_broken = true;
    page_max = 7;
    list();
    CHECK_EQ(asked, 2);
    is_broken = false;
}

TEST_MAIN
