#include "ddpctl/http_server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "ddpctl/http_pages.h"

#define FRESH_US 1000000u /* a page younger than this is sent again */
#define JOB_FRESH_US 1000000u
#define STALE_US 30000000u /* a snapshot that is older counts as no answer */
#define GAUGES_WANTED_US                                                                           \
    90000000u /* gauges are read for so long after a request: Prometheus asks again */
#define GAUGES_AGE_US 1000000u /* a node with younger gauges is not asked again */
#define GAUGES_PER_S 256u      /* most questions per second; nodes take turns */
#define NEWEST_JOBS 100u
#define CONN_BYTES_MAX (16u * 1024u) /* for a request's line and headers, and the answer's */

/* -- libmicrohttpd on the loop -- */

static void arm(struct http_server *http);

static void turn(struct http_server *http)
{
    if (http->is_closed)
        return;
    (void)http->mhd.run(http->daemon);
    arm(http);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    turn(timer->data);
}

static void arm(struct http_server *http)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;

    if (http->mhd.get_timeout(http->daemon, &wait_ms) == MHD_YES)
        (void)uv_timer_start(&http->timer, on_timer, wait_ms, 0);
    else
        (void)uv_timer_stop(&http->timer);
}

/* -- answers -- */

/* A page may load nothing but its style and run no script; no other page may frame it. */
static void add_headers(const struct http_server *http, struct MHD_Response *response,
                        const char *type)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };

    (void)http->mhd.add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        (void)http->mhd.add_response_header(response, headers[i][0], headers[i][1]);
}

/* NULL: no memory. `text` is emptied. */
static struct MHD_Response *make_response(const struct http_server *http, struct buf *text,
                                          const char *type)
{
    struct MHD_Response *response = NULL;

    if (!text->failed)
        response = http->mhd.create_response_from_buffer(text->byte_count, text->bytes,
                                                         MHD_RESPMEM_MUST_COPY);
    buf_free(text);
    *text = (struct buf){0};
    if (response != NULL)
        add_headers(http, response, type);
    return response;
}

static enum MHD_Result send_response(const struct http_server *http,
                                     struct MHD_Connection *connection, unsigned code,
                                     struct MHD_Response *response)
{
    return response != NULL ? http->mhd.queue_response(connection, code, response) : MHD_NO;
}

/* A short answer that is not kept for other readers. */
static enum MHD_Result send_text(const struct http_server *http, struct MHD_Connection *connection,
                                 unsigned code, struct buf *text, const char *type,
                                 const char *const header[2])
{
    struct MHD_Response *response = make_response(http, text, type);
    enum MHD_Result result;

    if (response != NULL && header != NULL)
        (void)http->mhd.add_response_header(response, header[0], header[1]);
    result = send_response(http, connection, code, response);
    if (response != NULL)
        http->mhd.destroy_response(response);
    return result;
}

static enum MHD_Result send_problem(const struct http_server *http,
                                    struct MHD_Connection *connection, unsigned code,
                                    const char *title, const char *text, const char *up)
{
    static const char *const later[2] = {"Retry-After", "5"};
    struct buf page = {0};

    http_problem_write(title, text, up, &page);
    return send_text(http, connection, code, &page, "text/html; charset=utf-8",
                     code >= 500 ? later : NULL);
}

static const char *lost_why(const struct http_server *http, uint64_t now_us)
{
    uint64_t taken_us = http->collect.cluster.taken_us;
    uint64_t longest_us = STALE_US + 5 * http->collect.took_us;

    if (http->lost_why[0] != '\0')
        return http->lost_why;
    return taken_us > 0 && now_us > taken_us + longest_us ? "its answers do not come" : "";
}

static struct http_view make_view(const struct http_server *http, uint64_t now_us)
{
    return (struct http_view){.cluster = &http->collect.cluster,
                              .gauges = &http->collect.gauges,
                              .now_us = now_us,
                              .now_ms = clock_wall_ms(),
                              .lost_why = lost_why(http, now_us)};
}

static struct MHD_Response *make_page(const struct http_server *http,
                                      const struct http_route *route, uint64_t now_us)
{
    struct http_index index = {.view = make_view(http, now_us),
                               .server = http->options.server->address,
                               .page = route->page,
                               .refresh_s = route->refresh_s};
    struct buf text = {0};

    if (route->what == HTTP_INDEX) {
        http_index_write(&index, &text);
        return make_response(http, &text, "text/html; charset=utf-8");
    }
    http_metrics_write(&index.view, route->openmetrics, &text);
    return make_response(http, &text,
                         route->openmetrics
                             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                             : "text/plain; version=0.0.4; charset=utf-8");
}

static void drop_cached(const struct http_server *http, struct http_cached *cached)
{
    if (cached->response != NULL)
        http->mhd.destroy_response(cached->response);
    *cached = (struct http_cached){0};
}

