#include "spool/models/steps/files/state_tensors.h"

#include <string>

namespace spool {
namespace {

TensorContents contents_of(Optimizer& optimizer, size_t row, size_t parameter) {
  const Spec spec{optimizer.parameters()[parameter]->whole().shape,
                  optimizer.state_rows()[row].type};
  const auto range = [=](size_t begin, size_t bytes) {
    const size_t size = size_of(spec.dtype);
    return StateRange{
        row,
        parameter,
        {static_cast<int64_t>(begin / size), static_cast<int64_t>((begin + bytes) / size)}};
  };
  return {spec,
          [&optimizer, range](size_t begin, std::span<std::byte> out) {
            optimizer.read_state(range(begin, out.size()), out);
          },
          [&optimizer, range](size_t begin, std::span<const std::byte> in) {
            optimizer.write_state(range(begin, in.size()), in);
          }};
}

}  // namespace

std::vector<TensorContents> state_row(Optimizer& optimizer, size_t row,
                                      const Parameters& parameters) {
  const std::vector<Parameter*>& own = optimizer.parameters();
  std::vector<TensorContents> all(parameters.size());
  for (size_t i = 0, next = 0; next < own.size(); ++next, ++i) {
    while (parameters[i] != own[next]) ++i;
    all[i] = contents_of(optimizer, row, next);
  }
  return all;
}

std::vector<TensorContents> exact_parameters(Optimizer& optimizer, const Parameters& parameters) {
  std::vector<TensorContents> all(parameters.size());
  if (has_masters(optimizer)) all = masters(optimizer, parameters);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) all[i] = contents_of(*parameters[i]);
  }
  return all;
}

std::vector<TensorContents> masters(Optimizer& optimizer, const Parameters& parameters) {
  return state_row(optimizer, optimizer.state_rows().size() - 1, parameters);
}

bool has_masters(const Optimizer& optimizer) {
  const std::vector<StateRow>& rows = optimizer.state_rows();
  return !rows.empty() && std::string_view(rows.back().name) == "master";
}

OptimizerFile::OptimizerFile(Optimizer& optimizer, const Parameters& parameters,
                             const NameTensors& name_tensors)
    : optimizer_(optimizer) {
  for (size_t row = 0; row < optimizer.state_rows().size(); ++row) {
    const std::string prefix = std::string(optimizer.state_rows()[row].name) + ".";
    for (NamedTensor& t : name_tensors(state_row(optimizer, row, parameters), prefix)) {
      tensors_.push_back(std::move(t));
    }
  }
}

size_t OptimizerFile::nbytes() const {
  size_t bytes = 0;
  for (const NamedTensor& t : tensors_) bytes += t.tensor.nbytes();
  return bytes;
}

void OptimizerFile::save(const std::filesystem::path& checkpoint, const Metadata& metadata) const {
  save_tensors(checkpoint / name, tensors_, metadata);
}

void OptimizerFile::load(const std::filesystem::path& checkpoint,
                         const std::function<bool(std::string_view tensor)>& ignored,
                         const FileProgress& progress) const {
  optimizer_.initialise();
  load_tensors(SafetensorsReader(checkpoint / name), tensors_, ignored, progress);
}

}  // namespace spool
