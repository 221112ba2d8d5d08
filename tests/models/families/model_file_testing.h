#pragma once

// A fixture for small GPT-2 models with random parameters, in files of a temporary directory.

#include <gtest/gtest.h>

#include <memory>

#include "spool/models/families/gpt2.h"
#include "spool/models/families/llmc_model.h"
#include "spool/models/families/model_file.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

class ModelFileTest : public ::testing::Test {
 protected:
  static constexpr Gpt2Config small{
      .layers = 2, .heads = 2, .channels = 8, .context = 6, .vocabulary = 270};

  // Sets every parameter to its own random numbers.
  void randomise(Gpt2& model, uint64_t seed) {
    for (Parameter* p : model.parameters()) {
      p->data = normal(p->data.shape(), model.dtype(), stream_, seed++);
    }
  }

  std::unique_ptr<Gpt2> make(const Gpt2Config& config, DType dtype = DType::f32) {
    auto model = std::make_unique<Gpt2>(config, dtype, stream_);
    randomise(*model, /*seed=*/2);
    model->clear_padding();
    return model;
  }

  std::unique_ptr<Gpt2> load(const std::filesystem::path& path, DType dtype = DType::f32) {
    const ModelFile file(path);
    auto model = std::make_unique<Gpt2>(*file.config().as<Gpt2Config>(), dtype, stream_);
    randomise(*model, /*seed=*/99);  // reveals parameters that are not loaded
    file.load(*model);
    return model;
  }

  static void expect_equal(Gpt2& a, Gpt2& b) {
    const Parameters &left = a.parameters(), &right = b.parameters();
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(values(left[i]->data), values(right[i]->data)) << left[i]->name;
    }
  }

  static void save_llmc(Gpt2& model, const std::filesystem::path& path) {
    LlmcModelWriter writer(path, *model.config().as<Gpt2Config>(), model.dtype());
    save_tensors(writer, stored_parameters(model, {.conv1d = false}));
  }

  CpuStream stream_{size_t{64} << 20, 2};
  const TemporaryDirectory d_;
};

}  // namespace spool::testing
