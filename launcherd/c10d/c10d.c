#include "launcherd/c10d/c10d.h"

#include <assert.h>
#include <string.h>

#include "launcherd/c10d/http.h"
#include "launcherd/c10d/state.h"

#define REPLY_PAUSE_BYTES (1024u * 1024u) /* of replies in one step; then they must be written */
#define REPLY_KEPT_BYTES (64u * 1024u) /* how much of a reply's buffer is kept for the next step */
#define VALIDATE_BYTES 5u

const char *c10d_reason_words(enum c10d_reason reason)
{
    static const char *const words[] = {
#define REASON_WORDS(name, text) [C10D_REASON_##name] = (text),
        C10D_REASON_TABLE(REASON_WORDS)
#undef REASON_WORDS
    };

    return words[reason];
}

static void act(struct c10d *core, struct c10d_action action)
{
    assert(core->action_count < core->action_capacity);
    core->actions[core->action_count++] = action;
}

/* A step has at most one action for each client, and for its own client a reply and one more. */
static bool reserve_actions(struct c10d *core, size_t client_count)
{
    size_t capacity = core->action_capacity * 2;
    struct c10d_action *moved;

    if (client_count + 3 <= core->action_capacity)
        return true;
    if (capacity < client_count + 3)
        capacity = client_count + 3;
    moved = memory_resize(&core->memory, core->actions,
                          core->action_capacity * sizeof *core->actions, capacity * sizeof *moved);
    if (moved == NULL)
        return false;
    core->actions = moved;
    core->action_capacity = capacity;
    return true;
}

struct c10d *c10d_new(const struct c10d_limits *limits, const struct c10d_heap *heap)
{
    struct memory memory = {.heap = *heap, .limit = limits->bytes_max};
    struct c10d *core = memory_resize(&memory, NULL, 0, sizeof *core);
    const size_t bytes = limits->clients_max * sizeof(struct client *);

    if (core == NULL)
        return NULL;
    *core = (struct c10d){.limits = *limits, .memory = memory};
    core->clients = memory_resize(&core->memory, NULL, 0, bytes);
    if (core->clients != NULL)
        memset(core->clients, 0, bytes);
    if (core->clients != NULL && reserve_actions(core, 0) &&
        keys_init(&core->keys, &core->memory, limits->keys_max, limits->hash_seed) &&
        waits_init(&core->waits, &core->memory, limits->hash_seed) &&
        waits_init(&core->barriers, &core->memory, limits->hash_seed))
        return core;
    c10d_free(&core);
    return NULL;
}

static void forget(struct c10d *core, struct client *client)
{
    waits_drop(client->waits == C10D_WAITS_AT_BARRIER ? &core->barriers : &core->waits,
               &client->waiting);
    (void)memory_resize(&core->memory, client->in, client->in_capacity, 0);
    core->clients[client->number] = NULL;
    core->client_count--;
    (void)memory_resize(&core->memory, client, sizeof *client, 0);
}

/* Also frees a core that is only partly built. */
void c10d_free(struct c10d **owned)
{
    struct c10d *core = *owned;
    struct memory memory;

    if (core == NULL)
        return;
    for (uint32_t i = 0; core->clients != NULL && i < core->limits.clients_max; i++)
        if (core->clients[i] != NULL)
            forget(core, core->clients[i]);
    if (core->keys.queues.buckets != NULL)
        keys_close(&core->keys);
    else if (core->keys.values.buckets != NULL)
        table_close(&core->keys.values, &core->memory);
    if (core->waits.topics.buckets != NULL)
        waits_close(&core->waits);
    if (core->barriers.topics.buckets != NULL)
        waits_close(&core->barriers);
    (void)memory_resize(&core->memory, core->reply, core->reply_capacity, 0);
    (void)memory_resize(&core->memory, core->actions, core->action_capacity * sizeof *core->actions,
                        0);
    if (core->clients != NULL)
        (void)memory_resize(&core->memory, core->clients,
                            core->limits.clients_max * sizeof(struct client *), 0);
    memory = core->memory;
    (void)memory_resize(&memory, core, sizeof *core, 0);
    assert(memory.used == 0);
    *owned = NULL;
}

/* Sends the reply, if there is one, to core->current. */
static void send_reply(struct c10d *core)
{
    if (core->reply_bytes > 0)
        act(core, (struct c10d_action){.type = C10D_SEND,
                                       .client = core->current->number,
                                       .bytes = core->reply,
                                       .byte_count = core->reply_bytes});
}

static void close_client(struct c10d *core, struct client *client, enum c10d_reason reason)
{
    const char *command = client->scan.at > 0 ? scan_command_name(client->scan.command) : "";

    act(core,
        (struct c10d_action){
            .type = C10D_CLOSE, .client = client->number, .reason = reason, .command = command});
    forget(core, client);
}

