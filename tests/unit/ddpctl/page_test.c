/* When a list goes on after a page, and the order of names. */
#include "ddpctl/page.h"

#include "common/name_order.h"
#include "tests/lib/test.h"

TEST(a_list_goes_on_only_after_the_page_before)
{
    CHECK(page_goes_on(true, 0, 1));
    CHECK(page_goes_on(true, 500, 501));
    CHECK(!page_goes_on(true, 500, 500));
    CHECK(!page_goes_on(true, 500, 1));
    CHECK(!page_goes_on(false, 0, 1));
}

TEST(names_go_on_in_the_order_of_the_server)
{
    CHECK(page_goes_on_by_name(true, "", "a"));
    CHECK(page_goes_on_by_name(true, "node767", "node1023"));
    CHECK(!page_goes_on_by_name(true, "node1023", "node767"));
    CHECK(!page_goes_on_by_name(true, "a", "a"));
    CHECK(!page_goes_on_by_name(false, "a", "b"));
    CHECK(name_order("node01", "node1") != 0);
}

TEST_MAIN
