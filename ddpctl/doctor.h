/* `ddpctl doctor`: judges the facts that nodes collected about themselves (common/node_facts.h).
 * Pure: facts to findings. docs/doctor.md has the table of all checks.
 *
 *   doctor_machine.c  one node: its settings, limits, memory, disks
 *   doctor_gpu.c      one node: GPUs, fabric, the versions of its Python
 *   doctor_compare.c  nodes against one another, and the connections between them
 *   doctor_show.c     findings as text and as JSON */
#ifndef DDPCTL_DOCTOR_H
#define DDPCTL_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/limits.h"
#include "common/node_facts.h"

/* clang-format off */

/* X(constant suffix, name, what is checked, remedy) */
#define DOCTOR_CHECK_TABLE(X)                                                                      \
    X(SERVER, "server", "the server answers, and how fast",                                        \
      "start rendezvous there, or name another server with --server")                              \
    X(WELCOME, "welcome", "the server takes this client",                                          \
      "do what the server's answer says")                                                          \
    X(STATE, "state", "the server's state is the newest that nodes have seen",                     \
      "submit again what is missing, cancel what must not run again (docs/operations.md)")         \
    X(SERVER_KEYS, "server-keys", "the server's keys are the newest",                              \
      "look at ddpctl node list and user list, mend them, then ddpctl server --keys-checked")      \
    X(STORE, "store", "there is room under the server's store",                                    \
      "make room on the server's disk, or in etcd (docs/operations.md)")                           \
    X(KEY, "key", "the server accepts the key of this client, which its owner alone may read",     \
      "chmod 600 the file, or have a new key made (ddpctl user add NAME) and ddpctl login")        \
    X(RELEASE, "release", "ddpctl, the server and every launcherd are of one version",             \
      "install the same version everywhere")                                                       \
    X(NODE, "node", "every node is connected and takes jobs",                                      \
      "systemctl start launcherd there; ddpctl node show NODE says why slots are closed")          \
    X(TWIN, "twin", "no second launcherd wants a node's name",                                     \
      "give the second one a name and a key of its own: ddpctl node add NAME, then launcherd --name NAME there; if it replaces the first, stop that one")  \
    X(BUILD, "build", "the server takes the build of every node that calls",                       \
      "install the build of the server there, then systemctl restart launcherd")                   \
    X(ORDERS, "orders", "every node has carried out its last orders",                              \
      "look at the log of its launcherd (journalctl -u launcherd), its disks, and whether large packets reach it (packets)")  \
    X(ANSWER, "answer", "every node answers all questions in time",                                \
      "look at the log of its launcherd: journalctl -u launcherd")                                 \
    X(TURN, "turn", "every node has a place for this check",                                       \
      "run ddpctl doctor again when other checks have ended: within a minute")                     \
    X(BOOT, "boot", "the machine was started ten minutes ago or before", \
      "if nobody ordered it: last -x shows when, journalctl -b -1 -e what came before") \
    X(CLOCK, "clock", "clocks of this client and of the nodes against the server's: warns from 1 s, fails from 60 s", \
      "timedatectl set-ntp true")                                                                  \
    X(NTP, "ntp", "the kernel's clock is held by NTP",                                             \
      "timedatectl set-ntp true")                                                                  \
    X(OWN_NAME, "own-name", "the machine's own name resolves, and not to a loopback address",      \
      "put the line 'ADDRESS NAME' into /etc/hosts, without 127.0.1.1")                            \
    X(PEER_NAMES, "peer-names", "a node's name resolves to the same address on all nodes",         \
      "put the same lines into /etc/hosts of all nodes, or use one name server")                   \
    X(INTERFACE, "interface", "the interface of the node's jobs: up, and no loopback where there are several nodes", \
      "launcherd --interface NAME, or --address ADDRESS; ip link set NAME up")                     \
    X(MTU, "mtu", "the MTU is the same on all nodes",                                              \
      "ip link set dev INTERFACE mtu N, the same on all nodes and on the switch")                  \
    X(PORTS, "ports", "at least 4096 ports for outgoing connections",                              \
      "sysctl -w net.ipv4.ip_local_port_range='32768 60999'")                                      \
    X(CONNECT, "connect", "real connections between the nodes, on three ports that the kernel chose, both ways", \
      "let the nodes' addresses reach one another on all TCP ports: nft list ruleset, ufw status, the rules of the cloud") \
    X(PACKETS, "packets", "64 KiB get through such a connection",                                  \
      "set one MTU on all nodes and on the switch, or let ICMP 'packet too big' through")          \
    X(OPEN_FILES, "open-files", "a process of a job may open 65536 files",                         \
      "LimitNOFILE=1048576 in the unit of launcherd (systemctl edit launcherd), then restart it")  \
    X(PROCESSES, "processes", "a user may have 4096 processes and threads",                        \
      "LimitNPROC=infinity in the unit of launcherd (systemctl edit launcherd), then restart it")  \
    X(MEMLOCK, "memlock", "locked memory is unlimited where there is InfiniBand or RoCE",          \
      "LimitMEMLOCK=infinity in the unit of launcherd (systemctl edit launcherd), then restart it") \
    X(STACK, "stack", "the stack limit is 1 MiB or more",                                          \
      "LimitSTACK=8M in the unit of launcherd (systemctl edit launcherd), then restart it")        \
    X(CGROUP, "cgroup", "jobs get a cgroup (version 2) with the memory controller",                \
      "boot with systemd.unified_cgroup_hierarchy=1, run launcherd as root")                       \
    X(PTRACE, "ptrace", "launcherd may look at the stack of a job's processes",                    \
      "sysctl -w kernel.yama.ptrace_scope=1, and run launcherd as root")                           \
    X(OVERCOMMIT, "overcommit", "the kernel grants address space that is not used",                \
      "sysctl -w vm.overcommit_memory=0")                                                          \
    X(HUGE_PAGES, "huge-pages", "no more than half of the memory is reserved as huge pages that nobody uses", \
      "sysctl -w vm.nr_hugepages=0")                                                               \
    X(SHM, "shm", "/dev/shm has 64 MiB and more for each slot: loaders pass batches through it",   \
      "mount -o remount,size=50% /dev/shm; in a container: --shm-size 16g, or --ipc host")         \
    X(MEMORY, "memory", "a tenth of the memory is available",                                      \
      "end what uses it: ps -eo rss,user,args --sort -rss")                                        \
    X(SWAP, "swap", "less than 1 GiB is swapped out",                                              \
      "end what uses the memory, then swapoff -a && swapon -a")                                    \
    X(GOVERNOR, "governor", "the processors run at full speed",                                    \
      "cpupower frequency-set -g performance")                                                     \
    X(HANGS, "hangs", "the disks of these folders answer",                                         \
      "make the disk of that folder answer (mount, a file server), or stop using it; launcherd needs no restart") \
    X(DISK, "disk", "the disks of launcherd's state, logs, /tmp and the job's folder: room, inodes, writable", \
      "free room there, or name another folder: launcherd --state-dir, --log-dir")                 \
    X(SHARED_FOLDER, "shared-folder", "a job's folder is on one disk that all its nodes share",    \
      "share the disk (NFS), or let ddp-worker copy checkpoints; ddpctl submit --stage sends a folder of programs") \
    X(DRIVER, "driver", "the NVIDIA driver answers where there are its devices",                   \
      "nvidia-smi says more; load or install the driver: modprobe nvidia")                         \
    X(GPU, "gpu", "no uncorrected memory errors, no rows or pages that could not be replaced",     \
      "nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU: nvidia-smi --gpu-reset -i GPU")           \
    X(XID, "xid", "no Xid in this boot that takes a GPU out of use",                               \
      "dmesg -T shows it; docs/gpus.md says what each kind needs")                                  \
    X(PERSISTENCE, "persistence", "persistence mode is on, so that a job does not wait for the driver", \
      "nvidia-smi -pm 1, or systemctl enable --now nvidia-persistenced")                           \
    X(THROTTLE, "throttle", "no GPU is slowed down by heat or power",                              \
      "nvidia-smi -q -d PERFORMANCE,TEMPERATURE; look at fans and power supplies")                 \
    X(PCIE, "pcie", "every GPU has all its PCIe lanes",                                            \
      "reseat the card or its riser; lspci -vv shows LnkSta")                                      \
    X(NVLINK, "nvlink", "all NVLinks of a GPU are up, or none",                                    \
      "nvidia-smi nvlink --status; restart nvidia-fabricmanager, or the machine")                  \
    X(GPU_MODELS, "gpu-models", "the same number and kind of GPUs on all nodes",                   \
      "a job is as fast as its slowest GPU: ddpctl node drain those that differ")                  \
    X(FABRIC, "fabric", "ports of InfiniBand and RoCE devices are active, at the same rate on all nodes", \
      "ibstat; look at the cable and at the subnet manager")                                       \
    X(PEERMEM, "peermem", "the fabric reaches the GPUs' memory by itself (GPUDirect)",             \
      "modprobe nvidia_peermem")                                                                   \
    X(ACCOUNT, "account", "the account runs jobs here, with the same uid on all nodes",            \
      "add the account on every node, with one uid")                                               \
    X(JOB, "job", "the job's folder and program are there",                                        \
      "put them there, share the disk, or submit with --stage DIR")                                \
    X(PYTHON, "python", "Python, and torch where there is one",                                    \
      "python3 -m pip install torch there, or name the Python that has it: ddpctl run ... -- /opt/venv/bin/python train.py") \
    X(CUDA, "cuda", "torch sees the GPUs, and the driver is new enough for its CUDA",              \
      "install a driver for that CUDA, or a torch for this driver: nvidia-smi shows its CUDA")     \
    X(VERSIONS, "versions", "kernel, driver, Python, torch, CUDA, NCCL and cuDNN are the same on all nodes", \
      "install the same versions on all nodes")

