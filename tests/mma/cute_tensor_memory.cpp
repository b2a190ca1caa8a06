// Prints where CuTe puts elements of tensor memory, registers of tcgen05.ld and st, and scale factors:
//     what <tab> case <tab> number of places <tab> sum of (i + 1) * place i
// Places in tensor memory are bit addresses: lane << 21 | column << 5 | bit.
#include <cute/tensor.hpp>
#include <cute/atom/copy_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm120.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
#include <cstdio>
#include <string>

using namespace cute;

template <class Place>
void finish(std::string const& what, std::string const& name, long count, Place const& place)
{
  unsigned long long sum = 0;
  for (long i = 0; i < count; ++i) { sum += (unsigned long long)(i + 1) * (unsigned long long)place(i); }
  std::printf("%s\t%s\t%ld\t%llu\n", what.c_str(), name.c_str(), count, sum);
}

// A matrix in tensor memory: element (row, column), row fastest.
template <class T, class Tensor>
void matrix(std::string const& what, std::string const& name, Tensor const& tensor)
{
  auto layout = tensor.layout();
  finish(what, name, size(layout), [&](long i) { return (unsigned long long)layout(int(i)) * sizeof_bits_v<T>; });
}

template <class Frg, class T, int M, int N>
void fragment(std::string const& what, std::string const& name)
{
  matrix<T>(what, name + " " + std::to_string(M) + "x" + std::to_string(N), Frg::make(Shape<Shape<Int<M>, Int<N>>, _1, _1>{}));
}

template <int N>
void accumulators()
{
  fragment<UMMA::tmem_frg<float, uint32_t, 2>, float, 128, N>("D", "A");
  fragment<UMMA::tmem_frg<float, uint32_t, 2>, float, 64, N>("D", "B");
  fragment<UMMA::tmem_frg<float, uint32_t, 1>, float, 128, N>("D", "D");
  fragment<UMMA::tmem_frg<float, uint32_t, 1>, float, 64, N>("D", "F");
  fragment<UMMA::tmem_frg<half_t, uint32_t, 1>, half_t, 64, N>("D f16", "F");
}

template <int N>
void accumulators_ws()
{
  fragment<UMMA::tmem_frg_ws<float, uint32_t, 1>, float, 64, N>("D", "E");
  fragment<UMMA::tmem_frg_ws<float, uint32_t, 1>, float, 32, N>("D", "G");
}

template <class T, int K>
void a_operands(std::string const& type)
{
  using UMMA::TmemAllocMode;
  fragment<UMMA::tmem_frg<T, T, 2>, T, 128, K>("A " + type, "A");
  fragment<UMMA::tmem_frg<T, T, 2, TmemAllocMode::Duplicated>, T, 64, K>("A " + type, "B");
  fragment<UMMA::tmem_frg<T, T, 1, TmemAllocMode::NonInterleaved>, T, 128, K>("A " + type, "D");
  fragment<UMMA::tmem_frg<T, T, 1, TmemAllocMode::NonInterleaved>, T, 64, K>("A " + type, "F");
}

// Metadata: one entry for each element of the dense A, in bits; two 4-bit elements share one.
template <class T, int K, int EntryBits, int Elements = 1>
void metadata(std::string const& name)
{
  auto layout = UMMA::tmem_e_frg<T>::make(Shape<Shape<_128, Int<K>>, _1, _1>{}).layout();
  finish("metadata", name, size(layout), [&](long i) { return (unsigned long long)layout(int(i)) * EntryBits / Elements; });
}

// Metadata of .ws: the copies count as further rows of k.
template <class T, int M, int K, int EntryBits>
void metadata_ws(std::string const& name)
{
  auto layout = UMMA::tmem_e_frg_ws<T>::make(Shape<Shape<Int<M>, Int<K>>, _1, _1>{}).layout();
  finish("metadata ws", name + " " + std::to_string(M), size(layout),
         [&](long i) { return (unsigned long long)layout(int(i)) * EntryBits; });
}

template <int M>
void metadata_of_ws()
{
  metadata_ws<float, M, 16, 2>("tf32"); metadata_ws<half_t, M, 32, 1>("f16"); metadata_ws<uint8_t, M, 64, 1>("e4m3");
}

