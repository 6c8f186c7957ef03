/* What a live rank does, and what the c10d store of its generation holds: `launcherd --inspect`, a process
 * of its own for each question. Reading /proc can hang, and so can py-spy, a database of users, or a
 * store; the node (node/node_inspect.h) ends the process after a while.
 *
 * On its stdout: a JSON object, or a line that says why there is none. */
#ifndef LAUNCHERD_INSPECT_INSPECT_H
#define LAUNCHERD_INSPECT_INSPECT_H

#define INSPECT_ARGUMENT "--inspect"
#define INSPECT_BYTES_MAX (1024u * 1024u)
/* The arguments after it, in this order. */
enum inspect_argument {
    INSPECT_ARG_WHAT, /* log_kind_name: stack, store */
    INSPECT_ARG_RUN_DIR,
    INSPECT_ARG_RANK,
    INSPECT_ARG_PID,        /* of the rank, as its shim says; 0: of a store */
    INSPECT_ARG_NODE,       /* its name */
    INSPECT_ARG_ALLOW_ROOT, /* "1", "0": node_options.allow_root */
    INSPECT_ARG_COUNT,
};

int inspect_main(char *const *arguments);

#endif
