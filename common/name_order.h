/* The order in which nodes are listed, by the server and by who puts its pages together. */
#ifndef COMMON_NAME_ORDER_H
#define COMMON_NAME_ORDER_H

/* Compares names with digits as numbers: node2 comes before node10. 0 only for equal names. */
int name_order(const char *first, const char *second);

#endif
