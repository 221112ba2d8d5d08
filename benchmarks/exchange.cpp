// Measures the sum of gradients over ranks, each of which gets its piece: own exchange beside MPI's
// sum, or on GPUs, one for each rank, beside NCCL's.
//
//   mpirun -n 2 --bind-to none build/release/benchmarks/exchange [MIB...]   with MPI
//   exchange --device=cuda --ranks=8 [--json=FILE] [MIB...]                 with NCCL; starts ranks
//
// On GPUs a rank may be a launcher's, too; it has `own` and `moved`, `gathered`, which is own
// exchange of updated parameters, and what NCCL does itself.  With MPI:
//
//   own             pieces to the ranks that sum them (runtime/ranks/mpi.h), then their sum by rank
//                   (SumRanks, on one thread), as steps of training do it
//   moved           the first part of that, without the sum
//   alltoall        the same pieces by MPI_Alltoall, and the same sum
//   reduce_scatter  MPI_Reduce_scatter_block, in which MPI sums
//   allreduce       MPI_Allreduce, in which MPI sums, too, and all ranks get the whole
//
// Sizes are those of one rank's gradients in f32.  They take turns, each after other memory went
// through the caches, as in a step; a turn is as long as its slowest rank's.  Printed are the least
// and the median, own's parts of the others, and in how many of the elements MPI's sum differs from
// the one in order of ranks.  Beside `moved` stands what the ranks' link foretells for it, which
// is measured before the first turn as for a plan (runtime/ranks/measure_link.h).

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/exchange.h"
#include "shared/device.h"
#include "spool/runtime/check.h"
#include "spool/runtime/ranks/launcher.h"
#if SPOOL_MPI
#include <mpi.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "spool/kernels/launch.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/ranks/measure_link.h"
#include "spool/runtime/ranks/mpi.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

// Gradients of one rank, and what it gets of the others, in the memory of a stream of one thread.
class Gradients {
 public:
  Gradients(Communicator& ranks, int64_t elements)
      : ranks_(ranks),
        piece_(elements / ranks.size()),
        stream_(static_cast<size_t>(4 * elements) * sizeof(float) + (1 << 20), /*threads=*/1),
        own_(unset(elements)),
        taken_(unset(elements)),
        sum_(unset(piece_)),
        sum_of_mpi_(unset(elements)) {
    for (int64_t i = 0; i < elements; ++i) {
      const auto number = static_cast<uint64_t>(i * ranks.size() + ranks.rank() + 1);
      floats(own_)[i] = static_cast<float>(uniform(mix_bits(number)) - 0.5);
    }
    for (int r = 0; r < ranks.size(); ++r) {
      const bool is_own = r == ranks.rank();
      pieces_.add(is_own ? nullptr : floats(taken_) + r * piece_);
      if (is_own) continue;
      out_.push_back(message(r, own_));
      in_.push_back(message(r, taken_));
    }
  }

  // By a link that was measured.
  double foretold(const Link& link) const {
    const auto sent = static_cast<double>((ranks_.size() - 1) * piece_) * sizeof(float);
    return link.seconds + sent / link.bytes_per_second;
  }

  void moved() { ranks_.move_now("gradients", out_, in_); }

  void own() {
    moved();
    sum(own_);
  }

  void alltoall() {
    MPI_Alltoall(floats(own_), integer(piece_), MPI_FLOAT, floats(taken_), integer(piece_),
                 MPI_FLOAT, MPI_COMM_WORLD);
    sum(taken_);
  }

