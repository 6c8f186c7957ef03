/* Prints what worker/data/folder_list.h finds in a folder, for folder_test.py: a line "class NAME" for each class, then
 * "LABEL PATH" for each picture. usage: folder FOLDER [allow-empty] */
#include <stdio.h>

#include "worker/data/folder.h"

int main(int argc, char **argv)
{
    struct folder_list list;
    struct err err;

    if (argc < 2 || folder_list_read(&list, argv[1], argc > 2, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", argc < 2 ? "usage: folder FOLDER [allow-empty]" : err.text);
        return 1;
    }
    for (uint32_t i = 0; i < list.class_count; i++)
        (void)printf("class %s\n", list.classes[i]);
    for (size_t i = 0; i < list.file_count; i++)
        (void)printf("%u %s/%s\n", list.files[i].class, list.files[i].dir, list.files[i].name);
    folder_list_close(&list);
    return 0;
}
