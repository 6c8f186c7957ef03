/* Opens a file in a folder of a job's user, who can put anything there. */
#ifndef LAUNCHERD_PROCESS_FOREIGN_FILE_H
#define LAUNCHERD_PROCESS_FOREIGN_FILE_H

enum foreign_file {
    FOREIGN_READABLE,
    FOREIGN_NO_FOLDER,
    FOREIGN_NO_FILE,
    FOREIGN_UNREADABLE, /* errno says why: it may be there */
    FOREIGN_STRANGE,    /* a link, a pipe, or a file of somebody else than the folder's owner */
};

/* Opens the file for reading, without following links or waiting for a pipe. -1: `*what` says
 * why. */
int foreign_file_open(const char *path, enum foreign_file *what);

#endif
