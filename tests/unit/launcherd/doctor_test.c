/* What launcherd's doctor reads from the kernel's log, from files of devices, from disks, and from
 * the output of a Python. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/doctor/doctor_parts.h"
#include "tests/lib/test.h"

static struct node_facts facts;

static void begin(void)
{
    node_facts_init(&facts);
}

static const struct doctor nobody_waits = {.doing = NULL};

TEST(xids_that_close_a_gpu_are_found_and_others_are_not)
{
    begin();
    doctor_kernel_record("4,100,5,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python", &facts);
    doctor_kernel_record("4,101,5,-;NVRM: Xid (PCI:0000:3b:00): , x", &facts);
    doctor_kernel_record("4,102,5,-;NVRM: Xid (PCI:", &facts);
    doctor_kernel_record("4,102,5,-;usb 1-1: new device", &facts);
    CHECK_EQ(facts.xid, FACT_UNKNOWN);
    doctor_kernel_record("4,103,6,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
                         &facts);
    CHECK_EQ(facts.xid, 79);
    CHECK_STR(facts.xid_text, "the GPU has fallen off the bus, GPU PCI:0000:3b:00");
    CHECK_STR(facts.xid_remedy, "restart the machine");
}

TEST(lines_of_a_python_become_versions)
{
    begin();
    doctor_python_lines(
        "noise\npython=/opt/venv/bin/python\npython_version=3.12.1\ntorch=2.15.0+cu128\n"
        "cuda=12.8\nnccl=2.27.3\ncudnn=91002\na warning at the end\ntorch_sees_gpu=1\n",
        &facts);
    CHECK_STR(facts.python, "/opt/venv/bin/python");
    CHECK_STR(facts.python_version, "3.12.1");
    CHECK_STR(facts.torch, "2.15.0+cu128");
    CHECK_STR(facts.cuda, "12.8");
    CHECK_STR(facts.nccl, "2.27.3");
    CHECK_STR(facts.cudnn, "91002");
    CHECK_EQ(facts.torch_sees_gpu, 1);
    CHECK_STR(facts.python_problem, "");
    begin();
    doctor_python_lines(
        "python=/usr/bin/python3\npython_version=3.11.2\nTraceback (most recent call last):\n"
        "  File \"<string>\", line 5\nModuleNotFoundError: No module named 'torch'\n",
        &facts);
    CHECK_STR(facts.torch, "");
    CHECK_STR(facts.python_problem, "ModuleNotFoundError: No module named 'torch'");
    begin();
    doctor_python_lines("torch=", &facts);
    doctor_python_lines("", &facts);
    CHECK_STR(facts.torch, "");
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "w");
    if (file == NULL)
        FAIL("%s", path);
    (void)fputs(text, file);
    (void)fclose(file);
}

static void make_folder(char *path, size_t path_bytes, const char *dir, const char *name)
{
    (void)snprintf(path, path_bytes, "%s/%s", dir, name);
    CHECK_EQ(mkdir(path, 0755), 0);
}

TEST(ports_of_fabrics_are_read_as_the_kernel_shows_them)
{
    char device[256], ports[256], one[256];

    begin();
    doctor_fabric("/no/such/folder", &facts);
    CHECK_EQ(facts.fabric_count, 0);
    make_folder(device, sizeof device, test_dir(), "mlx5_0");
    make_folder(ports, sizeof ports, device, "ports");
    make_folder(one, sizeof one, ports, "1");
    write_file(one, "state", "4: ACTIVE\n");
    write_file(one, "rate", "400 Gb/sec (4X NDR)\n");
    write_file(one, "link_layer", "InfiniBand\n");
    doctor_fabric(test_dir(), &facts);
    CHECK_EQ(facts.fabric_count, 1);
    CHECK_STR(facts.fabric[0].device, "mlx5_0");
    CHECK_EQ(facts.fabric[0].port, 1);
    CHECK_STR(facts.fabric[0].state, "ACTIVE");
    CHECK_STR(facts.fabric[0].rate, "400 Gb/sec (4X NDR)");
    CHECK_STR(facts.fabric[0].layer, "InfiniBand");
}

TEST(a_disk_is_known_by_its_mount_and_whether_it_can_be_written_to)
{
    char missing[256];

    begin();
    doctor_disk(&nobody_waits, "tmp", test_dir(), &facts);
    CHECK_STR(facts.disks[0].problem, "");
    CHECK(facts.disks[0].bytes > 0 && facts.disks[0].free_bytes >= 0);
    CHECK_EQ(facts.disks[0].is_writable, 1);
    CHECK(facts.disks[0].machine[0] != '\0');
    doctor_disk(&nobody_waits, "proc", "/proc", &facts);
    CHECK_STR(facts.disks[1].type, "proc");
    (void)snprintf(missing, sizeof missing, "%s/none", test_dir());
    doctor_disk(&nobody_waits, "job", missing, &facts);
    CHECK_STR(facts.disks[2].problem, "No such file or directory");
    for (int i = 0; i < 20; i++)
        doctor_disk(&nobody_waits, "more", "/", &facts);
    CHECK_EQ(facts.disks_count, 8);
}

TEST_MAIN
