#include "spool/autograd/sharding/rank_group.h"

#include <algorithm>
#include <numeric>

#include "spool/runtime/stream.h"

namespace spool {
namespace {

View piece_of(const View& all, int rank, int ranks) {
  const int64_t each = all.numel() / ranks;
  return all.slice_elements({rank * each, (rank + 1) * each});
}

// The ranks along an axis with this one, by their coordinate.
std::vector<int> members_along(const MeshAxes& mesh, size_t axis, int rank) {
  int stride = 1;
  for (size_t a = axis + 1; a < mesh.size(); ++a) stride *= mesh[a];
  const int first = rank - rank / stride % mesh[axis] * stride;
  std::vector<int> members;
  for (int c = 0; c < mesh[axis]; ++c) members.push_back(first + c * stride);
  return members;
}

}  // namespace

RankGroup::RankGroup(std::string axis, std::vector<int> members,
                     std::shared_ptr<const ExchangeQueue> queue)
    : axis_(std::move(axis)),
      to_all_("all-to-all along " + axis_),
      gather_("all-gather along " + axis_),
      members_(std::move(members)),
      queue_(std::move(queue)) {
  const Communicator& ranks = queue_->ranks();
  const auto own = std::ranges::find(members_, ranks.rank());
  check(own != members_.end(), "rank ", ranks.rank(), " is none of a group along ", axis_);
  coordinate_ = static_cast<int>(own - members_.begin());
}

Exchange RankGroup::to_all(const View& theirs, const View& pieces, const char* name) const {
  check(theirs.nbytes() == pieces.nbytes() && pieces.numel() % size() == 0,
        "all_to_all: ", pieces.spec(), " to ", theirs.spec(), " among ", size(), " ranks");
  Exchange e{.name = name ? name : to_all_.c_str(), .pattern = Pattern::messages};
  const size_t piece = pieces.nbytes() / static_cast<size_t>(size());
  for (int r = 0; r < size(); ++r) {
    if (r == coordinate_) continue;
    const View out = piece_of(pieces, r, size()), in = piece_of(theirs, r, size());
    e.out.push_back({members_[static_cast<size_t>(r)], out.data(), piece});
    e.in.push_back({members_[static_cast<size_t>(r)], in.data(), piece});
  }
  return e;
}

Exchange RankGroup::to_gather(const View& all, const View& own, const char* name) const {
  check(all.numel() == own.numel() * size() && all.dtype() == own.dtype(),
        "all_gather: ", own.spec(), " to ", all.spec(), " among ", size(), " ranks");
  Exchange e{.name = name ? name : gather_.c_str(), .pattern = Pattern::messages};
  for (int r = 0; r < size(); ++r) {
    if (r == coordinate_) continue;
    e.out.push_back({members_[static_cast<size_t>(r)], own.data(), own.nbytes()});
    e.in.push_back(
        {members_[static_cast<size_t>(r)], piece_of(all, r, size()).data(), own.nbytes()});
  }
  return e;
}

void RankGroup::all_to_all(const View& theirs, const View& pieces, Stream& compute,
                           const char* name) const {
  exchange(to_all(theirs, pieces, name), compute);
}

void RankGroup::all_gather(const View& all, const View& own, Stream& compute,
                           const char* name) const {
  const View place = piece_of(all, coordinate_, size());
  if (place.data() != own.data()) compute.copy(place.data(), own.data(), own.nbytes());
  exchange(to_gather(all, own, name), compute);
}

void RankGroup::enqueue_all_to_all(const View& theirs, const View& pieces, const char* name) const {
  enqueue(to_all(theirs, pieces, name));
}

void RankGroup::enqueue_all_gather(const View& all, const View& own, const char* name) const {
  enqueue(to_gather(all, own, name));
}

Exchange RankGroup::to_gather(const std::vector<View>& own,
                              const std::function<std::vector<View>(int)>& of, Pattern pattern,
                              const char* name) const {
  Exchange e{.name = name, .pattern = pattern};
  const auto add = [&](Messages& to, int rank, const std::vector<View>& views) {
    size_t at = 0;
    for (const View& v : views) {
      to.push_back({members_[static_cast<size_t>(rank)], v.data(), v.nbytes(), at});
      at += v.nbytes();
    }
    e.piece = std::max(e.piece, at);
  };
  for (int r = 0; r < size(); ++r) {
    if (r == coordinate_) continue;
    add(e.out, r, own);
    add(e.in, r, of(r));
  }
  return e;
}

void RankGroup::enqueue_gather(const std::vector<View>& own,
                               const std::function<std::vector<View>(int)>& of,
                               const char* name) const {
  enqueue(to_gather(own, of, Pattern::messages, name));
}

Begun RankGroup::begin_gather(const std::vector<View>& stored,
                              const std::function<std::vector<View>(int)>& of, Stream& compute,
                              const char* name) const {
  const bool is_all = size() == queue_->ranks().size();
  const Pattern pattern = is_all ? Pattern::all_gather : Pattern::messages;
  return begin(to_gather(stored, of, pattern, name), compute, [&](Stream& queue) {
    const std::vector<View> own = of(coordinate_);
    for (size_t i = 0; i < own.size(); ++i) {
      queue.copy(own[i].data(), stored[i].data(), own[i].nbytes());
    }
  });
}

// All memory is allocated before anything is enqueued, so that none is freed under it.
Begun RankGroup::begin(Exchange e, Stream& compute,
                       const std::function<void(Stream&)>& before) const {
  Begun begun;
  const bool is_packed = e.pattern != Pattern::messages;
  if (const size_t bytes = queue_->ranks().workspace_bytes(e.piece); is_packed && bytes > 0) {
    begun.workspace = Tensor({Shape{static_cast<int64_t>(bytes)}, DType::i8}, compute,
                             {.name = "pieces of an exchange", .purpose = Purpose::exchange});
    e.workspace = begun.workspace.view().data();
  }
  queue_->follow(compute);
  before(queue_->stream());
  queue_->ranks().exchange(std::move(e), queue_->stream());
  begun.done = queue_->stream().record();
  return begun;
}

void RankGroup::enqueue(Exchange e) const {
  if (bytes_to_others(e.out, queue_->ranks().rank()) == 0) return;
  queue_->ranks().exchange(std::move(e), queue_->stream());
}

void RankGroup::exchange(Exchange e, Stream& compute) const {
  if (bytes_to_others(e.out, queue_->ranks().rank()) == 0) return;
  const Begun begun = begin(std::move(e), compute, [](Stream&) {});
  compute.wait(begun.done);
}

MeshRanks::MeshRanks(const MeshAxes& mesh, Stream& stream) : mesh_(mesh) {
  Communicator* const ranks = stream.ranks();
  check(ranks != nullptr, "a mesh of ", mesh.ranks(), " ranks, ", mesh.text(),
        ", needs a stream that has joined as many; this one has joined none");
  check(ranks->size() % mesh.ranks() == 0, "a mesh of ", mesh.ranks(), " ranks, ", mesh.text(),
        ", needs a stream that has joined as many, or a multiple of them; this one has joined ",
        ranks->size());
  queue_ = std::make_shared<const ExchangeQueue>(stream);
  for (size_t a = 0; a < mesh.size(); ++a) {
    groups_.emplace_back(mesh.axes[a].name, members_along(mesh, a, ranks->rank()), queue_);
  }
  std::vector<int> all(static_cast<size_t>(mesh.ranks()));
  std::iota(all.begin(), all.end(), ranks->rank() / mesh.ranks() * mesh.ranks());
  all_.emplace(mesh.text(), std::move(all), queue_);
  std::vector<int> replicas;
  for (int r = ranks->rank() % mesh.ranks(); r < ranks->size(); r += mesh.ranks()) {
    replicas.push_back(r);
  }
  replicas_.emplace("data", std::move(replicas), queue_);
}

}  // namespace spool
