// Tensors of a device, written to a safetensors file and read back.

#include "spool/models/formats/tensor_file.h"

#include <cmath>

#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryDirectory;
using testing::values;

class TensorFile : public ::testing::Test {
 protected:
  Tensor with_values(const Shape& shape, DType dtype, const std::vector<double>& f64) {
    const std::vector<float> f32(f64.begin(), f64.end());
    const std::vector<bf16> half(f32.begin(), f32.end());
    if (dtype == DType::f64) return make_tensor<double>(shape, f64, stream_);
    if (dtype == DType::f32) return make_tensor<float>(shape, f32, stream_);
    return make_tensor<bf16>(shape, half, stream_);
  }
  // Element i is i, modulo what the type represents exactly.
  Tensor counting(const Shape& shape, DType dtype) {
    std::vector<double> numbers(static_cast<size_t>(shape.numel()));
    const int64_t modulus = dtype == DType::bf16 ? 251 : 8388593;
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<double>(static_cast<int64_t>(i) % modulus);
    return with_values(shape, dtype, numbers);
  }
  Tensor blank(const Shape& shape, DType dtype) {
    Tensor t({shape, dtype}, stream_);
    write_bytes(t, 0, std::vector<std::byte>(t.nbytes(), std::byte{0x11}));
    return t;
  }
  void save(const std::vector<NamedTensor>& tensors) { save_tensors(path_, tensors, {}); }
  void load(const std::vector<NamedTensor>& tensors) {
    load_tensors(SafetensorsReader(path_), tensors);
  }

  TemporaryDirectory directory_;
  fs::path path_ = directory_.path() / "x.safetensors";
  CpuStream stream_{size_t{256} << 20, 1};
};

TEST_F(TensorFile, HashesNamesSpecsAndEveryByte) {
  const Tensor a = counting({3000, 1451}, DType::f32), b = counting({7}, DType::f32);
  const uint64_t hash = hash_of(std::vector<NamedTensor>{{"a", a}, {"b", b}});
  const auto differs = [&](const std::vector<NamedTensor>& others) {
    EXPECT_NE(hash_of(others), hash) << others[0].name;
  };
  EXPECT_EQ(hash_of(std::vector<NamedTensor>{{"a", a}, {"b", counting({7}, DType::f32)}}), hash);
  differs({{"b", b}, {"a", a}});
  differs({{"a", a}, {"c", b}});
  differs({{"a", a}, {"b", b, /*transposed=*/false}, {"c", b}});
  differs({{"a", counting({1451, 3000}, DType::f32)}, {"b", b}});
  for (const size_t byte : {size_t{0}, size_t{8} << 20, a.nbytes() - 1}) {
    const Tensor other = counting({3000, 1451}, DType::f32);
    write_bytes(other, byte, std::vector<std::byte>{std::byte{0xFF}});
    differs({{"a", other}, {"b", b}});
  }
}

TEST_F(TensorFile, TellsHowMuchOfItIsLoaded) {
  const Shape shape{3000, 1451};
  save({{"x", counting(shape, DType::bf16)}, {"y", counting(shape, DType::f32)}});
  std::vector<size_t> told, totals;
  load_tensors(SafetensorsReader(path_),
               std::vector<NamedTensor>{{"y", blank({1451, 3000}, DType::f32), /*transposed=*/true},
                                        {"x", blank(shape, DType::f32)}},
               /*ignored=*/{}, [&](size_t done, size_t total) {
                 told.push_back(done);
                 totals.push_back(total);
               });
  const size_t elements = 3000 * 1451;
  EXPECT_EQ(told, (std::vector<size_t>{4 * elements, 6 * elements}));
  EXPECT_EQ(totals, (std::vector<size_t>{6 * elements, 6 * elements}));
}

TEST_F(TensorFile, ReadsBackWhatWasWritten) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    // The last is larger than one buffer.
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{3, 5, 2}, Shape{3000, 1451}}) {
      const Tensor t = counting(shape, dtype), back = blank(shape, dtype);
      save({{"x", t}, {"y", counting({3}, DType::f32)}});
      load({{"y", blank({3}, DType::f32)}, {"x", back}});
      ASSERT_EQ(values(back), values(t)) << t.spec();
    }
  }
  const std::vector<int32_t> integers = {1, -100, INT32_MAX};
  const Tensor t = make_tensor<int32_t>({3}, integers, stream_), back = blank({3}, DType::i32);
  save({{"x", t}});
  load({{"x", back}});
  EXPECT_EQ(read<int32_t>(back), integers);
}

