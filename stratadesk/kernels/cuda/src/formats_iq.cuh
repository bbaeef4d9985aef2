// Formats whose values are looked up in grids, and IQ4_XS; see formats.cuh.
#pragma once

// A lane takes 32 values side by side.
struct Strips256 : Super {
    static constexpr int RUN = 16;
    static constexpr bool OFFSETS = false;
    static constexpr DEVICE int at(int lane, int i) { return 32 * lane + i; }
};

// Half scale, 8 sub-scales of 6 bits (minus 32), 128 bytes of indices.
struct IQ4_XS : Strips256, CodebookIQ4 {
    using CodebookIQ4::TABLE;
    static constexpr int BYTES = 136, GROUPS = 1;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ4_XS>();
        const uint2 first = load64(block + 8 + 16 * lane), second = load64(block + 16 + 16 * lane);
        const u32 bytes[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int w = 0; w < 4; ++w) choose(table, bytes[w], q[w], q[4 + w]);
        const uint2 head = load64(block);
        const u32 low = (head.y >> (4 * lane)) & 15u, high = (head.x >> (16 + 2 * lane)) & 3u;
        const float sub_scale = byte_to_float(low | (high << 4), 0, 32.0f);
        scale[0] = half_to_float(u16(head.x)) * sub_scale;
    }
};

// Bit i of `signs`, eight of them, as bit 4 · i + 2: where the selector of a permutation says that
// byte i comes from the second word.
DEVICE u32 spread_signs(u32 signs) {
    signs = (signs | signs << 12) & 0x000f000fu;
    signs = (signs | signs << 6) & 0x03030303u;
    return ((signs | signs << 3) & 0x11111111u) << 2;
}

// The eight signs that the low seven bits stand for: their number of ones is even.
DEVICE u32 signs_of(u32 bits) { return (bits & 127u) | (__popc(bits & 127u) << 7); }

// Four times the number in the BITS bits of `word` from bit `at` on: where a word of a table lies.
template <int BITS> DEVICE u32 place_of(u32 word, int at) {
    return (at < 2 ? word << (2 - at) : word >> (at - 2)) & (((1u << BITS) - 1u) << 2);
}

// Formats of a grid of magnitudes and a sign for each value. A pattern of SIGN_BITS bits, 7 of which
// the eighth sign follows, or 8, becomes SELECTORS ^ its signs: selectors of permutations that take a
// value or its negative. The table holds that word of the lowest 7 bits once for each lane of a warp,
// so that no two lanes ask one bank; behind them the grid's ENTRIES once.
template <int ENTRIES, int SIGN_BITS, u32 SELECTORS> struct Signed : Strips256 {
    static constexpr u32 PATTERNS = 128, GRID = PATTERNS * WARP;
    static DEVICE void fill_with(u32 *table, const u32 *grid) {
        uint4 *quads = reinterpret_cast<uint4 *>(table);
        const u8 *from = reinterpret_cast<const u8 *>(grid);
        uint4 held = {};
        // On its way while the patterns are written.
        if (threadIdx.x < ENTRIES / 4) held = load128(from + 16 * threadIdx.x);
        const u32 bits = threadIdx.x % PATTERNS;
        const u32 word = SELECTORS ^ spread_signs(SIGN_BITS == 7 ? signs_of(bits) : bits);
        // Each thread begins elsewhere, or all would ask the same four banks.
        for (u32 k = threadIdx.x / PATTERNS; k < WARP / 4; k += blockDim.x / PATTERNS)
            quads[bits * (WARP / 4) + (k ^ bits % (WARP / 4))] = {word, word, word, word};
        for (u32 i = threadIdx.x; i < ENTRIES / 4; i += blockDim.x)
            quads[GRID / 4 + i] = i == threadIdx.x ? held : load128(from + 16 * i);
    }
    static DEVICE u32 word_at(const u32 *table, u32 place) {
        return load32(reinterpret_cast<const u8 *>(table) + place);
    }
    static DEVICE u32 grid_at(const u32 *table, u32 place) { return word_at(table + GRID, place); }
    // `word` moved so that its signs from bit `at` on begin at bit 7; the selectors of the lower seven;
    // and those of the last four values, with the eighth sign if it does not follow.
    static DEVICE u32 moved(u32 word, int at) { return at < 7 ? word << (7 - at) : word >> (at - 7); }
    static DEVICE u32 selectors_at(const u32 *table, u32 moved) {
        return word_at(table, (moved & ((PATTERNS - 1) << 7)) | 4 * own_lane());
    }
    static DEVICE u32 last_four(u32 selectors, u32 moved) {
        return SIGN_BITS == 7 ? selectors >> 16 : selectors >> 16 ^ (moved & 0x4000u);
    }
};

