// Every kernel refuses arguments that do not fit each other, before anything is enqueued: each
// argument in turn one element shorter, of another type, or missing.

#include "spool/kernels/arguments.h"

#include <map>
#include <string>
#include <vector>

#include "spool/kernels/attention.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/cached_attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/normal.h"
#include "spool/kernels/reduce.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

enum class Freedom : uint8_t {
  none,
  may_be_absent,
  sets_size,  // no other argument says how large it is
  any_float,  // nor of which of the floating types
};

// An argument that fits the others.
struct Argument {
  std::string name;
  Shape shape;
  DType type = DType::bf16;
  std::vector<Freedom> freedom = {};

  bool has(Freedom f) const { return std::ranges::find(freedom, f) != freedom.end(); }
};

class Given {
 public:
  Given(const std::vector<Argument>& all, Stream& stream) {
    for (const Argument& a : all) tensors_[a.name] = Tensor({a.shape, a.type}, stream);
  }
  View operator[](const char* name) const { return tensors_.at(name); }
  void set(const std::string& name, const Tensor& t) { tensors_[name] = t; }

 private:
  std::map<std::string, Tensor> tensors_;
};

struct Launch {
  std::string kernel;
  std::vector<Argument> arguments;
  std::function<void(const Given&, Stream&)> run;
};

template <class Make>
Launch entry(std::vector<Argument> arguments, Make make) {
  using Kernel = decltype(make(std::declval<const Given&>()));
  return {Kernel::name, std::move(arguments),
          [=](const Given& g, Stream& stream) { launch(make(g), stream); }};
}

constexpr auto absent = Freedom::may_be_absent, sets_size = Freedom::sets_size,
               any_float = Freedom::any_float;
constexpr DType f64 = DType::f64, f32 = DType::f32, bf16 = DType::bf16, i32 = DType::i32;

