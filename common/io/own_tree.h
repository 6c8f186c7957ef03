/* Removes a folder with everything in it. It may belong to another user, a job's, who may change it
 * meanwhile: no symbolic link is followed and no mount point is entered. Removed is only what belongs
 * to us or to the owner of the folder. */
#ifndef COMMON_IO_OWN_TREE_H
#define COMMON_IO_OWN_TREE_H

#include <limits.h>
#include <stdbool.h>

/* Removes the folder `name` of `parent_fd` (or AT_FDCWD), of any depth. What cannot be removed stays; with the folder
 * that it is in it may have come to the top, as "deep-N". */
void own_tree_remove(int parent_fd, const char *name);
/* Removes what is in the folder `fd`, except the entry `kept`. */
void own_tree_empty(int fd, const char *kept);
/* Whether own_tree_remove would remove all of it; else `other` is the name of something else, or of a folder in 64
 * others, which nobody has looked into. */
bool own_tree_is_ours(int parent_fd, const char *name, char other[NAME_MAX + 1]);

#endif
