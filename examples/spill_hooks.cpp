// Hooks that write each saved value to a file of its own and read it back when backward comes near
// it.  They need no offloader and no plan, and wait for the disk; what does not wait is
// OffloadTarget::disk (autograd/offload.h).

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"

namespace research {

using namespace spool;
namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

// A folder that goes with all that is in it, however its scope is left.
class Folder {
 public:
  Folder() {
    std::random_device any;
    do {
      path_ = fs::temp_directory_path() / ("spool-spill-" + std::to_string(any()));
    } while (!fs::create_directory(path_));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_file(const fs::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!file.flush()) throw std::runtime_error(path.string() + ": cannot be written");
}

Bytes read_file(const fs::path& path, size_t size) {
  Bytes bytes(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  return bytes;
}

// A value that waits in a file, which goes when the tape has no more use for it.
class Spilled final : public SavedTensor {
 public:
  Spilled(const Tensor& t, fs::path path)
      : spec_(t.spec()), stream_(t.stream()), path_(std::move(path)) {
    Bytes bytes(t.nbytes());
    read_bytes(t, 0, bytes);
    write_file(path_, bytes);
  }
  ~Spilled() override {
    if (ahead_.valid()) ahead_.wait();
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  // Memory of the device is taken by unpack() alone.  What the thread throws get() throws.
  void prefetch() override {
    if (!ahead_.valid() && !unpacked_) {
      ahead_ = std::async(std::launch::async, read_file, path_, spec_.nbytes());
    }
  }
  Tensor unpack() override {
    prefetch();
    unpacked_ = true;
    const Tensor t(spec_, stream_, {.name = "spilled"});
    write_bytes(t, 0, ahead_.get());
    return t;
  }

 private:
  Spec spec_;
  Stream& stream_;
  fs::path path_;
  std::future<Bytes> ahead_;
  bool unpacked_ = false;
};

// The folder outlives the tapes.
struct SpillHooks final : SavedTensorHooks {
  fs::path folder;
  int fail_at = -1;  // for the sake of the example: the value at which the disk is full
  int packed = 0;
  size_t bytes = 0;

  explicit SpillHooks(fs::path path) : folder(std::move(path)) {}
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    if (packed++ == fail_at) throw std::runtime_error("the disk is full, says the hook");
    bytes += t.nbytes();
    return std::make_unique<Spilled>(t, folder / (std::to_string(info.value) + "-" + info.op));
  }
};

struct Net {
  std::vector<Parameter> weights;
  Tensor x, dy;  // (N, C), (N, C)

  explicit Net(Stream& stream) {
    Random random(1);
    const auto normal = [&](const Shape& shape) {
      std::vector<float> all(static_cast<size_t>(shape.numel()));
      for (float& v : all) v = 0.3f * random.normal();
      return make_tensor<float>(shape, all, stream);
    };
    constexpr int64_t N = 128, C = 32, layers = 4;
    for (int i = 0; i < layers; ++i) weights.push_back({.name = "weight", .data = normal({C, C})});
    x = normal({N, C});
    dy = normal({N, C});
  }

  // The gradients of one step whose saved values wait in files, or as they are.
  std::vector<std::vector<float>> step(Stream& stream, SpillHooks* hooks) {
    Tape tape(stream);
    Var h = tape.input(x);
    {
      std::optional<Tape::HooksScope> scope;
      if (hooks) scope.emplace(tape, *hooks);
      for (Parameter& w : weights) h = gelu(linear(h, w));
    }
    if (hooks) std::printf("%d values, %zu bytes, wait in files\n", hooks->packed, hooks->bytes);
    tape.backward({Root{h, dy}});
    std::vector<std::vector<float>> gradients;
    for (Parameter& w : weights) {
      gradients.push_back(read<float>(w.grad));
      w.grad = {};
    }
    return gradients;
  }
};

bool holds(bool condition, const char* what) {
  std::printf("%s: %s\n", what, condition ? "yes" : "NO");
  return condition;
}

}  // namespace research

int main() {
  using namespace research;
  CpuStream stream(size_t{16} << 20, /*threads=*/2);
  Net net(stream);
  const auto plain = net.step(stream, nullptr);
  const size_t live = stream.memory().live;
  const Folder folder;

  SpillHooks hooks(folder.path());
  bool good = holds(net.step(stream, &hooks) == plain, "gradients are equal, bit for bit");
  good &= holds(fs::is_empty(folder.path()), "no file is left");

  SpillHooks failing(folder.path());
  failing.fail_at = 3;
  try {
    net.step(stream, &failing);
    good = holds(/*condition=*/false, "the error is told");
  } catch (const std::exception& e) {
    std::printf("an error: %s\n", e.what());
  }
  good &= holds(fs::is_empty(folder.path()), "no file is left after it");
  good &= holds(stream.memory().live == live, "nor memory");
  return good ? 0 : 1;
}
