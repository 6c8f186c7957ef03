/* Facts that a node collects about itself for `ddpctl doctor`, declared once for both sides. The
 * node collects them (launcherd/doctor), ddpctl judges them (ddpctl/doctor.h). The JSON,
 * "ddp.facts.v1", is an object with a member for each known fact and an array for each list. */
#ifndef COMMON_NODE_FACTS_H
#define COMMON_NODE_FACTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

#define FACT_UNKNOWN (-1)               /* for numbers; an unknown text is empty */
#define FACT_UNLIMITED 9000000000000000 /* for limits; exactly representable in JSON, as 9e15 */
#define FACTS_SCHEMA "ddp.facts.v1"

/* clang-format off */

/* Rows: N(name), a number, 0 or above; T(name, bytes), a text of fewer bytes. */

/* of the machine */
#define NODE_FACTS(N, T)                                                                           \
    T(kernel, 96)                                                                                  \
    N(up_s)                            /* since it was started */                                  \
    N(is_root)                         /* launcherd runs as root */                                \
    N(slots)                                                                                       \
    N(ntp_synchronised)                /* the kernel's clock is held by some NTP */                \
    T(host_name, 256)                                                                              \
    T(host_address, 64)                /* what its own name resolves to */                         \
    T(host_problem, 160)               /* why it does not */                                       \
    T(address, 64)                     /* where other nodes reach it */                            \
    T(interface, 32)                   /* the one with that address */                             \
    N(mtu)                                                                                         \
    N(is_link_up)                                                                                  \
    N(is_loopback)                                                                                 \
    N(link_mbps)                                                                                   \
    N(port_first)                      /* the range of ports that the kernel gives out */          \
    N(port_last)                                                                                   \
    N(nofile)                          /* limits of jobs */                                        \
    N(nproc)                                                                                       \
    N(memlock)                                                                                     \
    N(stack)                                                                                       \
    N(has_cgroup)                      /* version 2, where jobs can get a group */                 \
    N(has_cgroup_memory)                                                                           \
    T(cgroup_problem, 160)                                                                         \
    N(ptrace_scope)                    /* of Yama */                                               \
    N(overcommit)                      /* vm.overcommit_memory */                                  \
    T(transparent_huge_pages, 16)                                                                  \
    N(huge_pages_bytes)                /* reserved */                                              \
    N(huge_pages_free_bytes)                                                                       \
    N(memory_bytes)                                                                                \
    N(memory_available_bytes)                                                                      \
    N(swap_bytes)                                                                                  \
    N(swap_used_bytes)                                                                             \
    N(shm_bytes)                       /* /dev/shm */                                              \
    N(shm_free_bytes)                                                                              \
    T(governor, 32)                    /* of processor 0 */                                        \
    T(scaling_driver, 32)                                                                          \
    N(gpu_files)                       /* /dev/nvidiaN */                                          \
    N(gpus)                            /* as NVML counts them */                                   \
    T(driver, 80)                      /* the NVIDIA driver */                                     \
    N(driver_cuda)                     /* the newest CUDA that it runs: 1000 major + 10 minor */   \
    T(nvml_problem, 160)                                                                           \
    N(are_xids_readable)                                                                           \
    N(xid)                             /* the last Xid of this boot that takes a GPU out of use */ \
    T(xid_text, 160)                                                                               \
    T(xid_remedy, 160)                                                                             \
    N(has_peermem)                     /* the module nvidia_peermem */                             \
    T(user, 64)                        /* from here on: of the account of the asker or the job */  \
    N(uid)                                                                                         \
    T(user_problem, 256)               /* why nothing runs here as that account */                 \
    T(job_problem, 256)                /* why the job's command does not run here */               \
    T(python, 256)                                                                                 \
    T(python_problem, 256)                                                                         \
    T(python_version, 32)                                                                          \
    T(torch, 64)                       /* versions */                                              \
    T(cuda, 32)                                                                                    \
    T(nccl, 32)                                                                                    \
    T(cudnn, 32)                                                                                   \
    N(torch_sees_gpu)