TEST_F(TensorFile, StoresConv1DWeightsTransposed) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    // The last two are larger than one buffer.
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{70, 33}, Shape{0, 3}, Shape{3, 0},
                               Shape{3000, 1451}, Shape{90, 50000}}) {
      const Tensor t = counting(shape, dtype), back = blank(shape, dtype);
      save({{"x", t, /*transposed=*/true}});
      load({{"x", back, /*transposed=*/true}});
      const std::vector<double> expected = values(t);
      ASSERT_TRUE(values(back) == expected) << t.spec();
      const Tensor stored = blank({shape[1], shape[0]}, dtype);
      load({{"x", stored}});
      const auto out = static_cast<size_t>(shape[0]), in = static_cast<size_t>(shape[1]);
      const std::vector<double> turned = values(stored);
      size_t wrong = 0;
      for (size_t o = 0; o < out; ++o)
        for (size_t n = 0; n < in; ++n) wrong += turned[n * out + o] != expected[o * in + n];
      ASSERT_EQ(wrong, 0u) << t.spec();
    }
  }
}

TEST_F(TensorFile, ConvertsBetweenFloatingTypes) {
  for (DType from : {DType::f64, DType::f32, DType::bf16}) {
    for (DType to : {DType::f64, DType::f32, DType::bf16}) {
      for (bool transposed : {false, true}) {
        for (const Shape& shape : {Shape{3, 7}, Shape{1500, 1451}}) {
          const Tensor t = counting(shape, DType::bf16), back = blank(shape, to);
          const std::vector<double> numbers = values(t);
          const Tensor source = with_values(shape, from, numbers);
          save({{"x", source, transposed}});
          load({{"x", back, transposed}});
          ASSERT_EQ(values(back), numbers);
        }
      }
    }
  }
  const std::vector<float> third = {1.0f / 3};
  save({{"x", make_tensor<float>({1}, third, stream_)}});
  const Tensor rounded = blank({1}, DType::bf16);
  load({{"x", rounded}});
  EXPECT_EQ(values(rounded)[0], static_cast<float>(bf16(1.0f / 3)));
}

