// Tensor formats: how the values of a block are read from its bytes.
//
// A row is a whole number of blocks of BLOCK values in BYTES bytes. A block is read by LANES
// lanes, each of which takes VALUES values in GROUPS groups of equal length; a value is
// q * scale + offset of its group, rounded after each operation, as in the reference
// dequantization of the gguf package. `at` says where in the block value i of a lane lies; runs
// of four (RUN) values lie side by side.
//
// Lanes are dealt out so that neighbours read neighbouring bytes. Blocks begin at multiples of
// ALIGN bytes: the largest power of two that divides BYTES, 16 at most.
#pragma once
#include "bits.cuh"
#include "codebooks.cuh"

constexpr int RUN = 4;

struct F32 {
    static constexpr int BLOCK = 4, BYTES = 16, LANES = 1, VALUES = 4, GROUPS = 1;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int, int i) { return i; }
    static DEVICE void read(const u8 *block, int, float *q, float *scale, float *) {
        const uint4 words = load128(block);
        q[0] = __uint_as_float(words.x), q[1] = __uint_as_float(words.y);
        q[2] = __uint_as_float(words.z), q[3] = __uint_as_float(words.w);
        scale[0] = 1.0f;
    }
};

// Eight values of two bytes, without a scale.
struct Halves {
    static constexpr int BLOCK = 8, BYTES = 16, LANES = 1, VALUES = 8, GROUPS = 1;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int, int i) { return i; }
};

struct F16 : Halves {
    static DEVICE void read(const u8 *block, int, float *q, float *scale, float *) {
        const uint4 words = load128(block);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) q[i] = half_to_float(u16(pairs[i / 2] >> (16 * (i % 2))));
        scale[0] = 1.0f;
    }
};

struct BF16 : Halves {
    static DEVICE void read(const u8 *block, int, float *q, float *scale, float *) {
        const uint4 words = load128(block);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 8; ++i)
            q[i] = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
        scale[0] = 1.0f;
    }
};

// Half scale, 32 signed bytes.
struct Q8_0 {
    static constexpr int BLOCK = 32, BYTES = 34, LANES = 8, VALUES = 4, GROUPS = 1;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int lane, int i) { return 4 * lane + i; }
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        signed_bytes_to_floats(load32_even(block + 2 + 4 * lane), q);
        scale[0] = half_to_float(load16(block));
    }
};

// Low nibbles of bytes 4·lane … are values of the first half of a block, high ones of the second.
struct Nibbles32 {
    static constexpr int BLOCK = 32, LANES = 4, VALUES = 8, GROUPS = 1;
    static DEVICE int at(int lane, int i) { return 16 * (i / 4) + 4 * lane + i % 4; }
};

struct Q4_0 : Nibbles32 {
    static constexpr int BYTES = 18;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 bytes = load32_even(block + 2 + 4 * lane);
        bytes_to_floats(bytes & 0x0f0f0f0fu, 8.0f, q);
        bytes_to_floats((bytes >> 4) & 0x0f0f0f0fu, 8.0f, q + 4);
        scale[0] = half_to_float(load16(block));
    }
};

struct Q4_1 : Nibbles32 {
    static constexpr int BYTES = 20;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *offset) {
        const u32 bytes = load32(block + 4 + 4 * lane), pair = load32(block);
        bytes_to_floats(bytes & 0x0f0f0f0fu, 0.0f, q);
        bytes_to_floats((bytes >> 4) & 0x0f0f0f0fu, 0.0f, q + 4);
        scale[0] = half_to_float(u16(pair)), offset[0] = half_to_float(u16(pair >> 16));
    }
};

// The low four bits of `bits`, each as bit 4 of a byte.
DEVICE u32 fifth_bits(u32 bits) {
    return ((bits & 1u) << 4) | ((bits & 2u) << 11) | ((bits & 4u) << 18) | ((bits & 8u) << 25);
}

struct Q5_0 : Nibbles32 {
    static constexpr int BYTES = 22;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 high = load32_even(block + 2) >> (4 * lane);
        const u32 bytes = load32_even(block + 6 + 4 * lane);
        bytes_to_floats((bytes & 0x0f0f0f0fu) | fifth_bits(high), 16.0f, q);
        bytes_to_floats(((bytes >> 4) & 0x0f0f0f0fu) | fifth_bits(high >> 16), 16.0f, q + 4);
        scale[0] = half_to_float(load16(block));
    }
};

