/* The parts of a node's facts. Each runs in a process of its own, which may block. */
#ifndef LAUNCHERD_DOCTOR_DOCTOR_PARTS_H
#define LAUNCHERD_DOCTOR_DOCTOR_PARTS_H

#include "common/msg.h"
#include "common/node_facts.h"
#include "launcherd/process/account.h"

struct doctor {
    const char *name, *address, *state_dir, *logs_dir;
    uint32_t slots, gpus;
    struct account_policy policy;
    const struct msg_node_ask *ask;
};

void doctor_machine(const struct doctor *doctor, struct node_facts *facts);
void doctor_network(const struct doctor *doctor, struct node_facts *facts);
void doctor_names(const struct doctor *doctor, struct node_facts *facts);
void doctor_disks(const struct doctor *doctor, struct node_facts *facts);
void doctor_gpus(const struct doctor *doctor, struct node_facts *facts);
/* As the account of the question: may it run here, its folders, the job's program. */
void doctor_account(const struct doctor *doctor, struct node_facts *facts);
void doctor_python(const struct doctor *doctor, struct node_facts *facts);

/* The devices below `root` ("/sys/class/infiniband"). */
void doctor_fabric(const char *root, struct node_facts *facts);
/* One record of /dev/kmsg: is it an Xid that takes a GPU out of use? */
void doctor_kernel_record(const char *record, struct node_facts *facts);
/* The lines NAME=VALUE that the Python of the job printed. */
void doctor_python_lines(const char *lines, struct node_facts *facts);
/* The disk of a folder, and whether this process may write there. */
void doctor_disk(const char *what, const char *path, struct node_facts *facts);

/* NULL: it cannot be read; else the first line, without its end. Static memory. */
const char *doctor_read_line(const char *path);

/* In this process, as nobody where it is root. They return the exit code, after their answer is written to
 * stdout. */
int doctor_listen(const struct doctor *doctor);
int doctor_connect(const struct doctor *doctor);

#endif
