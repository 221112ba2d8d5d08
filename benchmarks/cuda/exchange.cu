#include "cuda/exchange.h"

#include "spool/runtime/check.h"
#if SPOOL_NCCL
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "spool/kernels/launch.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/runtime/cuda/nccl_functions.cuh"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/ranks/packing.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/tensor.h"
#include "spool/runtime/trace.h"

namespace spool::benchmarks {
namespace {

// Typed by hand, as the emulated NCCL has none.
using ReduceScatter = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int operation,
                                       ncclComm_t, cudaStream_t);
constexpr int add = 0;  // ncclSum

ReduceScatter find_reduce_scatter() {
  void* const library = find_nccl().library;
  return reinterpret_cast<ReduceScatter>(
      dlsym(library ? library : RTLD_DEFAULT, "ncclReduceScatter"));
}

// Another communicator of the same ranks, with NCCL's own choices.
class Peers {
 public:
  explicit Peers(Communicator& ranks) {
    ncclUniqueId id{};
    if (ranks.rank() == 0) need(cuda::nccl().GetUniqueId(&id));
    const std::string own(reinterpret_cast<const char*>(&id), ranks.rank() == 0 ? sizeof id : 0);
    std::memcpy(&id, ranks.gather("NCCL's id", own).front().data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    need(cuda::nccl().CommInitRankConfig(&comm_, ranks.size(), id, ranks.rank(), &config));
  }
  ~Peers() { (void)cuda::nccl().CommDestroy(comm_); }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ncclComm_t get() const { return comm_; }

  static void need(ncclResult_t result) {
    check(result == ncclSuccess, "NCCL: ", cuda::nccl().GetErrorString(result));
  }

 private:
  ncclComm_t comm_ = nullptr;
};

// Gradients of one rank, and what it gets of the others.
class Gradients {
 public:
  Gradients(Communicator& ranks, CudaStream& stream, const Peers* peers, int64_t elements)
      : ranks_(ranks),
        stream_(stream),
        peers_(peers),
        piece_(elements / ranks.size()),
        own_(unset(elements)),
        landing_(unset(elements)),
        workspace_(unset(std::max<int64_t>(elements, workspace_elements()))),
        sum_(unset(piece_)) {
    std::vector<float> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 7 + static_cast<size_t>(ranks.rank()) * 3) % 1000) - 500;
    }
    stream_.upload(at(own_, 0), values.data(), own_.nbytes());
    for (int r = 0; r < ranks.size(); ++r) {
      const bool is_own = r == ranks.rank();
      pieces_.add(is_own ? nullptr : at(landing_, r));
      if (is_own) continue;
      out_.push_back(message(r, own_, r));
      in_.push_back(message(r, landing_, r));
      same_out_.push_back(message(r, own_, ranks.rank()));
    }
  }

  void moved() {
    ranks_.exchange({.name = "gradients",
                     .pattern = Pattern::all_to_all,
                     .out = out_,
                     .in = in_,
                     .piece = piece_bytes(),
                     .workspace = at(workspace_, 0),
                     .landing = at(landing_, 0)},
                    stream_);
  }

  void own() {
    moved();
    const int64_t begin = ranks_.rank() * piece_;
    const View own = own_.view().slice({begin, begin + piece_});
    launch(SumRanks{.slices = {{.out = sum_, .own = own}}, .pieces = pieces_}, stream_);
  }

  void gathered() {
    ranks_.exchange({.name = "parameters",
                     .pattern = Pattern::all_gather,
                     .out = same_out_,
                     .in = in_,
                     .piece = piece_bytes(),
                     .workspace = at(workspace_, 0)},
                    stream_);
  }

  void reduce_scatter() {
    static const ReduceScatter function = find_reduce_scatter();
    enqueue("ncclReduceScatter", [&](cudaStream_t stream) {
      return function(at(own_, 0), at(sum_, 0), elements_of_piece(), ncclFloat32, add,
                      peers_->get(), stream);
    });
  }

  void all_gather() {
    enqueue("ncclAllGather", [&](cudaStream_t stream) {
      return cuda::nccl().AllGather(at(own_, ranks_.rank()), at(landing_, 0), elements_of_piece(),
                                    ncclFloat32, peers_->get(), stream);
    });
  }

  // What is to be the sum, of whole numbers, whose order does not matter.
  void check_sum(const char* whose) {
    std::vector<float> got(elements_of_piece());
    stream_.download(got.data(), at(sum_, 0), sum_.nbytes());
    const auto first = elements_of_piece() * static_cast<size_t>(ranks_.rank());
    for (size_t i = 0; i < got.size(); ++i) {
      float wanted = 0;
      for (size_t r = 0; r < static_cast<size_t>(ranks_.size()); ++r) {
        wanted += static_cast<float>(((first + i) * 7 + r * 3) % 1000) - 500;
      }
      check(got[i] == wanted, whose, ": the sum of element ", i, " is ", got[i], ", not ", wanted);
    }
  }

 private:
  template <class Call>
  void enqueue(const char* name, const Call& call) {
    stream_.enqueue(name, [&] { Peers::need(call(static_cast<cudaStream_t>(stream_.native()))); });
  }
  size_t elements_of_piece() const { return static_cast<size_t>(piece_); }
  size_t piece_bytes() const { return elements_of_piece() * sizeof(float); }
  int64_t workspace_elements() const {
    return static_cast<int64_t>(ranks_.workspace_bytes(piece_bytes()) / sizeof(float));
  }
  Tensor unset(int64_t elements) { return Tensor({{elements}, DType::f32}, stream_); }
  std::byte* at(const Tensor& all, int piece) const {
    return reinterpret_cast<std::byte*>(all.view().as<float>() + piece * piece_);
  }
  Message message(int peer, const Tensor& all, int piece) const {
    return {peer, at(all, piece), piece_bytes()};
  }

  Communicator& ranks_;
  CudaStream& stream_;
  const Peers* peers_;
  int64_t piece_;
  Tensor own_, landing_, workspace_, sum_;
  decltype(SumRanks::pieces) pieces_ = {};
  Messages out_, in_, same_out_;
};