struct Q5_1 : Nibbles32 {
    static constexpr int BYTES = 24;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *offset) {
        const u32 high = load32(block + 4) >> (4 * lane), pair = load32(block);
        const u32 bytes = load32(block + 8 + 4 * lane);
        bytes_to_floats((bytes & 0x0f0f0f0fu) | fifth_bits(high), 0.0f, q);
        bytes_to_floats(((bytes >> 4) & 0x0f0f0f0fu) | fifth_bits(high >> 16), 0.0f, q + 4);
        scale[0] = half_to_float(u16(pair)), offset[0] = half_to_float(u16(pair >> 16));
    }
};

// The four table entries that the nibbles of the low 16 bits of `nibbles` name, lowest first.
// `table` holds 16 bytes. A permutation chooses among eight bytes, so both halves are looked up
// and bit 3 of each nibble chooses between them.
DEVICE u32 look_up(const u32 *table, u32 nibbles) {
    const u32 low = __byte_perm(table[0], table[1], nibbles & 0x7777u);
    const u32 high = __byte_perm(table[2], table[3], nibbles & 0x7777u);
    return __byte_perm(low, high, 0x3210u | ((nibbles & 0x8888u) >> 1));
}

// Values of the low nibbles of four bytes to `low`, of the high ones to `high`. The table's
// entries are larger by 128 than the values.
DEVICE void look_up_nibbles(const u32 *table, u32 bytes, float *low, float *high) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const u32 entries = look_up(table, bytes >> (16 * half));
        low[2 * half] = byte_to_float(entries, 0, 128.0f);
        high[2 * half] = byte_to_float(entries, 1, 128.0f);
        low[2 * half + 1] = byte_to_float(entries, 2, 128.0f);
        high[2 * half + 1] = byte_to_float(entries, 3, 128.0f);
    }
}

struct IQ4_NL : Nibbles32 {
    static constexpr int BYTES = 18;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 table[4] = IQ4_TABLE;
        look_up_nibbles(table, load32_even(block + 2 + 4 * lane), q, q + 4);
        scale[0] = half_to_float(load16(block));
    }
};

// Half of the E8M0 scale 2^(exponent - 127), down to the subnormal 2^-128.
DEVICE float half_power(u32 exponent) {
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

// The table holds twice the values of E2M1.
struct MXFP4 : Nibbles32 {
    static constexpr int BYTES = 17;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 table[4] = MXFP4_TABLE;
        look_up_nibbles(table, load32_any(block + 1 + 4 * lane), q, q + 4);
        scale[0] = half_power(__ldg(block));
    }
};

// Formats whose blocks are 256 values and fall into strips with scales of their own.

// 16 bytes of sub-scale and sub-minimum, 64 of bit pairs, two halves.
struct Q2_K {
    static constexpr int BLOCK = 256, BYTES = 84, LANES = 16, VALUES = 16, GROUPS = 4;
    static constexpr bool OFFSETS = true;
    // A lane reads four bytes; each pair of bits in them belongs to another quarter of 32 values.
    static DEVICE int at(int lane, int i) {
        return 128 * (lane / 8) + 32 * (i / 4) + 4 * (lane % 8) + i % 4;
    }
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *offset) {
        const int half = lane / 8, side = (lane % 8) / 4;
        const u32 bytes = load32(block + 16 + 4 * lane), pair = load32(block + 80);
        const float factor = half_to_float(u16(pair)), least = half_to_float(u16(pair >> 16));
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const u32 packed = __ldg(block + 8 * half + 2 * quarter + side);
            bytes_to_floats((bytes >> (2 * quarter)) & 0x03030303u, 0.0f, q + 4 * quarter);
            scale[quarter] = factor * float(packed & 15u);
            offset[quarter] = -(least * float(packed >> 4));
        }
    }
};

