/* Compares the nodes with one another, and judges the connections between them. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/json_strict.h"
#include "common/utf8.h"
#include "ddpctl/doctor.h"

#define VALUE_BYTES 160

/* Writes what this node has; false: it has nothing to compare. */
typedef bool value_of(const struct node_facts *facts, char value[VALUE_BYTES]);

static bool take(char value[VALUE_BYTES], const char *text)
{
    (void)snprintf(value, VALUE_BYTES, "%.150s", text);
    return text[0] != '\0';
}

/* Reports the nodes whose value differs from the first node's: "MTU: 1500 here, 9000 on gpu01". */
static void compare(enum doctor_check check, enum doctor_level level, const char *what,
                    value_of *get, const struct doctor_node *nodes, uint32_t count,
                    struct doctor_findings *out)
{
    const struct doctor_node *first = NULL;
    char wanted[VALUE_BYTES], value[VALUE_BYTES];
    uint32_t compared = 0, differing = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!nodes[i].has_facts || !get(&nodes[i].facts, value))
            continue;
        compared++;
        if (first == NULL) {
            first = &nodes[i];
            (void)snprintf(wanted, sizeof wanted, "%s", value);
        } else if (strcmp(value, wanted) != 0) {
            differing++;
            out->node = nodes[i].name;
            doctor_say(out, check, level, "%s: %s here, %s on %s", what, value, wanted,
                       first->name);
        }
    }
    out->node = NULL;
    if (compared > 1 && differing == 0)
        doctor_say(out, check, DOCTOR_OK, "%s: %s on all %u nodes", what, wanted, compared);
}

static bool mtu(const struct node_facts *facts, char value[VALUE_BYTES])
{
    (void)snprintf(value, VALUE_BYTES, "%lld", (long long)facts->mtu);
    return facts->mtu > 0 && facts->is_loopback != 1;
}

static bool kernel(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->kernel);
}

static bool driver(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->driver);
}

static bool python(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->python_version);
}

static bool torch(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->torch);
}

static bool cuda(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->cuda);
}

static bool nccl(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->nccl);
}

static bool cudnn(const struct node_facts *facts, char value[VALUE_BYTES])
{
    return take(value, facts->cudnn);
}

static bool uid(const struct node_facts *facts, char value[VALUE_BYTES])
{
    (void)snprintf(value, VALUE_BYTES, "%lld", (long long)facts->uid);
    return facts->uid >= 0;
}

static bool gpus(const struct node_facts *facts, char value[VALUE_BYTES])
{
    (void)snprintf(value, VALUE_BYTES, "%u x %.100s", facts->gpu_count,
                   facts->gpu_count > 0 ? facts->gpu[0].name : "GPU");
    return facts->gpu_count > 0;
}

/* The rates of the node's fabric ports, in order. */
static bool fabric(const struct node_facts *facts, char value[VALUE_BYTES])
{
    value[0] = '\0';
    for (uint32_t i = 0; i < facts->fabric_count; i++) {
        size_t used = strlen(value);

        (void)snprintf(value + used, VALUE_BYTES - used, "%s%s", i > 0 ? ", " : "",
                       facts->fabric[i].rate);
    }
    return facts->fabric_count > 0;
}

static const struct disk_facts *disk_of_job(const struct node_facts *facts)
{
    for (uint32_t i = 0; i < facts->disks_count; i++)
        if (strcmp(facts->disks[i].what, "job") == 0 && facts->disks[i].problem[0] == '\0')
            return &facts->disks[i];
    return NULL;
}

/* Identifies a network disk by its type and source; a local disk also by its machine. */
static bool job_disk(const struct node_facts *facts, char value[VALUE_BYTES])
{
    static const char *const shared[] = {"nfs",    "nfs4",     "lustre",         "gpfs",
                                         "beegfs", "ceph",     "cifs",           "smb3",
                                         "9p",     "virtiofs", "fuse.glusterfs", "wekafs"};
    const struct disk_facts *disk = disk_of_job(facts);
    bool is_shared = false;

    if (disk == NULL)
        return false;
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        is_shared = is_shared || strcmp(disk->type, shared[i]) == 0;
    (void)snprintf(value, VALUE_BYTES, "%.30s %.100s%s%.8s", disk->type, disk->source,
                   is_shared ? "" : " of machine ", is_shared ? "" : disk->machine);
    return true;
}