static void on_connected(struct c10d *core, const struct c10d_event *event)
{
    struct client *client = NULL;

    assert(event->client < core->limits.clients_max && core->clients[event->client] == NULL);
    if (reserve_actions(core, core->client_count + 1))
        client = memory_resize(&core->memory, NULL, 0, sizeof *client);
    if (client == NULL) {
        act(core, (struct c10d_action){.type = C10D_CLOSE,
                                       .client = event->client,
                                       .reason = C10D_REASON_NO_MEMORY,
                                       .command = ""});
        return;
    }
    *client = (struct client){.number = event->client, .connected_us = event->now_us};
    core->clients[event->client] = client;
    core->client_count++;
}

/* -- bytes ------------------------------------------------------------------------------------- */

/* False: no memory. */
static bool append(struct c10d *core, struct client *client, struct text text)
{
    const size_t needed = client->in_bytes + text.byte_count;
    size_t capacity = client->in_capacity * 2;
    char *moved;

    if (needed > client->in_capacity) {
        if (capacity < needed)
            capacity = needed;
        moved = memory_resize(&core->memory, client->in, client->in_capacity, capacity);
        if (moved == NULL)
            return false;
        client->in = moved;
        client->in_capacity = capacity;
    }
    if (text.byte_count > 0)
        memcpy(client->in + client->in_bytes, text.bytes, text.byte_count);
    client->in_bytes = needed;
    return true;
}

static void drop(struct c10d *core, struct client *client, size_t byte_count)
{
    if (byte_count == 0)
        return;
    client->in_bytes -= byte_count;
    if (client->in_bytes > 0) {
        memmove(client->in, client->in + byte_count, client->in_bytes);
        return;
    }
    (void)memory_resize(&core->memory, client->in, client->in_capacity, 0);
    client->in = NULL;
    client->in_capacity = 0;
}

/* Why a first command that is not VALIDATE is refused. PyTorch 1.x begins with one of its commands
 * 0 to 8 and the length of a key. */
static enum c10d_reason why_not_valid(struct text text)
{
    const unsigned char *bytes = (const unsigned char *)text.bytes;

    if (bytes[0] <= 8 && bytes[3] == 0 && bytes[4] == 0)
        return C10D_REASON_OLD_DIALECT;
    return bytes[0] == COMMAND_VALIDATE ? C10D_REASON_WRONG_MAGIC : C10D_REASON_NOT_VALIDATED;
}

static enum scan_result scan_next(struct c10d *core, struct client *client, struct text text,
                                  enum c10d_reason *reason)
{
    if (!client->is_validated && text.byte_count < VALIDATE_BYTES)
        return SCAN_MORE;
    if (!client->is_validated && memcmp(text.bytes, "\0\xCE\xF7\x85\x3C", VALIDATE_BYTES) != 0) {
        *reason = why_not_valid(text);
        return SCAN_BAD;
    }
    return scan_request(&client->scan, text, core->limits.message_bytes_max, reason);
}

/* The same as carry_out_next for a client that speaks HTTP. */
static enum scan_result carry_out_http(struct c10d *core, struct client *client, struct text text,
                                       size_t *byte_count, enum c10d_reason *reason)
{
    struct http_request request = {.byte_count = 0};
    enum scan_result result =
        text.byte_count > 0 ? http_scan(text, core->limits.message_bytes_max, &request, reason)
                            : SCAN_MORE;

    if (result == SCAN_WHOLE && !http_carry_out(core, &request, reason))
        result = SCAN_BAD;
    client->is_validated = client->is_validated || result == SCAN_WHOLE;
    client->is_ending = result == SCAN_WHOLE && request.is_last;
    *byte_count = request.byte_count;
    return result;
}

/* Carries out the first request in `text` if it is complete. *byte_count: its length. */
static enum scan_result carry_out_next(struct c10d *core, struct client *client, struct text text,
                                       size_t *byte_count, enum c10d_reason *reason)
{
    const struct fields fields = {text.bytes, 1};
    enum scan_result result;

    if (!client->is_validated && text.byte_count > 0 && http_begins(text.bytes[0]))
        client->is_http = true;
    if (client->is_http)
        return carry_out_http(core, client, text, byte_count, reason);
    result = scan_next(core, client, text, reason);
    if (result == SCAN_WHOLE &&
        request_carry_out(core, client->scan.command, fields, reason) != REQUEST_DONE)
        return SCAN_BAD;
    if (result == SCAN_WHOLE) {
        *byte_count = client->scan.at;
        client->scan = (struct scan){.at = 0};
    }
    return result;
}

/* Carries out the complete requests in `text` and returns how many bytes they have. *end is
 * SCAN_BAD: close the client, for *reason. *end is SCAN_WHOLE: there may be more requests, but the
 * replies must be written first. */
static size_t carry_out(struct c10d *core, struct client *client, struct text text,
                        enum scan_result *end, enum c10d_reason *reason)
{
    size_t at = 0;

    for (*end = SCAN_WHOLE; core->reply_bytes < REPLY_PAUSE_BYTES && !client->is_ending;) {
        const size_t reply_bytes = core->reply_bytes;
        size_t byte_count = 0;

        *end = carry_out_next(core, client, (struct text){text.bytes + at, text.byte_count - at},
                              &byte_count, reason);
        if (*end == SCAN_BAD)
            core->reply_bytes = reply_bytes;
        if (*end != SCAN_WHOLE)
            return at;
        at += byte_count;
    }
    return at;
}

