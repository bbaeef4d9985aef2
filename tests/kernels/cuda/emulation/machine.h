// Stands in for machine.cuh: kernels as C++ on a CPU, one block after the other.
//
// The threads of a block are fibers on one thread of the processor, which take turns at barriers and
// shuffles; shared memory is static memory. What depends on how threads run at the same time (races,
// speed, registers) is not emulated. A warp's lanes that have returned take part in nothing.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEVICE inline
#define __device__
#define __global__ __attribute__((used))
#define __shared__ static
#define __launch_bounds__(...)
#define __builtin_assume(...)

struct uint2 { u32 x, y; };
struct uint3 { u32 x, y, z; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };

constexpr int LANES_OF_A_WARP = 32;
constexpr size_t STACK = 256 * 1024;

struct Barrier {
    int arrived = 0;
    u64 passed = 0;
};

struct Fiber {
    ucontext_t start;
    jmp_buf at;
    std::vector<char> stack;
    uint3 thread{};
    u64 exchanges = 0;
    bool begun = false, done = true;
};

struct Warp {
    int live = 0;
    Barrier barrier;
    u64 slots[2][LANES_OF_A_WARP];
};

static std::vector<Fiber> fibers(1024);
static std::vector<Warp> warps(LANES_OF_A_WARP);
static Barrier whole;
static int live = 0;
static Fiber *current = nullptr;
static jmp_buf scheduler;
static uint3 the_block, the_grid, the_threads;
static std::function<void()> body;

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
}

static void fiber_main() {
    body();
    current->done = true;
    --live, --own_warp().live;
    release(whole, live);
    release(own_warp().barrier, own_warp().live);
    _longjmp(scheduler, 1);
}

static void resume(Fiber &fiber) {
    current = &fiber;
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.start);
}

static void run_block(int threads) {
    live = threads, whole = {};
    for (int w = 0; w < LANES_OF_A_WARP; ++w) {
        warps[w].live = std::max(0, std::min(LANES_OF_A_WARP, threads - w * LANES_OF_A_WARP));
        warps[w].barrier = {};
    }
    for (int i = 0; i < threads; ++i) {
        Fiber &fiber = fibers[i];
        fiber.stack.resize(STACK);
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack.data();
        fiber.start.uc_stack.ss_size = fiber.stack.size();
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, fiber_main, 0);
        fiber.thread = {u32(i), 0, 0};
        fiber.exchanges = 0, fiber.begun = fiber.done = false;
    }
    while (live)
        for (int i = 0; i < threads; ++i)
            if (!fibers[i].done) resume(fibers[i]);
}

static void run_grid(uint3 grid, int threads, std::function<void()> kernel) {
    body = std::move(kernel);
    the_grid = grid, the_threads = {u32(threads), 1, 1};
    for (u32 z = 0; z < grid.z; ++z)
        for (u32 y = 0; y < grid.y; ++y)
            for (u32 x = 0; x < grid.x; ++x) the_block = {x, y, z}, run_block(threads);
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
    *at = std::max(before, value);
    return before;
}
template <class T> static T atomicOr(T *at, T value) {
    const T before = *at;
    *at = before | value;
    return before;
}

template <class A, class B> static auto min(A a, B b) { return b < a ? b : a; }
template <class A, class B> static auto max(A a, B b) { return a < b ? b : a; }
template <class T> static T __ldg(const T *at) { return *at; }

template <class To, class From> static To bits_as(From value) {
    To out;
    memcpy(&out, &value, sizeof out);
    return out;
}
static inline float __uint_as_float(u32 bits) { return bits_as<float>(bits); }
static inline float __int_as_float(i32 bits) { return bits_as<float>(bits); }
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
static inline const u8 *kept(const u8 *address) { return address; }
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
