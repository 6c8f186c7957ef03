/* The disks that launcherd and jobs write to. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/process/proc.h"

/* A line of /proc/self/mountinfo: "36 35 98:0 / /mnt rw - ext3 /dev/root rw"; proc(5). True: it is the
 * mount of this device. */
static bool take_mount(char *line, dev_t device, struct disk_facts *disk)
{
    unsigned major_number, minor_number;
    char *at = line, *end, *type, *source;

    for (int i = 0; i < 2 && at != NULL; i++)
        at = strchr(at, ' ') != NULL ? strchr(at, ' ') + 1 : NULL;
    if (at == NULL)
        return false;
    major_number = (unsigned)strtoul(at, &end, 10);
    if (*end != ':')
        return false;
    minor_number = (unsigned)strtoul(end + 1, NULL, 10);
    if (makedev(major_number, minor_number) != device)
        return false;
    at = strstr(line, " - ");
    if (at == NULL)
        return false;
    type = at + 3;
    end = strchr(type, ' ');
    if (end == NULL)
        return false;
    *end = '\0';
    source = end + 1;
    source[strcspn(source, " \n")] = '\0';
    (void)snprintf(disk->type, sizeof disk->type, "%.31s", type);
    (void)snprintf(disk->source, sizeof disk->source, "%.127s", source);
    return true;
}

static void find_mount(dev_t device, struct disk_facts *disk)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t line_bytes = 0;

    if (file == NULL)
        return;
    while (getline(&line, &line_bytes, file) > 0 && !take_mount(line, device, disk))
        continue;
    free(line);
    (void)fclose(file);
}

static void begin_folder(const struct doctor *doctor, const char *folder)
{
    if (doctor->doing != NULL)
        (void)snprintf(doctor->doing->folder, sizeof doctor->doing->folder, "%s", folder);
}

void doctor_disk(const struct doctor *doctor, const char *what, const char *path,
                 struct node_facts *facts)
{
    struct disk_facts *disk = node_facts_add_disks(facts);
    struct statvfs room;
    struct stat stat_of;

    if (disk == NULL)
        return;
    (void)snprintf(disk->what, sizeof disk->what, "%s", what);
    (void)snprintf(disk->path, sizeof disk->path, "%.250s", path);
    proc_boot_id(disk->machine, sizeof disk->machine);
    begin_folder(doctor, path);
    if (stat(path, &stat_of) != 0 || statvfs(path, &room) != 0) {
        (void)snprintf(disk->problem, sizeof disk->problem, "%s", strerror(errno));
        begin_folder(doctor, "");
        return;
    }
    disk->bytes = (int64_t)(room.f_blocks * room.f_frsize);
    disk->free_bytes = (int64_t)(room.f_bavail * room.f_frsize);
    disk->files = (int64_t)room.f_files;
    disk->files_free = (int64_t)room.f_favail;
    disk->is_writable = access(path, W_OK | X_OK) == 0;
    begin_folder(doctor, "");
    find_mount(stat_of.st_dev, disk);
}

void doctor_disks(const struct doctor *doctor, struct node_facts *facts)
{
    doctor_disk(doctor, "state", doctor->state_dir, facts);
    doctor_disk(doctor, "logs", doctor->logs_dir, facts);
}
