/* `launcherd --inspect`: shows what a live rank does, or what the c10d store of its generation holds. Each
 * question gets a process of its own, because reading /proc can hang, and so can py-spy, a user database or a
 * store. The node (node/node_inspect.h) kills the process after a while.
 *
 * It writes to stdout a JSON object, or one line that says why there is none. */
#ifndef LAUNCHERD_INSPECT_INSPECT_H
#define LAUNCHERD_INSPECT_INSPECT_H

#define INSPECT_ARGUMENT "--inspect"
#define INSPECT_BYTES_MAX (1024u * 1024u)
/* The arguments that follow, in this order. */
enum inspect_argument {
    INSPECT_ARG_WHAT, /* log_kind_name: stack, store */
    INSPECT_ARG_RUN_DIR,
    INSPECT_ARG_RANK,
    INSPECT_ARG_PID,        /* of the rank, as its shim reports; 0: the store */
    INSPECT_ARG_NODE,       /* its name */
    INSPECT_ARG_ALLOW_ROOT, /* "1", "0": node_options.allow_root */
    INSPECT_ARG_COUNT,
};

int inspect_main(char *const *arguments);

#endif
