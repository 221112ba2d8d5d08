#include "spool/models/formats/named_parameters.h"

#include <algorithm>

#include "spool/autograd/homes.h"
#include "spool/autograd/sharding/parameter_part.h"

namespace spool {

namespace {

// In host memory, without the device, whose copies from there and to there have to be over.
TensorContents contents_at_home(const Parameter& p) {
  return {p.home.spec(),
          [&p](size_t begin, std::span<std::byte> out) {
            p.homes->synchronize();
            read_bytes(p.home, begin, out);
          },
          [&p](size_t begin, std::span<const std::byte> in) {
            p.homes->synchronize();
            write_bytes(p.home, begin, in);
            p.home.stream().synchronize();
          }};
}

}  // namespace

TensorContents contents_of(const Parameter& p) {
  if (p.home) return contents_at_home(p);
  if (!p.part || !p.part->is_cut()) return p.data;
  const size_t size = size_of(p.declared.dtype);
  const auto elements = [size](size_t begin, size_t bytes) {
    return Range{static_cast<int64_t>(begin / size), static_cast<int64_t>((begin + bytes) / size)};
  };
  return {p.declared,
          [part = p.part, elements](size_t begin, std::span<std::byte> out) {
            part->read_whole(elements(begin, out.size()), out);
          },
          [&p, elements, size](size_t begin, std::span<const std::byte> in) {
            const Range whole = elements(begin, in.size());
            const std::vector<std::byte> own = p.part->pick(whole, in, size);
            const size_t at = static_cast<size_t>(p.part->stretches(whole).own.begin) * size;
            write_bytes(p.data, at, own.size(),
                        [&](std::span<std::byte> out) { std::ranges::copy(own, out.begin()); });
          }};
}

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
  for (const Parameter* p : parameters) data.push_back(contents_of(*p));
  return named_tensors(parameters, data);
}

}  // namespace spool
