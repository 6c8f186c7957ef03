/* The coroutines behind standin.h: one stack a thread of a block, made once by ucontext and kept from
 * block to block. Switched by longjmp, which leaves the signal mask alone and so makes no system call. */
#include "tests/standin/cuda/device/standin.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{
constexpr uint32_t THREADS_MAX = 1024;
constexpr uint32_t WARP_LANES = 32;
/* Not a power of two: the ends of the stacks would all lie in the same few sets of the cache. */
constexpr size_t STACK_BYTES = 64 * 1024 + 13 * 64;

enum state { RUNS, AT_BARRIER, AT_SHUFFLE, ENDED };

/* Where a coroutine goes on. AddressSanitizer's longjmp knows one stack alone, its swapcontext
 * several. */
#ifdef __SANITIZE_ADDRESS__
using place = ucontext_t;

void leave(place &own, place &other)
{
    (void)swapcontext(&own, &other);
}
#else
using place = jmp_buf;

void leave(place &own, place &other)
{
    if (_setjmp(own) == 0)
        _longjmp(other, 1);
}
#endif

struct thread {
    place goes_on;
    bool has_begun;
    uint32_t turn; /* which of `given` the next shuffle is in */
    enum state state;
};

struct thread threads[THREADS_MAX];
/* What threads give to a shuffle. Two, in turns: a thread that gives into one has read the other, and all
 * have given before any goes on to the next. */
uint64_t given[2][THREADS_MAX];
char *stacks;
place scheduler;
uint32_t thread_count, running;
void (*body)(void *);
void *body_user;
uint64_t random_state = 1;

uint32_t draw_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

[[noreturn]] void give_up(const char *what)
{
    (void)fprintf(stderr, "CUDA stand-in: block %u, thread %u: %s\n", blockIdx.x, running, what);
    abort();
}

/* One thread of block after block. */
void on_start(void)
{
    for (;;) {
        struct thread *own = &threads[running];

        body(body_user);
        own->state = ENDED;
        leave(own->goes_on, scheduler);
    }
}

/* Begins thread `index` on its own stack. */
void begin(uint32_t index)
{
    ucontext_t context;

    if (stacks == NULL)
        stacks = (char *)malloc(THREADS_MAX * STACK_BYTES);
    if (stacks == NULL)
        give_up("out of memory");
    threads[index].has_begun = true;
    (void)getcontext(&context);
    context.uc_stack.ss_sp = stacks + index * STACK_BYTES;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, on_start, 0);
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
        begin(index);
}

void wait_as(enum state state)
{
    threads[running].state = state;
    leave(threads[running].goes_on, scheduler);
}

/* Runs what can run, each until its next wait, in a drawn order. */
bool run_some(void)
{
    uint32_t order[THREADS_MAX], count = 0;

    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[i].state != RUNS)
            continue;
        const uint32_t at = draw_below(count + 1);

        order[count++] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        go_on(order[i]);
    return count > 0;
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
        threads[i].state = RUNS;
        threads[i].turn = 0;
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

const uint64_t *standin_exchange(uint64_t value)
{
    struct thread *own = &threads[running];
    uint64_t *all = given[own->turn];

    own->turn ^= 1;
    all[running] = value;
    wait_as(AT_SHUFFLE);
    return all + running / WARP_LANES * WARP_LANES;
}