// Three magnitudes: an entry is eight selectors, a nibble each, lowest first. The table's last word
// is the magnitudes, which a lane would load for each permutation if it were a constant.
template <int ENTRIES, int SIGN_BITS> struct Signed2 : Signed<ENTRIES, SIGN_BITS, 0u> {
    using Base = Signed<ENTRIES, SIGN_BITS, 0u>;
    static constexpr int TABLE = Base::GRID + ENTRIES + 1;
    static DEVICE void fill_with(u32 *table, const u32 *grid) {
        Base::fill_with(table, grid);
        if (threadIdx.x == 0) table[TABLE - 1] = IQ2_MAGNITUDES;
    }
    // Eight values: the entry at a place of the grid, and the signs from bit `at` of a word on.
    static DEVICE void choose(const u32 *table, u32 entry, u32 word, int at, u32 *q) {
        const u32 moved = Base::moved(word, at), magnitudes = table[TABLE - 1];
        const u32 selectors = Base::grid_at(table, entry) ^ Base::selectors_at(table, moved);
        q[0] = permute(magnitudes, IQ2_NEGATIVES, selectors);
        q[1] = permute(magnitudes, IQ2_NEGATIVES, Base::last_four(selectors, moved));
    }
};

// Eight magnitudes from 1 to 127: an entry is four of them, a byte each.
template <int ENTRIES, int SIGN_BITS> struct Signed3 : Signed<ENTRIES, SIGN_BITS, 0x32103210u> {
    using Base = Signed<ENTRIES, SIGN_BITS, 0x32103210u>;
    static constexpr int TABLE = Base::GRID + ENTRIES;
    // Every byte of the difference borrows from the next, which has one more to give.
    static DEVICE u32 choose_four(u32 magnitudes, u32 selectors) {
        return permute(magnitudes, 0x01010100u - magnitudes, selectors);
    }
    // Eight values: the entries at two places of the grid, and the signs from bit `at` of a word on.
    static DEVICE void choose(const u32 *table, u32 first, u32 second, u32 word, int at, u32 *q) {
        const u32 moved = Base::moved(word, at), selectors = Base::selectors_at(table, moved);
        q[0] = choose_four(Base::grid_at(table, first), selectors);
        q[1] = choose_four(Base::grid_at(table, second), Base::last_four(selectors, moved));
    }
};

// `nibble`, below 256, plus a half.
DEVICE float and_half(u32 nibble) { return byte_to_float(nibble, 0, -0.5f); }

// Half scale; per 32 values four indices and a word of signs and sub-scale.
struct IQ2_XXS : Signed2<256, 7> {
    static constexpr int BYTES = 66, GROUPS = 1;
    static DEVICE void fill(u32 *table) { fill_with(table, IQ2_XXS_GRID); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_XXS>();
        u32 words[2];
        load_behind_two<2>(block, 8 * lane, words);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            choose(table, place_of<8>(words[0], 8 * k), words[1], 7 * k, q + 2 * k);
        scale[0] = half_to_float(load16(block)) * and_half(words[1] >> 28) * 0.25f;
    }
};

// The two scales of a strip: a nibble each.
DEVICE void strip_scales(float factor, u32 nibbles, float *scale) {
    scale[0] = factor * and_half(nibbles & 15u) * 0.25f;
    scale[1] = factor * and_half(nibbles >> 4) * 0.25f;
}

// Half scale, 32 words of index and signs, 16 sub-scales of 4 bits.
struct IQ2_XS : Signed2<512, 7> {
    static constexpr int BYTES = 74, GROUPS = 2;
    static DEVICE void fill(u32 *table) { fill_with(table, IQ2_XS_GRID); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_XS>();
        u32 words[2];
        load_behind_two<2>(block, 8 * lane, words);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int at = 16 * (k % 2);
            choose(table, place_of<9>(words[k / 2], at), words[k / 2], at + 9, q + 2 * k);
        }
        strip_scales(half_to_float(load16(block)), block[66 + lane], scale);
    }
};

// Half scale, 32 low bytes of indices, 32 of signs, 8 of high bits, 8 of sub-scales.
struct IQ2_S : Signed2<1024, 8> {
    static constexpr int BYTES = 82, GROUPS = 2;
    static DEVICE void fill(u32 *table) { fill_with(table, IQ2_S_GRID); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_S>();
        const u32 low = load32_even(block + 2 + 4 * lane), signs = load32_even(block + 34 + 4 * lane);
        const u32 high = block[66 + lane] << 10;
#pragma unroll
        for (int k = 0; k < 4; ++k)
            choose(table, place_of<8>(low, 8 * k) | ((high >> (2 * k)) & 0xc00u),
                   signs, 8 * k, q + 2 * k);
        strip_scales(half_to_float(load16(block)), block[74 + lane], scale);
    }
};

