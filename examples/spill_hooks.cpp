// Hooks that write each saved value to a file and read it back shortly before backward needs it.
// They need neither an offloader nor a plan, but forward waits for the disk.  To offload to a disk
// without waiting, use OffloadTarget::disk (autograd/offload.h).

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

// A temporary folder; the destructor removes it with its content.
class Folder {
 public:
  Folder() {
    std::random_device random;
    do {
      path_ = fs::temp_directory_path() / ("spool-spill-" + std::to_string(random()));
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

// A saved value in a file.  The tape destroys it after its last use, which removes the file.
class Spilled final : public SavedTensor {
 public:
  Spilled(const Tensor& t, fs::path path)
      : spec_(t.spec()), stream_(t.stream()), path_(std::move(path)) {
    Bytes bytes(t.nbytes());
    read_bytes(t, 0, bytes);
    write_file(path_, bytes);
  }
  ~Spilled() override {
    if (reading_.valid()) reading_.wait();
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  // The tape calls this some ops before unpack().  It reads the file in another thread, into host
  // memory: only unpack() may allocate on the device.
  void prefetch() override {
    if (!reading_.valid() && !unpacked_) {
      reading_ = std::async(std::launch::async, read_file, path_, spec_.nbytes());
    }
  }
  Tensor unpack() override {
    prefetch();
    unpacked_ = true;
    const Tensor t(spec_, stream_, {.name = "spilled"});
    write_bytes(t, 0, reading_.get());  // rethrows the thread's exception
    return t;
  }

 private:
  Spec spec_;
  Stream& stream_;
  fs::path path_;
  std::future<Bytes> reading_;
  bool unpacked_ = false;
};

// Writes saved values to a folder, which must outlive the tapes.
struct SpillHooks final : SavedTensorHooks {
  fs::path folder;
  int fail_at = -1;  // the value at which the example pretends that the disk is full
  int packed = 0;    // values
  size_t bytes = 0;

  explicit SpillHooks(fs::path path) : folder(std::move(path)) {}
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    if (packed++ == fail_at) throw std::runtime_error("the disk is full (says the hook)");
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

  // Runs one step, with its saved values in files unless `hooks` is null.  Returns the gradients.
  std::vector<std::vector<float>> step(Stream& stream, SpillHooks* hooks) {
    Tape tape(stream);
    Var h = tape.input(x);
    {
      std::optional<Tape::HooksScope> scope;
      if (hooks) scope.emplace(tape, *hooks);
      for (Parameter& w : weights) h = gelu(linear(h, w));
    }
    if (hooks) std::printf("%d values, %zu bytes, are in files\n", hooks->packed, hooks->bytes);
    tape.backward({Root{h, dy}});
    std::vector<std::vector<float>> gradients;
    for (Parameter& w : weights) {
      gradients.push_back(read<float>(w.grad));
      w.grad = {};
    }
    return gradients;
  }
};

bool report(bool condition, const char* claim) {
  std::printf("%s: %s\n", claim, condition ? "yes" : "NO");
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
  bool good = report(net.step(stream, &hooks) == plain, "gradients are equal, bit for bit");
  good &= report(fs::is_empty(folder.path()), "no file is left over");

  SpillHooks failing(folder.path());
  failing.fail_at = 3;
  try {
    net.step(stream, &failing);
    good = report(/*condition=*/false, "the hook's error reaches the caller");
  } catch (const std::exception& e) {
    std::printf("the step failed: %s\n", e.what());
  }
  good &= report(fs::is_empty(folder.path()), "no file is left over after the error");
  good &= report(stream.memory().live == live, "no memory is left over after the error");
  return good ? 0 : 1;
}