// Thread t, piece v of `Bits` bits: where in tensor memory.
template <class Op, int Bits>
void moved(std::string const& name)
{
  using Traits = Copy_Traits<Op>;
  auto registers = typename Traits::DstLayout{};
  auto cells = typename Traits::ValID{};
  long pieces = size<1>(registers) / Bits;
  finish("ld", name, 32 * pieces, [&](long i) { return cells(registers(int(i % 32), int(i / 32 * Bits))); });
}

template <class Op, int Bits>
void stored(std::string const& name)
{
  using Traits = Copy_Traits<Op>;
  auto registers = typename Traits::SrcLayout{};
  auto cells = typename Traits::ValID{};
  long pieces = size<1>(registers) / Bits;
  finish("st", name, 32 * pieces, [&](long i) { return cells(registers(int(i % 32), int(i / 32 * Bits))); });
}

#define MOVE(SHAPE, NAME, COUNT)                                                     \
  moved<SM100_TMEM_LOAD_##SHAPE##COUNT##x, 32>(NAME ".x" #COUNT);                    \
  moved<SM100_TMEM_LOAD_##SHAPE##COUNT##x_16b, 16>(NAME ".x" #COUNT ".pack::16b");   \
  stored<SM100_TMEM_STORE_##SHAPE##COUNT##x, 32>(NAME ".x" #COUNT);                  \
  stored<SM100_TMEM_STORE_##SHAPE##COUNT##x_16b, 16>(NAME ".x" #COUNT ".unpack::16b");
#define UP_TO_32(SHAPE, NAME) MOVE(SHAPE, NAME, 1) MOVE(SHAPE, NAME, 2) MOVE(SHAPE, NAME, 4) MOVE(SHAPE, NAME, 8) \
  MOVE(SHAPE, NAME, 16) MOVE(SHAPE, NAME, 32)
#define UP_TO_128(SHAPE, NAME) UP_TO_32(SHAPE, NAME) MOVE(SHAPE, NAME, 64) MOVE(SHAPE, NAME, 128)

// tcgen05.cp: row, byte of the row (row fastest), copy; where its first bit lands.
template <class Op, int Rows, int Copies>
void copied(std::string const& name)
{
  using Traits = Copy_Traits<Op>;
  auto cells = typename Traits::ValID{};
  auto written = typename Traits::DstLayout{};
  long bytes = size<1>(written) / Rows / Copies / 8;
  finish("cp", name, Rows * bytes * Copies, [&](long i) {
    long row = i % Rows, byte = i / Rows % bytes, copy = i / Rows / bytes;
    if constexpr (Copies == 2 && Rows == 64) {  // 01_23 numbers its rows as 32, then twice; 02_13 as 64
      if (name.find("01_23") != std::string::npos) {
        return (unsigned long long)cells(int(row % 32 + 32 * (8 * byte) + 4096 * (row / 32) + 8192 * copy));
      }
    }
    return (unsigned long long)cells(int(written(0, int(row + Rows * (8 * byte) + Rows * (8 * bytes) * copy))));
  });
}

template <int Block>
void scales(int rows, int k)
{
  auto layout = cutlass::detail::Sm1xxBlockScaledConfig<Block>::tile_atom_to_shape_SFA(make_shape(rows, rows, k, 1));
  int blocks = (k + Block - 1) / Block;
  finish("scales", std::to_string(Block) + " " + std::to_string(rows) + "x" + std::to_string(k), long(rows) * blocks,
         [&](long i) { return layout(make_coord(int(i % rows), int(i / rows) * Block, 0)); });
}

// K is that of one instruction, of which there are Steps along k.
template <int Block, int NSM, bool IsA, UMMA::TmemAllocMode Mode, int MN, int K, int Steps = 1>
void scales_in_tensor_memory(std::string const& name)
{
  using T = float_ue8m0_t;
  auto tensor = UMMA::tmem_sf_frg<T, Block, NSM, IsA, Mode>::make(
      Shape<Shape<Int<MN>, Shape<Int<Block>, Int<K / Block>>>, _1, Int<Steps>>{});
  auto layout = tensor.layout();
  // ((row, copies), (element of the block, block), steps): the first element of each block
  constexpr int copies = Mode == UMMA::TmemAllocMode::ScaleFactorDuplicated2by2 ? 2 : 4;
  constexpr int blocks = K / Block * Steps;
  finish("scales in tensor memory", name + " " + std::to_string(MN) + "x" + std::to_string(blocks), long(MN) * copies * blocks,
         [&](long i) {
           long place = i % (MN * copies), block = i / (MN * copies);
           return (unsigned long long)layout(int(place + long(MN) * copies * Block * block)) * 8;
         });
}