/* -- names -- */

static const struct name_facts *name_on(const struct doctor_node *node, const char *name)
{
    for (uint32_t i = 0; node->has_facts && i < node->facts.names_count; i++)
        if (strcmp(node->facts.names[i].name, name) == 0 && node->facts.names[i].address[0] != '\0')
            return &node->facts.names[i];
    return NULL;
}

/* Compares the addresses that the nodes find for a name. A name that no node resolves is not a host
 * name, and nothing uses it as one. */
static bool compare_name(const char *name, const struct doctor_node *nodes, uint32_t count,
                         struct doctor_findings *out)
{
    const struct name_facts *first = NULL;
    const char *first_node = "";
    bool is_alike = true;

    for (uint32_t i = 0; i < count; i++) {
        const struct name_facts *found = name_on(&nodes[i], name);

        if (found != NULL && first == NULL) {
            first = found;
            first_node = nodes[i].name;
        }
        if (found == NULL || strcmp(found->address, first->address) == 0)
            continue;
        is_alike = false;
        out->node = nodes[i].name;
        doctor_say(out, DOCTOR_PEER_NAMES, DOCTOR_WARN, "%s is %s here, %s on %s", name,
                   found->address, first->address, first_node);
    }
    out->node = NULL;
    return is_alike;
}

static void compare_names(const struct doctor_node *nodes, uint32_t count,
                          struct doctor_findings *out)
{
    bool is_alike = true;

    for (uint32_t i = 0; i < count; i++)
        is_alike = compare_name(nodes[i].name, nodes, count, out) && is_alike;
    if (is_alike)
        doctor_say(out, DOCTOR_PEER_NAMES, DOCTOR_OK, "no node's name has two addresses");
}

void doctor_compare(const struct doctor_case *about, const struct doctor_node *nodes,
                    uint32_t count, struct doctor_findings *out)
{
    if (count < 2)
        return;
    compare_names(nodes, count, out);
    compare(DOCTOR_MTU, DOCTOR_WARN, "MTU", mtu, nodes, count, out);
    compare(DOCTOR_GPU_MODELS, DOCTOR_WARN, "GPUs", gpus, nodes, count, out);
    compare(DOCTOR_FABRIC, DOCTOR_WARN, "rates", fabric, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "kernel", kernel, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "driver", driver, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "Python", python, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "torch", torch, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "CUDA of torch", cuda, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "NCCL", nccl, nodes, count, out);
    compare(DOCTOR_VERSIONS, DOCTOR_WARN, "cuDNN", cudnn, nodes, count, out);
    compare(DOCTOR_ACCOUNT, DOCTOR_WARN, "uid", uid, nodes, count, out);
    if (about->has_job)
        compare(DOCTOR_SHARED_FOLDER, DOCTOR_WARN, "the job's folder", job_disk, nodes, count, out);
}

/* -- connections -- */

enum status doctor_read_tries(const char *json, size_t byte_count, struct doctor_try *tries,
                              uint32_t most, uint32_t *count, struct err *err)
{
    cJSON *root;
    const cJSON *item;
    enum status status = json_strict_parse(json, byte_count, NULL, &root, err);

    *count = 0;
    if (status != STATUS_OK)
        return status;
    cJSON_ArrayForEach(item, json_member(root, "tries"))
    {
        const cJSON *peer = json_member(item, "peer"), *result = json_member(item, "result"),
                    *error = json_member(item, "error"), *port = json_member(item, "port"),
                    *us = json_member(item, "us");
        struct doctor_try *try = &tries[*count];

        if (*count == most || !cJSON_IsString(peer) || !cJSON_IsString(result))
            break;
        *try = (struct doctor_try){
            .port = cJSON_IsNumber(port) && port->valuedouble > 0 && port->valuedouble < 65536
                        ? (uint32_t)port->valuedouble
                        : 0,
            .us = cJSON_IsNumber(us) && us->valuedouble > 0 && us->valuedouble < 1e12
                      ? (int64_t)us->valuedouble
                      : 0};
        utf8_printable(peer->valuestring, strlen(peer->valuestring), try->peer, sizeof try->peer);
        utf8_printable(result->valuestring, strlen(result->valuestring), try->result,
                       sizeof try->result);
        if (cJSON_IsString(error))
            utf8_printable(error->valuestring, strlen(error->valuestring), try->error,
                           sizeof try->error);
        ++*count;
    }
    cJSON_Delete(root);
    return STATUS_OK;
}

