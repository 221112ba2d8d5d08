#pragma once

// A fixture for the GPT-2 of tests/reference with its results from PyTorch, parametrised by device
// and type.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "spool/models/families/gpt2.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

constexpr Gpt2Config reference_config{
    .layers = 2, .heads = 3, .channels = 24, .context = 16, .vocabulary = 61};

struct Place {
  DeviceType device;
  DType dtype;
};

// These places, and cuda in f32 if there is a GPU.
std::vector<Place> with_cuda(std::vector<Place> places);
std::string name_of(const ::testing::TestParamInfo<Place>&);

class ReferenceModel : public ::testing::TestWithParam<Place> {
 protected:
  static constexpr int64_t B = 2, T = 13;

  ReferenceModel();

  // A tensor of the reference's results.
  Tensor load(const std::string& name, const Shape& shape, DType type);
  // Compares parameters or gradients with the reference's tensors `prefix` + name: those of
  // `names`, or all if it is empty.  A gradient is stored transposed if its parameter is.
  void expect_tensors(const std::string& prefix, const std::vector<Tensor>& parallel,
                      double tolerance, const std::vector<std::string>& names = {});
  std::vector<Tensor> weights();
  std::vector<Tensor> gradients();

  std::unique_ptr<Stream> owner = open_stream({GetParam().device}, size_t{64} << 20, 2);
  Stream& stream = *owner;
  SafetensorsReader expected;
  Gpt2 model{reference_config, GetParam().dtype, stream};
  Tensor tokens, targets;  // (B, T)
};

}  // namespace spool::testing
