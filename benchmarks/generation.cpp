// Generation with GPT-2 124M (random parameters), compared with reading its parameters once.  A
// token must read all parameters but the position embedding.  Both run on all threads, in turn, so
// that they see the same machine.  Times are medians.
//
//   position      tokens of the text before the first that is timed
//   tokens_per_s  rate of generation
//   share         of the rate at which the parameters can be read; 1 is the best possible
//   gb_per_s      rate of reading the parameters

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>

#include "shared/device.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/stream.h"

namespace spool {
namespace {

using benchmarks::median;
using benchmarks::seconds_of;

// Reads a model's parameters, and does as little else as possible.
class Reader {
 public:
  Reader(Gpt2& model, CpuStream& stream) : stream_(stream) {
    for (const Parameter* p : model.parameters()) {
      if (std::string_view(p->name) == "wpe.weight") continue;
      const auto words = static_cast<int64_t>(p->data.nbytes() / sizeof(uint64_t));
      for (int64_t i = 0; i < words; i += piece_words) {
        const uint64_t* const from = p->data.view().as<uint64_t>() + i;
        pieces_.emplace_back(from, from + std::min(piece_words, words - i));
      }
      bytes_ += static_cast<double>(p->data.nbytes());
    }
    sums_.resize(pieces_.size());
  }
  double bytes() const { return bytes_; }

  void read() {
    stream_.enqueue([this] {
      const auto count = static_cast<int64_t>(pieces_.size());
      stream_.parallel_for(count, /*grain=*/1, [this](int64_t i, int64_t) {
        sums_.begin()[i] = sum(pieces_.begin()[i]);
      });
    });
    stream_.synchronize();
    benchmark::DoNotOptimize(sums_.data());
  }

 private:
  static constexpr int64_t piece_words = 128 * 1024;
  using Piece = std::span<const uint64_t>;

  static uint64_t sum(const Piece& words) {
    std::array<uint64_t, 64> lanes{};  // independent sums, so that the compiler vectorises
    size_t i = 0;
    for (; i + lanes.size() <= words.size(); i += lanes.size()) {
      for (size_t j = 0; j < lanes.size(); ++j) lanes[j] += words[i + j];
    }
    uint64_t all = 0;
    for (; i < words.size(); ++i) all += words[i];
    for (const uint64_t s : lanes) all += s;
    return all;
  }

  CpuStream& stream_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> sums_;
  double bytes_ = 0;
};

struct Case {
  DType dtype;
  int64_t position;
};

void generate(benchmark::State& state, const Case& c) {
  const Gpt2Config config = *gpt2_preset("gpt2-124m");
  const auto probe = open_stream({DeviceType::cpu}, Arena::granule);
  const Report foretold =
      rehearse({.architecture = probe->architecture()}, [&](MetaStream& stream) {
        Gpt2 model(config, c.dtype, stream);
        Generator(model, stream).rehearse();
      });
  CpuStream stream(foretold.memory.peak);
  Gpt2 model(config, c.dtype, stream);
  model.initialise(/*seed=*/1);
  Reader reader(model, stream);
  reader.read();
  Generator generator(model, stream);
  Random random(1);
  std::vector<int32_t> text(static_cast<size_t>(c.position));
  for (int32_t& token : text) token = static_cast<int32_t>(random.next() % 50257);
  generator.read(text);
  generator.next({}, random);
  std::vector<double> tokens, readings;
  for (auto _ : state) {
    tokens.push_back(seconds_of([&] { generator.next({}, random); }));
    readings.push_back(seconds_of([&] { reader.read(); }));
    state.SetIterationTime(tokens.back());
  }
  state.counters["tokens_per_s"] = 1 / median(tokens);
  state.counters["share"] = median(readings) / median(tokens);
  state.counters["gb_per_s"] = reader.bytes() / median(readings) / 1e9;
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using spool::DType;
  benchmark::Initialize(&argc, argv);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t position : {64, 512, 1000}) {
      const std::string title =
          spool::sentence("generate/gpt2-124m/", spool::name(dtype), "/position:", position);
      benchmark::RegisterBenchmark(title.c_str(), spool::generate, spool::Case{dtype, position})
          ->UseManualTime()
          ->Iterations(20)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
