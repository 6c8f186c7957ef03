#include "launcherd/shim/shim_self.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/process/machine_id.h"
#include "launcherd/process/proc.h"

/* Takes over the token of the warm workers, and the cgroup that warm_main wrote into the run
 * directory. */
static void take_warm(const char *run_dir, struct warm_workers *warm, struct rundir_shim *self)
{
    struct rundir_shim before;
    struct err err;

    (void)snprintf(self->token, sizeof self->token, "%s", warm->token);
    if (rundir_read_shim(run_dir, &before, &err) == STATUS_OK &&
        strcmp(before.token, warm->token) == 0)
        (void)snprintf(warm->cgroup, sizeof warm->cgroup, "%s", before.cgroup);
}

/* The path of the job's cgroup, unique because of the token. Empty if `base` is. */
static void name_cgroup(const struct msg_start *start, const char *base, const char *token,
                        char out[PATH_MAX])
{
    out[0] = '\0';
    if (base[0] != '\0')
        (void)snprintf(out, PATH_MAX, "%.*s/%s-%llu-g%u-%.8s", PATH_MAX - 300, base, start->cluster,
                       (unsigned long long)start->job_id, start->generation, token);
}

void shim_self_describe(struct rundir_shim *self, const char *run_dir,
                        const struct msg_start *start, const char *cgroup_base,
                        struct warm_workers *warm)
{
    *self = (struct rundir_shim){.pid = getpid(), .start_ticks = proc_start_ticks(getpid())};
    if (warm->count > 0)
        take_warm(run_dir, warm, self);
    else
        proc_token_make(self->token);
    proc_boot_id(self->boot_id, sizeof self->boot_id);
    machine_id(self->machine_id);
    proc_pid_ns(self->pid_ns);
    name_cgroup(start, cgroup_base, self->token, self->cgroup);
    if (warm->cgroup[0] != '\0')
        (void)snprintf(self->cgroup, sizeof self->cgroup, "%s", warm->cgroup);
}

/* The run directory is two folders below the state directory. */
enum status shim_self_files(struct file_works **files, uv_loop_t *loop, const char *run_dir,
                            const char *log_dir, struct err *err)
{
    char state_dir[PATH_MAX], *slash;

    (void)snprintf(state_dir, sizeof state_dir, "%s", run_dir);
    for (int i = 0; i < 2 && (slash = strrchr(state_dir, '/')) != NULL; i++)
        *slash = '\0';
    return file_works_open(files, loop, log_dir, state_dir, err);
}
