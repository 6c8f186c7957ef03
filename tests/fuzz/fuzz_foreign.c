/* What launcherd removes from its state directory, when others have put links, files, folders, pipes,
 * other owners and odd modes into it: nothing but what it made may go, and that must. The rules are
 * those of docs/security.md, written down a second time here.
 *
 * Everything is in a folder of its own; links lead to a tree beside the state directory. As root, the
 * target runs in a mount namespace in which the folders of the system are read-only; without one it
 * varies no owners. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/process/log_folders.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/stage_files.h"
#include "tests/fuzz/msg_random.h"
#include "tests/fuzz/target.h"

#define ENTRIES_MAX 160u
#define OPS_MAX 40u
#define NOBODY 65534
#define HEX "0123456789abcdef0123456789abcdef"
#define HASH HEX HEX

enum area { RUN, WARM, STAGE, LOGS, AREAS };
static const char *const areas[] = {"run", "warm", "stage", "logs"};

/* Names directly in an area; names below those; deeper names. */
static const char *const tops[AREAS][8] = {
    {"c-7-g1", (HEX "-9-g2"), "c-7", "home", "c-7-g1x", "c-0-g1", "start.msg", "-1-g1"},
    {"c-7", (HEX "-9"), "c-7-g1", "home", "c-", "c-7 ", "shim.json", "c-07"},
    {HASH ".tar", HASH ".part", HASH, HASH ".tar.gz", "notes.tar", "x" HASH ".tar",
     HEX "fedcba9876543210fedcba9876543210.tar", "home"},
    {HEX "-7", HEX "-8", HEX "-7.removed", HEX "-9.removed", "home", HEX, HEX "-0", HEX "-7x"},
};
static const char *const inside[] = {"start.msg",  "shim.json", "end.msg.new", "shim.sock",
                                     "store.sock", "stage.tar", "passwd"};
static const char *const inside_logs[] = {"g1-rank0.log", "g1-rank0.index", "shim-g1.log",
                                          "warm.log",     "g1-errors",      "stage",
                                          "notes.txt",    "g1-rank.log"};
static const char *const deep[] = {"files", "rank0.json", "a", "stage", "start.msg"};

static char top[64];
static bool varies_owners, is_ready;

/* -- the place --------------------------------------------------------------------------------- */

static void at(char path[PATH_MAX], const char *name)
{
    (void)snprintf(path, PATH_MAX, "%s/%.4000s", top, name);
}

static void put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return; /* the name is taken */
    FUZZ_CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
}

/* By plain calls, and not by what is tested. */
static void drop_tree(const char *path)
{
    const struct dirent *entry;
    struct stat info;
    char below[PATH_MAX];
    DIR *dir;

    if (lstat(path, &info) != 0)
        return;
    if (!S_ISDIR(info.st_mode)) {
        (void)unlink(path);
        return;
    }
    (void)chmod(path, 0700);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)snprintf(below, sizeof below, "%.3800s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            drop_tree(below);
    }
    if (dir != NULL)
        (void)closedir(dir);
    (void)rmdir(path);
}

static void drop(const char *name)
{
    char path[PATH_MAX];

    at(path, name);
    drop_tree(path);
}

static void drop_top(void)
{
    drop_tree(top);
}

/* The tree of others: with our names, so that a followed link would do harm. */
static void make_outside(void)
{
    static const char *const folders[] = {"outside", "outside/c-7-g1", "outside/" HEX "-7",
                                          "outside/" HEX "-7/stage", "outside/c-7"};
    static const char *const files[] = {"outside/passwd",
                                        "outside/start.msg",
                                        "outside/c-7-g1/start.msg",
                                        "outside/c-7/shim.json",
                                        "outside/" HASH ".tar",
                                        "outside/" HEX "-7/g1-rank0.log",
                                        "outside/" HEX "-7/stage/files",
                                        "outside/shim.json"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        at(path, folders[i]);
        FUZZ_CHECK(mkdir(path, 0700) == 0);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        at(path, files[i]);
        put(path, "theirs");
    }
}