std::vector<Launch> elementwise_kernels() {
  return {
      entry({{"out", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return Fill{.out = g["out"]}; }),
      entry({{"out", {2, 3}}, {"a", {6}}, {"b", {3, 2}, bf16, {absent}}},
            [](const Given& g) { return Add{.out = g["out"], .a = g["a"], .b = g["b"]}; }),
      entry({{"out", {6}}, {"a", {6}}, {"by", {1}, f32, {absent}}},
            [](const Given& g) { return Scale{.out = g["out"], .a = g["a"], .by = g["by"]}; }),
      entry({{"out", {6}, f32, {any_float}}, {"in", {6}, bf16, {any_float}}},
            [](const Given& g) { return Cast{.out = g["out"], .in = g["in"]}; }),
      entry({{"y", {6}}, {"x", {6}}},
            [](const Given& g) { return GeluForward{.y = g["y"], .x = g["x"]}; }),
      entry({{"dx", {6}}, {"dy", {6}}, {"x", {6}}},
            [](const Given& g) { return GeluBackward{.dx = g["dx"], .dy = g["dy"], .x = g["x"]}; }),
      entry({{"y", {6}}, {"x", {6}}, {"random", {4}, i32}},
            [](const Given& g) {
              return Dropout{.y = g["y"], .x = g["x"], .random = g["random"], .p = 0.5f};
            }),
      entry({{"out", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return NormalFill{.out = g["out"]}; }),
  };
}

std::vector<Launch> kernels_of_sums() {
  return {
      entry({{"out", {1}, f32, {any_float}},
             {"x", {6}, bf16, {sets_size, any_float}},
             {"by", {1}, f32, {absent, any_float}}},
            [](const Given& g) { return SumAll{.out = g["out"], .x = g["x"], .by = g["by"]}; }),
      entry({{"out", {1}, f64}, {"x", {6}, bf16, {sets_size, any_float}}},
            [](const Given& g) { return SquaredNorm{.out = g["out"], .x = {g["x"]}}; }),
      entry({{"dbias", {3}}, {"dy", {2, 2, 3}}},
            [](const Given& g) { return BiasBackward{.dbias = g["dbias"], .dy = g["dy"]}; }),
      entry({{"scale", {1}, f32, {any_float}}, {"targets", {6}, i32, {sets_size}}},
            [](const Given& g) {
              return CountTargets{.scale = g["scale"], .targets = g["targets"]};
            }),
      entry({{"logits", {4, 5}},
             {"targets", {4}, i32},
             {"losses", {4}, f32, {absent}},
             {"scale", {1}, f32, {absent}},
             {"upstream", {4}, f32, {absent}}},
            [](const Given& g) {
              return CrossEntropy{.logits = g["logits"],
                                  .targets = g["targets"],
                                  .losses = g["losses"],
                                  .gradient = true,
                                  .scale = g["scale"],
                                  .upstream = g["upstream"],
                                  .options = {.vocabulary = 5}};
            }),
  };
}

std::vector<Launch> kernels_of_layer_norm() {
  return {
      entry({{"y", {2, 3, 5}},
             {"mean", {6}, f32},
             {"rstd", {6}, f32},
             {"x", {2, 3, 5}},
             {"weight", {5}},
             {"bias", {5}, bf16, {absent}}},
            [](const Given& g) {
              return LayerNormForward{.y = g["y"],
                                      .mean = g["mean"],
                                      .rstd = g["rstd"],
                                      .x = g["x"],
                                      .weight = g["weight"],
                                      .bias = g["bias"]};
            }),
      entry({{"dx", {2, 3, 5}, bf16, {absent}},
             {"dweight", {5}, bf16, {absent}},
             {"dbias", {5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"x", {2, 3, 5}},
             {"weight", {5}},
             {"mean", {6}, f32},
             {"rstd", {6}, f32}},
            [](const Given& g) {
              return LayerNormBackward{.dx = g["dx"],
                                       .dweight = g["dweight"],
                                       .dbias = g["dbias"],
                                       .dy = g["dy"],
                                       .x = g["x"],
                                       .weight = g["weight"],
                                       .mean = g["mean"],
                                       .rstd = g["rstd"]};
            }),
  };
}

std::vector<Launch> kernels_of_embedding() {
  return {
      entry({{"y", {2, 3, 5}},
             {"tokens", {2, 3}, i32},
             {"weight", {7, 5}},
             {"positions", {5, 5}, bf16, {absent}}},
            [](const Given& g) {
              return EmbeddingForward{.y = g["y"],
                                      .tokens = g["tokens"],
                                      .weight = g["weight"],
                                      .positions = g["positions"],
                                      .first_position = 2};
            }),
      entry({{"dweight", {7, 5}, bf16, {absent}},
             {"dpositions", {3, 5}, bf16, {absent}},
             {"dy", {2, 3, 5}},
             {"tokens", {2, 3}, i32}},
            [](const Given& g) {
              return EmbeddingBackward{.dweight = g["dweight"],
                                       .dpositions = g["dpositions"],
                                       .dy = g["dy"],
                                       .tokens = g["tokens"]};
            }),
  };
}

Launch product(bool a_transposed, bool b_transposed) {
  return entry({{"c", {2, 3, 5}},
                {"a", a_transposed ? Shape{4, 6} : Shape{2, 3, 4}},
                {"b", b_transposed ? Shape{5, 4} : Shape{4, 5}},
                {"bias", {5}, bf16, {absent}}},
               [=](const Given& g) {
                 return Matmul{.c = g["c"],
                               .a = g["a"],
                               .b = g["b"],
                               .bias = g["bias"],
                               .a_transposed = a_transposed,
                               .b_transposed = b_transposed};
               });
}

// B = 2, T = 3, H = 4, Hkv = 2, D = 8.
std::vector<Launch> kernels_of_attention() {
  constexpr Heads heads{.query = 4, .key = 2};
  return {
      entry({{"y", {2, 3, 32}}, {"lse", {2, 4, 3}, f32}, {"qkv", {2, 3, 64}}},
            [=](const Given& g) {
              return AttentionForward{
                  .y = g["y"], .lse = g["lse"], .qkv = g["qkv"], .heads = heads};
            }),
      entry({{"dqkv", {2, 3, 64}, bf16, {absent}},
             {"dy", {2, 3, 32}},
             {"qkv", {2, 3, 64}},
             {"y", {2, 3, 32}},
             {"lse", {2, 4, 3}, f32}},
            [=](const Given& g) {
              return AttentionBackward{.dqkv = g["dqkv"],
                                       .dy = g["dy"],
                                       .qkv = g["qkv"],
                                       .y = g["y"],
                                       .lse = g["lse"],
                                       .heads = heads};
            }),
      entry({{"y", {2, 3, 32}},
             {"keys", {2, 2, 9, 8}},
             {"values", {2, 2, 9, 8}},
             {"qkv", {2, 3, 64}}},
            [=](const Given& g) {
              return CachedAttention{.y = g["y"],
                                     .keys = g["keys"],
                                     .values = g["values"],
                                     .qkv = g["qkv"],
                                     .heads = heads,
                                     .position = 6};
            }),
  };
}

std::vector<Launch> all_kernels() {
  std::vector<Launch> all = elementwise_kernels();
  for (const auto& more : {kernels_of_sums(), kernels_of_layer_norm(), kernels_of_embedding(),
                           kernels_of_attention()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) all.push_back(product(a, b));
  }
  return all;
}

class KernelArguments : public ::testing::Test {
 protected:
  // Expects that the kernel is refused with this tensor in place of an argument, in a sentence that
  // names the kernel, and that nothing was launched or allocated.
  void expect_refused(const Launch& l, const Argument& a, const Tensor& t) {
    Given given(l.arguments, stream_);
    given.set(a.name, t);
    const uint64_t launches = stream_.launches();
    const std::string sentence = error_of([&] { l.run(given, stream_); });
    const std::string found = t ? spool::sentence(t.spec()) : "absent";
    // Attention's passes share the words about their extents.
    const bool attends = contains(l.kernel, "attention");
    EXPECT_TRUE(contains(sentence, attends ? "attention" : l.kernel + ": "))
        << l.kernel << " with " << a.name << ' ' << found << ": " << sentence;
    EXPECT_EQ(stream_.launches(), launches);
  }
  Tensor tensor(const Shape& shape, DType type) { return Tensor({shape, type}, stream_); }

  MetaStream stream_{Machine{}};
};

TEST_F(KernelArguments, ThatFitAreLaunched) {
  for (const Launch& l : all_kernels()) {
    SCOPED_TRACE(l.kernel);
    Given given(l.arguments, stream_);
    const uint64_t launches = stream_.launches();
    l.run(given, stream_);
    for (const Argument& a : l.arguments) {
      if (!a.has(absent)) continue;
      given.set(a.name, {});
      l.run(given, stream_);
    }
    EXPECT_GT(stream_.launches(), launches);
  }
}

TEST_F(KernelArguments, ThatAreShorterAreRefused) {
  for (const Launch& l : all_kernels()) {
    for (const Argument& a : l.arguments) {
      if (a.has(sets_size)) continue;
      for (int i = 0; i < a.shape.rank(); ++i) {
        // Rows of an embedding and of its positions are used as far as there are any.
        const bool any_rows = i == 0 && (a.name == "weight" || a.name == "dweight") &&
                              l.kernel.starts_with("embedding");
        if (any_rows) continue;
        expect_refused(l, a, tensor(a.shape.with(i, a.shape[i] - 1), a.type));
      }
    }
  }
}

TEST_F(KernelArguments, OfOtherTypesAreRefused) {
  for (const Launch& l : all_kernels()) {
    for (const Argument& a : l.arguments) {
      for (const DType type : {f64, i32, DType::u16}) {
        if (type == a.type || (type == f64 && a.has(any_float))) continue;
        expect_refused(l, a, tensor(a.shape, type));
      }
    }
  }
}

TEST_F(KernelArguments, ThatAreMissingAreRefused) {
  for (const Launch& l : all_kernels()) {
    for (const Argument& a : l.arguments) {
      if (!a.has(absent)) expect_refused(l, a, {});
    }
  }
}

TEST_F(KernelArguments, AreNamedWithWhatFits) {
  const Tensor c = tensor({2, 3, 5}, f32), a = tensor({2, 3, 4}, f32), b = tensor({4, 4}, f32);
  EXPECT_EQ(error_of([&] { launch(Matmul{.c = c, .a = a, .b = b}, stream_); }),
            "matmul: b is f32 (4, 4), and f32 (4, 5) would fit the other arguments");
  EXPECT_EQ(error_of([&] {
              launch(EmbeddingForward{.y = tensor({1, 2, 3}, bf16),
                                      .tokens = tensor({1, 2}, i32),
                                      .weight = tensor({7, 3}, bf16),
                                      .positions = tensor({4, 3}, bf16),
                                      .first_position = 3},
                     stream_);
            }),
            "embedding_forward: positions is bf16 (4, 3), and bf16 (at least 5, 3) would fit the "
            "other arguments");
  EXPECT_EQ(error_of([&] { launch(Add{.out = c, .a = View()}, stream_); }),
            "add: a is absent, and f64 or f32 or bf16 would fit");
}

TEST_F(KernelArguments, MayShareMemoryOnlyWhereTheHeaderSaysSo) {
  const Tensor x = tensor({8}, f32), y = tensor({8}, f32), wide = tensor({16}, f32);
  launch(GeluBackward{.dx = y, .dy = y, .x = x}, stream_);
  launch(Add{.out = x, .a = y, .b = x}, stream_);
  const std::string sentence = error_of([&] {
    launch(Add{.out = wide.slice({4, 12}), .a = wide.slice({0, 8})}, stream_);
  });
  EXPECT_EQ(sentence,
            "add: out f32 (8) overlaps the memory of a f32 (8); it must be the same memory or "
            "apart from it");
  // The rows of a type half as wide begin at the same address, and do not stay together.
  const View narrow(x.view().data(), {{8}, bf16});
  EXPECT_TRUE(contains(error_of([&] { launch(Add{.out = x, .a = narrow}, stream_); }), "overlaps"));
  const Tensor square = tensor({4, 4}, f32), other = tensor({4, 4}, f32);
  EXPECT_TRUE(
      contains(error_of([&] { launch(Matmul{.c = square, .a = square, .b = other}, stream_); }),
               "c f32 (4, 4) overlaps the memory of a"));
}

// A kernel of research code.
struct Half {
  static constexpr const char* name = "half";
  View out, in;
  Cost cost() const { return {}; }
  void check_arguments() const {
    const Arguments all(name);
    all.present("in", in, f32);
    all.elements("out", out, f32, in.numel() / 2);
  }
};
void run(const Half&, CpuStream&) {}

TEST_F(KernelArguments, OfAUsersKernelAreCheckedToo) {
  CpuStream cpu(1 << 20, 1);
  const auto refused = [](Stream& stream, const auto& launch_it) {
    const Tensor in({Shape{8}}, stream), out({Shape{5}}, stream);
    EXPECT_EQ(error_of([&] { launch_it(Half{.out = out, .in = in}, stream); }),
              "half: out is f32 (5), and f32 (4) would fit the other arguments");
    EXPECT_EQ(stream.launches(), 0u);
  };
  const auto launched = [](const Half& k, Stream& s) { launch(k, s); };
  const auto on_host = [](const Half& k, Stream& s) { launch_on_host(k, s, s); };
  MetaStream meta{Machine{}};
  for (Stream* stream : {static_cast<Stream*>(&cpu), static_cast<Stream*>(&meta)}) {
    refused(*stream, launched);
    refused(*stream, on_host);
  }
}

}  // namespace
}  // namespace spool::testing
