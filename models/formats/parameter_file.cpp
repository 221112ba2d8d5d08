#include "spool/models/formats/parameter_file.h"

namespace spool {

std::vector<NamedTensor> named_tensors(const Parameters& parameters,
                                       const std::vector<Tensor>& parallel,
                                       std::string_view prefix) {
  check(parallel.size() == parameters.size(), "named tensors: ", parallel.size(), " tensors for ",
        parameters.size(), " parameters");
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parallel.size(); ++i) {
    all.push_back({.name = std::string(prefix).append(std::string_view(parameters[i]->name)),
                   .tensor = parallel[i]});
  }
  return all;
}

std::vector<NamedTensor> named_tensors(const Parameters& parameters) {
  std::vector<Tensor> data;
  for (const Parameter* p : parameters) data.push_back(p->data);
  return named_tensors(parameters, data);
}

void save_parameters(const std::filesystem::path& file, const Parameters& parameters,
                     const Metadata& metadata) {
  save_tensors(file, named_tensors(parameters), metadata);
}

void load_parameters(const std::filesystem::path& file, const Parameters& parameters,
                     const FileProgress& progress) {
  load_tensors(SafetensorsReader(file), named_tensors(parameters), /*ignored=*/{}, progress);
}

}  // namespace spool
