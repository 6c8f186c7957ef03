#include "ddpctl/run_files.h"

int run_files_open(struct run_files *files, struct ctl *ctl, uint32_t rank_count,
                   struct attach_options *attach)
{
    const struct options *options = &ctl->options;
    const char *const words[] = {options->duplicate_out, options->duplicate_error};
    const bool has_words = words[0] != NULL || words[1] != NULL;
    struct err err = {0};

    if (options->log_dir == NULL && has_words)
        screen_message(
            &ctl->screen,
            "--duplicate-std%s-filters has no effect without --log-dir, where the lines go",
            words[0] != NULL ? "out" : "err");
    if (options->log_dir == NULL || !(has_words || options->standalone || options->slurm))
        return CTL_OK;
    if (log_folder_make(&files->folder, options->log_dir, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "");
    attach->log_folder = &files->folder;
    if (!has_words)
        return CTL_OK;
    if (files->folder.path[0] == '\0')
        return ctl_fail(ctl, CTL_FAILED, "--log-dir: no folder can be made there",
                        "--duplicate-stdout-filters and --duplicate-stderr-filters need one");
    if (duplicate_open(&files->duplicate, files->folder.path, words, rank_count, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "");
    attach->duplicate = &files->duplicate;
    return CTL_OK;
}

void run_files_close(struct run_files *files)
{
    duplicate_close(&files->duplicate);
}
