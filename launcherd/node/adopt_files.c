#include "launcherd/node/adopt_files.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"
#include "launcherd/node/shim_files.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/part_record.h"
#include "launcherd/process/proc.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"

#define LATE_MS 60000u /* all of it, with the time until processes have died */

enum { KILL_TURNS_MAX = 500, KILL_PAUSE_NS = 10000000 };

static void drop(struct file_work *work)
{
    struct adopt_files *files = (struct adopt_files *)work;

    adopt_found_free(files->first);
    free(files);
}

struct adopt_files *adopt_files_new(const char *state_dir, const struct launcher_options *options,
                                    void *owner)
{
    struct adopt_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_START;
    files->work.limit_ms = LATE_MS;
    files->work.run = adopt_files_read;
    files->work.drop = drop;
    files->owner = owner;
    (void)snprintf(files->state_dir, sizeof files->state_dir, "%s", state_dir);
    (void)snprintf(files->boot_id, sizeof files->boot_id, "%s", options->boot_id);
    (void)snprintf(files->machine_id, sizeof files->machine_id, "%s", options->machine_id);
    (void)snprintf(files->state_id, sizeof files->state_id, "%s", options->state_id);
    proc_pid_ns(files->pid_ns);
    return files;
}

void adopt_found_free(struct adopt_found *first)
{
    while (first != NULL) {
        struct adopt_found *next = first->next;

        arena_reset(&first->arena);
        lease_page_unmap(first->page);
        free(first);
        first = next;
    }
}

/* Kills what is found of a shim, or with WARM_ARGUMENT of a process that keeps others warm.
 * `process`: what it wrote about itself; NULL: unknown. False: nothing was found. The shim is a
 * subreaper, so all that its workers started is below it; it is killed last. */
static bool kill_found(const char *word, const char *dir, const struct rundir_shim *process)
{
    pid_t pid = proc_find_command(word, dir);
    bool found = pid != 0;

    if (pid == 0 && process != NULL && proc_start_ticks(process->pid) == process->start_ticks)
        pid = process->pid; /* its path may be of before the state directory was renamed */
    if (pid != 0 && proc_kill_descendants(pid, NULL, NULL) == 0)
        (void)kill(pid, SIGKILL);
    if (process != NULL && shim_files_kill(process) > 0)
        found = true;
    return found || pid != 0;
}

/* What the shim wrote about itself, here or in the record. False: that is not known, or is of another boot. */
static bool find_process(const struct adopt_files *files, const char *dir,
                         struct rundir_shim *process)
{
    struct err err;

    return (rundir_read_shim(dir, process, &err) == STATUS_OK ||
            part_record_read_shim(dir, process, &err) == STATUS_OK) &&
           strcmp(process->boot_id, files->boot_id) == 0;
}

/* Kills all processes of a shim whose state is unknown, and waits until they are gone. False: some
 * are still there after KILL_TURNS_MAX. */
static bool kill_all(const struct adopt_files *files, const char *word, const char *dir)
{
    const struct timespec pause = {.tv_nsec = KILL_PAUSE_NS};
    struct rundir_shim process;
    const bool is_known = find_process(files, dir, &process);

    for (uint32_t i = 0; i < KILL_TURNS_MAX; i++) {
        if (!kill_found(word, dir, is_known ? &process : NULL))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "processes of %s do not die of SIGKILL", dir);
    return false;
}

static void add(struct adopt_files *files, struct adopt_found *found)
{
    struct adopt_found **at = &files->first;

    while (*at != NULL)
        at = &(*at)->next;
    *at = found;
}

/* Lists a part of which only the directory's name is known. NULL: `status` says why. */
static struct adopt_found *add_named(struct adopt_files *files, const char *dir)
{
    struct adopt_found *found = calloc(1, sizeof *found);
    struct msg_start *start = found != NULL ? &found->start.start : NULL;
    char *cluster = found != NULL ? arena_alloc(&found->arena, 33) : NULL;

    if (cluster == NULL ||
        !rundir_parse_name(strrchr(dir, '/') + 1, cluster, &start->job_id, &start->generation)) {
        files->status = err_set(&files->err, STATUS_IO, 0, "%.180s cannot be adopted", dir);
        adopt_found_free(found);
        return NULL;
    }
    found->start.type = MSG_TYPE_START;
    start->cluster = cluster;
    (void)snprintf(found->dir, sizeof found->dir, "%s", dir);
    add(files, found);
    return found;
}

