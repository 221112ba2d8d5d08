// runs: alone, slow
// cuDNN, asked without a device: for GPUs that are described in devices.json, it has a plan for
// every shape that is given to it, within the workspace that the kernels declare.
//
// The descriptions are what cuDNN writes of a device, with numbers of NVIDIA's data sheets and of
// CUDA's table of compute capabilities.  It runs where cuDNN is: at SPOOL_CUDNN_FOLDER of the
// environment, where the system looks for libraries, or beside the headers of the build.

#include "spool/kernels/attention_sizes.h"
#include "tests/kernels/attention_shapes.h"

#if SPOOL_ASKS_CUDNN

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/kernels/cuda/attention_plans.cuh"
#include "spool/runtime/cuda/cudnn.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using cuda::AttentionPass;
using cuda::AttentionShape;
using cuda::DescribedDevice;
using cuda::FusedShape;

// The first of the usable libraries.
Cudnn open_anywhere() {
  const char* folder = std::getenv("SPOOL_CUDNN_FOLDER");
  const std::string given = folder ? std::string(folder) + "/libcudnn.so.9" : "";
  if (folder) return open_cudnn(std::vector{given.c_str()});
  return open_cudnn(std::vector{"libcudnn.so.9", SPOOL_CUDNN_LIBRARY});
}

// Without a device there is no driver.
Cudnn load_cudnn() {
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    (void)dlopen(SPOOL_DRIVER_STAND_IN, RTLD_NOW | RTLD_GLOBAL);
  }
  const Cudnn found = open_anywhere();
  if (found) cuda::set_libraries(found.library, cuda::runtime_without_device());
  return found;
}

const Cudnn& cudnn() {
  static const Cudnn loaded = load_cudnn();
  return loaded;
}

struct Gpu {
  DescribedDevice described;
  CudaArchitecture architecture;
};

std::vector<Gpu> gpus() {
  std::ifstream file(source_folder() / "tests/kernels/cudnn/devices.json");
  const nlohmann::json devices = nlohmann::json::parse(file);
  std::vector<Gpu> all;
  for (const auto& [key, properties] : devices.items()) {
    const int number = std::stoi(key);
    all.push_back({.described = {.properties = properties.dump(), .capability = number},
                   .architecture = {.major = number / 10, .minor = number % 10}});
  }
  return all;
}

std::string describe(const Gpu& gpu, const FusedShape& s) {
  return sentence("sm_", gpu.described.capability, ", ", s.part.B, " texts of ", s.part.T,
                  " tokens, ", s.part.H, " and ", s.part.Hkv, " heads of ", s.part.D, ", mask ",
                  name(s.mask), ", order ", name(s.order));
}

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cudnn()) GTEST_SKIP() << cudnn().why_not;
  }

  static void expect_plan(const Gpu& gpu, AttentionPass pass, const FusedShape& s, size_t bytes) {
    EXPECT_EQ(cuda::why_no_plan(pass, s, gpu.described, bytes), "") << describe(gpu, s);
  }

  // Expects a plan for each size of part of a backward; the last parts may be smaller.
  static void expect_parts(const Gpu& gpu, const AttentionShape& all, FusedShape s) {
    const AttentionBackward k = backward_of(all, {.order = s.order});
    if (choose_attention(k, gpu.architecture).method != AttentionMethod::cudnn) return;
    const cuda::FusedBackwardKind kind = cuda::kind_of(k, gpu.architecture);
    std::set<AttentionShape> parts;
    for (const int64_t number : {int64_t{1}, all.B, 2 * all.B, all.B * all.Hkv}) {
      cut_backward(all, number).for_each_part(all, [&](const cuda::AttentionPart& part) {
        const int64_t heads = part.key_heads.size();
        parts.insert({part.texts.size(), all.T, heads * (all.H / all.Hkv), heads, all.D});
      });
    }
    for (const AttentionShape& part : parts) {
      s.part = part;
      expect_plan(gpu, AttentionPass::backward, s, fused_backward_bytes(part, kind));
    }
  }

  // By day each mask has the backward of one order of sums, by turns.
  static void expect_plans(const Gpu& gpu, const AttentionShape& all) {
    for (const Mask mask : enumerators<Mask>()) {
      FusedShape s{.part = all, .whole = all, .scale = 0.125F, .mask = mask};
      expect_plan(gpu, AttentionPass::forward, s, cuda::fused_forward_bytes(all));
      for (const SumOrder order : enumerators<SumOrder>()) {
        const bool is_turn = static_cast<int>(mask) % 2 == static_cast<int>(order) % 2;
        if (!is_turn && !nightly()) continue;
        s.order = order;
        expect_parts(gpu, all, s);
      }
    }
  }
};

