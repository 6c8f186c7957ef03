/* A file in a folder of a job's user, who can put anything there. */
#ifndef LAUNCHERD_PROCESS_FOREIGN_FILE_H
#define LAUNCHERD_PROCESS_FOREIGN_FILE_H

enum foreign_file {
    FOREIGN_READABLE,
    FOREIGN_NO_FOLDER, /* or it may not be read */
    FOREIGN_NO_FILE,
    FOREIGN_STRANGE, /* no plain file of the folder's owner: a link, a pipe, somebody else's file */
};

/* Opens the file to read; it waits for no pipe and follows no link. -1: `*what` says why. */
int foreign_file_open(const char *path, enum foreign_file *what);

#endif
