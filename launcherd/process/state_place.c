#include "launcherd/process/state_place.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/boot_id.h"
#include "common/io/key_file.h"
#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/io/service.h"
#include "common/io/write_all.h"
#include "launcherd/process/machine_id.h"

#define HOST_PREFIX "host-"
#define HOST_FILE "host"
#define KEY_FILE "key"                /* node/node.h */
#define STATE_ID_FILE "state-id.json" /* node/state_id.c */
#define TEXT_BYTES 1024u
#define ROOM 300 /* for what the state directory holds */

bool state_place_absolute(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX];

    if (path[0] == '/')
        return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX - ROOM;
    if (getcwd(here, sizeof here) == NULL)
        return false;
    return snprintf(out, PATH_MAX, "%s/%s", here, path) < PATH_MAX - ROOM;
}

static bool join_path(char out[PATH_MAX], const char *base, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", base, name) < PATH_MAX - ROOM;
}

static bool is_there(const char *base, const char *name)
{
    char path[PATH_MAX];
    struct stat stat;

    return join_path(path, base, name) && lstat(path, &stat) == 0;
}

/* False: there is none, or it cannot be read. */
static bool read_text(const char *base, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_MAX];
    struct err why;
    ssize_t got;
    int fd;

    text[0] = '\0';
    if (!join_path(path, base, name) || own_file_open(path, 0, O_RDONLY, 0, &fd, &why) != STATUS_OK)
        return false;
    got = read_all(fd, text, TEXT_BYTES - 1);
    (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* -1: it is not known whether two ids are of one machine, or boot. */
static int compare(const cJSON *object, const char *name, const char *own)
{
    const char *theirs = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (theirs == NULL || theirs[0] == '\0' || own[0] == '\0')
        return -1;
    return strcmp(theirs, own) == 0;
}

static bool has_own_name(const struct state_place_facts *facts, const struct key *key)
{
    const size_t count = strcspn(facts->host, ".");

    return strncmp(key->name, facts->host, count) == 0 &&
           (key->name[count] == '\0' || key->name[count] == '.');
}

/* What the state's id says of its machine: 1: it is this one, 0: another, -1: nothing. */
static int machine_of(const struct state_place_facts *facts)
{
    char text[TEXT_BYTES];
    cJSON *object = read_text(facts->base, STATE_ID_FILE, text) ? cJSON_Parse(text) : NULL;
    const int is_machine = compare(object, "machine_id", facts->machine_id);
    const int is_boot = compare(object, "boot_id", facts->boot_id);

    cJSON_Delete(object);
    return is_machine < 0 && is_boot == 1 ? 1 : is_machine;
}

/* Whether the state of an earlier version, which says no name, is this machine's. */
static bool is_likely_ours(const struct state_place_facts *facts)
{
    const int is_machine = machine_of(facts);
    char path[PATH_MAX];
    struct key key;
    struct err why;
    bool is_named;

    if (is_machine >= 0)
        return is_machine == 1;
    if (!join_path(path, facts->base, KEY_FILE) || key_file_read(path, &key, &why) != STATUS_OK)
        return true;
    is_named = has_own_name(facts, &key);
    key_forget(&key);
    return is_named || !facts->joins;
}

/* Of two machines that do so at a time one is first. */
static bool claim(const struct state_place_facts *facts)
{
    char path[PATH_MAX];
    int fd;
    bool is_written;

    if (!join_path(path, facts->base, HOST_FILE))
        return false;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    is_written = write_all(fd, facts->host, strlen(facts->host));
    (void)close(fd);
    return is_written;
}

/* Whether the usual place itself is this machine's. A machine that was given another name still has its id. */
static bool is_base_ours(const struct state_place_facts *facts, struct state_place *place)
{
    char owner[TEXT_BYTES];

    if (!is_there(facts->base, KEY_FILE) && !is_there(facts->base, STATE_ID_FILE))
        return false;
    if (!is_there(facts->base, HOST_FILE) && is_likely_ours(facts) && claim(facts))
        (void)snprintf(
            place->word, sizeof place->word,
            "the state in %.2000s is of this machine, %.255s, from now on; other machines "
            "with the same home have folders of their own there",
            facts->base, facts->host);
    if (read_text(facts->base, HOST_FILE, owner) &&
        (strcmp(owner, facts->host) == 0 || machine_of(facts) == 1))
        return true;
    (void)snprintf(
        place->word, sizeof place->word,
        "the state in %.1000s is of another machine%s%.255s; that of this one, %.255s, is "
        "in %.1000s",
        facts->base, owner[0] != '\0' ? ", " : "", owner, facts->host, place->dir);
    return false;
}

/* A machine that was given another name looks for its key in vain. */
static void tell_new(const struct state_place_facts *facts, struct state_place *place)
{
    DIR *list = opendir(facts->base);
    const struct dirent *entry;

    while (list != NULL && (entry = readdir(list)) != NULL)
        if (strncmp(entry->d_name, HOST_PREFIX, sizeof HOST_PREFIX - 1) == 0)
            (void)snprintf(
                place->word, sizeof place->word,
                "%.255s has no state yet; if this machine had another name before, start "
                "it with --state-dir %.1000s/%.255s",
                facts->host, facts->base, entry->d_name);
    if (list != NULL)
        (void)closedir(list);
}

enum status state_place_find(const struct state_place_facts *facts, struct state_place *place,
                             struct err *err)
{
    char name[sizeof HOST_PREFIX + 255];

    place->word[0] = '\0';
    (void)snprintf(name, sizeof name, HOST_PREFIX "%.255s", facts->host);
    for (char *at = name; *at != '\0'; at++)
        if (*at == '/')
            *at = '_';
    if (!join_path(place->dir, facts->base, name))
        return err_set(err, STATUS_TOO_BIG, 0, "%.100s: too long for the state of launcherd",
                       facts->base);
    if (is_base_ours(facts, place))
        (void)snprintf(place->dir, sizeof place->dir, "%s", facts->base);
    else if (!facts->joins && place->word[0] == '\0' && !is_there(facts->base, name))
        tell_new(facts, place);
    return STATUS_OK;
}

/* That of root is in /var/lib, which is each machine's own. */
static enum status choose_usual(const char *base, const char *host, bool joins,
                                struct state_place *place, struct err *err)
{
    char machine[IDENTITY_BYTES_MAX], boot[BOOT_ID_BYTES];
    const struct state_place_facts facts = {
        .base = base, .host = host, .machine_id = machine, .boot_id = boot, .joins = joins};
    bool is_kernels;

    if (geteuid() == 0) {
        (void)snprintf(place->dir, sizeof place->dir, "%s", base);
        return STATUS_OK;
    }
    machine_id(machine);
    boot_id_read(boot, &is_kernels);
    if (!is_kernels)
        boot[0] = '\0';
    return state_place_find(&facts, place, err);
}

enum status state_place_choose(const char *given, const char *host, bool joins,
                               struct state_place *place, struct err *err)
{
    char usual[PATH_MAX], base[PATH_MAX];

    service_state_dir("/launcherd", usual);
    place->word[0] = '\0';
    if (!state_place_absolute(given != NULL ? given : usual, base))
        return err_set(err, STATUS_TOO_BIG, 0, "%.200s: too long, or the current directory is gone",
                       given != NULL ? given : usual);
    if (given == NULL)
        return choose_usual(base, host, joins, place, err);
    (void)snprintf(place->dir, sizeof place->dir, "%s", base);
    return STATUS_OK;
}
