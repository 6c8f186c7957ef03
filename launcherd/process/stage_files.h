/* The cache of the archives of staged working directories, STATE/stage/HASH.tar (rundir.h). */
#ifndef LAUNCHERD_PROCESS_STAGE_FILES_H
#define LAUNCHERD_PROCESS_STAGE_FILES_H

#include <stdint.h>

/* Removes the archives that were not used for longest, until all have `bytes_max` at most. Only plain
 * files of ours with such a name, in a folder of ours, count and are removed. */
void stage_files_trim(const char *dir, uint64_t bytes_max);

#endif
