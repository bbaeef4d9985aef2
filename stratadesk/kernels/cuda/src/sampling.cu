// The next token from a row of logits, drawn on the device as `engine/sampler.py` draws it: the best
// top_k, of them those that hold top_p of all probability, of them those within min_p of the best,
// then a draw at a temperature. Penalties are the host's.
//
// Instead of sorting the vocabulary, logits are counted by how far they lie below the best, in
// buckets that grow with the distance; only those down to the bucket in which top_k is passed are
// sorted. Counts are whole numbers and keys are unique, so that the order in which threads run
// changes nothing.
#include "bits.cuh"

constexpr int BUCKETS = 2048, MOST = 2048, THREADS = 512;

// `best`: the highest key. `bad`: a logit is not finite. `found`: logits down to bucket `cut`, MOST
// at most of which are in `keys`; with more of them the draw fails.
struct Draw {
    u64 best;
    u32 bad, cut, found, unused;
    u32 counts[BUCKETS];
    u64 keys[MOST];
};

// `top_k` is 1 to MOST and less than the vocabulary; `log_min_p` is minus infinity for none;
// temperature 0 takes the best.
struct Wishes {
    double temperature, top_p, log_min_p;
    i32 top_k, unused;
};

// Where a turn stands: tokens drawn so far, and whether it has ended: an end token was drawn, or none
// could be. `ends` are the end tokens.
constexpr int RING = 16;
struct Turn {
    i32 drawn, ended, ends_count, unused;
    i32 ends[60];
};
struct Step {
    i32 position, side;
};