// 32 bytes of third bits, 64 of bit pairs, 12 of sub-scales of 6 bits, half; values minus 4.
struct Q3_K {
    static constexpr int BLOCK = 256, BYTES = 110, LANES = 16, VALUES = 16, GROUPS = 4;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int lane, int i) { return Q2_K::at(lane, i); }
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const int half = lane / 8, side = (lane % 8) / 4;
        const u32 pairs = load32_even(block + 32 + 4 * lane);
        const u32 thirds = load32_even(block + 4 * (lane % 8)) >> (4 * half);
        const float factor = half_to_float(load16(block + 108));
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const u32 low = (pairs >> (2 * quarter)) & 0x03030303u;
            const u32 third = (thirds >> quarter) & 0x01010101u;
            bytes_to_floats(low | (third << 2), 4.0f, q + 4 * quarter);
            const int strip = 8 * half + 2 * quarter + side;
            const u32 nibble = __ldg(block + 96 + strip % 8) >> (4 * (strip / 8));
            const u32 top = __ldg(block + 104 + strip % 4) >> (2 * (strip / 4));
            scale[quarter] = factor * float(int((nibble & 15u) | ((top & 3u) << 4)) - 32);
        }
    }
};

// Scale and minimum, 6 bits each, of sub-block 0 to 7, packed in three words.
DEVICE void scale_and_min(const u32 *packed, int sub_block, u32 &scale, u32 &least) {
    const int shift = 8 * (sub_block % 4);
    if (sub_block < 4) {
        scale = (packed[0] >> shift) & 63u, least = (packed[1] >> shift) & 63u;
    } else {
        const u32 low = packed[2] >> shift;
        scale = (low & 15u) | (((packed[0] >> shift) & 0xc0u) >> 2);
        least = ((low >> 4) & 15u) | (((packed[1] >> shift) & 0xc0u) >> 2);
    }
}

// A lane of eight reads 16 bytes: low nibbles are of sub-block 2·(lane / 2), high of the next.
struct Nibbles256 {
    static constexpr int BLOCK = 256, LANES = 8, VALUES = 32, GROUPS = 2;
    static constexpr bool OFFSETS = true;
    static DEVICE int at(int lane, int i) {
        return 64 * (lane / 2) + 32 * (i / 16) + 16 * (lane % 2) + i % 16;
    }
    static DEVICE void scales(const u8 *block, int lane, float *scale, float *offset) {
        const uint4 words = load128(block);
        const float factor = half_to_float(u16(words.x)), least = half_to_float(u16(words.x >> 16));
        const u32 packed[3] = {words.y, words.z, words.w};
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            u32 sub_scale, sub_min;
            scale_and_min(packed, 2 * (lane / 2) + side, sub_scale, sub_min);
            scale[side] = factor * byte_to_float(sub_scale, 0, 0.0f);
            offset[side] = -(least * byte_to_float(sub_min, 0, 0.0f));
        }
    }
};

// Half scale and minimum, 12 bytes of sub-scales, 128 bytes of nibbles.
struct Q4_K : Nibbles256 {
    static constexpr int BYTES = 144;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *offset) {
        const uint4 words = load128(block + 16 + 16 * lane);
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            bytes_to_floats(bytes[i] & 0x0f0f0f0fu, 0.0f, q + 4 * i);
            bytes_to_floats((bytes[i] >> 4) & 0x0f0f0f0fu, 0.0f, q + 16 + 4 * i);
        }
        scales(block, lane, scale, offset);
    }
};

