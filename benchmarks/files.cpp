// Measures the loading of files that are in the page cache.
//
//   read/124m      reads the file of a GPT-2 124M in f32 into a stream's fresh memory, which has
//                  huge pages, on one thread
//   load/<form>    loads that model: reads it, transposes and converts its matrices as needed;
//                  `of_reading` is its time divided by that of read/124m in this run
//   encode/gpt2    encodes the text of the file $SPOOL_TEXT with the merges of the file
//                  $SPOOL_MERGES, on one thread; bytes_per_second counts the text
//   startup/gpt2   reads the merges

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "spool/models/families/gpt2.h"
#include "spool/models/families/llmc_model.h"
#include "spool/models/families/model_file.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/runtime/cpu/stream.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

constexpr size_t model_memory = size_t{600} << 20;

// A GPT-2 124M with random weights in every form, in a folder that the destructor removes.
class Files {
 public:
  Files() {
    std::string name = (fs::temp_directory_path() / "spool-XXXXXX").string();
    check_file(::mkdtemp(name.data()) != nullptr, name, "cannot be created");
    directory_ = name;
    CpuStream stream(model_memory, 0);
    Gpt2 model(Gpt2Config{}, DType::f32, stream);
    model.initialise(/*seed=*/1);
    save_model(directory_, model);
    LlmcModelWriter writer(llmc(), Gpt2Config{}, DType::f32);
    save_tensors(writer, stored_parameters(model, {.conv1d = false}));
  }
  ~Files() { fs::remove_all(directory_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  const fs::path& directory() const { return directory_; }
  fs::path weights() const { return directory_ / "model.safetensors"; }
  fs::path llmc() const { return directory_ / "model.bin"; }

 private:
  fs::path directory_;
};

double reading_seconds = 0;

void read_file(benchmark::State& state, const fs::path& path) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    CpuStream stream(model_memory, 0);
    const File file = File::open(path);
    const auto floats = static_cast<int64_t>(file.size() / sizeof(float));
    const Tensor memory({Shape{floats}}, stream);
    file.read(0, {memory.view().data(), memory.nbytes()});
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  reading_seconds = took.count() / static_cast<double>(state.iterations());
}

void load_file(benchmark::State& state, const fs::path& path, DType dtype) {
  double seconds = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    CpuStream stream(model_memory, 0);
    const ModelFile file(path);
    const auto model = file.config().make(dtype, stream);
    file.load(*model);
    stream.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds += took.count();
    state.SetIterationTime(took.count());
  }
  state.counters["of_reading"] =
      seconds / static_cast<double>(state.iterations()) / reading_seconds;
}

void encode(benchmark::State& state, const fs::path& merges, const fs::path& file) {
  const auto tokenizer = read_gpt2_tokenizer(merges);
  const std::string text = read_text_file(file, UINT32_MAX);
  std::vector<int32_t> tokens;
  for (auto _ : state) {
    tokens.clear();
    tokenizer->encode(text, tokens);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}

void start_up(benchmark::State& state, const fs::path& merges) {
  for (auto _ : state) benchmark::DoNotOptimize(read_gpt2_tokenizer(merges));
}

void register_all(const Files& files) {
  constexpr int repetitions = 5;
  const auto add = [](const char* name, auto work) {
    return benchmark::RegisterBenchmark(name, work)->Unit(benchmark::kMillisecond);
  };
  add("read/124m", [&](auto& s) { read_file(s, files.weights()); })->Iterations(repetitions);
  const auto load = [&](const char* name, const fs::path& path, DType dtype) {
    add(name, [=](benchmark::State& s) { load_file(s, path, dtype); })
        ->Iterations(repetitions)
        ->UseManualTime();
  };
  load("load/safetensors", files.directory(), DType::f32);
  load("load/safetensors_to_bf16", files.directory(), DType::bf16);
  load("load/llmc", files.llmc(), DType::f32);
  const char *merges = ::getenv("SPOOL_MERGES"), *text = ::getenv("SPOOL_TEXT");
  if (!merges || !text) return;
  const fs::path merges_path = merges, text_path = text;
  add("startup/gpt2", [=](auto& s) { start_up(s, merges_path); });
  add("encode/gpt2", [=](auto& s) { encode(s, merges_path, text_path); });
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const spool::Files files;
  spool::register_all(files);
  benchmark::RunSpecifiedBenchmarks();
}
