#include "shared/onednn_products.h"

#include "spool/runtime/check.h"

#if SPOOL_ONEDNN

#include <algorithm>
#include <dnnl.hpp>
#include <string_view>
#include <unordered_map>

extern "C" void omp_set_num_threads(int);

namespace spool::benchmarks {
namespace {

using dnnl::memory;

// As the kernel has them in memory; the bias may be absent.
struct Layouts {
  memory::desc a, b, c, bias;
};

memory::data_type type_of(DType t) {
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

Layouts layouts_of(const Matmul& k) {
  using Dims = memory::dims;
  const int64_t M = k.M(), N = k.N(), K = k.K();
  const auto in = type_of(k.a.dtype());
  return {.a = {{M, K}, in, k.a_transposed ? Dims{1, M} : Dims{K, 1}},
          .b = {{K, N}, in, k.b_transposed ? Dims{1, K} : Dims{N, 1}},
          .c = {{M, N}, type_of(k.c.view.dtype()), Dims{N, 1}},
          .bias = k.bias ? memory::desc({1, N}, in, Dims{N, 1}) : memory::desc()};
}

dnnl::matmul::primitive_desc chosen(const Matmul& k, const Layouts& l, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (k.c.accumulate) {
    dnnl::post_ops add;
    add.append_sum(1);
    attributes.set_post_ops(add);
  }
  const auto wanted =
      k.bias ? dnnl::matmul::desc(l.a, l.b, l.bias, l.c) : dnnl::matmul::desc(l.a, l.b, l.c);
  return {wanted, attributes, engine};
}

}  // namespace

struct OnednnProducts::Primitives {
  struct Product {
    dnnl::matmul multiply;
    std::unordered_map<int, memory> arguments;
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  int threads = 1;
  std::vector<Product> products = {};
  std::vector<memory::desc> scratches = {};
  std::vector<std::byte> scratch = {};  // of the product that needs most

  void add(const Matmul& k) {
    const Layouts l = layouts_of(k);
    const dnnl::matmul::primitive_desc d = chosen(k, l, engine);
    check(!std::string_view(d.impl_info_str()).starts_with("ref"), "a slow reference");
    scratches.push_back(d.scratchpad_desc());
    Product& added = products.emplace_back();
    added.multiply = dnnl::matmul(d);
    added.arguments = {{DNNL_ARG_SRC, memory(l.a, engine, k.a.data())},
                       {DNNL_ARG_WEIGHTS, memory(l.b, engine, k.b.data())},
                       {DNNL_ARG_DST, memory(l.c, engine, k.c.view.data())}};
    if (k.bias) added.arguments.emplace(DNNL_ARG_BIAS, memory(l.bias, engine, k.bias.data()));
  }

  void add_scratch() {
    size_t bytes = 1;
    for (const memory::desc& d : scratches) bytes = std::max(bytes, d.get_size());
    scratch.resize(bytes);
    for (size_t i = 0; i < products.size(); ++i) {
      products[i].arguments.emplace(DNNL_ARG_SCRATCHPAD,
                                    memory(scratches[i], engine, scratch.data()));
    }
  }
};

OnednnProducts::OnednnProducts(const std::vector<Matmul>& products, int threads)
    : primitives_(std::make_unique<Primitives>()) {
  omp_set_num_threads(threads);  // a primitive is made for as many as run it
  primitives_->threads = threads;
  try {
    for (const Matmul& k : products) primitives_->add(k);
    primitives_->add_scratch();
  } catch (const std::exception& e) {
    absence_ = sentence("no products of oneDNN on this processor: ", e.what());
  }
}

void OnednnProducts::run() {
  check(absence_.empty(), absence_);
  omp_set_num_threads(primitives_->threads);
  for (auto& product : primitives_->products) {
    product.multiply.execute(primitives_->stream, product.arguments);
  }
  primitives_->stream.wait();
}

#else

namespace spool::benchmarks {

struct OnednnProducts::Primitives {};

OnednnProducts::OnednnProducts(const std::vector<Matmul>&, int)
    : absence_("this build has no oneDNN") {}

void OnednnProducts::run() { fail(ErrorKind::invalid, absence_); }

#endif

OnednnProducts::~OnednnProducts() = default;

}  // namespace spool::benchmarks