// Also in a transposed matrix, and in any of its pieces.
TEST_F(TensorFile, RefusesAFiniteElementThatTheTensorsTypeCannotHold) {
  const double max_of_bf16 = 3.3895e38;  // half a step above, numbers round to infinity
  const auto loaded = [&](size_t at, double x, DType from, DType to, bool transposed) {
    const Shape stored{1500, 700}, in_memory = transposed ? Shape{700, 1500} : stored;
    std::vector<double> elements(1500 * 700, -2);
    elements[at] = x;
    save({{"w", with_values(stored, from, elements)}});
    load({{"w", blank(in_memory, to), transposed}});
  };
  for (const bool transposed : {false, true}) {
    for (const size_t at : {0, 7, 700'001, 1'049'999}) {
      const std::string place = sentence("tensor \"w\": element ", at, " is ");
      expect_error(ErrorKind::file, {place + "3.4e+38", "beyond the numbers of bf16"},
                   [&] { loaded(at, 3.4e38, DType::f32, DType::bf16, transposed); });
      expect_error(ErrorKind::file, {place + "-1e+39", "beyond the numbers of f32"},
                   [&] { loaded(at, -1e39, DType::f64, DType::f32, transposed); });
      expect_error(ErrorKind::file, {place, "beyond the numbers of f16"},
                   [&] { loaded(at, 65536, DType::bf16, DType::f16, transposed); });
      loaded(at, max_of_bf16, DType::f32, DType::bf16, transposed);
      loaded(at, 3.4e38, DType::f32, DType::f32, transposed);
      loaded(at, 3e38, DType::bf16, DType::f32, transposed);
      loaded(at, INFINITY, DType::f32, DType::bf16, transposed);  // already infinite in the file
      loaded(at, NAN, DType::f32, DType::f16, transposed);
    }
  }
}

TEST_F(TensorFile, FindsAnOverflowAmongElementsThatAreNotFinite) {
  std::vector<double> elements(10, NAN);
  elements[8] = -3.4e38;
  save({{"w", with_values({10}, DType::f32, elements)}});
  expect_error(ErrorKind::file, {"element 8 is -3.4e+38"}, [&] {
    load({{"w", blank({10}, DType::bf16)}});
  });
}

TEST_F(TensorFile, StoresF16AndI8) {
  const std::vector<f16> halves{f16(1), f16(-0x1p-24f), f16(65504), f16(0.1f), f16(3), f16(4)};
  const std::vector<int8_t> bytes{-128, -1, 0, 1, 2, 127};
  const Shape shape{2, 3};
  for (const bool transposed : {false, true}) {
    const Tensor half = make_tensor<f16>(shape, halves, stream_);
    const Tensor byte = make_tensor<int8_t>(shape, bytes, stream_);
    save({{"half", half, transposed}, {"byte", byte, transposed}});
    const SafetensorsReader file(path_);
    EXPECT_EQ(file.find("half")->spec.type, StoredType::F16);
    EXPECT_EQ(file.find("byte")->spec.type, StoredType::I8);
    const Tensor half_back = blank(shape, DType::f16), byte_back = blank(shape, DType::i8);
    load({{"half", half_back, transposed}, {"byte", byte_back, transposed}});
    EXPECT_EQ(values(half_back), values(half));
    EXPECT_EQ(values(byte_back), values(byte));
    for (const DType to : {DType::f64, DType::f32}) {
      const Tensor wide = blank(shape, to);
      load({{"half", wide, transposed}, {"byte", byte_back, transposed}});
      EXPECT_EQ(values(wide), values(half));
    }
    expect_error(ErrorKind::file, {"\"byte\" is I8", "cannot become f32"}, [&] {
      load({{"half", half_back, transposed}, {"byte", blank(shape, DType::f32), transposed}});
    });
  }
  save({{"x", make_tensor<float>({3}, std::vector<float>{1 + 0x1p-11f, 65519, 0.1f}, stream_)}});
  const Tensor rounded = blank({3}, DType::f16);
  load({{"x", rounded}});
  EXPECT_EQ(values(rounded), (std::vector<double>{1, 65504, f16(0.1f)}));
}

TEST_F(TensorFile, RefusesOtherNamesShapesAndTypesBeforeLoadingAny) {
  const Tensor a = counting({2, 3}, DType::f32), b = counting({4}, DType::f32);
  save({{"a", a}, {"b", b}});
  const Tensor first = blank({2, 3}, DType::f32);
  const auto before = values(first);
  const auto refused = [&](const std::vector<NamedTensor>& tensors,
                           std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::file, {path_.string()}, [&] { load(tensors); });
    expect_error(ErrorKind::file, words, [&] { load(tensors); });
    EXPECT_EQ(values(first), before);
  };
  const NamedTensor loaded = {"a", first};
  refused({loaded, {"c", blank({4}, DType::f32)}}, {"has no tensor \"c\""});
  refused({loaded, {"b", blank({5}, DType::f32)}}, {"\"b\" is (4)", "(5)"});
  refused({loaded, {"b", blank({4}, DType::i32)}}, {"\"b\" is F32", "cannot become i32"});
  refused({loaded}, {"tensor \"b\""});
  refused({{"a", first, /*transposed=*/true}}, {"\"a\" is (2, 3)", "(3, 2)"});
}

TEST_F(TensorFile, LeavesOutTensorsThatAreIgnored) {
  const Tensor a = counting({2, 3}, DType::f32), first = blank({2, 3}, DType::f32);
  save({{"a", a}, {"b", counting({4}, DType::f32)}});
  const auto ignored = [](std::string_view name) { return name == "b"; };
  const std::vector<NamedTensor> only_a = {{"a", first}};
  load_tensors(SafetensorsReader(path_), only_a, ignored);
  EXPECT_EQ(values(first), values(a));
}

TEST_F(TensorFile, TransposesOnlyMatrices) {
  const Tensor row = counting({4}, DType::f32);
  expect_error(ErrorKind::invalid, {"\"b\"", "(4)", "transposed"}, [&] {
    save({{"b", row, /*transposed=*/true}});
  });
}

}  // namespace
}  // namespace spool