TEST_F(CudnnPlans, AreThereForTheShapesOfTests) {
  for (const Gpu& gpu : gpus()) {
    for (const AttentionShape& s : tested_shapes()) expect_plans(gpu, s);
  }
}

TEST_F(CudnnPlans, AreThereForTheShapesOfModels) {
  for (const Gpu& gpu : gpus()) {
    for (const AttentionShape& s : shapes_of_models()) expect_plans(gpu, s);
  }
}

TEST_F(CudnnPlans, AreThereForEverySizeOfHeads) {
  const int64_t step = nightly() ? 8 : 40;
  for (const Gpu& gpu : gpus()) {
    for (int64_t D = step; D <= 256; D += step) {
      expect_plans(gpu, {.B = 2, .T = 132, .H = 4, .Hkv = D % 16 ? 4 : 2, .D = D});
    }
  }
}

// What is not given to cuDNN would be refused: heads that are too large for a backward.
TEST_F(CudnnPlans, AreNotThereForLargerHeads) {
  for (const Gpu& gpu : gpus()) {
    const int64_t D = gpu.architecture.major == 9 ? 264 : 136;
    const AttentionShape s{.B = 1, .T = 128, .H = 1, .Hkv = 1, .D = D};
    EXPECT_NE(why_no_plan(AttentionPass::backward, {.part = s, .whole = s}, gpu.described, 1 << 30),
              "");
  }
}

// The declared workspace is at most half as much again as what cuDNN wants, and a few MB.
TEST_F(CudnnPlans, TakeMostOfTheDeclaredWorkspace) {
  const AttentionShape s{.B = 4, .T = 1024, .H = 12, .Hkv = 12, .D = 64};
  for (const Gpu& gpu : gpus()) {
    for (const SumOrder order : enumerators<SumOrder>()) {
      const FusedShape shape{.part = s, .whole = s, .order = order};
      const size_t declared =
          fused_backward_bytes(s, {.order = order, .major = gpu.architecture.major});
      const size_t less = declared > (4 << 20) ? (declared - (2 << 20)) / 3 * 2 : 0;
      EXPECT_NE(why_no_plan(AttentionPass::backward, shape, gpu.described, less), "")
          << describe(gpu, shape) << ", " << declared << " bytes";
    }
  }
}

// Also of a library that loads on a machine with a device, and lacks NVRTC or parts of its own.
TEST_F(CudnnPlans, SayWhyTheLibraryDoesNotWork) {
  try {
    const cuda::CudnnHandle handle(nullptr);
    GTEST_SKIP() << "there is a device here, with which cuDNN works";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    const std::string said = e.what();
    EXPECT_NE(said.find("cudnnCreate failed with CUDNN_STATUS_"), std::string::npos) << said;
    EXPECT_NE(said.find("set SPOOL_CUDNN=0"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace spool::testing

#else

namespace spool::testing {
namespace {

TEST(CudnnPlans, NeedHeaders) {
  GTEST_SKIP() << "this build found no headers of cuDNN, its frontend (scripts/cudnn-frontend.sh) "
                  "and CUDA's runtime";
}

}  // namespace
}  // namespace spool::testing

#endif
