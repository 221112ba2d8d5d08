#include "spool/runtime/ranks/communicator.h"

#include <algorithm>
#include <limits>

#include "spool/runtime/hash.h"
#include "spool/runtime/ranks/packing.h"
#include "spool/runtime/ranks/timeout.h"
#include "spool/runtime/stream.h"

namespace spool {

size_t bytes_to_others(const Messages& all, int rank) {
  size_t bytes = 0;
  for (const Message& m : all) bytes += m.peer == rank ? 0 : m.bytes;
  return bytes;
}

namespace {

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

// One kernel packs what goes out; what all get a second one unpacks.
double packing_seconds(const Machine& machine, Pattern pattern, size_t out, size_t in, int others) {
  const auto seconds = [&](size_t bytes) {
    return machine.seconds({.bytes = 2 * static_cast<double>(bytes)});
  };
  if (pattern == Pattern::messages) return 0;
  if (pattern == Pattern::all_to_all) return seconds(out);
  return seconds(out / static_cast<size_t>(std::max(others, 1))) + seconds(in);
}

class RehearsedRanks final : public Communicator {
 public:
  explicit RehearsedRanks(const Machine& machine)
      : Communicator(machine.mesh.rank, machine.mesh.ranks), machine_(machine) {}
  const char* kind() const override { return "meta"; }

  size_t workspace_bytes(size_t piece) const override {
    return packs() ? packed_bytes(size(), piece) : 0;
  }

 private:
  bool packs() const { return std::holds_alternative<CudaArchitecture>(machine_.architecture); }

  void move(const char*, const Messages&, const Messages&, double) override {}

  // To how many ranks these messages go: to all others, or to those of a group.
  int others_of(const Messages& out) const {
    std::vector<bool> is_given(static_cast<size_t>(size()));
    for (const Message& m : out) is_given[static_cast<size_t>(m.peer)] = m.peer != rank();
    return static_cast<int>(std::count(is_given.begin(), is_given.end(), true));
  }

  void enqueue(Exchange e, Stream& queue) override {
    const size_t sent = bytes_to_others(e.out, rank()), taken = bytes_to_others(e.in, rank());
    const double within = seconds_over(machine_.mesh, /*between=*/false, e.out, e.in),
                 between = seconds_over(machine_.mesh, /*between=*/true, e.out, e.in),
                 packing = packs()
                               ? packing_seconds(machine_, e.pattern, sent, taken, others_of(e.out))
                               : 0;
    queue.host_work(e.name, packing + std::max(within, between),
                    RehearsedExchange{.sent = static_cast<double>(sent)});
  }

  Machine machine_;
};

std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void Communicator::exchange(Exchange e, Stream& queue) {
  const size_t sent = bytes_to_others(e.out, rank_);
  if (are_counted_) sent_ += sent;
  Hash hash(list_);
  hash.add(std::string_view(e.name));
  hash.add(uint64_t{sent});
  list_ = hash.state();
  enqueue(std::move(e), queue);
}

void Communicator::enqueue(Exchange e, Stream& queue) {
  const char* const name = e.name;
  queue.host_work(name, /*seconds=*/0, [this, counted = are_counted_, e = std::move(e)] {
    const double begin = host_clock();
    move(e.name, e.out, e.in, rank_timeout());
    if (counted) seconds_ = seconds_ + host_clock() - begin;
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

void Communicator::check_others(const char* exchange, double waited) {
  if (waited < rank_timeout()) return;
  throw RankEnded(sentence("the other ranks did not come to the exchange '", exchange, "' in ",
                           rank_timeout(), " s"),
                  RankLoss::absent);
}

std::shared_ptr<Communicator> rehearsed_ranks(const Machine& machine) {
  return std::make_shared<RehearsedRanks>(machine);
}

}  // namespace spool