/* a folder, and the disk that it is on */
#define DISK_FACTS(N, T)                                                                           \
    T(what, 32)                        /* state, logs, tmp, job */                                 \
    T(path, 256)                                                                                   \
    T(type, 32)                                                                                    \
    T(source, 128)                                                                                 \
    T(machine, 64)                     /* the boot id, by which a local disk is known */           \
    N(bytes)                                                                                       \
    N(free_bytes)                                                                                  \
    N(files)                           /* inodes; 0: the file system does not count them */        \
    N(files_free)                                                                                  \
    N(is_writable)                     /* by who writes there */                                   \
    T(problem, 160)
#define GPU_FACTS(N, T)                                                                            \
    N(index)                                                                                       \
    T(name, 96)                                                                                    \
    T(problem, 160)                                                                                \
    N(ecc_uncorrected)                 /* since the driver was loaded */                           \
    N(remap_pending)                                                                               \
    N(remap_failed)                                                                                \
    N(retire_pending)                                                                              \
    N(has_persistence)                                                                             \
    N(throttle)                        /* bits, as NVML's clocks throttle reasons */               \
    N(pcie_width)                                                                                  \
    N(pcie_width_max)                                                                              \
    N(links_up)                        /* NVLinks */                                               \
    N(links_down)
/* a port of an InfiniBand or RoCE device */
#define FABRIC_FACTS(N, T)                                                                         \
    T(device, 32)                                                                                  \
    N(port)                                                                                        \
    T(state, 32)                                                                                   \
    T(rate, 64)                                                                                    \
    T(layer, 32)
/* what another node's name resolves to here; "": nothing */
#define NAME_FACTS(N, T)                                                                           \
    T(name, 64)                                                                                    \
    T(address, 64)
/* a part of the facts that could not be collected */
/* The problem of a part that hangs at a folder begins with this. */
#define GAP_OF_DISK "the disk of "
#define GAP_FACTS(N, T)                                                                            \
    T(part, 32)                                                                                    \
    T(problem, 160)

/* X(list, struct, ROWS, at most) */
#define FACT_LISTS(X)                                                                              \
    X(disks, disk_facts, DISK_FACTS, 8)                                                            \
    X(gpu, gpu_health, GPU_FACTS, 64)                                                              \
    X(fabric, fabric_facts, FABRIC_FACTS, 32)                                                      \
    X(names, name_facts, NAME_FACTS, 64)                                                           \
    X(gaps, gap_facts, GAP_FACTS, 8)

/* clang-format on */

#define FACT_NUMBER(name) int64_t name;
#define FACT_TEXT(name, bytes) char name[bytes];
#define FACT_STRUCT(list, tag, ROWS, most)                                                         \
    struct tag {                                                                                   \
        ROWS(FACT_NUMBER, FACT_TEXT)                                                               \
    };
FACT_LISTS(FACT_STRUCT)

#define FACT_LIST(list, tag, ROWS, most)                                                           \
    struct tag list[most];                                                                         \
    uint32_t list##_count;
struct node_facts {
    NODE_FACTS(FACT_NUMBER, FACT_TEXT)
    FACT_LISTS(FACT_LIST)
};

/* Sets all facts to unknown and all lists to empty. */
void node_facts_init(struct node_facts *facts);
/* Appends a row to a list, with nothing known. NULL: the list is full. */
struct disk_facts *node_facts_add_disks(struct node_facts *facts);
struct gpu_health *node_facts_add_gpu(struct node_facts *facts);
struct fabric_facts *node_facts_add_fabric(struct node_facts *facts);
struct name_facts *node_facts_add_names(struct node_facts *facts);
struct gap_facts *node_facts_add_gaps(struct node_facts *facts);
/* Appends one JSON object. */
void node_facts_write(const struct node_facts *facts, struct buf *out);
/* Adds the facts in the JSON. Members of other names are skipped, texts are made printable and
 * truncated, and rows that do not fit are dropped. Errors, with nothing added: STATUS_BAD_INPUT,
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status node_facts_read(struct node_facts *facts, const char *json, size_t byte_count,
                            struct err *err);

#endif
