#include "tests/models/families/reference_testing.h"

#include <algorithm>

#include "tests/runtime/source_folder.h"

namespace spool::testing {
namespace {

std::filesystem::path reference_file(const char* name) {
  return source_folder() / "tests/reference" / name;
}

bool any_name(std::string_view) { return true; }

std::vector<TensorContents> contents_of(const std::vector<Tensor>& all) {
  return {all.begin(), all.end()};
}

}  // namespace

std::vector<Place> with_cuda(std::vector<Place> places) {
  if (there_is_cuda()) places.push_back({DeviceType::cuda, DType::f32});
  return places;
}

std::string name_of(const ::testing::TestParamInfo<Place>& info) {
  return sentence(name(info.param.device), "_", name(info.param.dtype));
}

ReferenceModel::ReferenceModel() : expected(reference_file("gpt2_expected.safetensors")) {
  model.initialise(1);
  load_tensors(SafetensorsReader(reference_file("gpt2.safetensors")),
               stored(model, contents_of(weights())));
  tokens = load("tokens", {B, T}, DType::i32);
  targets = load("targets", {B, T}, DType::i32);
}

Tensor ReferenceModel::load(const std::string& name, const Shape& shape, DType type) {
  const NamedTensor one{.name = name, .tensor = Tensor({shape, type}, stream)};
  load_tensors(expected, {&one, 1}, any_name);
  return one.tensor.tensor();
}

void ReferenceModel::expect_tensors(const std::string& prefix, const std::vector<Tensor>& parallel,
                                    double tolerance, const std::vector<std::string>& names) {
  size_t compared = 0;
  for (const NamedTensor& ours : stored(model, contents_of(parallel))) {
    if (!names.empty() && std::ranges::find(names, ours.name) == names.end()) continue;
    NamedTensor theirs = ours;
    theirs.name = prefix + ours.name;
    theirs.tensor = Tensor({ours.tensor.shape(), DType::f64}, stream);
    load_tensors(expected, {&theirs, 1}, any_name);
    EXPECT_LE(difference(values(ours.tensor.tensor()), values(theirs.tensor.tensor())), tolerance)
        << ours.name;
    ++compared;
  }
  EXPECT_EQ(compared, names.empty() ? parallel.size() : names.size());
}

std::vector<Tensor> ReferenceModel::weights() {
  std::vector<Tensor> all;
  for (const Parameter* p : model.parameters()) all.push_back(p->data);
  return all;
}

std::vector<Tensor> ReferenceModel::gradients() {
  std::vector<Tensor> all;
  for (const Parameter* p : model.parameters()) all.push_back(p->grad);
  return all;
}

}  // namespace spool::testing
