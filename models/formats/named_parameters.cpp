#include "spool/models/formats/named_parameters.h"

namespace spool {

std::vector<NamedTensor> named_tensors(const Parameters& parameters,
                                       const std::vector<TensorContents>& parallel,
                                       std::string_view prefix) {
  check(parallel.size() == parameters.size(), "named tensors: ", parallel.size(), " tensors for ",
        parameters.size(), " parameters");
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parallel.size(); ++i) {
    if (!parallel[i]) continue;
    all.push_back({.name = std::string(prefix).append(std::string_view(parameters[i]->name)),
                   .tensor = parallel[i]});
  }
  return all;
}

std::vector<NamedTensor> named_tensors(const Parameters& parameters) {
  std::vector<TensorContents> data;
  for (const Parameter* p : parameters) data.emplace_back(p->data);
  return named_tensors(parameters, data);
}

}  // namespace spool
