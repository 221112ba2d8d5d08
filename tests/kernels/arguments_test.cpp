// Every kernel refuses arguments that do not fit each other, before anything is enqueued: each
// argument in turn one element shorter, of another type, or missing.

#include "spool/kernels/arguments.h"

#include <string>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/matmul.h"
#include "spool/runtime/meta/stream.h"
#include "tests/kernels/kernel_samples.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr auto absent = Freedom::may_be_absent, sets_size = Freedom::sets_size,
               any_rows = Freedom::any_rows, any_float = Freedom::any_float;
constexpr DType f64 = DType::f64, f32 = DType::f32, bf16 = DType::bf16, i32 = DType::i32;

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
      for (int i = a.has(any_rows) ? a.shape.rank() - 1 : 0; i < a.shape.rank(); ++i) {
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