/* clang-format on */

enum doctor_check {
#define DOCTOR_CHECK(suffix, name, about, remedy) DOCTOR_##suffix,
    DOCTOR_CHECK_TABLE(DOCTOR_CHECK)
#undef DOCTOR_CHECK
        DOCTOR_CHECK_COUNT
};
enum doctor_level { DOCTOR_OK, DOCTOR_SKIP, DOCTOR_WARN, DOCTOR_FAIL };

const char *doctor_check_name(enum doctor_check check);
const char *doctor_check_about(enum doctor_check check);
const char *doctor_check_remedy(enum doctor_check check);
const char *doctor_level_name(enum doctor_level level);

struct doctor_finding {
    enum doctor_check check;
    enum doctor_level level;
    char node[NODE_NAME_BYTES_MAX]; /* empty: about the client, the server, or several nodes */
    char text[360];
};

/* A growing list. */
struct doctor_findings {
    struct doctor_finding *items; /* owned; doctor_findings_free */
    uint32_t count, capacity;
    bool failed;      /* no memory: some findings are missing */
    const char *node; /* the node of the findings that are being added */
};
void doctor_say(struct doctor_findings *out, enum doctor_check check, enum doctor_level level,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
void doctor_findings_free(struct doctor_findings *out);

/* Properties of a node besides its facts. */
struct doctor_node {
    char name[NODE_NAME_BYTES_MAX];
    struct node_facts facts;
    bool has_facts;
    bool is_silent; /* it has let a question pass: it is asked nothing more */
    bool has_clock;
    int64_t clock_off_ms;      /* relative to the server's clock; above 0: ahead */
    int64_t clock_accuracy_ms; /* the true value is within plus or minus this */
};

/* What is the same for all nodes. */
struct doctor_case {
    bool has_job;   /* only the nodes of one job are checked */
    uint32_t nodes; /* how many nodes are checked */
};

/* Judges one node by itself; `out->node` is its name. */
void doctor_judge_machine(const struct doctor_case *about, const struct doctor_node *node,
                          struct doctor_findings *out);
void doctor_judge_gpus(const struct doctor_case *about, const struct doctor_node *node,
                       struct doctor_findings *out);
void doctor_judge_clock(const char *whose, int64_t off_ms, int64_t accuracy_ms,
                        struct doctor_findings *out);
/* Compares all nodes with one another; nodes without facts are skipped. */
void doctor_compare(const struct doctor_case *about, const struct doctor_node *nodes,
                    uint32_t count, struct doctor_findings *out);

/* One attempt to connect, with the node's result: ok, refused, timeout, no-route, silent, large,
 * broken. */
struct doctor_try {
    char peer[NODE_NAME_BYTES_MAX];
    uint32_t port;
    char result[16], error[80];
    int64_t us;
};
/* Decodes the answer to the question `connect`. STATUS_BAD_INPUT, STATUS_MEMORY. */
enum status doctor_read_tries(const char *json, size_t byte_count, struct doctor_try *tries,
                              uint32_t most, uint32_t *count, struct err *err);
/* Judges the attempts of the node `from` to connect to its peers. */
void doctor_judge_tries(const char *from, const struct doctor_try *tries, uint32_t count,
                        struct doctor_findings *out);

/* The pairs to try: all pairs of up to 16 nodes, otherwise a ring and random pairs. Returns peer k
 * of node i; UINT32_MAX: there is none. No node has a peer twice. */
#define DOCTOR_ALL_PAIRS 16u
#define DOCTOR_PEERS_OF_ONE 15u
uint32_t doctor_peer(uint32_t nodes, uint32_t i, uint32_t k, uint64_t seed);

/* Writes text for people, or one JSON object. */
struct output_style;
void doctor_show(const struct doctor_findings *findings, uint32_t nodes,
                 const struct output_style *style, struct buf *out);
void doctor_show_json(const struct doctor_findings *findings, struct buf *out);

#endif
