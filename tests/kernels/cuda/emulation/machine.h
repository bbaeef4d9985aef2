// Stands in for machine.cuh: kernels as C++ on a CPU, one block after the other.
//
// The threads of a block are fibers on one thread of the processor, which take turns at barriers and
// shuffles; shared memory is static memory, all NaNs when a block begins. Turns are taken in an order
// that STRATADESK_EMULATION_ORDER chooses (0 forwards, 1 backwards, more: shuffled by that seed, anew
// each time round), blocks come in it too: what needs another order than barriers make is noticed.
// Speed, registers and writes at the same time are not emulated. A warp's lanes that have returned
// take part in nothing.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEVICE inline
#define __device__
#define __global__ __attribute__((used))
#define __shared__ static __attribute__((section("shared_memory")))
#define __launch_bounds__(...)
#define __builtin_assume(...)

struct alignas(8) uint2 { u32 x, y; };
struct uint3 { u32 x, y, z; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };

template <class A, class B> static auto min(A a, B b) { return b < a ? b : a; }
template <class A, class B> static auto max(A a, B b) { return a < b ? b : a; }

constexpr int LANES_OF_A_WARP = 32;
constexpr size_t STACK = 256 * 1024;

struct Barrier {
    int arrived = 0;
    u64 passed = 0;
};

// A fiber is begun once a process: it waits at the end of a block for the next one.
struct Fiber {
    ucontext_t start;
    jmp_buf at;
    char *stack = nullptr;
    uint3 thread{};
    u64 exchanges = 0;
    bool begun = false, done = true;
};

struct Warp {
    int live = 0;
    Barrier barrier;
    u64 slots[2][LANES_OF_A_WARP];
};

static Fiber fibers[1024];
static Warp warps[LANES_OF_A_WARP];
static Barrier whole;
static int live = 0;
static u64 moves = 0;
static Fiber *current = nullptr;
static jmp_buf scheduler;
static uint3 the_block, the_grid, the_threads;
static u32 order_seed = 0, order_state = 0;
extern "C" char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));
static void (*body)();
static u64 *arguments = nullptr;

#define threadIdx (current->thread)
#define blockIdx the_block
#define blockDim the_threads
#define gridDim the_grid

static Warp &own_warp() { return warps[current->thread.x / LANES_OF_A_WARP]; }

static void yield() {
    if (!_setjmp(current->at)) _longjmp(scheduler, 1);
}

static void release(Barrier &barrier, int expected) {
    if (expected && barrier.arrived == expected) barrier.arrived = 0, ++barrier.passed;
}

static void wait_at(Barrier &barrier, const int &expected) {
    const u64 before = barrier.passed;
    ++barrier.arrived;
    release(barrier, expected);
    while (barrier.passed == before) yield();
    ++moves;
}

static void fiber_main() {
    for (;;) {
        body();
        current->done = true, ++moves;
        --live, --own_warp().live;
        release(whole, live);
        release(own_warp().barrier, own_warp().live);
        yield();
    }
}

static void resume(Fiber &fiber) {
    current = &fiber;
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.start);
}

// An order of `count` things.
struct Turns {
    explicit Turns(u32 count) : count(count) {
        if (order_seed < 2) return;
        order_state = order_state * 1664525u + 1013904223u;
        step = 1 + 2 * (order_state >> 20), first = order_state >> 8;
        while (common_divisor(step, count) != 1) step += 2;
    }
    static u32 common_divisor(u32 a, u32 b) { return b ? common_divisor(b, a % b) : a; }
    u32 operator[](u32 i) const {
        if (order_seed < 2) return order_seed ? count - 1 - i : i;
        return (u64(i) * step + first) % count;
    }
    u32 count, step = 1, first = 0;
};

// A warp goes on for as long as it can: nothing but a barrier of the block holds it back.
static void run_warp(int warp, int threads) {
    const int first = warp * LANES_OF_A_WARP;
    u64 before;
    do {
        before = moves;
        const Turns turns(min(LANES_OF_A_WARP, threads - first));
        for (u32 i = 0; i < turns.count; ++i)
            if (!fibers[first + turns[i]].done) resume(fibers[first + turns[i]]);
    } while (moves != before);
}

static void prepare(Fiber &fiber) {
    fiber.stack = static_cast<char *>(malloc(STACK));
    if (!fiber.stack || getcontext(&fiber.start)) abort();
    fiber.start.uc_stack.ss_sp = fiber.stack;
    fiber.start.uc_stack.ss_size = STACK;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
}

static void run_block(int threads) {
    live = threads, whole = {};
    for (int w = 0; w < LANES_OF_A_WARP; ++w) {
        warps[w].live = max(0, min(LANES_OF_A_WARP, threads - w * LANES_OF_A_WARP));
        warps[w].barrier = {};
    }
    for (int i = 0; i < threads; ++i) {
        Fiber &fiber = fibers[i];
        if (!fiber.stack) prepare(fiber);
        fiber.thread = {u32(i), 0, 0};
        fiber.exchanges = 0, fiber.done = false;
    }
    if (__start_shared_memory)
        memset(__start_shared_memory, 0xff, __stop_shared_memory - __start_shared_memory);
    while (live) {
        const Turns turns((threads + LANES_OF_A_WARP - 1) / LANES_OF_A_WARP);
        for (u32 i = 0; i < turns.count; ++i) run_warp(turns[i], threads);
    }
}