/* Nothing proves that the part of this directory has ended: it is listed as one that may run. */
static void add_unseen(struct adopt_files *files, const char *dir)
{
    struct adopt_found *found = add_named(files, dir);

    if (found != NULL)
        found->is_unseen = true;
}

/* Without the start order a shim's slots are not known, so it must not go on. Its directory is removed
 * only if there is no order in it that could be read: an error of the disk is no proof of that. */
static void remove_unknown(struct adopt_files *files, const char *dir, const struct err *why)
{
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "%s has no start order that can be read (%s): what runs of it is killed", dir,
             why->text);
    if (!kill_all(files, SHIM_ARGUMENT, dir) || why->status == STATUS_IO ||
        why->status == STATUS_REFUSED)
        add_unseen(files, dir);
    else
        rundir_remove(dir);
}

/* How long ago something was last made in the run directory, by the wall clock; 0: not known. */
static uint64_t age_us(const char *dir)
{
    struct timespec now;
    struct stat stat;

    if (lstat(dir, &stat) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        now.tv_sec <= stat.st_mtim.tv_sec)
        return 0;
    return (uint64_t)(now.tv_sec - stat.st_mtim.tv_sec) * 1000000u;
}

/* -- pid namespaces -- */

#define NS_FILE PART_RECORD_DIR "/init"

static void name_ns(char out[128], const char *boot_id, const char *pid_ns)
{
    (void)snprintf(out, 128, "%.63s %.31s\n", boot_id, pid_ns);
}

/* The first process of a container takes all others of its pid namespace with it. If the launcherd before was one, and
 * we are one, its namespace is gone: the runtime starts a container again when it is. */
static void read_ended_ns(struct adopt_files *files)
{
    struct arena arena = {.byte_limit = 4096};
    char path[PATH_MAX], *bytes = NULL;
    size_t byte_count = 0;
    struct err err;

    rundir_join(path, files->state_dir, PART_RECORD_DIR);
    if (getpid() != 1)
        return;
    if (rundir_read_state(path, "init", &arena, &bytes, &byte_count, &err) == STATUS_OK &&
        byte_count < sizeof files->ended_ns)
        (void)snprintf(files->ended_ns, sizeof files->ended_ns, "%.*s", (int)byte_count, bytes);
    arena_reset(&arena);
}

/* For the next launcherd, once all has been read. */
static void note_own_ns(const struct adopt_files *files)
{
    char path[PATH_MAX], text[128];
    struct err err;

    rundir_join(path, files->state_dir, NS_FILE);
    (void)own_file_remove(path, 1, &err);
    if (getpid() != 1 || files->pid_ns[0] == '\0')
        return;
    rundir_join(path, files->state_dir, PART_RECORD_DIR);
    name_ns(text, files->boot_id, files->pid_ns);
    if (rundir_write_state(path, "init", text, strlen(text), &err) != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s", err.text);
}

/* Its pid is of another pid namespace than ours: that it is not seen here proves nothing. */
static bool is_elsewhere(const struct adopt_files *files, const struct adopt_found *found)
{
    const char *pid_ns = found->process.pid_ns;

    return found->same_boot && pid_ns[0] != '\0' && files->pid_ns[0] != '\0' &&
           strcmp(pid_ns, files->pid_ns) != 0;
}

/* Of one of the two boots no id is known: it may be this one, and may be another one. */
static bool may_be_another(const struct adopt_files *files, const struct adopt_found *found)
{
    return (strcmp(files->boot_id, BOOT_ID_UNKNOWN) == 0) !=
           (strcmp(found->process.boot_id, BOOT_ID_UNKNOWN) == 0);
}

static bool is_same_boot(const struct adopt_files *files, const struct adopt_found *found)
{
    const struct rundir_shim *process = &found->process;

    return strcmp(process->boot_id, files->boot_id) == 0 ||
           (may_be_another(files, found) && proc_start_ticks(process->pid) == process->start_ticks);
}

/* Another boot ends what ran on this machine, and says nothing of another one, which may run on with a copy of this disk
 * or without it. Only two ids that are known and equal prove that it is this machine. */
static bool is_other_machine(const struct adopt_files *files, const struct adopt_found *found)
{
    return found->has_process && !found->same_boot &&
           (files->machine_id[0] == '\0' || may_be_another(files, found) ||
            strcmp(found->process.machine_id, files->machine_id) != 0);
}

/* We can neither speak to it nor end it: an operator has given the directory to another account. */
static bool is_of_another_user(const struct adopt_found *found)
{
    uid_t user;

    return found->lives && geteuid() != 0 && proc_user(found->process.pid, &user) &&
           user != geteuid();
}

/* Its ranks died of our signal, which the shim must not have reported as their own end. */
static void drop_end(struct adopt_found *found)
{
    char path[PATH_MAX];
    struct err err;

    found->lives = false;
    rundir_join(path, found->dir, "end.msg");
    if (!found->has_end)
        (void)own_file_remove(path, 2, &err);
}

static void end_here(struct adopt_files *files, struct adopt_found *found, const char *why)
{
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "the shim of %s %s: it is killed", found->dir, why);
    (void)kill_all(files, SHIM_ARGUMENT, found->dir);
    drop_end(found);
}

