/* The coroutines behind standin.h: one stack a thread of a block, started by ucontext and switched
 * by longjmp, which leaves the signal mask alone and so makes no system call. */
#include "tests/standin/cuda/device/standin.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <utility>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{
constexpr uint32_t THREADS_MAX = 1024;
constexpr uint32_t WARP_LANES = 32;
constexpr size_t STACK_BYTES = 64 * 1024;

enum state { RUNS, AT_BARRIER, AT_SHUFFLE, ENDED };

/* Where a coroutine goes on. AddressSanitizer's longjmp knows one stack alone, its swapcontext
 * several. */
#ifdef __SANITIZE_ADDRESS__
using place = ucontext_t;

void leave(place &own, place &other)
{
    (void)swapcontext(&own, &other);
}

void leave_for_good(place &other)
{
    (void)setcontext(&other);
}
#else
using place = jmp_buf;

void leave(place &own, place &other)
{
    if (_setjmp(own) == 0)
        _longjmp(other, 1);
}

void leave_for_good(place &other)
{
    _longjmp(other, 1);
}
#endif

struct thread {
    place goes_on;
    bool has_begun;
    enum state state;
    uint64_t given; /* to the shuffle */
    char *stack;
};

struct thread threads[THREADS_MAX];
place scheduler;
uint32_t thread_count, running;
void (*body)(void *);
void *body_user;
uint64_t random_state = 1;

uint32_t draw_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((random_state >> 33) % n);
}

[[noreturn]] void give_up(const char *what)
{
    (void)fprintf(stderr, "CUDA stand-in: block %u, thread %u: %s\n", blockIdx.x, running, what);
    abort();
}

void on_start(void)
{
    body(body_user);
    threads[running].state = ENDED;
    leave_for_good(scheduler);
}

/* Begins `thread` on its own stack. */
void begin(struct thread *thread)
{
    ucontext_t context;

    (void)getcontext(&context);
    context.uc_stack.ss_sp = thread->stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, on_start, 0);
    thread->has_begun = true;
#ifdef __SANITIZE_ADDRESS__
    (void)swapcontext(&scheduler, &context);
#else
    if (_setjmp(scheduler) == 0)
        (void)setcontext(&context);
#endif
}

/* Comes back when thread `index` waits or has ended. */
void go_on(uint32_t index)
{
    running = index;
    threadIdx = {index, 0, 0};
    if (threads[index].has_begun)
        leave(scheduler, threads[index].goes_on);
    else
        begin(&threads[index]);
}

void wait_as(enum state state)
{
    threads[running].state = state;
    leave(threads[running].goes_on, scheduler);
}

/* Runs what can run, each until its next wait, in a drawn order. */
bool run_some(void)
{
    uint32_t order[THREADS_MAX];
    bool any = false;

    for (uint32_t i = 0; i < thread_count; i++)
        order[i] = i;
    for (uint32_t i = thread_count; i > 1; i--)
        std::swap(order[i - 1], order[draw_below(i)]);
    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[order[i]].state != RUNS)
            continue;
        any = true;
        go_on(order[i]);
    }
    return any;
}

/* Threads first .. last go on where all of them wait for the same. */
bool release(uint32_t first, uint32_t last, enum state wanted, bool ended_count)
{
    bool any = false;

    for (uint32_t i = first; i < last; i++) {
        if (threads[i].state != wanted && !(ended_count && threads[i].state == ENDED))
            return false;
        any = any || threads[i].state == wanted;
    }
    for (uint32_t i = first; i < last; i++)
        if (threads[i].state == wanted)
            threads[i].state = RUNS;
    return any;
}

bool release_any(void)
{
    bool any = false;

    for (uint32_t first = 0; first < thread_count; first += WARP_LANES)
        any = release(first, first + WARP_LANES, AT_SHUFFLE, false) || any;
    return any || release(0, thread_count, AT_BARRIER, true);
}

void run_block(void)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        struct thread *thread = &threads[i];

        if (thread->stack == NULL)
            thread->stack = (char *)malloc(STACK_BYTES);
        if (thread->stack == NULL)
            give_up("out of memory");
        thread->has_begun = false;
        thread->state = RUNS;
    }
    while (run_some() || release_any())
        ;
    for (running = 0; running < thread_count; running++)
        if (threads[running].state != ENDED)
            give_up("waits at a barrier or shuffle that others do not reach");
}
} // namespace

void standin_seed(uint64_t seed)
{
    random_state = seed * 2 + 1;
}

bool standin_launch(dim3 grid, dim3 block, void (*thread)(void *), void *user)
{
    if (block.x == 0 || block.x > THREADS_MAX || block.x % WARP_LANES != 0 || block.y != 1 ||
        block.z != 1 || grid.x == 0 || grid.x > INT32_MAX || grid.y == 0 || grid.y > 65535 ||
        grid.z != 1)
        return false;
    thread_count = block.x;
    body = thread;
    body_user = user;
    gridDim = grid;
    blockDim = block;

    /* from a drawn block on, up or down */
    const uint64_t count = (uint64_t)grid.x * grid.y, step = draw_below(2) == 0 ? 1 : count - 1;
    uint64_t at = draw_below(grid.x) + (uint64_t)draw_below(grid.y) * grid.x;

    for (uint64_t i = 0; i < count; i++, at = (at + step) % count) {
        blockIdx = {(uint32_t)(at % grid.x), (uint32_t)(at / grid.x), 0};
        run_block();
    }
    return true;
}

void __syncthreads(void)
{
    wait_as(AT_BARRIER);
}

void standin_exchange(uint64_t value, uint64_t values[32])
{
    const uint32_t first = running / WARP_LANES * WARP_LANES;

    threads[running].given = value;
    wait_as(AT_SHUFFLE);
    for (uint32_t lane = 0; lane < WARP_LANES; lane++)
        values[lane] = threads[first + lane].given;
    wait_as(AT_SHUFFLE); /* nobody gives the next one before all have this */
}
