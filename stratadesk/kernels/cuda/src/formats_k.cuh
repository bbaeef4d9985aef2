// Formats whose blocks are 256 values, but those with grids; see formats.cuh.
#pragma once

// Formats whose blocks are 256 values and fall into strips with scales of their own; each of
// eight lanes takes 32 values.
struct Super : Untabled {
    static constexpr int BLOCK = 256, LANES = 8, VALUES = 32;
    static constexpr bool INTEGERS = true;
};

// A lane reads eight bytes; each pair of bits in them belongs to another quarter of 32 values.
struct Pairs256 : Super {
    static constexpr int GROUPS = 4, RUN = 8;
    static constexpr DEVICE int at(int lane, int i) {
        return 128 * (lane / 4) + 32 * (i / 8) + 8 * (lane % 4) + i % 8;
    }
    static DEVICE int strip(int lane, int quarter) {
        return 8 * (lane / 4) + 2 * quarter + lane % 4 / 2;
    }
};

// 16 bytes of sub-scale and sub-minimum, 64 of bit pairs, two halves.
struct Q2_K : Pairs256 {
    static constexpr int BYTES = 84;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const u32 bytes[2] = {load32(block + 16 + 8 * lane), load32(block + 20 + 8 * lane)};
        const u32 pair = load32(block + 80);
        const float factor = half_to_float(u16(pair)), least = half_to_float(u16(pair >> 16));
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const u32 packed = block[strip(lane, quarter)];
#pragma unroll
            for (int w = 0; w < 2; ++w)
                q[2 * quarter + w] = (bytes[w] >> (2 * quarter)) & 0x03030303u;
            scale[quarter] = factor * byte_to_float(packed & 15u, 0, 0.0f);
            offset[quarter] = -(least * byte_to_float(packed >> 4, 0, 0.0f));
        }
    }
};

// 32 bytes of third bits, 64 of bit pairs, 12 of sub-scales of 6 bits, half; values minus 4.
struct Q3_K : Pairs256 {
    static constexpr int BYTES = 110;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        u32 pairs[2], thirds[2];
        load_within<2>(block, 32 + 8 * lane, pairs);
        load_within<2>(block, 8 * (lane % 4), thirds);
        const float factor = half_to_float(load16(block + 108)) * 0.03125f;
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
#pragma unroll
            for (int w = 0; w < 2; ++w) {
                const u32 third = (~thirds[w] << (4 - 4 * (lane / 4))) << (3 - quarter);
                const u32 pair = (pairs[w] >> (2 * quarter)) << 5;
                q[2 * quarter + w] = (pair & 0x60606060u) | (third & SIGNS);
            }
            const int place = strip(lane, quarter);
            const u32 nibble = block[96 + place % 8] >> (4 * (place / 8));
            const u32 top = block[104 + place % 4] >> (2 * (place / 4));
            scale[quarter] = factor * byte_to_float((nibble & 15u) | ((top & 3u) << 4), 0, 32.0f);
        }
    }
};

// Scales and minima, 6 bits each, of sub-blocks 2·pair and 2·pair + 1, a byte each, from three
// words. Computed both ways and chosen: lanes of a warp need both.
DEVICE void scales_and_mins(const uint3 packed, int pair, u32 &scales, u32 &mins) {
    const int shift = 16 * (pair % 2);
    const u32 first = packed.x >> shift, second = packed.y >> shift, third = packed.z >> shift;
    const u32 upper_scales = (third & 0x0f0fu) | ((first & 0xc0c0u) >> 2);
    const u32 upper_mins = ((third >> 4) & 0x0f0fu) | ((second & 0xc0c0u) >> 2);
    scales = pair < 2 ? first & 0x3f3fu : upper_scales;
    mins = pair < 2 ? second & 0x3f3fu : upper_mins;
}

// A lane reads 16 bytes: low nibbles are of sub-block 2·(lane / 2), high of the next.
struct Nibbles256 : Super {
    static constexpr int GROUPS = 2, RUN = 16;
    static constexpr bool OFFSETS = true;
    static constexpr DEVICE int at(int lane, int i) {
        return 64 * (lane / 2) + 32 * (i / 16) + 16 * (lane % 2) + i % 16;
    }
    static DEVICE void scales(const u8 *block, int lane, float *scale, float *offset) {
        const uint4 words = load128(block);
        const float factor = half_to_float(u16(words.x)), least = half_to_float(u16(words.x >> 16));
        u32 sub_scales, sub_mins;
        scales_and_mins({words.y, words.z, words.w}, lane / 2, sub_scales, sub_mins);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            scale[side] = factor * byte_to_float(sub_scales, side, 0.0f);
            offset[side] = -(least * byte_to_float(sub_mins, side, 0.0f));
        }
    }
};

// Half scale and minimum, 12 bytes of sub-scales, 128 bytes of nibbles.
struct Q4_K : Nibbles256 {
    static constexpr int BYTES = 144;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const uint4 words = load128(block + 16 + 16 * lane);
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int w = 0; w < 4; ++w)
            q[w] = bytes[w] & LOW_NIBBLES, q[4 + w] = (bytes[w] >> 4) & LOW_NIBBLES;
        scales(block, lane, scale, offset);
    }
};

// As Q4_K, with 32 bytes of fifth bits before the nibbles.
struct Q5_K : Nibbles256 {
    static constexpr int BYTES = 176;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const uint4 words = load128(block + 48 + 16 * lane);
        const uint4 fifths = load128(block + 16 + 16 * (lane % 2));
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
        const u32 tops[4] = {fifths.x, fifths.y, fifths.z, fifths.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 top = tops[w] >> (lane / 2 * 2);
            q[w] = (bytes[w] & LOW_NIBBLES) | ((top & 0x01010101u) << 4);
            q[4 + w] = ((bytes[w] >> 4) & LOW_NIBBLES) | ((top & 0x02020202u) << 3);
        }
        scales(block, lane, scale, offset);
    }
};

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed sub-scales, half; values minus 32.
struct Q6_K : Super {
    static constexpr int BYTES = 210, GROUPS = 2, RUN = 16;
    static constexpr bool OFFSETS = false;
    static constexpr DEVICE int at(int lane, int i) {
        return 128 * (lane / 4) + 16 * (lane % 4) + 64 * (i / 16) + i % 16;
    }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const int half = lane / 4, quarter = lane % 4 / 2;
        u32 bytes[4], tops[4];
        load_within<4>(block, 16 * lane, bytes);
        load_within<4>(block, 128 + 32 * half + 16 * (lane % 2), tops);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 top = (tops[w] ^ 0xaaaaaaaau) << (2 - 2 * quarter);
            q[w] = ((bytes[w] << 2) & 0x3c3c3c3cu) | ((top << 4) & 0xc0c0c0c0u);
            q[4 + w] = ((bytes[w] >> 2) & 0x3c3c3c3cu) | (top & 0xc0c0c0c0u);
        }
        const u8 *scales = block + 192 + 8 * half + lane % 4;
        const float factor = half_to_float(load16(block + 208)) * 0.25f;
        scale[0] = factor * float(i8(scales[0])), scale[1] = factor * float(i8(scales[4]));
    }
};