static bool is_same(const struct http_cached *cached, const struct http_route *route)
{
    return cached->made_us > 0 && cached->what == route->what &&
           (route->what == HTTP_METRICS
                ? cached->openmetrics == route->openmetrics
                : cached->page == route->page && cached->refresh_s == route->refresh_s);
}

/* A page that was made within the last second, for any reader, or a new one. */
static struct MHD_Response *find_page(struct http_server *http, const struct http_route *route,
                                      uint64_t now_us)
{
    struct http_cached *place = &http->cached[0];

    for (size_t i = 0; i < HTTP_CACHED_MAX; i++) {
        struct http_cached *cached = &http->cached[i];

        if (is_same(cached, route)) {
            place = cached;
            break;
        }
        if (cached->made_us < place->made_us)
            place = cached;
    }
    if (is_same(place, route) && now_us < place->made_us + FRESH_US)
        return place->response;
    drop_cached(http, place);
    *place = (struct http_cached){.what = route->what,
                                  .page = route->page,
                                  .refresh_s = route->refresh_s,
                                  .openmetrics = route->openmetrics,
                                  .made_us = now_us,
                                  .response = make_page(http, route, now_us)};
    return place->response;
}

static enum MHD_Result send_health(const struct http_server *http,
                                   struct MHD_Connection *connection, uint64_t now_us)
{
    bool is_well = lost_why(http, now_us)[0] == '\0' && http->collect.cluster.taken_us > 0;
    struct buf text = {0};

    buf_add_text(&text, is_well ? "ok\n" : "the server does not answer\n");
    return send_text(http, connection, is_well ? 200 : 503, &text, "text/plain; charset=utf-8",
                     NULL);
}

static enum MHD_Result send_job(struct http_server *http, struct MHD_Connection *connection,
                                struct http_conn *conn, const struct http_route *route,
                                uint64_t now_us)
{
    bool is_full = false;
    const struct http_job *job =
        conn->is_late
            ? NULL
            : http_readers_get(&http->readers, route->job_id, route->rank, JOB_FRESH_US, &is_full);
    struct buf page = {0};

    if (is_full || conn->is_late)
        return send_problem(http, connection, is_full ? 503 : 504, "Not now",
                            is_full ? "Too many jobs are looked at; try again in some seconds."
                                    : "The server or a node takes long to answer; try again.",
                            "../");
    if (job == NULL) { /* this function is called again when the job is read */
        http_conn_enter(conn, HTTP_CONN_WAITS, now_us);
        conn->job_id = route->job_id;
        conn->rank = route->rank;
        http->mhd.suspend_connection(connection);
        return MHD_YES;
    }
    if (job->code != 200)
        return send_problem(http, connection, (unsigned)job->code, "No such page", job->problem,
                            "../");
    http_job_page(job, clock_wall_ms(),
                  job->pages.job.ended && !route->has_refresh ? 0 : route->refresh_s, &page);
    return send_text(http, connection, 200, &page, "text/html; charset=utf-8", NULL);
}

static enum MHD_Result refuse(const struct http_server *http, struct MHD_Connection *connection,
                              enum http_what what)
{
    static const char *const methods[2] = {"Allow", "GET, HEAD"};
    static const char *const key[2] = {"WWW-Authenticate",
                                       "Basic realm=\"ddp\", charset=\"UTF-8\""};
    struct buf text = {0};

    if (what == HTTP_BAD_METHOD) {
        buf_add_text(&text, "only GET and HEAD: nothing can be changed here\n");
        return send_text(http, connection, 405, &text, "text/plain; charset=utf-8", methods);
    }
    if (what == HTTP_NO_KEY) {
        buf_add_text(&text, "a key is wanted: Authorization: Bearer KEY, or the key as the "
                            "password of any user\n");
        return send_text(http, connection, 401, &text, "text/plain; charset=utf-8", key);
    }
    if (what == HTTP_BAD_HOST) {
        buf_add_text(&text, "this is not the name of this server; ddpctl http --host NAME adds "
                            "one\n");
        return send_text(http, connection, 421, &text, "text/plain; charset=utf-8", NULL);
    }
    if (what == HTTP_BAD_QUERY) {
        buf_add_text(&text, "the query is not understood: page, rank and refresh are numbers\n");
        return send_text(http, connection, 400, &text, "text/plain; charset=utf-8", NULL);
    }
    return send_problem(http, connection, 404, "No such page",
                        "There are / , /jobs/NUMBER , /metrics and /healthz .", "/");
}

static enum MHD_Result answer(struct http_server *http, struct MHD_Connection *connection,
                              struct http_conn *conn, const struct http_route *route)
{
    uint64_t now_us = clock_boot_us();

