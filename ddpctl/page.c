#include "ddpctl/page.h"

#include "common/name_order.h"

bool page_goes_on(bool more, uint64_t before, uint64_t last)
{
    return more && last > before;
}

bool page_goes_on_by_name(bool more, const char *before, const char *last)
{
    return more && name_order(last, before) > 0;
}
