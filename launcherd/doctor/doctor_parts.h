/* Collects the parts of a node's facts. Each part runs in a process of its own and may block. */
#ifndef LAUNCHERD_DOCTOR_DOCTOR_PARTS_H
#define LAUNCHERD_DOCTOR_DOCTOR_PARTS_H

#include <stdatomic.h>

#include "common/msg.h"
#include "common/node_facts.h"
#include "launcherd/process/account.h"

/* What a part is about to do that may not come back, in memory that the process which collects can read. */
struct doctor_doing {
    atomic_int step;  /* enum preflight_step; -1: none */
    char folder[256]; /* whose disk it asks; empty: none */
};

struct doctor {
    const char *name, *address, *state_dir, *logs_dir;
    uint32_t slots, gpus;
    struct account_policy policy;
    const struct msg_node_ask *ask;
    struct doctor_doing *doing; /* NULL: nobody asks */
};

void doctor_machine(const struct doctor *doctor, struct node_facts *facts);
void doctor_network(const struct doctor *doctor, struct node_facts *facts);
void doctor_names(const struct doctor *doctor, struct node_facts *facts);
void doctor_disks(const struct doctor *doctor, struct node_facts *facts);
void doctor_gpus(const struct doctor *doctor, struct node_facts *facts);
/* Runs as the account of the question: whether it may run jobs here, its folders, the job's
 * program. */
void doctor_account(const struct doctor *doctor, struct node_facts *facts);
void doctor_python(const struct doctor *doctor, struct node_facts *facts);

/* The devices below `root` ("/sys/class/infiniband"). */
void doctor_fabric(const char *root, struct node_facts *facts);
/* Checks one record of /dev/kmsg for an Xid that takes a GPU out of use. */
void doctor_kernel_record(const char *record, struct node_facts *facts);
/* Takes the lines NAME=VALUE that the job's Python printed. */
void doctor_python_lines(const char *lines, struct node_facts *facts);
/* Describes the disk of a folder, and whether this process may write there. */
void doctor_disk(const struct doctor *doctor, const char *what, const char *path,
                 struct node_facts *facts);

/* The first line without its end, in static memory. NULL: the file cannot be read. */
const char *doctor_read_line(const char *path);

/* These run in this process; if that is root, as nobody. They write their answer to stdout and
 * return the exit code. */
int doctor_listen(const struct doctor *doctor);
int doctor_connect(const struct doctor *doctor);

#endif