/* `text`: the client's buffer, or new bytes if that is empty. */
static void take(struct c10d *core, struct client *client, struct text text)
{
    enum c10d_reason reason = C10D_REASON_NO_MEMORY;
    enum scan_result end;
    size_t at;

    core->current = client;
    at = carry_out(core, client, text, &end, &reason);
    if (end != SCAN_BAD && client->in_bytes > 0)
        drop(core, client, at);
    else if (end != SCAN_BAD && at < text.byte_count &&
             !append(core, client, (struct text){text.bytes + at, text.byte_count - at})) {
        end = SCAN_BAD;
        reason = C10D_REASON_NO_MEMORY;
    }
    send_reply(core);
    core->current = NULL;
    if (end == SCAN_BAD) {
        close_client(core, client, reason);
    } else if (end == SCAN_WHOLE) {
        client->is_paused = true;
        act(core, (struct c10d_action){.type = C10D_PAUSE, .client = client->number});
    }
}

static void on_bytes(struct c10d *core, struct client *client, const struct c10d_event *event)
{
    const struct text text = {event->bytes, event->byte_count};

    if (client->is_ending)
        return;
    if (client->in_bytes == 0 && !client->is_paused)
        take(core, client, text);
    else if (!append(core, client, text))
        close_client(core, client, C10D_REASON_NO_MEMORY);
    else if (!client->is_paused)
        take(core, client, (struct text){client->in, client->in_bytes});
}

static void on_drained(struct c10d *core, struct client *client)
{
    if (!client->is_paused)
        return;
    client->is_paused = false;
    if (client->is_ending)
        close_client(core, client, C10D_REASON_ASKED);
    else if (client->in_bytes > 0)
        take(core, client, (struct text){client->in, client->in_bytes});
}

static void on_tick(struct c10d *core)
{
    for (uint32_t i = 0; i < core->limits.clients_max; i++) {
        struct client *client = core->clients[i];

        if (client != NULL && !client->is_validated &&
            core->now_us - client->connected_us >= core->limits.hello_us)
            close_client(core, client, C10D_REASON_SILENT);
    }
}

/* Starts a step. The buffer of a long reply is shrunk. */
static void begin_step(struct c10d *core, uint64_t now_us)
{
    char *smaller;

    core->now_us = now_us;
    core->action_count = 0;
    core->reply_bytes = 0;
    if (core->reply_capacity <= REPLY_KEPT_BYTES)
        return;
    smaller = memory_resize(&core->memory, core->reply, core->reply_capacity, REPLY_KEPT_BYTES);
    if (smaller == NULL)
        return;
    core->reply = smaller;
    core->reply_capacity = REPLY_KEPT_BYTES;
}

struct c10d_actions c10d_step(struct c10d *core, const struct c10d_event *event)
{
    struct client *client = NULL;

    begin_step(core, event->now_us);
    if (event->type != C10D_EVENT_CONNECTED && event->type != C10D_EVENT_TICK) {
        assert(event->client < core->limits.clients_max);
        client = core->clients[event->client];
        assert(client != NULL); /* no event after C10D_CLOSE */
    }
    switch (event->type) {
    case C10D_EVENT_CONNECTED:
        on_connected(core, event);
        break;
    case C10D_EVENT_BYTES:
        on_bytes(core, client, event);
        break;
    case C10D_EVENT_CLOSED:
        forget(core, client);
        break;
    case C10D_EVENT_DRAINED:
        on_drained(core, client);
        break;
    case C10D_EVENT_TICK:
        on_tick(core);
        break;
    }
    return (struct c10d_actions){.items = core->actions, .count = core->action_count};
}

/* -- clients that wait --------------------------------------------------------------------------- */

bool c10d_next_client(const struct c10d *core, uint32_t from, struct c10d_client_info *info)
{
    const struct client *client;

    while (from < core->limits.clients_max && core->clients[from] == NULL)
        from++;
    if (from >= core->limits.clients_max)
        return false;
    client = core->clients[from];
    *info = (struct c10d_client_info){.client = from,
                                      .is_validated = client->is_validated,
                                      .waits = client->waits,
                                      .pid = client->pid,
                                      .connected_us = client->connected_us,
                                      .waits_since_us = client->waits_since_us,
                                      .missing_keys = client->waiting.missing};
    return true;
}

bool c10d_next_missing(const struct c10d *core, uint32_t client, uint32_t *at, const char **key,
                       size_t *byte_count)
{
    const struct client *who = core->clients[client];
    const struct waits *waits =
        who->waits == C10D_WAITS_AT_BARRIER ? &core->barriers : &core->waits;
    struct text text;

    while (*at < who->waiting.count && who->waiting.waiters[*at].topic == NULL)
        ++*at;
    if (*at >= who->waiting.count)
        return false;
    text = waits_key(waits, &who->waiting.waiters[(*at)++]);
    *key = text.bytes;
    *byte_count = text.byte_count;
    return true;
}

struct c10d_totals c10d_totals(const struct c10d *core)
{
    return (struct c10d_totals){
        .clients = core->client_count, .keys = core->keys.values.count, .bytes = core->memory.used};
}
