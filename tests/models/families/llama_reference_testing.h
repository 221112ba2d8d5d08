#pragma once

// A fixture for the tiny models of tests/reference/llama, parametrised by name, with what
// transformers and a model in f64 compute from them (tests/reference/README.md).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "spool/models/families/model_file.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/families/expected_tensors.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

class LlamaReferenceModel : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t B = 2, T = 20, V = 50;

  // The model with every parameter read from its file.
  std::shared_ptr<Model> make(DType dtype) {
    const ModelFile file(folder());
    auto model = file.config().make(dtype, stream, file.config().shape().context);
    file.load(*model);
    return model;
  }

  // A tensor of the reference's results.
  Tensor expected(const std::string& name, const Shape& shape, DType type = DType::f64) {
    return expected_in(folder(), name, {shape, type}, stream);
  }
  double expected_number(const std::string& name) { return values(expected(name, {1})).front(); }
  Tensor tokens() { return expected("tokens", {B, T}, DType::i32); }
  Tensor targets() { return expected("targets", {B, T}, DType::i32); }

  CpuStream stream{size_t{64} << 20, 2};

 private:
  static std::filesystem::path folder() {
    return source_folder() / "tests/reference/llama" / GetParam();
  }
};

inline auto llama_kinds() { return ::testing::Values("llama", "qwen2", "qwen3"); }
inline std::string name_of_kind(const ::testing::TestParamInfo<const char*>& kind) {
  return kind.param;
}

}  // namespace spool::testing
