// Measures the sum of gradients over ranks, each of which gets its piece: own exchange beside MPI.
// mpirun starts it, with a build that has MPI:
//
//   mpirun -n 2 --bind-to none build/release/benchmarks/exchange [MIB...]
//
//   own             pieces to the ranks that sum them (runtime/ranks/mpi.h), then their sum by rank
//   alltoall        the same by MPI_Alltoall, and the same sum
//   reduce_scatter  MPI_Reduce_scatter_block, in which MPI sums
//   allreduce       MPI_Allreduce, in which MPI sums, too, and all ranks get the whole
//
// Sizes are those of one rank's gradients in f32.  The four take turns, and a turn is as long as
// its slowest rank's; printed are the least and the median, own's parts of the others, and in how
// many of the elements MPI's sum differs from the one in order of ranks.

#include <cstdio>

#if SPOOL_MPI
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/ranks/mpi.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

// Gradients of one rank, and what it gets of the others.
class Gradients {
 public:
  Gradients(Communicator& ranks, size_t elements)
      : ranks_(ranks),
        piece_(elements / count()),
        own_(elements),
        taken_(elements),
        sum_(piece_),
        sum_of_mpi_(elements) {
    for (size_t i = 0; i < elements; ++i) {
      const uint64_t bits = mix_bits(i * count() + at() + 1);
      own_[i] = static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5);
    }
    for (size_t r = 0; r < count(); ++r) {
      if (r == at()) continue;
      out_.push_back(message(r, own_));
      in_.push_back(message(r, taken_));
    }
  }

  void own() {
    ranks_.move_now("gradients", out_, in_);
    sum(own_.data() + at() * piece_);
  }

  void alltoall() {
    MPI_Alltoall(own_.data(), integer(piece_), MPI_FLOAT, taken_.data(), integer(piece_), MPI_FLOAT,
                 MPI_COMM_WORLD);
    sum(taken_.data() + at() * piece_);
  }

  void reduce_scatter() {
    MPI_Reduce_scatter_block(own_.data(), sum_of_mpi_.data(), integer(piece_), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  }

  void allreduce() {
    MPI_Allreduce(own_.data(), sum_of_mpi_.data(), integer(own_.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }

  // Whether own() and alltoall() have the same bits.
  void compare() {
    own();
    const std::vector<float> first = sum_;
    alltoall();
    check(first == sum_, "the sums of own exchange and of MPI_Alltoall differ");
  }

  double differing_part() {
    own();
    reduce_scatter();
    size_t differ = 0;
    for (size_t i = 0; i < piece_; ++i) differ += sum_[i] == sum_of_mpi_[i] ? 0 : 1;
    return static_cast<double>(differ) / static_cast<double>(piece_);
  }

 private:
  static int integer(size_t n) { return static_cast<int>(n); }
  size_t count() const { return static_cast<size_t>(ranks_.size()); }
  size_t at() const { return static_cast<size_t>(ranks_.rank()); }

  Message message(size_t peer, std::vector<float>& all) const {
    return {static_cast<int>(peer), reinterpret_cast<std::byte*>(all.data() + peer * piece_),
            piece_ * sizeof(float)};
  }

  // ((x_0 + x_1) + x_2) + ..., in stretches that stay in the cache.
  void sum(const float* own_term) {
    constexpr size_t stretch = 2048;
    for (size_t begin = 0; begin < piece_; begin += stretch) {
      const size_t size = std::min(stretch, piece_ - begin);
      float* const out = sum_.data() + begin;
      for (size_t r = 0; r < count(); ++r) {
        const float* const term = (r == at() ? own_term : taken_.data() + r * piece_) + begin;
        if (r == 0) {
          std::copy(term, term + size, out);
        } else {
          for (size_t i = 0; i < size; ++i) out[i] += term[i];
        }
      }
    }
  }

  Communicator& ranks_;
  size_t piece_;
  std::vector<float> own_, taken_, sum_, sum_of_mpi_;
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

void measure(Communicator& ranks, double mebibytes) {
  const auto bytes = static_cast<size_t>(mebibytes * 1048576);
  const size_t granule = 4096 * static_cast<size_t>(ranks.size());
  Gradients gradients(ranks, std::max(granule, bytes / sizeof(float) / granule * granule));
  gradients.compare();
  const double differing = gradients.differing_part();
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"own", [&] { gradients.own(); }},
      {"alltoall", [&] { gradients.alltoall(); }},
      {"reduce_scatter", [&] { gradients.reduce_scatter(); }},
      {"allreduce", [&] { gradients.allreduce(); }}};
  std::vector<std::vector<double>> seconds(ways.size());
  const int turns = mebibytes > 100 ? 7 : mebibytes > 8 ? 41 : 201;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t w = 0; w < ways.size(); ++w) seconds[w].push_back(seconds_of(ways[w].second));
  }
  if (ranks.rank() > 0) return;
  for (std::vector<double>& all : seconds) std::ranges::sort(all);
  std::printf("%g MiB, %d ranks, %d turns; MPI sums %.1f %% of the elements otherwise\n", mebibytes,
              ranks.size(), turns, 100 * differing);
  const size_t middle = static_cast<size_t>(turns) / 2;
  for (size_t w = 0; w < ways.size(); ++w) {
    std::printf("  %-15s least %9.3f ms  own of it %5.2f    median %9.3f ms  own of it %5.2f\n",
                ways[w].first, 1e3 * seconds[w][0], seconds[0][0] / seconds[w][0],
                1e3 * seconds[w][middle], seconds[0][middle] / seconds[w][middle]);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  std::string why_not = "mpirun starts this program";
  const auto ranks = size ? ranks_of_mpi(std::atoi(size), &why_not) : nullptr;
  check(ranks != nullptr, why_not);
  std::vector<double> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {0.0625, 1, 16, 500};
  for (const double mebibytes : sizes) measure(*ranks, mebibytes);
  return 0;
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  try {
    return spool::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "exchange: %s\n", e.what());
    return 1;
  }
}
#else
int main() {
  std::puts("exchange: this build has no MPI");
  return 1;
}
#endif