    http_conn_enter(conn, HTTP_CONN_ANSWERS, now_us);
    switch (route->what) {
    case HTTP_INDEX:
    case HTTP_METRICS:
        http->gauges_until_us = now_us + GAUGES_WANTED_US;
        return send_response(http, connection, 200, find_page(http, route, now_us));
    case HTTP_STYLE:
        return send_response(http, connection, 200, http->style);
    case HTTP_HEALTH:
        return send_health(http, connection, now_us);
    case HTTP_JOB:
        return send_job(http, connection, conn, route, now_us);
    case HTTP_NOT_FOUND:
    case HTTP_BAD_METHOD:
    case HTTP_BAD_HOST:
    case HTTP_BAD_QUERY:
    case HTTP_NO_KEY:
        break;
    }
    return refuse(http, connection, route->what);
}

static const char *header_of(const struct http_server *http, struct MHD_Connection *connection,
                             const char *name)
{
    return http->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static const char *query_of(const struct http_server *http, struct MHD_Connection *connection,
                            const char *name)
{
    return http->mhd.lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result on_request(void *owner, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **context)
{
    struct http_server *http = owner;
    const union MHD_ConnectionInfo *info =
        http->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info != NULL ? info->socket_context : NULL;
    const struct http_request request = {.method = method,
                                         .path = path,
                                         .host = header_of(http, connection, "Host"),
                                         .authorization =
                                             header_of(http, connection, "Authorization"),
                                         .accept = header_of(http, connection, "Accept"),
                                         .page = query_of(http, connection, "page"),
                                         .rank = query_of(http, connection, "rank"),
                                         .refresh = query_of(http, connection, "refresh")};
    struct http_route route;

    (void)version;
    (void)body;
    if (conn == NULL)
        return MHD_NO;
    http_route(&request, &http->options.rules, &route);
    if (*context == NULL &&
        route.what != HTTP_BAD_METHOD) { /* an answer before the body would end the
                                                              * connection */
        *context = conn;
        return MHD_YES;
    }
    if (*body_bytes > 0) { /* the body is ignored */
        *body_bytes = 0;
        return MHD_YES;
    }
    return answer(http, connection, conn, &route);
}

static void on_connection(void *owner, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *http = owner;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = http_conns_add(&http->conns, connection, clock_boot_us());
    } else if (*context != NULL) {
        http_conns_remove(&http->conns, *context);
        *context = NULL;
    }
}

/* A request is complete. The connection now waits for its next request. */
static void on_completed(void *owner, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    const struct http_server *http = owner;
    const union MHD_ConnectionInfo *info =
        http->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info != NULL ? info->socket_context : NULL;

    (void)context;
    (void)code;
    if (conn == NULL)
        return;
    conn->is_late = false;
    http_conn_enter(conn, HTTP_CONN_ASKS, clock_boot_us());
}

/* -- what is read from the server -- */

/* Nodes take turns: few questions are pending at a time, and gauges_budget limits how many are
 * asked in a second. */
static void ask_gauges(struct http_server *http)
{
    const struct cluster *cluster = &http->collect.cluster;

    if (http->is_closed || clock_boot_us() > http->gauges_until_us)
        return;
    for (uint32_t i = 0; i < cluster->node_count && http->gauges_budget > 0; i++) {
        const struct part_node *node =
            &cluster->nodes[http->gauges_next % cluster->node_count].part;

        if (node->state == NODE_UP && !collect_want(&http->collect, node->name, GAUGES_AGE_US))
            return; /* on_gauges calls this again */
        http->gauges_budget--;
        http->gauges_next = (http->gauges_next + 1) % cluster->node_count;
    }
}

static void on_snapshot(struct collect *collect)
{
    struct http_server *http = collect->options.owner;

    http->lost_why[0] = '\0';
    ask_gauges(http);
}

static void on_gauges(struct collect *collect, const struct gauges_row *row)
{
    (void)row;
    ask_gauges(collect->options.owner);
}

static void on_waiting(struct collect *collect, const struct err *err)
{
    struct http_server *http = collect->options.owner;

    (void)snprintf(http->lost_why, sizeof http->lost_why, "%s", err->text);
}

static void on_failed(struct collect *collect, const struct err *err)
{
    struct http_server *http = collect->options.owner;

    http_server_close(http);
    http->options.on_failed(http->options.owner, err);
}

static const struct collect_handlers collect_handlers = {.on_snapshot = on_snapshot,
                                                         .on_gauges = on_gauges,
                                                         .on_waiting = on_waiting,
                                                         .on_failed = on_failed};

static void on_read(void *owner, const struct http_job *job)
{
    struct http_server *http = owner;

    if (http->is_closed)
        return;
    http_conns_resume(&http->conns, job->job_id, job->rank_asked, clock_boot_us());
    (void)uv_timer_start(&http->timer, on_timer, 0, 0);
}

static void on_sweep(uv_timer_t *timer)
{
    struct http_server *http = timer->data;

    http->gauges_budget = GAUGES_PER_S;
    ask_gauges(http);
    (void)http_conns_sweep(&http->conns, clock_boot_us());
    turn(http);
}

/* -- beginning and end -- */

static enum status start_daemon(struct http_server *http, struct err *err)
{
    const struct http_server_options *options = &http->options;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (options->cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem items[] = {{MHD_OPTION_LISTEN_SOCKET, options->fd, NULL},
                                     {MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNS_MAX, NULL},
                                     {MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                      options->is_local ? 0 : HTTP_CONNS_PER_ADDRESS_MAX, NULL},
                                     {MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S, NULL},
                                     {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONN_BYTES_MAX, NULL},
                                     {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, http},
                                     {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, http},
                                     {MHD_OPTION_END, 0, NULL},
                                     {MHD_OPTION_END, 0, NULL},
                                     {MHD_OPTION_END, 0, NULL}};

    if (options->cert != NULL) {
        size_t at = sizeof items / sizeof items[0] - 3;

        if (http->mhd.is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
            return err_set(err, STATUS_UNSUPPORTED, 0, "this libmicrohttpd has no TLS");
        items[at] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, NULL};
        memcpy(&items[at].ptr_value, &options->cert, sizeof options->cert);
        items[at + 1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, NULL};
        memcpy(&items[at + 1].ptr_value, &options->key, sizeof options->key);
    }
    http->daemon = http->mhd.start_daemon(flags, 0, NULL, NULL, on_request, http, MHD_OPTION_ARRAY,
                                          items, MHD_OPTION_END);
    if (http->daemon == NULL)
        return err_set(err, STATUS_SYSTEM, 0, "no HTTP server: %s",
                       options->cert != NULL ? "are --cert and --cert-key PEM files that belong "
                                               "together, the key without a password?"
                                             : "out of memory or files");
    return STATUS_OK;
}

enum status http_server_open(struct http_server *http, const struct http_server_options *options,
                             struct err *err)
{
    const union MHD_DaemonInfo *info;
    struct buf style = {0};
    enum status status;

    *http = (struct http_server){.options = *options, .gauges_budget = GAUGES_PER_S};
    http->conns.mhd = &http->mhd;
    status = microhttpd_library_open(&http->mhd, err);
    if (status == STATUS_OK)
        status = start_daemon(http, err);
    if (status != STATUS_OK) {
        (void)close(options->fd);
        return status;
    }
    info = http->mhd.get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    assert(info != NULL); /* MHD_USE_EPOLL */
    http_style_write(&style);
    http->style = make_response(http, &style, "text/css; charset=utf-8");
    (void)uv_poll_init(options->loop, &http->poll, info->epoll_fd);
    (void)uv_timer_init(options->loop, &http->timer);
    (void)uv_timer_init(options->loop, &http->sweep);
    http->poll.data = http->timer.data = http->sweep.data = http;
    http->readers = (struct http_readers){
        .loop = options->loop, .server = options->server, .owner = http, .on_read = on_read};
    (void)uv_poll_start(&http->poll, UV_READABLE, on_poll);
    (void)uv_timer_start(&http->sweep, on_sweep, 1000, 1000);
    collect_open(&http->collect, &(struct collect_options){.loop = options->loop,
                                                           .server = options->server,
                                                           .interval_us = FRESH_US,
                                                           .patience_us = UINT64_MAX,
                                                           .first_is_patient = true,
                                                           .newest = NEWEST_JOBS,
                                                           .handlers = &collect_handlers,
                                                           .owner = http});
    http->gauges_until_us = clock_boot_us() + GAUGES_WANTED_US;
    turn(http);
    return STATUS_OK;
}

void http_server_close(struct http_server *http)
{
    if (http->is_closed)
        return;
    http->is_closed = true;
    http_conns_resume(&http->conns, 0, 0,
                      clock_boot_us()); /* libmicrohttpd cannot stop while one is suspended */
    (void)http->mhd.run(http->daemon);
    uv_close((uv_handle_t *)&http->poll, NULL);
    uv_close((uv_handle_t *)&http->timer, NULL);
    uv_close((uv_handle_t *)&http->sweep, NULL);
    collect_close(&http->collect);
    http_readers_close(&http->readers);
}

void http_server_free(struct http_server *http)
{
    if (http->daemon != NULL)
        http->mhd.stop_daemon(http->daemon);
    for (size_t i = 0; i < HTTP_CACHED_MAX; i++)
        drop_cached(http, &http->cached[i]);
    if (http->style != NULL)
        http->mhd.destroy_response(http->style);
    collect_free(&http->collect);
    http_readers_free(&http->readers);
}
