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

// sum + the four products of the signed bytes of a and b.
DEVICE int add_dot(u32 a, u32 b, int sum) {
    int out;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
}