  void reduce_scatter() {
    MPI_Reduce_scatter_block(floats(own_), floats(sum_of_mpi_), integer(piece_), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  }

  void allreduce() {
    MPI_Allreduce(floats(own_), floats(sum_of_mpi_), integer(piece_ * ranks_.size()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
  }

  // Whether own() and alltoall() have the same bits.
  void compare() {
    own();
    const std::vector<float> first(floats(sum_), floats(sum_) + piece_);
    alltoall();
    check(std::ranges::equal(first, std::span(floats(sum_), first.size())),
          "the sums of own exchange and of MPI_Alltoall differ");
  }

  double differing_part() {
    own();
    reduce_scatter();
    int64_t differ = 0;
    for (int64_t i = 0; i < piece_; ++i) {
      differ += floats(sum_)[i] == floats(sum_of_mpi_)[i] ? 0 : 1;
    }
    return static_cast<double>(differ) / static_cast<double>(piece_);
  }

 private:
  static int integer(int64_t n) { return static_cast<int>(n); }
  static double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
  static float* floats(const Tensor& t) { return t.view().as<float>(); }
  Tensor unset(int64_t elements) { return Tensor({{elements}, DType::f32}, stream_); }

  Message message(int peer, const Tensor& all) const {
    return {peer, reinterpret_cast<std::byte*>(floats(all) + peer * piece_),
            static_cast<size_t>(piece_) * sizeof(float)};
  }

  // This rank's term is its piece of `all`.
  void sum(const Tensor& all) {
    const int64_t begin = ranks_.rank() * piece_;
    const View own = all.view().slice({begin, begin + piece_});
    launch(SumRanks{.slices = {{.out = sum_, .own = own}}, .pieces = pieces_}, stream_);
    stream_.synchronize();
  }

  Communicator& ranks_;
  int64_t piece_;
  CpuStream stream_;
  Tensor own_, taken_, sum_, sum_of_mpi_;
  decltype(SumRanks::pieces) pieces_ = {};
  Messages out_, in_;
};

// Seconds of the slowest rank.
double seconds_of(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = host_clock();
  work();
  double seconds = host_clock() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

void print(const std::vector<std::pair<const char*, std::vector<double>>>& ways, double foretold) {
  const std::vector<double>& own = ways.front().second;
  const size_t middle = own.size() / 2;
  for (const auto& [name, seconds] : ways) {
    std::printf("  %-15s least %9.3f ms  own of it %5.2f    median %9.3f ms  own of it %5.2f\n",
                name, 1e3 * seconds[0], own[0] / seconds[0], 1e3 * seconds[middle],
                own[middle] / seconds[middle]);
    if (std::string_view(name) != "moved") continue;
    std::printf("  %-15s       %9.3f ms, %5.2f of the least, %5.2f of the median\n", "  foretold",
                1e3 * foretold, foretold / seconds[0], foretold / seconds[middle]);
  }
  std::fflush(stdout);
}

void measure(Communicator& ranks, const Link& link, double mebibytes) {
  const int64_t elements = static_cast<int64_t>(mebibytes * 1048576 / sizeof(float)),
                granule = int64_t{4096} * ranks.size();
  Gradients gradients(ranks, std::max(granule, elements / granule * granule));
  gradients.compare();
  const double differing = gradients.differing_part();
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"own", [&] { gradients.own(); }},
      {"moved", [&] { gradients.moved(); }},
      {"alltoall", [&] { gradients.alltoall(); }},
      {"reduce_scatter", [&] { gradients.reduce_scatter(); }},
      {"allreduce", [&] { gradients.allreduce(); }}};
  std::vector<std::pair<const char*, std::vector<double>>> seconds;
  for (const auto& [name, way] : ways) seconds.emplace_back(name, std::vector<double>());
  std::vector<char> others(size_t{64} << 20);
  const int turns = mebibytes > 100 ? 7 : mebibytes > 8 ? 41 : 201;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t w = 0; w < ways.size(); ++w) {
      std::ranges::fill(others, static_cast<char>(turn));
      seconds[w].second.push_back(seconds_of(ways[w].second));
    }
  }
  if (ranks.rank() > 0) return;
  for (auto& [name, all] : seconds) std::ranges::sort(all);
  std::printf("%g MiB, %d ranks, %d turns; MPI sums %.1f %% of the elements otherwise\n", mebibytes,
              ranks.size(), turns, 100 * differing);
  print(seconds, gradients.foretold(link));
}

void measure_with_mpi(const std::vector<double>& sizes) {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  std::string why_not = "mpirun starts this program";
  const auto ranks = size ? ranks_of_mpi(std::atoi(size), &why_not) : nullptr;
  check(ranks != nullptr, why_not);
  const Link link = measure_link(*ranks);
  if (ranks->rank() == 0) {
    std::printf("the link: %.1f us and %.2f GB/s each way\n", 1e6 * link.seconds,
                link.bytes_per_second / 1e9);
  }
  for (const double mebibytes : sizes) measure(*ranks, link, mebibytes);
}

}  // namespace
}  // namespace spool
#else
namespace spool {
namespace {

void measure_with_mpi(const std::vector<double>&) {
  check(false, "this build has no MPI; --device=cuda measures ranks on GPUs");
}

}  // namespace
}  // namespace spool
#endif

namespace spool {
namespace {

using benchmarks::measure_on_gpus;

// Starts this many ranks, which are copies of this process; throws if one fails.
void start_ranks(int ranks, const std::vector<double>& sizes, const std::string& json) {
  const std::string job = sentence("exchange-", ::getpid());
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    check(process >= 0, "a rank cannot be started");
    if (process > 0) continue;
    ::setenv(rank_variables::rank, std::to_string(rank).c_str(), 1);
    ::setenv(rank_variables::ranks, std::to_string(ranks).c_str(), 1);
    ::setenv(rank_variables::job, job.c_str(), 1);
    std::exit(benchmarks::report_errors([&] { measure_on_gpus(sizes, json); }));
  }
  bool passed = true;
  int status = 0;
  while (::wait(&status) > 0) passed = passed && status == 0;
  check(passed, "a rank failed");
}

void measure_all(int argc, char** argv) {
  using benchmarks::take_argument;
  const bool is_cuda = take_argument(argc, argv, "device", "cpu") == "cuda";
  const int ranks = std::atoi(take_argument(argc, argv, "ranks", "0").c_str());
  const std::string json = take_argument(argc, argv, "json", "");
  std::vector<double> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {0.0625, 1, 16, 500};
  if (!is_cuda) return measure_with_mpi(sizes);
  const std::string why_not = benchmarks::why_no_gpu_ranks();
  check(why_not.empty(), why_not);
  if (ranks > 0) return start_ranks(ranks, sizes, json);
  measure_on_gpus(sizes, json);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  return spool::benchmarks::report_errors([&] { spool::measure_all(argc, argv); });
}
