#include "launcherd/node/child_order.h"

#include <string.h>

void child_order_new(struct child_order *order, struct node_child *child, const char *mode)
{
    order->child = node_child_use(child);
    child_order_add(order, "launcherd");
    child_order_add(order, mode);
}

void child_order_add(struct child_order *order, const char *word)
{
    buf_add(&order->words, word, strlen(word) + 1);
    order->word_count++;
}

void child_order_drop(struct child_order *order)
{
    buf_free(&order->words);
    node_child_release(order->child);
    order->child = NULL;
}