// Half scale, 64 indices, 8 words of signs and sub-scale.
struct IQ3_XXS : Signed3<256, 7> {
    static constexpr int BYTES = 98, GROUPS = 1;
    static DEVICE void fill(u32 *table) { fill_with(table, IQ3_XXS_GRID); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ3_XXS>();
        u32 indices[2];
        load_behind_two<2>(block, 8 * lane, indices);
        const u32 packed = load32_even(block + 66 + 4 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int at = 16 * (k % 2);
            choose(table, place_of<8>(indices[k / 2], at), place_of<8>(indices[k / 2], at + 8),
                   packed, 7 * k, q + 2 * k);
        }
        scale[0] = half_to_float(load16(block)) * and_half(packed >> 28) * 0.5f;
    }
};

// Half scale, 64 low bytes of indices, 8 of ninth bits, 32 of signs, 4 of sub-scales.
struct IQ3_S : Signed3<512, 8> {
    static constexpr int BYTES = 110, GROUPS = 1;
    static DEVICE void fill(u32 *table) { fill_with(table, IQ3_S_GRID); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ3_S>();
        u32 low[2];
        load_behind_two<2>(block, 8 * lane, low);
        const u32 ninths = block[66 + lane], signs = load32_even(block + 74 + 4 * lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // The four ninth bits, each in a byte of its own, between the low bytes.
            const u32 tops = (((ninths >> (4 * half)) & 15u) * 0x00204081u) & 0x01010101u;
            const u32 pairs[2] = {permute(low[half], tops, 0x5140u),
                                  permute(low[half], tops, 0x7362u)};
#pragma unroll
            for (int k = 0; k < 2; ++k)
                choose(table, place_of<9>(pairs[k], 0), place_of<9>(pairs[k], 16),
                       signs, 16 * half + 8 * k, q + 4 * half + 2 * k);
        }
        const u32 nibble = (block[106 + lane / 2] >> (4 * (lane % 2))) & 15u;
        scale[0] = half_to_float(load16(block)) * byte_to_float(1u + 2u * nibble, 0, 0.0f);
    }
};

DEVICE uint2 entry_of(const u64 *grid, u32 index) {
    return load64(reinterpret_cast<const u8 *>(grid + index));
}

// Values in eighths: 8 · grid + 1, or - 1 where `negative`, the grid being -1, 0 or 1; `entry` holds
// 8 · grid. The sign bits keep carries out of neighbours.
DEVICE void moved_entry(uint2 entry, bool negative, u32 *q) {
    const u32 move = negative ? 0u - 0x01010101u : 0x01010101u;
    q[0] = ((entry.x ^ 0x80808080u) + move) ^ 0x80808080u;
    q[1] = ((entry.y ^ 0x80808080u) + move) ^ 0x80808080u;
}

// Half scale, 32 low bytes of indices, 8 words of high bits, sub-scale and sign.
struct IQ1_S : Strips256 {
    static constexpr int BYTES = 50, GROUPS = 1;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 packed = load16(block + 34 + 2 * lane), low = load32_even(block + 2 + 4 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u32 index = ((low >> (8 * k)) & 255u) | (((packed >> (3 * k)) & 7u) << 8);
            moved_entry(entry_of(IQ1_GRID, index), packed >> 15, q + 2 * k);
        }
        const float sub_scale = byte_to_float(2u * ((packed >> 12) & 7u) + 1u, 0, 0.0f);
        scale[0] = half_to_float(load16(block)) * sub_scale * 0.125f;
    }
};

// 32 low bytes of indices, 16 of high bits and signs, 4 words of sub-scales, whose highest
// nibbles are the half scale, lowest first.
struct IQ1_M : Strips256 {
    static constexpr int BYTES = 56, GROUPS = 2;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 low = load32(block + 4 * lane), highs = load16(block + 32 + 2 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u32 high = highs >> (4 * k);
            const u32 index = ((low >> (8 * k)) & 255u) | ((high & 7u) << 8);
            moved_entry(entry_of(IQ1_GRID, index), high & 8u, q + 2 * k);
        }
        const uint2 words = load64(block + 48);
        const u32 bits = ((words.x >> 12) & 0xfu) | ((words.x >> 24) & 0xf0u) |
                         ((words.y >> 4) & 0xf00u) | ((words.y >> 16) & 0xf000u);
        const u32 word = (lane < 4 ? words.x : words.y) >> (16 * (lane / 2 % 2) + 6 * (lane % 2));
        const float factor = half_to_float(u16(bits));
        scale[0] = factor * byte_to_float(2u * (word & 7u) + 1u, 0, 0.0f) * 0.125f;
        scale[1] = factor * byte_to_float(2u * ((word >> 3) & 7u) + 1u, 0, 0.0f) * 0.125f;
    }
};
