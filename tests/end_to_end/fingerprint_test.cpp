// runs: numbers
// Fingerprints of GPT-2's tape: the same wherever the model is built, and changed by every setting.

#include "spool/autograd/fingerprint.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "spool/models/families/families.h"
#include "spool/models/families/gpt2.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Fingerprints = std::vector<uint64_t>;

struct Built {
  Gpt2Config model = {.layers = 2, .heads = 2, .channels = 8, .context = 16, .vocabulary = 70};
  int64_t batch = 2, length = 4;
  DType dtype = DType::f32;
  float dropout = 0.1f;
  std::string frozen = "";
  TapeOptions tape = {};
};

Tensor zeros(const Shape& shape, Stream& stream) {
  const Tensor t({shape, DType::i32}, stream);
  write<int32_t>(t, std::vector<int32_t>(static_cast<size_t>(shape.numel())));
  return t;
}

Fingerprints fingerprints_of(const Built& b, Stream& stream) {
  Gpt2 model(b.model, b.dtype, stream);
  for (Parameter* p : model.parameters()) p->trainable = p->name != b.frozen;
  model.initialise(/*seed=*/1);
  TapeOptions options = b.tape;
  options.random = zeros({4}, stream);
  Tape tape(stream, options);
  const Var x = tape.input(zeros({b.batch, b.length}, stream));
  model.loss(x, x, b.dropout);
  return fingerprints(tape.program());
}

class Gpt2Fingerprint : public ::testing::Test {
 protected:
  CpuStream stream{size_t{64} << 20, 1};
};

TEST_F(Gpt2Fingerprint, IsTheSameOnEveryDevice) {
  const Fingerprints first = fingerprints_of({}, stream);
  EXPECT_EQ(fingerprints_of({}, stream), first);
  MetaStream meta(Machine{});
  EXPECT_EQ(fingerprints_of({}, meta), first);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), first.size());
}

TEST_F(Gpt2Fingerprint, EverySettingChangesIt) {
  const auto with = [](auto change) {
    Built b;
    change(b);
    return b;
  };
  const std::vector<Built> all = {
      {},
      with([](Built& b) { b.model.layers = 3; }),
      with([](Built& b) { b.model.heads = 4; }),
      with([](Built& b) { b.model.channels = 16; }),
      with([](Built& b) { b.model.context = 32; }),
      with([](Built& b) { b.model.vocabulary = 71; }),  // the padded weight has as many rows
      with([](Built& b) { b.model.epsilon = 1e-6; }),
      with([](Built& b) { b.model.epsilon = std::nextafter(1e-5, 1.0); }),
      with([](Built& b) { b.model.gelu = GeluForm::exact; }),
      with([](Built& b) { b.batch = 3; }),
      with([](Built& b) { b.length = 5; }),
      with([](Built& b) {
        std::tie(b.batch, b.length) = std::pair{4, 2};
      }),
      with([](Built& b) { b.dtype = DType::bf16; }),
      with([](Built& b) { b.dropout = 0.2f; }),
      with([](Built& b) { b.dropout = 0; }),
      with([](Built& b) { b.frozen = "wpe.weight"; }),
      with([](Built& b) { b.tape.backward_follows = true; }),
      with([](Built& b) { b.tape.recording = false; }),
  };
  std::vector<uint64_t> seen;
  for (const Built& b : all) {
    const uint64_t last = fingerprints_of(b, stream).back();
    EXPECT_EQ(std::ranges::count(seen, last), 0) << "change " << seen.size();
    seen.push_back(last);
  }
}

// Plans of before are read as long as ops of models say the same of themselves.
TEST(FingerprintOfAPreset, IsThatOfPlansOfBefore) {
  const auto last = [](const char* preset) {
    MetaStream meta(Machine{});
    const std::shared_ptr<Model> model = model_preset(preset)->config.make(DType::f32, meta, 32);
    Tape tape(meta, {.backward_follows = true});
    const Var tokens = tape.input(zeros({2, 32}, meta));
    model->loss({tokens}, tokens);
    return fingerprints(tape.program()).back();
  };
  EXPECT_EQ(last("gpt2-tiny"), 643588855431778501u);
  EXPECT_EQ(last("llama-tiny"), 10932296508760701893u);
}

}  // namespace
}  // namespace spool::testing