static bool guard_system(void)
{
    static const char *const folders[] = {"/etc", "/usr", "/root", "/home", "/var"};

    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (access(folders[i], F_OK) == 0 &&
            (mount(folders[i], folders[i], NULL, MS_BIND, NULL) != 0 ||
             mount(NULL, folders[i], NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0))
            return false;
    return true;
}

static void no_line(const char *bytes, size_t byte_count)
{
    (void)bytes;
    (void)byte_count;
}

static void make_top(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* many writes */

    if (is_ready)
        return;
    is_ready = true;
    varies_owners = guard_system();
    if (!varies_owners)
        (void)printf("no mount namespace, or not root: owners are not varied\n");
    (void)snprintf(top, sizeof top, "%s/ddp-foreign-XXXXXX", base);
    FUZZ_CHECK(mkdtemp(top) != NULL);
    FUZZ_CHECK(atexit(drop_top) == 0);
    (void)umask(0);
    log_use(no_line);
    make_outside();
}

/* -- the state directory, from the input ------------------------------------------------------- */

struct folder {
    char path[PATH_MAX];
    enum area area;
    uint32_t depth;
};

static struct folder folders[OPS_MAX + AREAS];
static uint32_t folder_count;

static void change(const char *path, uint8_t how)
{
    static const mode_t modes[] = {0700, 0711, 0755, 0770, 0777, 01777, 0500, 0000};
    struct stat info;

    if ((how & 0xc0) == 0xc0 && varies_owners)
        FUZZ_CHECK(lchown(path, NOBODY, NOBODY) == 0);
    if ((how & 0x30) == 0x30 && lstat(path, &info) == 0 && !S_ISLNK(info.st_mode))
        FUZZ_CHECK(chmod(path, modes[how & 7]) == 0);
}

static void make_areas(uint8_t how)
{
    char path[PATH_MAX], outside[PATH_MAX];

    at(path, "state");
    FUZZ_CHECK(mkdir(path, 0700) == 0);
    at(outside, "outside");
    folder_count = 0;
    for (enum area area = RUN; area < AREAS; area++) {
        const bool is_link = (how >> 4) == 2 + (uint8_t)area && (area != LOGS || varies_owners);
        struct folder *folder = &folders[folder_count];

        *folder = (struct folder){.area = area};
        (void)snprintf(folder->path, PATH_MAX, "%.4000s/%s", path, areas[area]);
        if (is_link) {
            FUZZ_CHECK(symlink(outside, folder->path) == 0);
            /* our own link to the logs counts as an administrator's */
            FUZZ_CHECK(area != LOGS || lchown(folder->path, NOBODY, NOBODY) == 0);
            continue;
        }
        FUZZ_CHECK(mkdir(folder->path, 0700) == 0);
        folder_count++;
        if ((how >> 4) == 8 + (uint8_t)area)
            change(folder->path, (uint8_t)(how << 4 | 0x34));
    }
}

static const char *choose_name(const struct folder *parent, uint8_t number)
{
    if (parent->depth == 0)
        return tops[parent->area][number % 8];
    if (parent->depth == 1 && parent->area == LOGS)
        return inside_logs[number % (sizeof inside_logs / sizeof *inside_logs)];
    if (parent->depth == 1)
        return inside[number % (sizeof inside / sizeof *inside)];
    return deep[number % (sizeof deep / sizeof *deep)];
}

static void make_link(const char *path, uint8_t which)
{
    static const char *const targets[] = {"outside", "outside/c-7-g1", "outside/passwd",
                                          ("outside/" HEX "-7"), "nowhere"};
    char target[PATH_MAX];

    at(target, targets[which % 5]);
    (void)symlink(target, path);
}

/* One entry, from four bytes. */
static void make_entry(const uint8_t *bytes)
{
    const struct folder *parent = &folders[bytes[0] % (folder_count > 0 ? folder_count : 1)];
    char path[PATH_MAX], target[PATH_MAX];

    if (folder_count == 0)
        return;
    (void)snprintf(path, sizeof path, "%.3900s/%s", parent->path, choose_name(parent, bytes[1]));
    switch (bytes[2] % 8) {
    case 0:
    case 1:
    case 2:
        if (mkdir(path, 0700) == 0 && parent->depth < 4) {
            struct folder *made = &folders[folder_count++];

            *made = (struct folder){.area = parent->area, .depth = parent->depth + 1};
            (void)snprintf(made->path, PATH_MAX, "%s", path);
        }
        break;
    case 3:
    case 4:
    case 5:
        put(path, "ours");
        break;
    case 6:
        make_link(path, bytes[3]);
        break;
    default:
        at(target, "outside/passwd");
        if ((bytes[3] & 1) != 0)
            (void)mkfifo(path, 0600);
        else
            (void)link(target, path);
    }
    if (access(path, F_OK) == 0 || (bytes[2] % 8) == 6)
        if (strncmp(path, folders[0].path, strlen(top)) == 0 && (bytes[2] % 8) != 7)
            change(path, bytes[3]);
}

/* -- a picture of everything ------------------------------------------------------------------- */

struct node {
    char path[PATH_MAX];
    struct stat info;
    char text[64]; /* of a file, or where a link leads */
    int parent;    /* -1: the top */
    bool may_go, must_go;
};

static struct node nodes[ENTRIES_MAX];
static int node_count;

static void read_text(struct node *node)
{
    ssize_t got = 0;
    int fd;

    if (S_ISLNK(node->info.st_mode)) {
        got = readlink(node->path, node->text, sizeof node->text - 1);
    } else if (S_ISREG(node->info.st_mode)) {
        fd = open(node->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        got = fd >= 0 ? read(fd, node->text, sizeof node->text - 1) : 0;
        if (fd >= 0)
            (void)close(fd);
    }
    node->text[got > 0 ? got : 0] = '\0';
}

static void add_nodes(const char *path, int parent)
{
    struct node *node = &nodes[node_count];
    const int self = node_count;
    const struct dirent *entry;
    char below[PATH_MAX];
    DIR *dir;

    FUZZ_CHECK(node_count < (int)ENTRIES_MAX);
    *node = (struct node){.parent = parent};
    (void)snprintf(node->path, PATH_MAX, "%s", path);
    FUZZ_CHECK(lstat(path, &node->info) == 0);
    read_text(node);
    node_count++;
    dir = S_ISDIR(node->info.st_mode) ? opendir(path) : NULL;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (void)snprintf(below, sizeof below, "%.3800s/%s", path, entry->d_name);
        add_nodes(below, self);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

/* -- the rules --------------------------------------------------------------------------------- */

static const char *name_of(int i)
{
    return strrchr(nodes[i].path, '/') + 1;
}

static bool is_folder_of_ours(int i)
{
    const struct stat *info = &nodes[i].info;

    return S_ISDIR(info->st_mode) && info->st_uid == geteuid() && (info->st_mode & 0002) == 0 &&
           ((info->st_mode & 0020) == 0 || info->st_gid == getegid());
}

/* Whether we can do with the folder what we want. */
static bool is_open(int i)
{
    return geteuid() == 0 || (nodes[i].info.st_mode & 0700) == 0700;
}

static bool is_any(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void judge_run(int i, const char *const *good)
{
    bool is_whole = true, is_possible = is_open(i);

    if (!is_any(name_of(i), good, 2) || !is_folder_of_ours(i))
        return;
    for (int k = 0; k < node_count; k++) {
        if (nodes[k].parent != i)
            continue;
        nodes[k].may_go = !S_ISDIR(nodes[k].info.st_mode) && is_any(name_of(k), inside, 6);
        nodes[k].must_go = nodes[k].may_go && is_possible;
        is_whole = is_whole && nodes[k].may_go;
    }
    nodes[i].may_go = is_whole;
    nodes[i].must_go = is_whole && is_possible && is_open(nodes[i].parent);
}

/* Whether all below `i` is of the folder's user or ours. */
static bool is_of_job(int i, uid_t uid, bool *is_possible)
{
    for (int k = 0; k < node_count; k++)
        if (nodes[k].parent == i &&
            ((nodes[k].info.st_uid != uid && nodes[k].info.st_uid != geteuid()) ||
             !is_of_job(k, uid, is_possible)))
            return false;
    *is_possible = *is_possible && (!S_ISDIR(nodes[i].info.st_mode) || is_open(i));
    return true;
}

static void let_go(int i, bool must)
{
    nodes[i].may_go = true;
    nodes[i].must_go = must;
    for (int k = 0; k < node_count; k++)
        if (nodes[k].parent == i)
            let_go(k, must);
}

static bool has_entry(int parent, const char *name)
{
    for (int k = 0; k < node_count; k++)
        if (nodes[k].parent == parent && strcmp(name_of(k), name) == 0)
            return true;
    return false;
}

static void judge_log(int i)
{
    static const char *const good[] = {HEX "-7", HEX "-8", HEX "-7.removed", HEX "-9.removed"};
    bool is_possible = is_open(i) && is_open(nodes[i].parent);

    if (!is_any(name_of(i), good, 4) || !is_folder_of_ours(i))
        return;
    for (int k = 0; k < node_count; k++) {
        const struct stat *info = &nodes[k].info;

        if (nodes[k].parent != i)
            continue;
        if (!(S_ISREG(info->st_mode) && info->st_uid == geteuid() &&
              is_any(name_of(k), inside_logs, 4)) &&
            !(S_ISDIR(info->st_mode) && is_any(name_of(k), inside_logs + 4, 2) &&
              is_of_job(k, info->st_uid, &is_possible)))
            return;
    }
    if (strcmp(name_of(i), good[0]) == 0 && has_entry(nodes[i].parent, good[2]))
        is_possible = false; /* its new name is taken */
    let_go(i, is_possible);
}

static void judge(int i, const char *area)
{
    static const char *const runs[] = {"c-7-g1", HEX "-9-g2"}, *const warms[] = {"c-7", HEX "-9"};
    static const char *const tars[] = {HASH ".tar", HEX "fedcba9876543210fedcba9876543210.tar"};
    const struct stat *info = &nodes[i].info;

    if (strcmp(area, "run") == 0)
        judge_run(i, runs);
    else if (strcmp(area, "warm") == 0)
        judge_run(i, warms);
    else if (strcmp(area, "logs") == 0)
        judge_log(i);
    else if (is_any(name_of(i), tars, 2) && S_ISREG(info->st_mode) && info->st_uid == geteuid())
        nodes[i].may_go = nodes[i].must_go = true;
}

static void judge_all(void)
{
    char state[PATH_MAX];

    at(state, "state");
    for (int i = 0; i < node_count; i++) {
        const int area = nodes[i].parent;
        const int parent = area < 0 ? -1 : nodes[area].parent;

        if (parent < 0 || strcmp(nodes[parent].path, state) != 0)
            continue;
        if (strcmp(name_of(area), "logs") == 0 ? S_ISDIR(nodes[area].info.st_mode)
                                               : is_folder_of_ours(area))
            judge(i, name_of(area));
    }
}

static bool is_there(const struct node *node)
{
    struct stat info;

    return lstat(node->path, &info) == 0;
}

static void check_unchanged(const struct node *node)
{
    struct node now = *node;

    if (lstat(node->path, &now.info) == 0)
        read_text(&now);
    else
        now.info = (struct stat){.st_mode = 0};
    if (now.info.st_mode == node->info.st_mode && now.info.st_uid == node->info.st_uid &&
        now.info.st_gid == node->info.st_gid && now.info.st_ino == node->info.st_ino &&
        (S_ISDIR(now.info.st_mode) || now.info.st_size == node->info.st_size) &&
        strcmp(now.text, node->text) == 0)
        return;
    (void)fprintf(stderr, "%s was changed: mode %o, then %o\n", node->path, node->info.st_mode,
                  now.info.st_mode);
    FUZZ_CHECK(false);
}

static void check_all(void)
{
    for (int i = 0; i < node_count; i++) {
        if (!nodes[i].may_go)
            check_unchanged(&nodes[i]);
        if (nodes[i].must_go && is_there(&nodes[i]))
            (void)fprintf(stderr, "%s is still there\n", nodes[i].path);
        FUZZ_CHECK(!nodes[i].must_go || !is_there(&nodes[i]));
    }
}

/* -- what launcherd does ----------------------------------------------------------------------- */

static bool is_used(void *owner, const struct log_folder_name *name)
{
    (void)owner;
    (void)name;
    return false;
}

static bool is_stopping(void *owner)
{
    (void)owner;
    return false;
}

static void remove_each(const char *area)
{
    const struct dirent *entry;
    char parent[PATH_MAX], path[PATH_MAX];
    DIR *dir;

    at(parent, area);
    dir = opendir(parent);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        rundir_join(path, parent, entry->d_name);
        rundir_remove(path);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static void sweep(void)
{
    static struct log_folders logs;
    char dir[PATH_MAX];

    at(dir, "state/logs");
    logs = (struct log_folders){
        .logs = {.dir = dir, .owner = ""}, .is_used = is_used, .is_stopping = is_stopping};
    remove_each("state/run");
    remove_each("state/warm");
    (void)log_folders_expire(&logs);
    at(dir, "state/stage");
    stage_files_trim(dir, 0);
}

void fuzz_corpus(fuzz_add *add)
{
    struct random random = {.state = 25};

    for (uint32_t i = 0; i < 1000; i++) {
        char bytes[4 * OPS_MAX + 1];
        const size_t count = 1 + 4 * (1 + random_below(&random, OPS_MAX));

        for (size_t k = 0; k < count; k++)
            bytes[k] = (char)random_below(&random, 256);
        if (i % 2 == 0)
            bytes[0] = 0; /* all areas are as launcherd made them */
        add(bytes, count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    int fd;

    if (byte_count == 0)
        return 0;
    make_top();
    make_areas(data[0]);
    for (uint32_t i = 0; i < OPS_MAX && 1 + 4 * (i + 1) <= byte_count; i++)
        make_entry(data + 1 + (size_t)4 * i);
    node_count = 0;
    add_nodes(top, -1);
    judge_all();
    fd = dup(STDERR_FILENO);
    (void)close(fd);
    sweep();
    FUZZ_CHECK(dup(STDERR_FILENO) == fd); /* no descriptor is left open */
    (void)close(fd);
    check_all();
    drop("state");
    return 0;
}
