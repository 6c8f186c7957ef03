#include "ddpctl/top_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/top_order.h"
#include "ddpctl/top_rows.h"
#include "ddpctl/units.h"

#define HEAD_ROWS 1u /* above the lists */
#define FOOT_ROWS 1u

static const char *const sort_names[2][3] = {{"queue", "progress", "rate"},
                                             {"name", "free slots", "trouble"}};

/* -- where things are -- */

/* Divides the rows of the overview between its two lists, without their headings. Each list gets
 * half, and the rows that the other one does not need. */
static void share_rows(const struct top_view *view, uint32_t shares[2])
{
    uint32_t all = view->rows - HEAD_ROWS - FOOT_ROWS - 2, half = all / 2;
    uint32_t jobs = view->cluster->job_count, nodes = view->cluster->node_count;

    jobs = jobs > 0 ? jobs : 1; /* an empty list shows a sentence */
    nodes = nodes > 0 ? nodes : 1;
    if (jobs < half)
        shares[TOP_JOBS] = jobs;
    else
        shares[TOP_JOBS] = nodes < all - half ? all - nodes : half;
    shares[TOP_NODES] = all - shares[TOP_JOBS];
}

static uint32_t count_of(const struct top_view *view, enum top_pane pane)
{
    return pane == TOP_JOBS ? view->cluster->job_count : view->cluster->node_count;
}

/* Moves the selection and the visible part so that the selected row exists and is visible. */
static void fit(struct top_place *place, uint32_t count, uint32_t rows)
{
    if (place->at >= count)
        place->at = count > 0 ? count - 1 : 0;
    if (place->at < place->first)
        place->first = place->at;
    if (rows > 0 && place->at >= place->first + rows)
        place->first = place->at - rows + 1;
    if (place->first + rows > count)
        place->first = count > rows ? count - rows : 0;
}

static uint32_t rank_rows(const struct top_view *view)
{
    return view->rows > 8 ? view->rows - 8 : 1;
}

static uint32_t slot_rows(const struct top_view *view)
{
    return view->rows > 5 ? view->rows - 5 : 1;
}

static const struct cluster_node *find_node(const struct top_view *view, const char *name)
{
    for (uint32_t i = 0; i < view->cluster->node_count; i++)
        if (strcmp(view->cluster->nodes[i].part.name, name) == 0)
            return &view->cluster->nodes[i];
    return NULL;
}

/* -- keys -- */

static void move(struct top_place *place, enum top_key key, uint32_t count, uint32_t rows)
{
    uint32_t page = rows > 1 ? rows - 1 : 1;

    if (key == TOP_KEY_UP)
        place->at -= place->at > 0;
    else if (key == TOP_KEY_DOWN)
        place->at++;
    else if (key == TOP_KEY_PAGE_UP)
        place->at -= place->at < page ? place->at : page;
    else if (key == TOP_KEY_PAGE_DOWN)
        place->at += page;
    else if (key == TOP_KEY_FIRST)
        place->at = 0;
    else if (key == TOP_KEY_LAST)
        place->at = count > 0 ? count - 1 : 0;
    fit(place, count, rows);
}

/* Opens the selected job or node of the overview. */
static void open_chosen(struct top_state *state, const struct top_view *view)
{
    uint32_t *order = top_order_new(view->cluster, state->pane, state->sorts[state->pane]);
    uint32_t at = state->lists[state->pane].at;

    if (order == NULL || at >= count_of(view, state->pane)) {
        free(order);
        return;
    }
    if (state->pane == TOP_JOBS) {
        (void)snprintf(state->job, sizeof state->job, "%llu",
                       (unsigned long long)view->cluster->jobs[order[at]].part.job_id);
        state->screen = TOP_JOB;
        state->ranks = (struct top_place){0};
    } else {
        (void)snprintf(state->node, sizeof state->node, "%s",
                       view->cluster->nodes[order[at]].part.name);
        state->screen = TOP_NODE;
        state->slots = (struct top_place){0};
    }
    free(order);
}

static void overview_key(struct top_state *state, const struct top_view *view, enum top_key key)
{
    uint32_t shares[2], sorts = state->pane == TOP_JOBS ? TOP_SORTS_OF_JOBS : TOP_SORTS_OF_NODES;

    share_rows(view, shares);
    if (key == TOP_KEY_PANE)
        state->pane = state->pane == TOP_JOBS ? TOP_NODES : TOP_JOBS;
    else if (key == TOP_KEY_SORT)
        state->sorts[state->pane] = (state->sorts[state->pane] + 1) % sorts;
    else if (key == TOP_KEY_OPEN)
        open_chosen(state, view);
    else
        move(&state->lists[state->pane], key, count_of(view, state->pane), shares[state->pane]);
}

