// Values that are not finite in a file of tensors.

#include "spool/models/formats/finite_tensors.h"

#include <cmath>
#include <limits>

#include "spool/models/formats/safetensors.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;

// A file with a tensor "good" of one zero, and a tensor "x" of these elements.
template <class T>
SafetensorsReader file_of(const TemporaryDirectory& d, StoredType type, const std::vector<T>& x) {
  const auto path = d.path() / "x.safetensors";
  SafetensorsWriter writer(path, {{.name = "good", .spec = {Shape{1}, StoredType::F32}},
                                  {.name = "x", .spec = {Shape{std::ssize(x)}, type}}});
  const float zero = 0;
  writer.write(writer.tensors()[0], 0, std::as_bytes(std::span(&zero, 1)));
  writer.write(writer.tensors()[1], 0, std::as_bytes(std::span(x)));
  writer.finish();
  return SafetensorsReader(path);
}

TEST(FiniteTensors, TheFirstBadElementIsNamed) {
  const TemporaryDirectory d;
  std::vector<float> x(100'000, 1.5f);
  EXPECT_NO_THROW(check_finite(file_of(d, StoredType::F32, x)));
  for (const size_t at : {size_t{0}, size_t{65'536}, x.size() - 1}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      auto y = x;
      y[at] = bad;
      expect_error(ErrorKind::file, {"x.safetensors: tensor \"x\": element " + std::to_string(at)},
                   [&] { check_finite(file_of(d, StoredType::F32, y)); });
    }
  }
}

TEST(FiniteTensors, EveryFloatingTypeIsLookedAt) {
  const TemporaryDirectory d;
  const auto refused = [](const SafetensorsReader& file) {
    expect_error(ErrorKind::file, {"element 1 is not finite"}, [&] { check_finite(file); });
  };
  const std::vector<uint16_t> infinite_in_bf16{0, 0x7f80}, infinite_in_f16{0, 0x7c00};
  refused(file_of(d, StoredType::BF16, infinite_in_bf16));
  refused(file_of(d, StoredType::F16, infinite_in_f16));
  refused(file_of(d, StoredType::F64, std::vector<double>{0, 1e300}));  // beyond f32
  EXPECT_NO_THROW(check_finite(file_of(d, StoredType::I32, std::vector<int32_t>{0, -1})));
}

}  // namespace
}  // namespace spool
