// The safetensors format, and tensors of a device to and from it.

#include "spool/models/formats/safetensors.h"

#include <algorithm>
#include <cstring>

#include "spool/models/formats/tensor_file.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::content_of;
using testing::error_of;
using testing::TemporaryDirectory;
using testing::values;

std::string with_length(const std::string& header, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header;
}

std::string with_length(const std::string& header) { return with_length(header, header.size()); }

std::string bytes_of(const TensorReader& file, const std::string& tensor) {
  const StoredTensor* stored = file.find(tensor);
  std::string bytes(stored->spec.nbytes(), '\0');
  file.read(*stored, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

constexpr const char* good =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
const std::string good_file = with_length(good) + "ABCDEFGHIJ";

TEST(Safetensors, ReadsWhatOthersWrote) {
  const TemporaryDirectory d;
  const SafetensorsReader file(d.file("x", good_file));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find("a")->spec, (Spec{Shape{2, 1}, DType::f32}));
  EXPECT_EQ(file.find("b")->spec, (Spec{Shape{}, DType::bf16}));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(bytes_of(file, "a"), "ABCDEFGH");
  EXPECT_EQ(bytes_of(file, "b"), "IJ");
  std::byte two[2];
  EXPECT_NE(error_of([&] { file.read(*file.find("a"), 7, two); }), "");
  EXPECT_NE(error_of([&] { file.read(*file.find("a"), UINT64_MAX, two); }), "");
}

TEST(Safetensors, ReadsTheReference) {
  const fs::path folder = fs::path(__FILE__).parent_path() / "reference";
  const SafetensorsReader parameters(folder / "gpt2.safetensors");
  const SafetensorsReader expected(folder / "gpt2_expected.safetensors");
  EXPECT_EQ(parameters.metadata().at("n_embd"), "24");
  EXPECT_EQ(parameters.find("h.1.attn.c_attn.weight")->spec, (Spec{Shape{24, 72}, DType::f32}));
  EXPECT_EQ(expected.find("loss")->spec, (Spec{Shape{}, DType::f64}));
  for (const StoredTensor& t : parameters.tensors()) {
    const StoredTensor* gradient = expected.find("grad." + t.name);
    ASSERT_TRUE(gradient) << t.name;
    EXPECT_EQ(gradient->spec.shape, t.spec.shape);
  }
}

TEST(Safetensors, WritesByPieces) {
  const TemporaryDirectory d;
  const fs::path path = d.path() / "x.safetensors";
  SafetensorsWriter out(path,
                        {{"z", {Shape{3}, DType::i32}},
                         {"a", {Shape{2, 0}, DType::f32}},
                         {"m \"\xc3\xa9", {Shape{2, 2}, DType::u16}}},
                        {{"step", "100"}});
  const auto write = [&](size_t tensor, uint64_t begin, std::string_view text) {
    out.write(out.tensors()[tensor], begin, std::as_bytes(std::span(text)));
  };
  write(0, 4, "456789ab");
  write(0, 0, "0123");
  write(2, 4, "GHIJ");
  EXPECT_NE(error_of([&] { out.finish(); }), "");
  write(2, 0, "CDEF");
  EXPECT_NE(error_of([&] { write(2, 8, "x"); }), "");
  EXPECT_NE(error_of([&] { write(2, UINT64_MAX, "x"); }), "");
  out.finish();
  const SafetensorsReader in(path);
  EXPECT_EQ(bytes_of(in, "z"), "0123456789ab");
  EXPECT_EQ(bytes_of(in, "m \"\xc3\xa9"), "CDEFGHIJ");
  EXPECT_EQ(in.find("a")->spec, (Spec{Shape{2, 0}, DType::f32}));
  EXPECT_EQ(in.metadata().at("step"), "100");
  uint64_t length = 0;
  std::memcpy(&length, content_of(path).data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(fs::file_size(path), 8 + length + 20);
}

TEST(Safetensors, WriterRefusesWhatCannotBe) {
  const TemporaryDirectory d;
  const Spec spec{Shape{1}, DType::f32};
  EXPECT_NE(error_of([&] { SafetensorsWriter(d.path() / "x", {{"a", spec}, {"a", spec}}); }), "");
  EXPECT_NE(error_of([&] { SafetensorsWriter(d.path() / "x", {{"__metadata__", spec}}); }), "");
  EXPECT_NE(error_of([&] { SafetensorsWriter(d.path() / "x", {{"\xff", spec}}); }), "");
  EXPECT_TRUE(contains(error_of([&] { SafetensorsWriter(d.path(), {}); }), "Is a directory"));
}

TEST(Safetensors, AFullDiskIsASentence) {
  const std::string error = error_of([] { SafetensorsWriter("/dev/full", {}, {}); });
  EXPECT_TRUE(contains(error, "/dev/full: cannot be written: No space left on device")) << error;
}

TEST(Safetensors, CutShortAnywhereItIsRefused) {
  const TemporaryDirectory d;
  for (size_t size = 0; size < good_file.size(); ++size) {
    const fs::path path = d.file("cut", good_file.substr(0, size));
    EXPECT_TRUE(contains(error_of([&] { SafetensorsReader file(path); }), path.string())) << size;
  }
  EXPECT_NE(error_of([&] { SafetensorsReader file(d.file("long", good_file + "K")); }), "");
}

// Whatever one byte of the header becomes, the answer is a file that can be read, or a sentence.
TEST(Safetensors, AnyByteMayBeWrong) {
  const TemporaryDirectory d;
  int refused = 0, read = 0;
  for (size_t i = 0; i + 10 < good_file.size(); ++i) {
    for (char value : std::string_view("\0\t\"-09[]{},.e\x7f\xff", 15)) {
      std::string wrong = good_file;
      wrong[i] = value;
      const fs::path path = d.file("wrong", wrong);
      const std::string error = error_of([&] {
        const SafetensorsReader file(path);
        for (const StoredTensor& t : file.tensors()) bytes_of(file, t.name);
      });
      ++(error.empty() ? read : refused);
      EXPECT_TRUE(error.empty() || contains(error, path.string())) << error;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 100);
}

// The error of a file with eight bytes of one tensor "t".
std::string error_of_entry(const std::string& entry) {
  const TemporaryDirectory d;
  const fs::path path = d.file("x", with_length("{\"t\":" + entry + "}") + "ABCDEFGH");
  return error_of([&] { SafetensorsReader file(path); });
}

std::string entry_of(const std::string& dtype, const std::string& shape,
                     const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

constexpr const char* wrong_shapes[] = {"[3]",
                                        "[-2]",
                                        "[2.0]",
                                        "[\"2\"]",
                                        "[[2]]",
                                        "2",
                                        "null",
                                        "{}",
                                        "[1,1,1,1,2]",
                                        "[0]",
                                        "[]",
                                        "[4294967296,4294967296]",
                                        "[18446744073709551615]",
                                        "[9223372036854775808,2]",
                                        "[4611686018427387904,2]",
                                        "[2,4611686018427387905]",
                                        "[1e30]",
                                        "[true]",
                                        "[0,18446744073709551615,18446744073709551615]",
                                        "[99999999999999999999999]"};

constexpr const char* wrong_offsets[] = {"[0]",
                                         "[0,8,8]",
                                         "[]",
                                         "[8,0]",
                                         "[-8,0]",
                                         "[0,9]",
                                         "[1,9]",
                                         "[0,4]",
                                         "[4,8]",
                                         "[0,8.0]",
                                         "[0,\"8\"]",
                                         "8",
                                         "null",
                                         "[0,18446744073709551615]",
                                         "[18446744073709551615,8]",
                                         "[0,99999999999999999999999]"};

TEST(Safetensors, EachFieldWrongInTurn) {
  EXPECT_EQ(error_of_entry(entry_of("\"F32\"", "[2]", "[0,8]")), "");
  EXPECT_EQ(error_of_entry(entry_of("\"F32\"", "[1,2,1,1]", "[0,8]")), "");
  const auto refused = [](const std::string& entry) {
    EXPECT_TRUE(contains(error_of_entry(entry), ": field t")) << entry;
  };
  for (const char* dtype : {"\"F16\"", "\"f32\"", "\"\"", "3", "null", "[]"})
    refused(entry_of(dtype, "[2]", "[0,8]"));
  for (const char* shape : wrong_shapes) refused(entry_of("\"F32\"", shape, "[0,8]"));
  for (const char* offsets : wrong_offsets) refused(entry_of("\"F32\"", "[2]", offsets));
  for (const char* other :
       {"3", "null", "[]", "\"F32\"", "{}", R"({"dtype":"F32"})", R"({"dtype":"F32","shape":[2]})"})
    refused(other);
}

TEST(Safetensors, TheHeaderAsAWhole) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& content) {
    const fs::path path = d.file("x", content);
    return error_of([&] { SafetensorsReader file(path); });
  };
  const auto two = [](const std::string& a, const std::string& b) {
    const std::string f32 = R"({"dtype":"F32","shape":[1],"data_offsets":)";
    return with_length("{\"a\":" + f32 + a + "},\"b\":" + f32 + b + "}}") + "ABCDEFGH";
  };
  EXPECT_EQ(error(two("[0,4]", "[4,8]")), "");
  EXPECT_EQ(error(two("[4,8]", "[0,4]")), "");
  EXPECT_NE(error(two("[0,4]", "[0,4]")), "");
  EXPECT_NE(error(two("[0,4]", "[3,7]")), "");
  EXPECT_NE(error(two("[4,8]", "[4,8]")), "");
  EXPECT_EQ(error(with_length("{}")), "");
  EXPECT_EQ(error(with_length("{}  ")), "");
  EXPECT_NE(error(with_length(" {}")), "");
  EXPECT_NE(error(with_length("[]")), "");
  EXPECT_NE(error(with_length("{} {}")), "");
  EXPECT_NE(error(with_length("")), "");
  EXPECT_NE(error(with_length("{}") + "x"), "");
  EXPECT_NE(error(with_length(R"({"__metadata__":3})")), "");
  EXPECT_NE(error(with_length(R"({"__metadata__":{"a":3}})")), "");
  const std::string none = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(error(with_length("{\"a\":" + none + ",\"b\":" + none + "}")), "");
  EXPECT_TRUE(contains(error(with_length("{\"a\":" + none + ",\"a\":" + none + "}")), "twice"));
  EXPECT_TRUE(contains(error(with_length("{}", UINT64_MAX)), "18446744073709551615"));
  EXPECT_TRUE(contains(error(with_length("{}", 100'000'001)), "at most 100000000"));
  EXPECT_TRUE(contains(error(with_length("{}", 3)), "and 2 follow"));
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  EXPECT_TRUE(contains(error(with_length(many + "]}")), "more than 1000000 values"));
  const std::string odd = with_length("{\"" + std::string(1000, '\\') + "\":3}");
  EXPECT_LT(error(odd).size(), 400u);
  std::string bomb = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) bomb += "[";
  EXPECT_TRUE(contains(error(with_length(bomb)), "nested deeper"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsReader file(d.path() / "no"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsReader file(d.path()); }), "is a directory"));
  EXPECT_NE(error_of([&] { SafetensorsReader file("/dev/zero"); }), "");
}