void top_key(struct top_state *state, const struct top_view *view, enum top_key key)
{
    bool is_fixed = state->screen == TOP_JOB && state->job_is_fixed;
    const struct cluster_node *node;

    if (key == TOP_KEY_QUIT) {
        state->is_over = true;
    } else if (state->screen == TOP_HELP) {
        state->screen = key == TOP_KEY_NONE ? TOP_HELP : state->below;
    } else if (key == TOP_KEY_HELP) {
        state->below = state->screen;
        state->screen = TOP_HELP;
    } else if (view->rows < TOP_ROWS_MIN) {
        return;
    } else if (state->screen == TOP_OVERVIEW) {
        overview_key(state, view, key);
    } else if (key == TOP_KEY_BACK && !is_fixed) {
        state->screen = TOP_OVERVIEW;
    } else if (state->screen == TOP_JOB) {
        move(&state->ranks, key, view->job != NULL ? view->job->ranks.count : 0, rank_rows(view));
    } else {
        node = find_node(view, state->node);
        move(&state->slots, key, node != NULL ? node->part.slots : 0, slot_rows(view));
    }
}

/* -- screens -- */

static void draw_head(struct top_lines *lines, const struct top_view *view)
{
    const struct cluster *cluster = view->cluster;
    const struct cluster_sums sums = cluster_sums(cluster);
    char text[TEXT_BYTES];

    if (!top_line_begin(lines, ""))
        return;
    if (view->lost_why[0] != '\0' || cluster->taken_us == 0) {
        top_cell_in(lines, 0, TOP_RED, "the server does not answer:");
        top_cell(lines, 0, view->lost_why[0] != '\0' ? view->lost_why : "not reached yet");
        top_line_end(lines);
        return;
    }
    time_text(cluster->wall_ms, text);
    top_cellf(lines, 0, "%.8s UTC ", text + 11);
    top_cellf(lines, 0, "%u running, %u waiting ",
              cluster->job_count - cluster->jobs_by_state[JOB_QUEUED],
              cluster->jobs_by_state[JOB_QUEUED]);
    top_cellf(lines, 0, "%u of %u nodes up ", sums.up, cluster->node_count);
    top_cellf(lines, 0, "%u of %u slots free ", sums.free_slots, sums.slots);
    if (cluster->server.is_known && cluster->server.info.store_is_low)
        top_cell_in(lines, 0, TOP_RED, "the server's disk is nearly full");
    top_line_end(lines);
}

static void draw_list(struct top_state *state, const struct top_view *view, enum top_pane pane,
                      uint32_t rows, struct top_lines *lines)
{
    struct top_place *place = &state->lists[pane];
    uint32_t count = count_of(view, pane);
    uint32_t *order = top_order_new(view->cluster, pane, state->sorts[pane]);
    uint32_t end = lines->row + rows;

    fit(place, count, rows);
    for (uint32_t i = place->first; order != NULL && i < count && i < place->first + rows; i++) {
        bool is_chosen = i == place->at && state->pane == pane;

        if (pane == TOP_JOBS)
            top_row_job(lines, view, &view->cluster->jobs[order[i]], is_chosen);
        else
            top_row_node(lines, view, &view->cluster->nodes[order[i]], is_chosen);
    }
    if (count == 0 && view->cluster->taken_us > 0)
        top_row_sentence(lines, "", pane == TOP_JOBS ? "no jobs wait or run" : "no nodes");
    while (view->is_terminal && lines->row < end)
        top_row_sentence(lines, "", "");
    lines->out->failed = lines->out->failed || order == NULL;
    free(order);
}

static void draw_foot(const struct top_state *state, const struct top_view *view,
                      struct top_lines *lines)
{
    const struct top_place *place = &state->lists[state->pane];
    uint32_t count = count_of(view, state->pane);

    if (!view->is_terminal || !top_line_begin(lines, TOP_DIM))
        return;
    if (state->screen == TOP_OVERVIEW) {
        top_cellf(lines, 0, "%s %u of %u, by %s", state->pane == TOP_JOBS ? "job" : "node",
                  count > 0 ? place->at + 1 : 0, count,
                  state->pane == TOP_JOBS && state->sorts[TOP_JOBS] == TOP_BY_USER
                      ? "user"
                      : sort_names[state->pane][state->sorts[state->pane]]);
        top_cell(lines, 0, "  tab other list  enter open  s sort  ? help  q quit");
    } else {
        top_cell(lines, 0,
                 state->job_is_fixed ? "arrows move  ? help  q quit"
                                     : "arrows move  left back  ? help  q quit");
    }
    top_line_end(lines);
}

static void draw_overview(struct top_state *state, const struct top_view *view,
                          struct top_lines *lines)
{
    uint32_t shares[2];