static const char *explain(const char *result)
{
    static const struct {
        const char *result, *text;
    } texts[] = {
        {"refused", "refused, as by a firewall that rejects"},
        {"timeout", "no answer within 5 s, as from a firewall that drops"},
        {"no-route", "no route"},
        {"silent", "connected, but nothing comes back"},
        {"broken", "cut off in the middle"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(texts[i].result, result) == 0)
            return texts[i].text;
    return result;
}

/* The attempts from `from` to one peer, which are tries[0..count). */
static void judge_pair(const char *from, const struct doctor_try *tries, uint32_t count,
                       struct doctor_findings *out)
{
    uint32_t failed = 0, stuck = 0;
    const struct doctor_try *bad = NULL;
    int64_t best_us = INT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        const bool is_large = strcmp(tries[i].result, "large") == 0;
        const bool is_ok = strcmp(tries[i].result, "ok") == 0;

        stuck += is_large;
        failed += !is_ok && !is_large;
        if (!is_ok && !is_large)
            bad = &tries[i];
        if (is_ok && tries[i].us < best_us)
            best_us = tries[i].us;
    }
    out->node = from;
    if (bad != NULL)
        doctor_say(out, DOCTOR_CONNECT, DOCTOR_FAIL, "to %s: %u of %u ports: %s%s%s%s (port %u)",
                   bad->peer, failed, count, explain(bad->result),
                   bad->error[0] != '\0' ? " (" : "", bad->error, bad->error[0] != '\0' ? ")" : "",
                   bad->port);
    else
        doctor_say(out, DOCTOR_CONNECT, DOCTOR_OK, "to %s: %u ports, %.2f ms", tries[0].peer, count,
                   best_us == INT64_MAX ? 0 : (double)best_us / 1e3);
    if (stuck > 0)
        doctor_say(out, DOCTOR_PACKETS, DOCTOR_FAIL,
                   "to %s: connects, but 64 KiB do not get through: an MTU on the way is smaller "
                   "than this node takes it for",
                   tries[0].peer);
    else if (bad == NULL)
        doctor_say(out, DOCTOR_PACKETS, DOCTOR_OK, "to %s: 64 KiB and back", tries[0].peer);
    out->node = NULL;
}

void doctor_judge_tries(const char *from, const struct doctor_try *tries, uint32_t count,
                        struct doctor_findings *out)
{
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && strcmp(tries[next].peer, tries[i].peer) == 0; next++)
            continue;
        judge_pair(from, tries + i, next - i, out);
    }
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

static uint32_t choose_peer(uint32_t nodes, uint32_t i, uint32_t k, uint64_t seed)
{
    if (nodes <= DOCTOR_ALL_PAIRS || k == 0)
        return (i + k + 1) % nodes;
    if (k == 1)
        return (i + nodes - 1) % nodes;
    return (uint32_t)((i + 1 + mix(seed ^ ((uint64_t)i << 32 | k)) % (nodes - 1)) % nodes);
}

uint32_t doctor_peer(uint32_t nodes, uint32_t i, uint32_t k, uint64_t seed)
{
    uint32_t peer;

    if (nodes < 2 || k + 1 >= nodes || k >= DOCTOR_PEERS_OF_ONE)
        return UINT32_MAX;
    peer = choose_peer(nodes, i, k, seed);
    for (uint32_t j = 0; j < k; j++)
        if (choose_peer(nodes, i, j, seed) == peer)
            return UINT32_MAX;
    return peer;
}