class TensorFile : public ::testing::Test {
 protected:
  Tensor with_values(const Shape& shape, DType dtype, const std::vector<double>& f64) {
    const std::vector<float> f32(f64.begin(), f64.end());
    const std::vector<bf16> half(f32.begin(), f32.end());
    if (dtype == DType::f64) return make_tensor<double>(shape, f64, stream_);
    if (dtype == DType::f32) return make_tensor<float>(shape, f32, stream_);
    return make_tensor<bf16>(shape, half, stream_);
  }
  // Element i is i, modulo what the dtype holds exactly.
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

TEST_F(TensorFile, RoundTrips) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    // The last is more than one buffer.
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

TEST_F(TensorFile, TransposesAsConv1D) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    // The last two are more than one buffer.
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

TEST_F(TensorFile, WhatDoesNotFitIsASentenceAndTouchesNothing) {
  const Tensor a = counting({2, 3}, DType::f32), b = counting({4}, DType::f32);
  save({{"a", a}, {"b", b}});
  const Tensor first = blank({2, 3}, DType::f32);
  const auto before = values(first);
  const auto error = [&](const NamedTensor& second) {
    const std::string text = error_of([&] { load({{"a", first}, second}); });
    EXPECT_TRUE(contains(text, path_.string())) << text;
    EXPECT_EQ(values(first), before);
    return text;
  };
  EXPECT_TRUE(contains(error({"c", blank({4}, DType::f32)}), "has no tensor \"c\""));
  const std::string shapes = error({"b", blank({5}, DType::f32)});
  EXPECT_TRUE(contains(shapes, "\"b\" is (4)") && contains(shapes, "(5)")) << shapes;
  EXPECT_TRUE(contains(error({"b", blank({4}, DType::i32)}), "cannot become i32"));
  EXPECT_TRUE(contains(error_of([&] { load({{"a", first}}); }), "\"b\""));
  EXPECT_TRUE(contains(error_of([&] { load({{"a", first, /*transposed=*/true}}); }), "(3, 2)"));
  EXPECT_NE(error_of([&] { save({{"b", b, /*transposed=*/true}}); }), "");
  const auto ignored = [](std::string_view name) { return name == "b"; };
  const std::vector<NamedTensor> only_a = {{"a", first}};
  load_tensors(SafetensorsReader(path_), only_a, ignored);
  EXPECT_EQ(values(first), values(a));
}

}  // namespace
}  // namespace spool
