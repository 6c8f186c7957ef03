/* `launcherd --doctor`: a separate process that answers one question about this machine, so that a disk, name
 * server, driver or Python that hangs never blocks launcherd. It reads node_ask from stdin and writes a JSON
 * object, or one line that says why there is none, to stdout.
 *
 *   doctor        the program: collects the parts in parallel, each in a process with a deadline
 *   doctor_parts  machine, network, names, disks, gpus, account, python: one function each
 *   ports         listen and connect: real connections between two nodes */
#ifndef LAUNCHERD_DOCTOR_DOCTOR_H
#define LAUNCHERD_DOCTOR_DOCTOR_H

#define DOCTOR_ARGUMENT "--doctor"
/* name, address, state directory, logs directory, slots, GPUs, "root" or "" (--allow-root) */
#define DOCTOR_ARG_COUNT 7
#define DOCTOR_ANSWER_MS 45000u /* its longest run time */

/* `args`: the words after DOCTOR_ARGUMENT. Returns the exit code. */
int doctor_main(char **args);

#endif
