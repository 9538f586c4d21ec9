/* Barriers, shuffles, votes, and the wrappers of PTX instructions: what cu.h writes as assembly. */
#ifndef TANDEM_KERNELS_CUSIM_DEVICE_WARP_H
#define TANDEM_KERNELS_CUSIM_DEVICE_WARP_H

#define CUSIM_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define CUSIM_FULL 0xffffffffu

#define __syncthreads() ((void)::cusim::block_barrier(0, __FILE__, __LINE__))
#define __syncthreads_count(x) (::cusim::block_barrier((x) != 0, __FILE__, __LINE__))
#define __syncthreads_or(x) (::cusim::block_barrier((x) != 0, __FILE__, __LINE__) != 0)
#define __syncthreads_and(x) (::cusim::block_barrier((x) == 0, __FILE__, __LINE__) == 0)

static inline void __syncwarp(unsigned mask = CUSIM_FULL, CUSIM_AT)
{
    cusim::warp_exchange(mask, cusim::WARP_SYNC, nullptr, 0, file, line);
}

template <class T> static inline T cusim_shuffle(unsigned mask, T v, int source, CUSIM_AT)
{
    static_assert(sizeof(T) <= WARP_SLOT_BYTES && std::is_trivially_copyable<T>::value,
                  "a shuffle takes numbers");
    const unsigned char *table =
        cusim::warp_exchange(mask, cusim::WARP_SHUFFLE, &v, sizeof v, file, line);
    if (!(mask >> source & 1) || !(cusim::warp_lanes() >> source & 1)) {
        cusim::fail("%s:%d: a shuffle reads lane %d, which isn't in the mask %08x", file, line,
                    source, mask);
    }
    T got;
    memcpy(&got, table + WARP_SLOT_BYTES * source, sizeof got);
    return got;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, CUSIM_AT)
{
    int first = cusim::here.lane & ~(width - 1);
    return cusim_shuffle(mask, v, first | (source & (width - 1)), file, line);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, CUSIM_AT)
{
    int lane = cusim::here.lane;
    int source = lane ^ bits;
    bool beyond = (source & ~(width - 1)) > (lane & ~(width - 1));
    return cusim_shuffle(mask, v, beyond ? lane : source, file, line);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, CUSIM_AT)
{
    int lane = cusim::here.lane;
    bool beyond = (lane & (width - 1)) + (int)by >= width;
    return cusim_shuffle(mask, v, beyond ? lane : lane + (int)by, file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, CUSIM_AT)
{
    int lane = cusim::here.lane;
    bool beyond = (lane & (width - 1)) < (int)by;
    return cusim_shuffle(mask, v, beyond ? lane : lane - (int)by, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUSIM_AT)
{
    unsigned char mine = predicate != 0;
    const unsigned char *table = cusim::warp_exchange(mask, cusim::WARP_VOTE, &mine, 1, file, line);
    unsigned votes = 0;
    for (int i = 0; i < WARP_SIZE; i++) {
        if (mask & cusim::warp_lanes() & 1u << i) {
            votes |= (unsigned)table[WARP_SLOT_BYTES * i] << i;
        }
    }
    return votes;
}

static inline int __any_sync(unsigned mask, int predicate, CUSIM_AT)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, CUSIM_AT)
{
    return __ballot_sync(mask, predicate, file, line) == (mask & cusim::warp_lanes());
}

/* ---- wrappers of instructions ---- */

static inline float cu_exp2(float x)
{
    return exp2f(x);
}

template <class T> static inline T cu_anew(T x)
{
    return x;
}

static inline float cusim_half_of(uint32_t word, int high)
{
    uint32_t bits = high ? word & 0xffff0000u : word << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t cusim_word_of(const unsigned char *table, int lane, int word)
{
    uint32_t w;
    memcpy(&w, table + WARP_SLOT_BYTES * lane + 4 * word, sizeof w);
    return w;
}

/* Where element [row][k] of A and [k][col] of B lie: PTX ISA, "Matrix Fragments for mma.m16n8k16".
 */
static inline void cu_mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], CUSIM_AT)
{
    unsigned char as[WARP_SIZE * WARP_SLOT_BYTES];
    const unsigned char *table =
        cusim::warp_exchange(CUSIM_FULL, cusim::WARP_MMA, a, 16, file, line);
    memcpy(as, table, sizeof as);
    const unsigned char *bs = cusim::warp_exchange(CUSIM_FULL, cusim::WARP_MMA, b, 8, file, line);
    int group = cusim::here.lane >> 2;
    for (int i = 0; i < 4; i++) {
        int row = group + (i >= 2 ? 8 : 0);
        int col = (cusim::here.lane & 3) * 2 + (i & 1);
        float sum = 0;
        for (int k = 0; k < 16; k++) {
            int at = (k & 7) / 2;
            uint32_t x = cusim_word_of(as, (row & 7) * 4 + at, (row >> 3) + 2 * (k >> 3));
            uint32_t y = cusim_word_of(bs, col * 4 + at, k >> 3);
            sum += cusim_half_of(x, k & 1) * cusim_half_of(y, k & 1);
        }
        d[i] += sum;
    }
}

static inline void cusim_ldmatrix(uint32_t r[4], const void *row, bool transposed, const char *file,
                                  int line)
{
    if ((uintptr_t)row & 15) {
        cusim::fail("%s:%d: ldmatrix: the row at %p isn't aligned to 16", file, line, row);
    }
    const unsigned char *table =
        cusim::warp_exchange(CUSIM_FULL, cusim::WARP_LDMATRIX, &row, sizeof row, file, line);
    const uint16_t *rows[WARP_SIZE];
    for (int i = 0; i < WARP_SIZE; i++) {
        memcpy(&rows[i], table + WARP_SLOT_BYTES * i, sizeof rows[i]);
    }
    int group = cusim::here.lane >> 2;
    int pair = 2 * (cusim::here.lane & 3);
    for (int m = 0; m < 4; m++) {
        uint16_t low = transposed ? rows[m * 8 + pair][group] : rows[m * 8 + group][pair];
        uint16_t high = transposed ? rows[m * 8 + pair + 1][group] : rows[m * 8 + group][pair + 1];
        r[m] = low | (uint32_t)high << 16;
    }
}

typedef uintptr_t cu_shared_at;

static inline cu_shared_at cu_shared_of(const void *p)
{
    return (cu_shared_at)p;
}

static inline void cu_ldmatrix_x4(uint32_t r[4], cu_shared_at row, CUSIM_AT)
{
    cusim_ldmatrix(r, (const void *)row, false, file, line);
}

static inline void cu_ldmatrix_x4_trans(uint32_t r[4], cu_shared_at row, CUSIM_AT)
{
    cusim_ldmatrix(r, (const void *)row, true, file, line);
}

static inline void cu_cp_async16(cu_shared_at shared, const void *global, bool full, CUSIM_AT)
{
    cusim::copy_async((void *)shared, global, full, file, line);
}

static inline void cu_ldmatrix_x4(uint32_t r[4], const void *row, CUSIM_AT)
{
    cusim_ldmatrix(r, row, false, file, line);
}

static inline void cu_ldmatrix_x4_trans(uint32_t r[4], const void *row, CUSIM_AT)
{
    cusim_ldmatrix(r, row, true, file, line);
}

static inline void cu_cp_async16(void *shared, const void *global, bool full, CUSIM_AT)
{
    cusim::copy_async(shared, global, full, file, line);
}

static inline void cu_cp_async_commit()
{
    cusim::copy_commit();
}

template <int N> static inline void cu_cp_async_wait()
{
    cusim::copy_wait(N);
}

#endif