// As Q4_K, with 32 bytes of fifth bits before the nibbles.
struct Q5_K : Nibbles256 {
    static constexpr int BYTES = 176;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *offset) {
        const uint4 words = load128(block + 48 + 16 * lane);
        const uint4 fifths = load128(block + 16 + 16 * (lane % 2));
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
        const u32 tops[4] = {fifths.x, fifths.y, fifths.z, fifths.w};
        const int pair = lane / 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 top = tops[i] >> (2 * pair);
            bytes_to_floats((bytes[i] & 0x0f0f0f0fu) | ((top & 0x01010101u) << 4), 0.0f, q + 4 * i);
            bytes_to_floats(((bytes[i] >> 4) & 0x0f0f0f0fu) | ((top & 0x02020202u) << 3), 0.0f,
                            q + 16 + 4 * i);
        }
        scales(block, lane, scale, offset);
    }
};

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed sub-scales, half; values minus 32.
struct Q6_K {
    static constexpr int BLOCK = 256, BYTES = 210, LANES = 32, VALUES = 8, GROUPS = 2;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int lane, int i) {
        return 128 * (lane / 16) + 4 * (lane % 16) + 64 * (i / 4) + i % 4;
    }
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const int half = lane / 16, quarter = (lane % 16) / 8, side = (lane % 8) / 4;
        const u32 bytes = load32_even(block + 4 * lane);
        const u32 tops = load32_even(block + 128 + 32 * half + 4 * (lane % 8)) >> (2 * quarter);
        const u8 *scales = block + 192 + 8 * half + 2 * quarter + side;
        const float factor = half_to_float(load16(block + 208));
        bytes_to_floats((bytes & 0x0f0f0f0fu) | ((tops & 0x03030303u) << 4), 32.0f, q);
        bytes_to_floats(((bytes >> 4) & 0x0f0f0f0fu) | (tops & 0x30303030u), 32.0f, q + 4);
        scale[0] = factor * float(i8(__ldg(scales)));
        scale[1] = factor * float(i8(__ldg(scales + 4)));
    }
};

// Half scale, 8 sub-scales of 6 bits (minus 32), 128 bytes of indices.
struct IQ4_XS {
    static constexpr int BLOCK = 256, BYTES = 136, LANES = 8, VALUES = 32, GROUPS = 1;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int lane, int i) { return 32 * lane + i; }
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 table[4] = IQ4_TABLE;
        const uint2 first = load64(block + 8 + 16 * lane), second = load64(block + 16 + 16 * lane);
        const u32 bytes[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) look_up_nibbles(table, bytes[i], q + 4 * i, q + 16 + 4 * i);
        const uint2 head = load64(block);
        const u32 low = (head.y >> (4 * lane)) & 15u, high = (head.x >> (16 + 2 * lane)) & 3u;
        const float sub_scale = byte_to_float(low | (high << 4), 0, 32.0f);
        scale[0] = half_to_float(u16(head.x)) * sub_scale;
    }
};

// Each lane takes eight values: an entry of a grid, or two of four.
struct Entries {
    static constexpr int BLOCK = 256, LANES = 32, VALUES = 8, GROUPS = 1;
    static constexpr bool OFFSETS = false;
    static DEVICE int at(int lane, int i) { return 8 * lane + i; }
};

// Eight values of a grid entry to floats, those negated whose bit in `signs` is set.
DEVICE void signed_entry(u64 entry, u32 signs, float *q) {
    signed_bytes_to_floats(negate_where(u32(entry), signs), q);
    signed_bytes_to_floats(negate_where(u32(entry >> 32), signs >> 4), q + 4);
}

// The eight signs that seven bits stand for: their number of ones is even.
DEVICE u32 signs_of(u32 seven) { return seven | ((__popc(seven) & 1u) << 7); }

// Half scale; per 32 values four indices and a word of signs and sub-scale.
struct IQ2_XXS : Entries {
    static constexpr int BYTES = 66;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u8 *group = block + 2 + 8 * (lane / 4);
        const u32 packed = load32_even(group + 4), index = __ldg(group + lane % 4);
        signed_entry(IQ2_XXS_GRID[index], signs_of((packed >> (7 * (lane % 4))) & 127u), q);
        scale[0] = half_to_float(load16(block)) * (0.5f + float(packed >> 28)) * 0.25f;
    }
};

// Half scale, 32 words of index and signs, 16 sub-scales of 4 bits.
struct IQ2_XS : Entries {
    static constexpr int BYTES = 74;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 word = load16(block + 2 + 2 * lane);
        const u32 nibble = (__ldg(block + 66 + lane / 4) >> (4 * ((lane / 2) % 2))) & 15u;
        signed_entry(IQ2_XS_GRID[word & 511u], signs_of(word >> 9), q);
        scale[0] = half_to_float(load16(block)) * (0.5f + float(nibble)) * 0.25f;
    }
};

