// Prints layouts as CuTe prints them, each with what CuTe makes of it:
//     text <tab> element bits <tab> elements <tab> sum of (i + 1) * byte address of element i
// Addresses of swizzled pointers are taken from CuTe's own tensors; the buffer starts at a multiple of 1 MiB.
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cstdint>
#include <cstdio>

using namespace cute;

alignas(1 << 20) static unsigned char buffer[1 << 20];

template <class Address>
void finish(int bits, int count, Address const& address)
{
  unsigned long long sum = 0;
  for (int i = 0; i < count; ++i) { sum += (unsigned long long)(i + 1) * (unsigned long long)address(i); }
  std::printf("\t%d\t%d\t%llu\n", bits, count, sum);
}

// A layout of indices: CuTe evaluates it, the unit is one element.
template <class T, class Layout>
void indices(Layout const& layout)
{
  constexpr int bits = sizeof_bits_v<T>;
  print(layout);
  finish(bits, int(size(layout)), [&](int i) { return (unsigned long long)layout(i) * bits / 8; });
}

// A layout of a swizzled pointer: CuTe's tensor says where each element is.
template <class T, class Layout>
void pointer(Layout const& layout)
{
  constexpr int bits = sizeof_bits_v<T>;
  print(layout);
  if constexpr (bits >= 8) {
    auto tensor = make_tensor(make_smem_ptr(reinterpret_cast<T*>(buffer)), layout);
    finish(bits, int(size(layout)), [&](int i) { return reinterpret_cast<unsigned char*>(&tensor(i)) - buffer; });
  } else {
    auto plain = as_position_independent_swizzle_layout(layout);
    finish(bits, int(size(plain)), [&](int i) { return (unsigned long long)plain(i) * bits / 8; });
  }
}

// A tensor at a shared address: CuTe prints the pointer, and says where each element is.
template <class T, class Layout>
void placed(uintptr_t start, Layout const& layout)
{
  auto tensor = make_tensor(make_smem_ptr(reinterpret_cast<T*>(start)), layout);
  print(tensor);
  finish(sizeof_bits_v<T>, int(size(layout)), [&](int i) { return reinterpret_cast<uintptr_t>(&tensor(i)); });
}

template <class T, class Atom>
void family(Atom atom)
{
  auto rows = size<0>(atom);
  auto columns = size<1>(atom);
  pointer<T>(atom);
  indices<T>(as_position_independent_swizzle_layout(atom));
  pointer<T>(tile_to_shape(atom, make_shape(rows * Int<4>{}, columns * Int<2>{})));
  pointer<T>(tile_to_shape(atom, make_shape(rows * Int<2>{}, columns * Int<2>{}), Step<_2,_1>{}));
  pointer<T>(tile_to_shape(atom, make_shape(int(rows) * 2, columns, Int<3>{})));
}

template <class T>
void type()
{
  family<T>(GMMA::Layout_K_INTER_Atom<T>{});
  family<T>(GMMA::Layout_K_SW32_Atom<T>{});
  family<T>(GMMA::Layout_K_SW64_Atom<T>{});
  family<T>(GMMA::Layout_K_SW128_Atom<T>{});
  family<T>(GMMA::Layout_MN_INTER_Atom<T>{});
  family<T>(GMMA::Layout_MN_SW32_Atom<T>{});
  family<T>(GMMA::Layout_MN_SW64_Atom<T>{});
  family<T>(GMMA::Layout_MN_SW128_Atom<T>{});
  family<T>(UMMA::Layout_MN_SW128_32B_Atom<T>{});
}

int main()
{
  type<uint8_t>();
  type<half_t>();
  type<float>();
  type<int4b_t>();

  pointer<half_t>(UMMA::tile_to_mma_shape(UMMA::Layout_K_SW128_Atom<half_t>{}, Shape<Shape<_128,_16>,_1,_4>{}));
  pointer<half_t>(UMMA::tile_to_mma_shape(UMMA::Layout_MN_SW128_Atom<half_t>{}, Shape<Shape<_128,_16>,_1,_4>{}));

  placed<half_t>(0x400, GMMA::Layout_K_SW128_Atom<half_t>{});
  placed<half_t>(0x480, GMMA::Layout_K_SW128_Atom<half_t>{});
  placed<half_t>(0x80, GMMA::Layout_MN_SW32_Atom<half_t>{});
  placed<uint8_t>(0x100, GMMA::Layout_K_INTER_Atom<uint8_t>{});
  placed<float>(0x600, tile_to_shape(GMMA::Layout_K_SW64_Atom<float>{}, Shape<_16,_32>{}));

  // Layouts of indices, static, dynamic and mixed, as kernels without TMA write them.
  indices<half_t>(composition(Swizzle<3,3,3>{}, Layout<Shape<_8,_64>,Stride<_64,_1>>{}));
  indices<half_t>(composition(Swizzle<2,3,3>{}, make_layout(make_shape(_16{}, 32), make_stride(32, _1{}))));
  indices<half_t>(composition(Swizzle<3,3,4>{}, Layout<Shape<_8,_128>,Stride<_128,_1>>{}));
  indices<float>(composition(Swizzle<5,0,5>{}, Layout<Shape<_32,_32>,Stride<_32,_1>>{}));
  indices<float>(composition(Swizzle<2,0,-3>{}, Layout<Shape<_32,_4>,Stride<_1,_32>>{}));
  indices<double>(composition(Swizzle<2,1,3>{}, make_layout(make_shape(8, 16), make_stride(16, 1))));
  indices<uint8_t>(composition(Swizzle<3,4,3>{}, Int<64>{}, Layout<Shape<_8,_128>,Stride<_128,_1>>{}));
  indices<half_t>(Layout<Shape<_8,_64>,Stride<_72,_1>>{});
  indices<half_t>(make_layout(make_shape(make_shape(_8{}, 2), Int<64>{}), make_stride(make_stride(_64{}, 512), _1{})));
  indices<half_t>(Layout<Shape<Shape<_4,_8>,Shape<_2,_2>>,Stride<Stride<_32,_1>,Stride<_16,_8>>>{});
  indices<float>(Layout<_64,_1>{});
  indices<float>(make_layout(make_shape(128), make_stride(2)));
  indices<float>(Layout<Shape<Shape<Shape<_2,_2>,_4>,_4>,Stride<Stride<Stride<_1,_4>,_8>,_32>>{});
  indices<uint8_t>(make_layout(make_shape(_4{}, make_shape(3, _5{}), make_shape(make_shape(2))), LayoutRight{}));
  indices<uint8_t>(make_layout(make_shape(_4{}, make_shape(3, _5{}), make_shape(make_shape(2))), LayoutLeft{}));
  return 0;
}
