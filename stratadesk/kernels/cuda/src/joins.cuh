// Sums over the lanes that share rows; a lane ends with a piece of them.
#pragma once
#include "bits.cuh"

constexpr u32 NONE = ~0u;

// A lane hands HALF of its values over, to the lane `distance` away, and keeps the sums of the others.
template <int HALF, int N> DEVICE void hand_over(float (&v)[N], u32 distance) {
    const bool upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const float low = v[i], high = v[i + HALF];
        v[i] = (upper ? high : low) + __shfl_xor_sync(ALL_LANES, upper ? low : high, distance);
    }
}

// Sums of N values over each `width` lanes of a warp. At the first STEPS distances a lane hands half of
// its values over, so each lane ends with one of 2^STEPS pieces of them, in v[0] on, and
// `width` >> STEPS lanes with the same. The order is that of a butterfly.
template <int STEPS, int N> DEVICE void join_warp(float (&v)[N], u32 width) {
    static_assert(STEPS <= 2);
    if constexpr (STEPS > 0) hand_over<N / 2>(v, width / 2);
    if constexpr (STEPS > 1) hand_over<N / 4>(v, width / 4);
    for (u32 distance = width >> (STEPS + 1); distance; distance >>= 1)
#pragma unroll
        for (int i = 0; i < N >> STEPS; ++i) v[i] += __shfl_xor_sync(ALL_LANES, v[i], distance);
}

// Which of four pieces of the sums over a group of at most a warp a lane holds after two steps; NONE
// if another lane gives it out.
DEVICE u32 own_piece(u32 width) {
    return threadIdx.x % (width / 4) ? NONE : threadIdx.x / (width / 4) % 4;
}

// The same for groups of any width, once join_lanes has gone over them.
DEVICE u32 joined_piece(u32 width) {
    return threadIdx.x % width < WARP ? own_piece(min(width, u32(WARP))) : NONE;
}

// The same over groups of any width. All threads of the block must come here; `scratch` is used up.
template <int N, u32 BLOCK_WARPS>
DEVICE u32 join_lanes(float (&v)[N], u32 width, float (&scratch)[BLOCK_WARPS][N]) {
    join_warp<2>(v, min(width, u32(WARP)));
    const u32 piece = own_piece(min(width, u32(WARP)));
    if (width <= WARP) return piece;
    const u32 warp = threadIdx.x / WARP;
    __syncthreads();
    if (piece != NONE)
#pragma unroll
        for (int i = 0; i < N / 4; ++i) scratch[warp][piece * (N / 4) + i] = v[i];
    __syncthreads();
    if (piece == NONE || threadIdx.x % width >= WARP) return NONE;
    for (u32 other = warp + 1; other < warp + width / WARP; ++other)
#pragma unroll
        for (int i = 0; i < N / 4; ++i) v[i] += scratch[other][piece * (N / 4) + i];
    return piece;
}