/* What the shim's process is and has recorded. */
static void look_at_process(struct adopt_files *files, struct adopt_found *found)
{
    struct err err;

    found->has_process = rundir_read_shim(found->dir, &found->process, &err) == STATUS_OK;
    found->same_boot = found->has_process && is_same_boot(files, found);
    found->has_end =
        rundir_read_msg(found->dir, "end.msg", &found->arena, &found->end, &err) == STATUS_OK;
    found->age_us = age_us(found->dir);
    if (is_elsewhere(files, found)) {
        char text[128];

        name_ns(text, files->boot_id, found->process.pid_ns);
        found->same_boot = false; /* no process of ours has that pid */
        found->has_ns_ended = strcmp(text, files->ended_ns) == 0;
        found->is_unseen = !found->has_end && !found->has_ns_ended;
        return;
    }
    if (is_other_machine(files, found)) {
        found->is_unseen = !found->has_end;
        return;
    }
    found->lives =
        found->same_boot && proc_start_ticks(found->process.pid) == found->process.start_ticks;
    if (is_of_another_user(found)) {
        log_line(
            LOG_WARNING, LOG_ABOUT_NONE,
            "the shim of %s, pid %d, runs as another user than this launcherd, which so cannot "
            "see or end it: its lease ends it",
            found->dir, (int)found->process.pid);
        found->lives = false;
        found->is_unseen = !found->has_end;
        return;
    }
    /* Not by its path: the state directory may have been renamed since. */
    found->page = found->lives ? lease_page_find(found->process.pid, NULL) : NULL;
    found->is_warm = found->lives && proc_has_word(found->process.pid, WARM_ARGUMENT);
    if (found->is_restored)
        end_here(files, found, "has lost its run directory, and cannot be reached");
    else if (!found->lives && proc_find_command(SHIM_ARGUMENT, found->dir) != 0)
        end_here(files, found, "lives, but its shim.json does not describe it");
}

/* Whether the order is of this directory. */
static bool is_its_order(const struct adopt_files *files, const struct adopt_found *found)
{
    const struct msg_start *start = &found->start.start;
    char path[PATH_MAX];

    rundir_path(path, files->state_dir, start->cluster, start->job_id, start->generation);
    return strcmp(path, found->dir) == 0;
}

/* A later launcherd must know of it, also if its directory is removed: shims of release 0.1.0 are not in the record. */
static void keep_record(const struct adopt_found *found)
{
    struct err err;
    bool is_kept = part_record_keep(found->dir, "start.msg", &err) == STATUS_OK;

    if (is_kept && found->has_process)
        is_kept = part_record_keep(found->dir, "shim.json", &err) == STATUS_OK;
    if (!is_kept)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s", err.text);
}