// mma.sync: which row or column the scales of a lane belong to.
template <class Op>
void lanes(std::string const& name)
{
  using Traits = MMA_Traits<Op>;
  auto a = typename Traits::SFALayout{};
  auto b = typename Traits::SFBLayout{};
  finish("mma.sync SFA", name, 32, [&](long i) { return a(int(i), 0); });
  finish("mma.sync SFB", name, 32, [&](long i) { return b(int(i), 0); });
}

int main()
{
  accumulators<16>(); accumulators<64>(); accumulators<128>(); accumulators<240>(); accumulators<256>();
  accumulators_ws<64>(); accumulators_ws<128>(); accumulators_ws<256>();
  a_operands<float, 8>("tf32"); a_operands<half_t, 16>("f16"); a_operands<half_t, 64>("f16"); a_operands<uint8_t, 32>("e4m3");
  metadata<float, 16, 2>("tf32"); metadata<half_t, 32, 1>("f16"); metadata<uint8_t, 64, 1>("e4m3");
  metadata<float_e2m1_t, 128, 1, 2>("e2m1");
  metadata_of_ws<128>(); metadata_of_ws<64>(); metadata_of_ws<32>();
  UP_TO_32(16dp256b, "16x256b")
  UP_TO_32(16dp128b, "16x128b") MOVE(16dp128b, "16x128b", 64)
  UP_TO_128(16dp64b, "16x64b")
  UP_TO_128(16dp32b, "16x32bx2")
  UP_TO_128(32dp32b, "32x32b")
  copied<SM100_UTCCP_128dp256bit_1cta, 128, 1>("128x256b");
  copied<SM100_UTCCP_128dp128bit_1cta, 128, 1>("128x128b");
  copied<SM100_UTCCP_2x64dp128bitlw0213_1cta, 64, 2>("64x128b.warpx2::02_13");
  copied<SM100_UTCCP_2x64dp128bitlw0123_1cta, 64, 2>("64x128b.warpx2::01_23");
  copied<SM100_UTCCP_4x32dp128bit_1cta, 32, 4>("32x128b.warpx4");
  copied<SM100_UTCCP_4dp256bit_1cta, 4, 1>("4x256b");
  for (int rows : {128, 256, 512}) { for (int k : {128, 256, 1024}) { scales<16>(rows, k); scales<32>(rows, k); } }
  scales_in_tensor_memory<16, 1, true, UMMA::TmemAllocMode::ScaleFactorDuplicated4by1, 128, 64>("SFA");
  scales_in_tensor_memory<32, 1, true, UMMA::TmemAllocMode::ScaleFactorDuplicated4by1, 128, 32>("SFA");
  scales_in_tensor_memory<16, 1, false, UMMA::TmemAllocMode::ScaleFactorDuplicated4by1, 256, 64>("SFB");
  scales_in_tensor_memory<16, 1, false, UMMA::TmemAllocMode::ScaleFactorDuplicated4by1, 64, 64>("SFB");
  scales_in_tensor_memory<16, 2, false, UMMA::TmemAllocMode::ScaleFactorDuplicated2by2, 256, 64>("SFB pair");
  scales_in_tensor_memory<16, 2, false, UMMA::TmemAllocMode::ScaleFactorDuplicated2by2, 128, 64>("SFB pair");
  scales_in_tensor_memory<16, 1, false, UMMA::TmemAllocMode::ScaleFactorDuplicated4by1, 256, 64, 16>("SFB");
  scales_in_tensor_memory<16, 2, false, UMMA::TmemAllocMode::ScaleFactorDuplicated2by2, 256, 64, 4>("SFB pair");
  scales_in_tensor_memory<16, 2, false, UMMA::TmemAllocMode::ScaleFactorDuplicated2by2, 256, 64, 16>("SFB pair");
  lanes<SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<float_e4m3_t, float_e4m3_t, float, float_ue8m0_t, 32>>("m16n8k32");
  lanes<SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>>("m16n8k64");
}