// Those of the slowest rank.
double seconds_of(Communicator& ranks, Stream& stream, const std::function<void()>& work) {
  ranks.gather("a turn begins", "");
  const double begin = host_clock();
  work();
  stream.synchronize();
  const std::string own = std::to_string(1e9 * (host_clock() - begin));
  double slowest = 0;
  for (const std::string& other : ranks.gather("a turn ends", own)) {
    slowest = std::max(slowest, std::atof(other.c_str()));
  }
  return slowest * 1e-9;
}

// A row of results, as JSON.
std::string measure(Communicator& ranks, CudaStream& stream, const Peers* peers, int64_t elements) {
  Gradients gradients(ranks, stream, peers, elements);
  std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"own", [&] { gradients.own(); }},
      {"moved", [&] { gradients.moved(); }},
      {"gathered", [&] { gradients.gathered(); }}};
  gradients.own();
  gradients.check_sum("own exchange");
  if (peers) {
    gradients.reduce_scatter();
    gradients.check_sum("ncclReduceScatter");
    ways.emplace_back("ncclReduceScatter", [&] { gradients.reduce_scatter(); });
    ways.emplace_back("ncclAllGather", [&] { gradients.all_gather(); });
  }
  const double bytes = static_cast<double>(elements) * sizeof(float);
  const size_t turns = bytes > 1e8 ? 9 : 25;
  std::vector<std::vector<double>> seconds(ways.size());
  for (size_t turn = 0; turn < turns; ++turn) {
    for (size_t w = 0; w < ways.size(); ++w) {
      seconds[w].push_back(seconds_of(ranks, stream, ways[w].second));
    }
  }
  std::string row = sentence("{\"bytes\": ", static_cast<int64_t>(bytes));
  if (ranks.rank() == 0) std::printf("%g MiB, %d ranks\n", bytes / 1048576, ranks.size());
  for (size_t w = 0; w < ways.size(); ++w) {
    std::ranges::sort(seconds[w]);
    const double least = seconds[w].front(), median = seconds[w][turns / 2];
    const double rate = bytes * (ranks.size() - 1) / ranks.size() / median / 1e9;
    row += sentence(", \"", ways[w].first, "\": {\"least_ms\": ", 1e3 * least,
                    ", \"median_ms\": ", 1e3 * median, ", \"gb_per_s\": ", rate, "}");
    if (ranks.rank() > 0) continue;
    std::printf("  %-18s least %9.3f ms  median %9.3f ms  %6.1f GB/s each way\n", ways[w].first,
                1e3 * least, 1e3 * median, rate);
  }
  return row + "}";
}

}  // namespace

std::string why_no_gpu_ranks() { return find_nccl().why_not; }

void measure_on_gpus(const std::vector<double>& mebibytes, const std::string& json) {
  const auto host = ranks_of_launcher();
  check(host != nullptr, "a launcher, or --ranks=N, starts the ranks of this program");
  const Device device = gpu_of_rank(*host);
  const auto ranks = on_device(host, device);
  const double most = *std::ranges::max_element(mebibytes);
  const auto stream = open_stream(device, static_cast<size_t>(5 * most * 1048576) + (64u << 20));
  auto& cuda_stream = static_cast<CudaStream&>(*stream);
  const std::shared_ptr<void> window = ranks->open(*stream);
  const bool has_sum = find_reduce_scatter() != nullptr;
  const auto peers = has_sum ? std::make_unique<Peers>(*ranks) : nullptr;
  if (!has_sum && ranks->rank() == 0) std::puts("this NCCL has no ncclReduceScatter");
  std::string rows;
  const int64_t granule = int64_t{4096} * ranks->size();
  for (const double size : mebibytes) {
    const auto elements = static_cast<int64_t>(size * 1048576 / sizeof(float));
    rows += sentence(
        rows.empty() ? "" : ",\n  ",
        measure(*ranks, cuda_stream, peers.get(), std::max(granule, elements / granule * granule)));
  }
  if (ranks->rank() > 0 || json.empty()) return;
  std::FILE* const file = std::fopen(json.c_str(), "w");
  check(file != nullptr, json, " cannot be written");
  std::fprintf(file, "{\"ranks\": %d, \"nccl\": \"%s\", \"sizes\": [\n  %s]}\n", ranks->size(),
               nccl_in_words().c_str(), rows.c_str());
  check(std::fclose(file) == 0, json, " cannot be written");
}

}  // namespace spool::benchmarks

#else
namespace spool::benchmarks {

std::string why_no_gpu_ranks() { return "this build has no ranks on GPUs: it lacks CUDA or NCCL"; }
void measure_on_gpus(const std::vector<double>&, const std::string&) {}

}  // namespace spool::benchmarks
#endif