static void adopt_dir(struct adopt_files *files, const char *dir)
{
    struct adopt_found *found = calloc(1, sizeof *found);
    struct err err = {.status = STATUS_BAD_INPUT, .text = "another message"};

    if (found == NULL) {
        files->status =
            err_set(&files->err, STATUS_MEMORY, ENOMEM, "no memory to adopt the shim of %s", dir);
        return;
    }
    (void)snprintf(found->dir, sizeof found->dir, "%s", dir);
    if (rundir_read_msg(dir, "start.msg", &found->arena, &found->start, &err) != STATUS_OK ||
        found->start.type != MSG_TYPE_START) {
        remove_unknown(files, dir, &err);
        adopt_found_free(found);
        return;
    }
    if (!is_its_order(files, found)) {
        (void)err_set(&err, STATUS_CONFLICT, 0, "it is the order of another job");
        remove_unknown(files, dir, &err);
        adopt_found_free(found);
        return;
    }
    found->is_restored = files->is_restoring;
    look_at_process(files, found);
    if (!found->is_restored)
        keep_record(found);
    add(files, found);
}

/* Ends what is left of warm processes. They normally end with the launcherd that started them, but not
 * if the process that keeps them (`launcherd --warm`) was killed or stopped, too. */
static void end_warm(struct adopt_files *files, const char *dir)
{
    struct rundir_shim process;
    struct err err;

    if (!kill_all(files, WARM_ARGUMENT, dir))
        return;
    if (rundir_read_shim(dir, &process, &err) == STATUS_OK && process.cgroup[0] != '\0')
        cgroup_remove(process.cgroup);
    rundir_remove(dir);
}

/* Whether the directory can be that of a process of ours. If it has our name and is not ours, what
 * runs of it must not go on, since nobody can know what it was told to do; the directory is left alone. */
static bool is_ours(struct adopt_files *files, const char *word, const char *dir, bool has_name)
{
    struct err err = {.text = "its name is none of ours"};

    if (has_name && rundir_check(dir, &err) == STATUS_OK)
        return true;
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s is left alone: %s", dir, err.text);
    if (has_name && !kill_all(files, word, dir) && strcmp(word, SHIM_ARGUMENT) == 0)
        add_unseen(files, dir);
    return false;
}

static void fail(struct adopt_files *files, const char *dir)
{
    files->status =
        err_set(&files->err, STATUS_IO, errno, "cannot read %.180s: %s", dir, strerror(errno));
}

static void for_each_dir(struct adopt_files *files, const char *name, const char *word,
                         bool (*has_name)(const char *name),
                         void (*with)(struct adopt_files *files, const char *dir))
{
    char parent[PATH_MAX], path[PATH_MAX];
    struct dirent *entry;
    struct err err;
    enum status status;
    DIR *dir;
    int fd;

    rundir_join(parent, files->state_dir, name);
    status = own_folder_open(parent, 1, &fd, &err);
    if (status != STATUS_OK) {
        if (status != STATUS_NOT_FOUND)
            log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s is left alone: %s", parent, err.text);
        if (strcmp(word, SHIM_ARGUMENT) == 0)
            files->status = err_set(&files->err, STATUS_IO, 0, "%s", err.text);
        return;
    }
    dir = own_folder_list(fd);
    while (dir != NULL && (errno = 0, entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        rundir_join(path, parent, entry->d_name);
        if (is_ours(files, word, path, has_name(entry->d_name)))
            with(files, path);
    }
    if (dir == NULL || errno != 0)
        fail(files, parent);
    if (dir != NULL)
        closedir(dir);
    close(fd);
}

/* A part of the record. Its directory was adopted, or left alone, if it is there. */
static void look_for_dir(void *owner, const char *dir, const char *name)
{
    struct adopt_files *files = owner;
    struct stat stat;
    struct err err;
    (void)name;

    if (lstat(dir, &stat) == 0)
        return;
    if (errno != ENOENT) {
        fail(files, dir);
        return;
    }
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "%s was removed while its part was not over: it is made anew from the record", dir);
    if (part_record_restore(dir, &err) == STATUS_OK) {
        adopt_dir(files, dir);
        return;
    }
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
    if (!kill_all(files, SHIM_ARGUMENT, dir))
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "its part may run until its lease is over");
    add_unseen(files, dir);
}

/* -- shims that no file names -- */

