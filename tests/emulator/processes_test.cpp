// runs: alone
// What the environment says of the emulated devices, in processes of their own: memory that they
// share, and GPUs that CUDA refuses.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/kernels/cuda_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

constexpr size_t gib = size_t{1} << 30;

// A process that does some work and says how it ended; then it stays until it is told to end.
class Child {
 public:
  Child(const char* variable, const std::string& value, const std::function<void()>& work) {
    int said[2] = {};
    EXPECT_EQ(::pipe(said), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::setenv(variable, value.c_str(), /*overwrite=*/1);
      run(work, said[1]);
    }
    ::close(said[1]);
    char text[1000];
    const ssize_t size = ::read(said[0], text, sizeof text);
    ::close(said[0]);
    outcome_ = std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& outcome() const { return outcome_; }
  // As a crash does: it gives nothing back.
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), nullptr, 0);
  }

 private:
  [[noreturn]] static void run(const std::function<void()>& work, int to) {
    std::string outcome = "done";
    try {
      work();
    } catch (const Error& e) {
      outcome = e.what();
    }
    if (::write(to, outcome.data(), outcome.size()) < 0) ::_exit(1);
    while (true) ::pause();
  }

  pid_t process_ = 0;
  std::string outcome_;
};

// Opens a stream and keeps it, as a test that runs at the same time as another.
void hold(size_t budget, int index = 0) {
  static std::vector<std::unique_ptr<Stream>> held;
  held.push_back(open_stream({DeviceType::cuda, index}, budget));
}

TEST(EmulatedProcesses, CollideWhereTheyShareADevicesMemory) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "memory";
  const auto open = [&](size_t budget, int index = 0) {
    return std::make_unique<Child>("EMULATOR_MEMORY", file, [=] { hold(budget, index); });
  };
  const auto first = open(6 * gib);
  EXPECT_EQ(first->outcome(), "done");
  const auto second = open(4 * gib);
  EXPECT_TRUE(contains(second->outcome(), "cuda:0: the budget")) << second->outcome();
  EXPECT_TRUE(contains(second->outcome(), "2.00 GiB of it free")) << second->outcome();
  EXPECT_EQ(open(4 * gib, 1)->outcome(), "done") << "the other device";
  EXPECT_EQ(open(1 * gib)->outcome(), "done");
  first->end();
  EXPECT_EQ(open(4 * gib)->outcome(), "done");
}

TEST(EmulatedProcesses, DoNotCollideOtherwise) {
  const auto open = [&] {
    return std::make_unique<Child>("EMULATOR_MEMORY", "", [=] { hold(6 * gib); });
  };
  const auto first = open(), second = open();
  EXPECT_EQ(first->outcome(), "done");
  EXPECT_EQ(second->outcome(), "done");
}

TEST(EmulatedProcesses, SayInASentenceWhyAGpuIsRefused) {
  const std::pair<const char*, std::vector<const char*>> all[] = {
      {"exclusive", {"device cuda:0: emulated GPU", "compute mode", "use another device"}},
      {"busy", {"device cuda:0: emulated GPU is in use by another program", "another device"}},
      {"full", {"device cuda:0: emulated GPU", "CUDA's own context", "end other programs"}},
      {"foreign", {"device cuda:0: emulated GPU", "9.0", "-DCMAKE_CUDA_ARCHITECTURES=90"}}};
  for (const auto& [gpu, words] : all) {
    const Child child("EMULATOR_GPU", gpu, [] { hold(gib); });
    for (const char* word : words) {
      EXPECT_TRUE(contains(child.outcome(), word)) << child.outcome();
    }
    EXPECT_FALSE(contains(child.outcome(), "\n")) << child.outcome();
    const bool blames_mode = contains(child.outcome(), "compute mode");
    EXPECT_EQ(blames_mode, gpu == std::string_view("exclusive")) << child.outcome();
  }
}

void expect_devices(const char* variable, const char* value, int count) {
  const Child child(variable, value,
                    [] { fail(ErrorKind::invalid, emulator::device().count, " devices"); });
  EXPECT_TRUE(contains(child.outcome(), sentence(count, " devices"))) << child.outcome();
}

TEST(EmulatedProcesses, SeeTheDevicesThatTheyAreShown) {
  expect_devices("CUDA_VISIBLE_DEVICES", "", 0);
  expect_devices("CUDA_VISIBLE_DEVICES", "1", 1);
  expect_devices("CUDA_VISIBLE_DEVICES", "0,1", 2);
  expect_devices("CUDA_VISIBLE_DEVICES", "1,2,0", 1);  // there is no GPU 2
  expect_devices("EMULATOR_DEVICES", "4", 4);
  expect_devices("EMULATOR_DEVICES", "", 2);
}

}  // namespace
}  // namespace spool::testing