    share_rows(view, shares);
    top_row_jobs_head(lines);
    draw_list(state, view, TOP_JOBS, shares[TOP_JOBS], lines);
    top_row_nodes_head(lines);
    draw_list(state, view, TOP_NODES, shares[TOP_NODES], lines);
}

static void draw_job_screen(struct top_state *state, const struct top_view *view,
                            struct top_lines *lines)
{
    uint32_t rows = rank_rows(view);

    if (view->job == NULL) {
        top_row_sentence(lines, "",
                         view->job_problem[0] != '\0' ? view->job_problem : "reading the job ...");
        return;
    }
    top_row_job_facts(view, lines);
    top_row_sentence(lines, "", "");
    top_row_ranks_head(lines);
    fit(&state->ranks, view->job->ranks.count, rows);
    for (uint32_t i = state->ranks.first;
         i < view->job->ranks.count && i < state->ranks.first + rows; i++)
        top_row_rank(lines, view, &view->job->ranks.items[i], i == state->ranks.at);
}

static void draw_node_screen(struct top_state *state, const struct top_view *view,
                             struct top_lines *lines)
{
    const struct cluster_node *node = find_node(view, state->node);
    const struct node_gauges *gauges = top_gauges(view, state->node);
    uint32_t rows = slot_rows(view);

    if (node == NULL) {
        top_row_sentence(lines, "", "this node is not known any more");
        return;
    }
    top_row_nodes_head(lines);
    top_row_node(lines, view, node, false);
    top_row_slots_head(lines);
    if (gauges == NULL)
        top_row_sentence(lines, "", "its values have not come yet");
    fit(&state->slots, gauges != NULL ? gauges->slot_count : 0, rows);
    for (uint32_t i = state->slots.first;
         gauges != NULL && i < gauges->slot_count && i < state->slots.first + rows; i++)
        top_row_slot(lines, view, &gauges->slots[i], i == state->slots.at);
}

static void draw_help(struct top_lines *lines)
{
    static const char *const sentences[] = {
        "up, down, k, j        one row",
        "page up, page down    a screen; also b and the space bar",
        "home, end, g, G       the first row, the last one",
        "tab                   from the jobs to the nodes and back",
        "enter, right          a job's ranks, a node's slots",
        "left, escape          back",
        "s                     another order of the list",
        "q, Ctrl-C             quit",
        "",
        "GPUS: how much of the time a kernel ran, of each GPU; x: closed, see ddpctl node show",
        "LEFT: from the steps of late; RATE: samples a second, of all ranks",
    };

    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++)
        top_row_sentence(lines, "", sentences[i]);
}

void top_draw(struct top_state *state, const struct top_view *view, struct buf *out)
{
    struct top_lines lines = {.out = out,
                              .rows = view->rows,
                              .columns = view->columns,
                              .has_color = view->has_color,
                              .is_plain = !view->is_terminal && !view->has_color,
                              .style = ""};

    if (view->rows < TOP_ROWS_MIN || view->columns < TOP_COLUMNS_MIN) {
        top_row_sentence(&lines, "", "too small");
        return;
    }
    draw_head(&lines, view);
    lines.rows -= view->is_terminal ? FOOT_ROWS : 0;
    if (state->screen == TOP_OVERVIEW)
        draw_overview(state, view, &lines);
    else if (state->screen == TOP_JOB)
        draw_job_screen(state, view, &lines);
    else if (state->screen == TOP_NODE)
        draw_node_screen(state, view, &lines);
    else
        draw_help(&lines);
    while (view->is_terminal && lines.row < lines.rows)
        top_row_sentence(&lines, "", "");
    lines.rows = view->rows;
    draw_foot(state, view, &lines);
}

void top_wanted(const struct top_state *state, const struct top_view *view,
                bool (*want)(void *owner, const char *node), void *owner)
{
    uint32_t *order, shares[2], first = state->lists[TOP_NODES].first;
    bool goes_on = true;

    if (view->rows < TOP_ROWS_MIN)
        return;
    if (state->screen == TOP_NODE)
        (void)want(owner, state->node);
    for (uint32_t i = state->ranks.first;
         state->screen == TOP_JOB && view->job != NULL && goes_on && i < view->job->ranks.count &&
         i < state->ranks.first + rank_rows(view);
         i++)
        goes_on = view->job->ranks.items[i].state != RANK_RUNNING ||
                  want(owner, view->job->ranks.items[i].node);
    if (state->screen != TOP_OVERVIEW)
        return;
    share_rows(view, shares);
    order = top_order_new(view->cluster, TOP_NODES, state->sorts[TOP_NODES]);
    for (uint32_t i = first;
         order != NULL && goes_on && i < view->cluster->node_count && i < first + shares[TOP_NODES];
         i++)
        if (view->cluster->nodes[order[i]].part.state == NODE_UP)
            goes_on = want(owner, view->cluster->nodes[order[i]].part.name);
    free(order);
}