// Whole numbers in the order of floats.
DEVICE u32 ordered(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Higher for higher logits, and for lower indices among equal ones.
DEVICE u64 key_of(float logit, u32 index) {
    return u64(ordered(logit)) << 32 | (0xffffffffu - index);
}
DEVICE float logit_of(u64 key) {
    const u32 upper = u32(key >> 32);
    return __uint_as_float(upper & 0x80000000u ? upper & 0x7fffffffu : ~upper);
}
DEVICE u32 index_of(u64 key) { return 0xffffffffu - u32(key); }

// By the distance in steps of floats: 64 buckets to each doubling of it.
DEVICE u32 bucket_of(float logit, u64 best) {
    const u32 own = ordered(logit), distance = u32(best >> 32) - own;
    const int doublings = 25 - __clz(distance | 63u);
    return 64 * max(doublings, 0) + (distance >> max(doublings, 0));
}

extern "C" {

// One block.
__global__ void __launch_bounds__(THREADS) begin_draw(Draw *draw) {
    for (int i = threadIdx.x; i < BUCKETS; i += blockDim.x) draw->counts[i] = 0;
    if (threadIdx.x == 0) draw->best = 0, draw->bad = draw->cut = draw->found = 0;
}

__global__ void __launch_bounds__(256) find_best(const float *logits, int count, Draw *draw) {
    u64 best = 0;
    u32 bad = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const float logit = logits[i];
        bad |= !(fabsf(logit) <= 3.402823466e38f);
        best = max(best, key_of(logit, i));
    }
#pragma unroll
    for (int distance = WARP / 2; distance; distance >>= 1)
        best = max(best, __shfl_xor_sync(ALL_LANES, best, distance));
    if (threadIdx.x % WARP == 0) atomicMax(&draw->best, best);
    if (bad) atomicOr(&draw->bad, 1u);
}

__global__ void __launch_bounds__(256) count_logits(const float *logits, int count, Draw *draw) {
    __shared__ u32 counts[BUCKETS];
    const u64 best = draw->best;
    for (int i = threadIdx.x; i < BUCKETS; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(counts + bucket_of(logits[i], best), 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < BUCKETS; i += blockDim.x)
        if (counts[i]) atomicAdd(draw->counts + i, counts[i]);
}

// One warp: the bucket in which the top_k-th best lies.
__global__ void __launch_bounds__(WARP) find_cut(const Wishes *wishes, int count, Draw *draw) {
    constexpr int EACH = BUCKETS / WARP;
    const u32 *own = draw->counts + threadIdx.x * EACH;
    const u32 wanted = u32(min(wishes->top_k, count));
    u32 sum = 0;
    for (int i = 0; i < EACH; ++i) sum += own[i];
    u32 upto = sum;
#pragma unroll
    for (int distance = 1; distance < WARP; distance <<= 1) {
        const u32 other = __shfl_up_sync(ALL_LANES, upto, distance);
        if (threadIdx.x >= distance) upto += other;
    }
    u32 before = upto - sum;
    if (before >= wanted || upto < wanted) return;
    int bucket = 0;
    while (before + own[bucket] < wanted) before += own[bucket++];
    draw->cut = threadIdx.x * EACH + bucket;
}

__global__ void __launch_bounds__(256) gather(const float *logits, int count, Draw *draw) {
    const u64 best = draw->best;
    const u32 cut = draw->cut;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (bucket_of(logits[i], best) > cut) continue;
        const u32 place = atomicAdd(&draw->found, 1u);
        if (place < MOST) draw->keys[place] = key_of(logits[i], i);
    }
}

// One thread: the token that was read is held, unless the turn had ended before it.
__global__ void advance_turn(Step *step, const Turn *turn) {
    if (turn->ended) return;
    step->position += 1;
    step->side = 1 - step->side;
}

// One block: the next token to `token` and, with those drawn before, to the ring `said`; -1 is said
// when a logit is not finite, -2 when too many are alike, and ends the turn as an end token does.
// `shares` (a ring, 0 to below 1) say at which share of all weight a draw stops. Nothing once the
// turn has ended. Both rings may be host memory.
__global__ void __launch_bounds__(THREADS)
    draw_token(const Wishes *wishes, const double *shares, Draw *draw, Turn *turn, i32 *token,
               i32 *said) {
    if (turn->ended) return;
    __shared__ u64 keys[MOST];
    __shared__ double weights[MOST];
    const int found = int(min(draw->found, u32(MOST)));
    for (int i = threadIdx.x; i < MOST; i += THREADS) keys[i] = i < found ? draw->keys[i] : 0;
    // Bitonic, highest first.
    for (int size = 2; size <= MOST; size <<= 1)
        for (int step = size / 2; step; step >>= 1) {
            __syncthreads();
            for (int i = threadIdx.x; i < MOST; i += THREADS) {
                const int other = i ^ step;
                const bool falling = (i & size) == 0;
                if (other < i) continue;
                const u64 a = keys[i], b = keys[other];
                if ((a < b) == falling) keys[i] = b, keys[other] = a;
            }
        }
    __syncthreads();
    const double best = logit_of(draw->best), temperature = wishes->temperature;
    __shared__ int kept;
    if (threadIdx.x == 0) kept = min(wishes->top_k, found);
    __syncthreads();
    if (wishes->top_p < 1.0) {
        for (int i = threadIdx.x; i < kept; i += THREADS)
            weights[i] = exp(double(logit_of(keys[i])) - best);
        __syncthreads();
        if (threadIdx.x == 0) {
            double total = 0.0, sum = 0.0;
            for (int i = 0; i < kept; ++i) total += weights[i];
            int size = 0;
            while (size < kept && sum < wishes->top_p * total) sum += weights[size++];
            kept = max(size, 1);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const float floor = float(best + wishes->log_min_p);
        int size = 0;
        while (size < kept && logit_of(keys[size]) >= floor) ++size;
        kept = max(size, 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kept; i += THREADS)
        weights[i] = exp((double(logit_of(keys[i])) - best) / temperature);
    __syncthreads();
    if (threadIdx.x) return;
    int chosen = 0;
    if (temperature > 0.0) {
        const double share = shares[turn->drawn % RING];
        double total = 0.0, sum = weights[0];
        for (int i = 0; i < kept; ++i) total += weights[i];
        while (chosen + 1 < kept && sum <= share * total) sum += weights[++chosen];
    }
    const u64 key = temperature > 0.0 ? keys[chosen] : draw->best;
    const bool crowded = temperature > 0.0 && draw->found > MOST;
    const i32 found_token = draw->bad ? -1 : crowded ? -2 : i32(index_of(key));
    said[turn->drawn % RING] = found_token;
    if (found_token >= 0) *token = found_token;
    bool ended = found_token < 0;
    for (int i = 0; i < turn->ends_count; ++i) ended |= turn->ends[i] == found_token;
    turn->ended = ended;
    turn->drawn += 1;
}
}
