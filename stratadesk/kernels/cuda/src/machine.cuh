// Types, and the few instructions that C++ has no word for.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

// An IEEE half as float, exactly.
DEVICE float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// The nearest half, ties to even.
DEVICE u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The address of global memory, as one value: what it was computed from is not computed again each
// time it is used, and loads need not ask which memory it is.
DEVICE const u8 *kept(const u8 *address) {
    asm("" : "+l"(address));
    __builtin_assume(__isGlobal(address));
    return address;
}

// The same for a number.
DEVICE u32 kept(u32 number) {
    asm("" : "+r"(number));
    return number;
}

// threadIdx.x % 32, from a register of its own: not a mask that is applied again at every use.
DEVICE u32 own_lane() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// Four of the eight bytes of a and b (0 to 3 and 4 to 7): byte i is the one that nibble i of the low
// half of `selectors` names, all of them below 8. __byte_perm, which takes any, masks them first.
DEVICE u32 permute(u32 a, u32 b, u32 selectors) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selectors));
    return out;
}

// sum + the four products of the signed bytes of a and b.
DEVICE int add_dot(u32 a, u32 b, int sum) {
    int out;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
}

// Whether a kernel may be started while the one before it still runs (compute capability 9.0 and newer).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool OVERLAPS = true;
#else
constexpr bool OVERLAPS = false;
#endif

// Every kernel of a program that Program.overlaps names calls this before it reads what another kernel
// wrote and before it writes. It waits for the kernels before, then lets the next one start up to here.
DEVICE void take_turn() {
    if constexpr (OVERLAPS) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    }
}

// Have the line at `at`, which no kernel writes, brought into the level-2 cache.
DEVICE void fetch_early(const u8 *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