// Half scale, 32 low bytes of indices, 32 of signs, 8 of high bits, 8 of sub-scales.
struct IQ2_S : Entries {
    static constexpr int BYTES = 82;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 high = (__ldg(block + 66 + lane / 4) >> (2 * (lane % 4))) & 3u;
        const u32 index = __ldg(block + 2 + lane) | (high << 8);
        const u32 nibble = (__ldg(block + 74 + lane / 4) >> (4 * ((lane / 2) % 2))) & 15u;
        signed_entry(IQ2_S_GRID[index], __ldg(block + 34 + lane), q);
        scale[0] = half_to_float(load16(block)) * (0.5f + float(nibble)) * 0.25f;
    }
};

// Half scale, 64 indices, 8 words of signs and sub-scale.
struct IQ3_XXS : Entries {
    static constexpr int BYTES = 98;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 indices = load16(block + 2 + 2 * lane);
        const u32 packed = load32_even(block + 66 + 4 * (lane / 4));
        const u64 top = IQ3_XXS_GRID[indices >> 8];
        const u32 signs = signs_of((packed >> (7 * (lane % 4))) & 127u);
        signed_entry(IQ3_XXS_GRID[indices & 255u] | (top << 32), signs, q);
        scale[0] = half_to_float(load16(block)) * (0.5f + float(packed >> 28)) * 0.5f;
    }
};

// Half scale, 64 low bytes of indices, 8 of ninth bits, 32 of signs, 4 of sub-scales.
struct IQ3_S : Entries {
    static constexpr int BYTES = 110;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const int group = lane / 4;
        const u32 low = load16(block + 2 + 2 * lane);
        const u32 ninths = __ldg(block + 66 + group) >> (2 * (lane % 4));
        const u64 top = IQ3_S_GRID[(low >> 8) | ((ninths & 2u) << 7)];
        const u32 nibble = (__ldg(block + 106 + group / 2) >> (4 * (group % 2))) & 15u;
        signed_entry(IQ3_S_GRID[(low & 255u) | ((ninths & 1u) << 8)] | (top << 32),
                     __ldg(block + 74 + lane), q);
        scale[0] = half_to_float(load16(block)) * float(1u + 2u * nibble);
    }
};

// Values in eighths: 8 · grid ± 1, the grid being -1, 0 or 1. `entry` holds 8 · grid.
DEVICE void moved_entry(u64 entry, float move, float *q) {
    signed_bytes_to_floats(u32(entry), q);
    signed_bytes_to_floats(u32(entry >> 32), q + 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] += move;
}

// Half scale, 32 low bytes of indices, 8 words of high bits, sub-scale and sign.
struct IQ1_S : Entries {
    static constexpr int BYTES = 50;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const u32 packed = load16(block + 34 + 2 * (lane / 4));
        const u32 high = (packed >> (3 * (lane % 4))) & 7u;
        const u32 index = __ldg(block + 2 + lane) | (high << 8);
        moved_entry(IQ1_GRID[index], packed >> 15 ? -1.0f : 1.0f, q);
        const float sub_scale = float(2u * ((packed >> 12) & 7u) + 1u);
        scale[0] = half_to_float(load16(block)) * sub_scale * 0.125f;
    }
};

// 32 low bytes of indices, 16 of high bits and signs, 4 words of sub-scales, whose highest
// nibbles are the half scale, lowest first.
struct IQ1_M : Entries {
    static constexpr int BYTES = 56;
    static DEVICE void read(const u8 *block, int lane, float *q, float *scale, float *) {
        const int strip = lane / 2;
        const u32 high = __ldg(block + 32 + strip) >> (4 * (lane % 2));
        const u32 index = __ldg(block + lane) | ((high & 7u) << 8);
        moved_entry(IQ1_GRID[index], high & 8u ? -1.0f : 1.0f, q);
        const uint2 words = load64(block + 48);
        const u32 bits = ((words.x >> 12) & 0xfu) | ((words.x >> 24) & 0xf0u) |
                         ((words.y >> 4) & 0xf00u) | ((words.y >> 16) & 0xf000u);
        const u32 word = (strip < 8 ? words.x : words.y) >> (16 * ((strip / 4) % 2));
        const float sub_scale = float(2u * ((word >> (3 * (strip % 4))) & 7u) + 1u);
        scale[0] = half_to_float(u16(bits)) * sub_scale * 0.125f;
    }
};
