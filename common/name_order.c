#include "common/name_order.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static int compare_numbers(const char **a, const char **b)
{
    size_t a_digits, b_digits;
    int order;

    while (**a == '0' && isdigit((unsigned char)(*a)[1]))
        (*a)++;
    while (**b == '0' && isdigit((unsigned char)(*b)[1]))
        (*b)++;
    a_digits = strspn(*a, "0123456789");
    b_digits = strspn(*b, "0123456789");
    if (a_digits != b_digits)
        return a_digits < b_digits ? -1 : 1;
    order = strncmp(*a, *b, a_digits);
    *a += a_digits;
    *b += b_digits;
    return order;
}

int name_order(const char *first, const char *second)
{
    const char *a = first, *b = second;

    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            int order = compare_numbers(&a, &b);

            if (order != 0)
                return order;
            continue;
        }
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    if (*a != '\0' || *b != '\0')
        return *a != '\0' ? 1 : -1;
    return strcmp(first, second); /* for names such as node1 and node01 */
}
