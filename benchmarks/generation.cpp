// Measures generation with models of random parameters, compared with reading these once.  A token
// must read all parameters but the position embedding.  On a cpu (the default) both run on all
// threads, in turn, so that they see the same machine; with --device=cuda the time of reading is
// that of the bytes at the rate of a large copy, which is measured first.  Times are medians.
//
//   position      tokens of the text before the first that is timed
//   tokens_per_s  rate of generation
//   share         of the rate at which the parameters can be read; 1 is the best possible
//   gb_per_s      rate of reading the parameters
//
// `batch` continues 1 and 8 prompts of 32 tokens by 64, in turn:
//
//   tokens_per_s  of all texts together, without the time of reading the prompts
//   times_one     that rate as a multiple of the rate for one prompt

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "shared/device.h"
#include "shared/timed_benchmark.h"
#include "spool/models/families/families.h"
#include "spool/models/inference/batch_generator.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/stream.h"

namespace spool {
namespace {

using benchmarks::median;
using benchmarks::register_timed;
using benchmarks::seconds_of;

// Reads a model's parameters and does little else.
class Reader {
 public:
  Reader(Model& model, CpuStream& stream) : stream_(stream) {
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

// Reads the parameters once in each call, and returns the seconds; on a GPU foretold by a copy.
class Reading {
 public:
  Reading(Model& model, Stream& stream) {
    const Device device = stream.device();
    if (device.type == DeviceType::cpu) {
      reader_.emplace(model, dynamic_cast<CpuStream&>(stream));
      reader_->read();
      return;
    }
    for (const Parameter* p : model.parameters()) {
      if (std::string_view(p->name) != "wpe.weight") bytes_ += double(p->data.nbytes());
    }
    seconds_ = bytes_ / measure_machine(device, DType::bf16).bytes_per_second;
  }
  double bytes() const { return reader_ ? reader_->bytes() : bytes_; }
  double seconds() {
    return reader_ ? seconds_of([this] { reader_->read(); }) : seconds_;
  }

 private:
  std::optional<Reader> reader_;
  double bytes_ = 0, seconds_ = 0;
};

struct Case {
  Device device;
  ModelConfig model;
  DType dtype;
  int64_t position = 0;
};

void generate(benchmark::State& state, const Case& c) {
  const int64_t longest = 1024;
  const auto probe = open_stream(c.device, Arena::granule);
  const Report foretold =
      rehearse({.architecture = probe->architecture()}, [&](MetaStream& stream) {
        const auto model = c.model.make(c.dtype, stream, longest);
        Generator(*model, stream).rehearse();
      });
  const auto stream = open_stream(c.device, foretold.memory.peak);
  const auto model = c.model.make(c.dtype, *stream, longest);
  model->initialise(/*seed=*/1);
  Reading reading(*model, *stream);
  Generator generator(*model, *stream);
  Random random(1);
  std::vector<int32_t> text(static_cast<size_t>(c.position));
  const auto V = static_cast<uint32_t>(c.model.shape().vocabulary);
  for (int32_t& token : text) token = static_cast<int32_t>(random.next() % V);
  generator.read(text);
  generator.next({}, random);
  std::vector<double> tokens, readings;
  for (auto _ : state) {
    tokens.push_back(seconds_of([&] { generator.next({}, random); }));
    readings.push_back(reading.seconds());
    state.SetIterationTime(tokens.back());
  }
  state.counters["tokens_per_s"] = 1 / median(tokens);
  state.counters["share"] = median(readings) / median(tokens);
  state.counters["gb_per_s"] = reading.bytes() / median(readings) / 1e9;
}

constexpr int64_t prompt_tokens = 32, added_tokens = 64;

// Seconds from the first drawn token to the last.
double seconds_of_batch(BatchGenerator& generator, int64_t rows) {
  std::vector<BatchGenerator::Row> texts;
  for (int64_t i = 0; i < rows; ++i) {
    texts.push_back({.tokens = std::vector<int32_t>(prompt_tokens, 1),
                     .random = Random(1, static_cast<uint64_t>(i))});
  }
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> first;
  generator.extend(texts, added_tokens, {}, [&](size_t, int32_t) {
    if (!first) first = Clock::now();
    return true;
  });
  return std::chrono::duration<double>(Clock::now() - *first).count();
}

void batch(benchmark::State& state, const Case& c) {
  constexpr int64_t rows = 8, longest = prompt_tokens + added_tokens;
  const auto stream = open_stream(c.device, size_t{6} << 30);
  const auto model = c.model.make(c.dtype, *stream, longest);
  model->initialise(/*seed=*/1);
  BatchGenerator generator(*model, *stream, rows, longest);
  seconds_of_batch(generator, rows);
  std::vector<double> one, many;
  for (auto _ : state) {
    one.push_back(seconds_of_batch(generator, 1));
    many.push_back(seconds_of_batch(generator, rows));
    state.SetIterationTime(many.back());
  }
  state.counters["tokens_per_s"] = static_cast<double>(rows * added_tokens) / median(many);
  state.counters["times_one"] = rows * median(one) / median(many);
}

void register_cases(Device device) {
  const bool cpu = device.type == DeviceType::cpu;
  for (const std::string name : {"gpt2-124m", cpu ? "smollm2-135m" : "llama-3.2-1b"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!cpu && dtype == DType::f32) continue;
      const std::string kind = sentence(name, '/', spool::name(dtype));
      Case c{.device = device, .model = model_preset(name)->config, .dtype = dtype};
      for (const int64_t position : {64, 512, 1000}) {
        c.position = position;
        register_timed(sentence("generate/", kind, "/position:", position), 20,
                       [c](benchmark::State& state) { generate(state, c); });
      }
      register_timed(sentence("batch/", kind), 5,
                     [c](benchmark::State& state) { batch(state, c); });
    }
  }
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const std::string device = benchmarks::take_argument(argc, argv, "device", "cpu");
  return benchmarks::report_errors([&] {
    benchmark::Initialize(&argc, argv);
    register_cases(parse_device(device));
    benchmark::RunSpecifiedBenchmarks();
  });
}
