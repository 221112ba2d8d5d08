#include "spool/models/steps/exchange/same_parameters.h"

#include <algorithm>
#include <map>

#include "spool/autograd/parameters.h"
#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/arguments.h"
#include "spool/kernels/granule_hashes.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {
namespace {

constexpr int64_t max_granules = 1024;  // that are hashed at a time

uint64_t hash_of(const Tensor& parameter, Stream& stream) {
  if (!floating.has(parameter.dtype())) return 0;  // not trained
  constexpr int64_t piece = max_granules * norm_granule;
  Hash all;
  for (int64_t begin = 0; begin < parameter.numel(); begin += piece) {
    const Range part{begin, std::min(begin + piece, parameter.numel())};
    const Tensor hashes({Shape{2 * ceil_div(part.size(), norm_granule)}, DType::i32}, stream,
                        {.name = "hashes of parameters", .purpose = Purpose::exchange});
    GranuleHashes kernel{.out = hashes};
    kernel.x.add(parameter.view().slice_elements(part));
    launch(kernel, stream);
    if (stream.device().type == DeviceType::meta) continue;
    for (const int32_t half : read<int32_t>(hashes)) all.add(int64_t{half});
  }
  return all.state();
}

// The lowest rank whose hash most ranks have.
size_t rank_like_most(const std::vector<uint64_t>& hashes) {
  const auto most = std::ranges::max_element(
      hashes, {}, [&](uint64_t one) { return std::ranges::count(hashes, one); });
  return static_cast<size_t>(most - hashes.begin());
}

// What a rank has of a parameter: which part, and the hash of it.
struct RankHash {
  uint64_t part = 0, hash = 0;
};

// Of ranks that have the same part.
void check_are_same(const Parameter& p, const std::vector<size_t>& ranks,
                    const std::vector<uint64_t>& hashes) {
  const size_t usual = rank_like_most(hashes);
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] == hashes[usual]) continue;
    fail(ErrorKind::device, "rank ", ranks[i], " has other values of the parameter ", p.name,
         " than rank ", ranks[usual], ", so nothing was written; a device or its memory may be ",
         "faulty: resume from the last checkpoint");
  }
}

}  // namespace

void check_same_parameters(const Parameters& parameters) {
  Communicator* const ranks = parameters.stream().ranks();
  if (!ranks || ranks->size() == 1) return;
  std::vector<RankHash> own;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter* const p = parameters[i];
    parameters.with(i, [&] {
      own.push_back({.part = static_cast<uint64_t>(p->part ? p->part->number() : 0),
                     .hash = hash_of(p->data, parameters.stream())});
    });
  }
  if (parameters.stream().device().type == DeviceType::meta) return;
  const std::vector<std::string> all = ranks->gather(
      "hashes", {reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]});
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::map<uint64_t, std::pair<std::vector<size_t>, std::vector<uint64_t>>> by_part;
    for (size_t r = 0; r < all.size(); ++r) {
      RankHash theirs;
      all[r].copy(reinterpret_cast<char*>(&theirs), sizeof theirs, i * sizeof theirs);
      auto& [ranks_of_part, hashes] = by_part[theirs.part];
      ranks_of_part.push_back(r);
      hashes.push_back(theirs.hash);
    }
    for (const auto& [part, same] : by_part)
      check_are_same(*parameters[i], same.first, same.second);
  }
}

}  // namespace spool
