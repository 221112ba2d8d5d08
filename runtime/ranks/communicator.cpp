#include "spool/runtime/ranks/communicator.h"

#include <algorithm>
#include <limits>

#include "spool/runtime/hash.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

class RehearsedRanks final : public Communicator {
 public:
  explicit RehearsedRanks(const Mesh& mesh) : Communicator(mesh.rank, mesh.ranks) {}
  const char* kind() const override { return "meta"; }

 private:
  void move(const char*, const Messages&, const Messages&, double) override {}
};

size_t bytes_to_others(const Messages& all, int rank) {
  size_t bytes = 0;
  for (const Message& m : all) bytes += m.peer == rank ? 0 : m.bytes;
  return bytes;
}

// The larger of what goes out and what comes in, over the links within the machine or those between
// machines.
double seconds_over(const Mesh& mesh, bool between, const Messages& out, const Messages& in) {
  const auto bytes_of = [&](const Messages& all) {
    size_t bytes = 0;
    for (const Message& m : all) {
      const bool is_far = mesh.machine_of(m.peer) != mesh.machine_of(mesh.rank);
      if (m.peer != mesh.rank && is_far == between) bytes += m.bytes;
    }
    return static_cast<double>(bytes);
  };
  const double most = std::max(bytes_of(out), bytes_of(in));
  const Link& link = between ? mesh.between_machines : mesh.link;
  return most > 0 ? link.seconds + most / link.bytes_per_second : 0;
}

std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void Communicator::exchange(const char* name, Messages out, Messages in, Stream& queue) {
  const size_t sent = bytes_to_others(out, rank_);
  sent_ += sent;
  Hash hash(list_);
  hash.add(std::string_view(name));
  hash.add(uint64_t{sent});
  list_ = hash.state();
  if (queue.device().type == DeviceType::meta) {
    const Mesh& mesh = static_cast<const MetaStream&>(queue).machine().mesh;
    const double within = seconds_over(mesh, /*between=*/false, out, in),
                 between = seconds_over(mesh, /*between=*/true, out, in);
    return queue.host_work(name, std::max(within, between),
                           RehearsedExchange{.sent = static_cast<double>(sent)});
  }
  queue.host_work(name, /*seconds=*/0, [this, name, out = std::move(out), in = std::move(in)] {
    const double begin = host_clock();
    move(name, out, in, rank_timeout());
    seconds_ = seconds_ + host_clock() - begin;
  });
}

void Communicator::move_now(const char* name, const Messages& out, const Messages& in) {
  move(name, out, in, std::numeric_limits<double>::infinity());
}

std::vector<std::string> Communicator::gather(const char* name, const std::string& own) {
  const auto count = static_cast<size_t>(size_);
  std::vector<uint64_t> sizes(count);
  uint64_t own_size = own.size();
  Messages out, in;
  for (int r = 0; r < size_; ++r) {
    out.push_back({r, bytes_at(&own_size), sizeof own_size});
    in.push_back({r, bytes_at(&sizes[static_cast<size_t>(r)]), sizeof own_size});
  }
  move_now(name, out, in);
  std::vector<std::string> all(count);
  std::string mine = own;
  for (size_t r = 0; r < count; ++r) {
    all[r].resize(sizes[r]);
    out[r] = {static_cast<int>(r), bytes_at(mine.data()), mine.size()};
    in[r] = {static_cast<int>(r), bytes_at(all[r].data()), all[r].size()};
  }
  move_now(name, out, in);
  return all;
}

std::shared_ptr<Communicator> rehearsed_ranks(const Mesh& mesh) {
  return std::make_shared<RehearsedRanks>(mesh);
}

}  // namespace spool
