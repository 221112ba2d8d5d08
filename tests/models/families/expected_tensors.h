#pragma once

// What a reference computed, from the file beside it, and what a model computes to compare with it.

#include <filesystem>
#include <string>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/formats/safetensors.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// A tensor of expected.safetensors in the folder.
inline Tensor expected_in(const std::filesystem::path& folder, const std::string& name,
                          const Spec& spec, Stream& stream) {
  const NamedTensor one{.name = name, .tensor = Tensor(spec, stream)};
  load_tensors(SafetensorsReader(folder / "expected.safetensors"), {&one, 1},
               [](std::string_view) { return true; });
  return one.tensor.tensor();
}

// Of all rows of tokens, without the vocabulary's padding.
inline std::vector<double> logits_of(Model& model, const Tensor& tokens, Stream& stream) {
  Tape tape(stream, {.recording = false, .training = false});
  const std::vector<double> padded =
      values(model.logits(model.hidden(tape.input(tokens))).tensor());
  const auto rows = static_cast<size_t>(model.shape().padded_vocabulary()),
             used = static_cast<size_t>(model.shape().vocabulary);
  std::vector<double> some;
  for (size_t i = 0; i < padded.size(); ++i) {
    if (i % rows < used) some.push_back(padded[i]);
  }
  return some;
}

}  // namespace spool::testing