/* It is stopped first, so that it starts nothing more; what it has started is below it, since it is a subreaper. False: something
 * is still there after KILL_TURNS_MAX. */
static bool kill_shim(const struct proc_found *shim)
{
    const struct timespec pause = {.tv_nsec = KILL_PAUSE_NS};

    proc_signal_exactly(shim, SIGSTOP);
    for (uint32_t i = 0; i < KILL_TURNS_MAX; i++) {
        if (proc_start_ticks(shim->pid) != shim->start_ticks)
            return true;
        if (proc_kill_descendants(shim->pid, NULL, NULL) == 0 &&
            (proc_is_stopped(shim->pid) || i >= KILL_TURNS_MAX / 2))
            proc_signal_exactly(shim, SIGKILL);
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

/* `state_id`: with which it was started. One of an earlier release says its log folder there: it is known by its path. */
static bool is_of_state(const struct adopt_files *files, pid_t pid, const char *run_dir,
                        const char *state_id)
{
    char path[PATH_MAX], *slash;
    struct stat wanted;

    if (state_id[0] != '/')
        return state_id[0] != '\0' && strcmp(state_id, files->state_id) == 0;
    (void)snprintf(path, sizeof path, "%s", run_dir);
    for (int i = 0; i < 2; i++) {
        slash = strrchr(path, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    return stat(files->state_dir, &wanted) == 0 && proc_is_folder_of(pid, path, &wanted);
}

static struct adopt_found *find_named(const struct adopt_files *files, const char *dir)
{
    struct adopt_found *found = files->first;

    while (found != NULL && strcmp(found->dir, dir) != 0)
        found = found->next;
    return found;
}

static void end_unknown(void *owner, const struct proc_found *shim, const char *run_dir,
                        const char *state_id)
{
    struct adopt_files *files = owner;
    const char *slash = strrchr(run_dir, '/');
    char run[PATH_MAX], dir[PATH_MAX];
    struct adopt_found *found;

    if (slash == NULL || slash[1] == '\0' || strlen(slash + 1) > NAME_MAX ||
        !is_of_state(files, shim->pid, run_dir, state_id))
        return;
    rundir_join(run, files->state_dir, "run");
    rundir_join(dir, run, slash + 1);
    found = find_named(files, dir);
    if (found != NULL && (found->is_unseen || (found->lives && found->process.pid == shim->pid)))
        return;
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "pid %d is the shim of %s, and nothing in the state directory says so, as if an older "
             "copy had been put in its place: it is killed",
             (int)shim->pid, dir);
    if (!kill_shim(shim)) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "processes of %s do not die of SIGKILL", dir);
        if (found == NULL)
            add_unseen(files, dir);
        else
            found->is_unseen = true;
        return;
    }
    if (found == NULL && (found = add_named(files, dir)) != NULL) {
        found->process.pid = shim->pid;
        found->has_process = found->same_boot = found->is_restored = true;
    } else if (found != NULL && !found->lives) {
        drop_end(found);
    }
}

/* Only once all files were read: else one that is known may look unknown. It looks at every process of the machine. */
static void end_all_unknown(struct adopt_files *files)
{
    if (files->is_new)
        return;
    file_work_at(&files->work, FILE_DISK_PROC, "read");
    if (files->status == STATUS_OK && !proc_each_command(SHIM_ARGUMENT, end_unknown, files))
        files->status = err_set(&files->err, STATUS_IO, errno,
                                "cannot read /proc, where shims may be that no file names: %s",
                                strerror(errno));
    file_work_at(&files->work, FILE_DISK_STATE, "read");
}

void adopt_files_read(struct file_work *work)
{
    struct adopt_files *files = (struct adopt_files *)work;
    enum status status;
    struct err err;

    file_work_at(work, FILE_DISK_STATE, "read");
    read_ended_ns(files);
    for_each_dir(files, "run", SHIM_ARGUMENT, rundir_is_name, adopt_dir);
    files->is_restoring = true;
    status = part_record_list(files->state_dir, look_for_dir, files, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND && files->status == STATUS_OK) {
        files->status = status;
        files->err = err;
    }
    end_all_unknown(files);
    for_each_dir(files, "warm", WARM_ARGUMENT, rundir_is_warm_name, end_warm);
    note_own_ns(files);
}