static void run_grid(uint3 grid, int threads, void (*kernel)(), u64 *passed) {
    body = kernel, arguments = passed;
    the_grid = grid, the_threads = {u32(threads), 1, 1};
    const char *chosen = getenv("STRATADESK_EMULATION_ORDER");
    order_seed = order_state = chosen ? atoi(chosen) : 0;
    const Turns turns(grid.x * grid.y * grid.z);
    for (u32 i = 0; i < turns.count; ++i) {
        const u32 at = turns[i];
        the_block = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
        run_block(threads);
    }
}

static inline void __syncthreads() { wait_at(whole, live); }
static inline void __syncwarp() { wait_at(own_warp().barrier, own_warp().live); }
// Only ever orders loads in the sources: nothing to do.
static inline void __syncwarp(u32) {}
static inline u32 __activemask() { return 0; }

// What each lane of a warp says, read by the others: two slots in turn need one barrier each.
template <class T> static u64 *said_by_warp(T value) {
    Warp &warp = own_warp();
    u64 *slots = warp.slots[current->exchanges++ % 2];
    memcpy(slots + current->thread.x % LANES_OF_A_WARP, &value, sizeof value);
    wait_at(warp.barrier, warp.live);
    return slots;
}
template <class T> static T __shfl_sync(u32, T value, int lane) {
    T out;
    memcpy(&out, said_by_warp(value) + lane % LANES_OF_A_WARP, sizeof out);
    return out;
}
template <class T> static T __shfl_xor_sync(u32 mask, T value, int distance) {
    const int lane = current->thread.x % LANES_OF_A_WARP;
    return __shfl_sync(mask, value, lane ^ distance);
}
template <class T> static T __shfl_up_sync(u32 mask, T value, int distance) {
    const int lane = current->thread.x % LANES_OF_A_WARP;
    return __shfl_sync(mask, value, lane < distance ? lane : lane - distance);
}
static inline u32 __ballot_sync(u32, int predicate) {
    u32 votes = 0;
    const u64 *said = said_by_warp(u32(predicate != 0));
    for (int lane = 0; lane < LANES_OF_A_WARP; ++lane) votes |= u32(said[lane] & 1u) << lane;
    return votes;
}

template <class T> static T atomicAdd(T *at, T value) {
    const T before = *at;
    *at = before + value;
    return before;
}
template <class T> static T atomicMax(T *at, T value) {
    const T before = *at;
    *at = before < value ? value : before;
    return before;
}
template <class T> static T atomicOr(T *at, T value) {
    const T before = *at;
    *at = before | value;
    return before;
}

template <class T> static T __ldg(const T *at) { return *at; }

template <class To, class From> static To bits_as(From value) {
    To out;
    memcpy(&out, &value, sizeof out);
    return out;
}
static inline float __uint_as_float(u32 bits) { return bits_as<float>(bits); }
static inline float __int_as_float(i32 bits) { return bits_as<float>(bits); }
static inline i32 __float_as_int(float value) { return bits_as<i32>(value); }
static inline u32 __float_as_uint(float value) { return bits_as<u32>(value); }
static inline int __float2int_rn(float value) { return int(nearbyintf(value)); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline int __popc(u32 bits) { return __builtin_popcount(bits); }
static inline int __clz(u32 bits) { return bits ? __builtin_clz(bits) : 32; }
static inline int __ffs(u32 bits) { return __builtin_ffs(int(bits)); }
static inline u32 __byte_perm(u32 a, u32 b, u32 selector) {
    const u64 bytes = u64(b) << 32 | a;
    u32 out = 0;
    for (int i = 0; i < 4; ++i) out |= u32(bytes >> (8 * ((selector >> (4 * i)) & 7)) & 255) << 8 * i;
    return out;
}
constexpr bool OVERLAPS = false;
static inline void take_turn() {}
static inline void fetch_early(const u8 *) {}
static inline const u8 *kept(const u8 *address) { return address; }
static inline u32 kept(u32 number) { return number; }
static inline u32 own_lane() { return threadIdx.x % LANES_OF_A_WARP; }
// A selector of 8 or more would repeat a sign on a card: nothing here means that.
static inline u32 permute(u32 a, u32 b, u32 selectors) {
    if (selectors & 0x8888) abort();
    return __byte_perm(a, b, selectors);
}
static inline u32 __funnelshift_r(u32 low, u32 high, u32 shift) {
    return u32((u64(high) << 32 | low) >> (shift & 31));
}
static inline u32 __funnelshift_rc(u32 low, u32 high, u32 shift) {
    return u32((u64(high) << 32 | low) >> min(shift, 32u));
}

static inline float half_to_float(u16 bits) { return float(bits_as<_Float16>(bits)); }
static inline u16 float_to_half(float value) { return bits_as<u16>(_Float16(value)); }
static inline int add_dot(u32 a, u32 b, int sum) {
    for (int i = 0; i < 4; ++i) sum += int(i8(a >> 8 * i)) * int(i8(b >> 8 * i));
    return sum;
}
