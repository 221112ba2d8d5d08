#include "products.h"

#include <dnnl.hpp>
#include <map>
#include <thread>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/planner/rehearsal.h"

extern "C" void omp_set_num_threads(int);

namespace spool::benchmarks {
namespace {

using dnnl::memory;

// A weight is (out, in).  y = x w^T, dx = dy w, dw (+)= dy^T x.
struct Layer {
  int64_t in, out;
};

// The model's matrices except embedding tables, and its head, even if that is one.
std::vector<Layer> linear_layers(const ModelConfig& config) {
  std::vector<Layer> layers;
  rehearse({}, [&](MetaStream& stream) {
    const auto model = config.make(DType::f32, stream);
    const Parameter* head = &model->head();
    for (const Parameter* p : model->parameters()) {
      const std::string_view name = p->name;
      const bool table = name.find("wte") != name.npos || name.find("wpe") != name.npos ||
                         name.find("embed_tokens") != name.npos;
      const Shape& shape = p->data.shape();
      if (p == head || (shape.rank() == 2 && !table)) layers.push_back({shape[1], shape[0]});
    }
  });
  return layers;
}

struct Product {
  dnnl::matmul multiply;
  std::unordered_map<int, memory> arguments;
};

}  // namespace

struct Products::Shared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<std::vector<std::byte>> buffers;
  std::vector<Product> products;
  memory::data_type type = memory::data_type::f32;

  memory buffer(const memory::desc& d) {
    return {d, engine, buffers.emplace_back(d.get_size() + 64, std::byte{}).data()};
  }

  void add(const memory& a, const memory& b, const memory& c) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc d({a.get_desc(), b.get_desc(), c.get_desc()}, attributes,
                                         engine);
    products.push_back({dnnl::matmul(d),
                        {{DNNL_ARG_SRC, a},
                         {DNNL_ARG_WEIGHTS, b},
                         {DNNL_ARG_DST, c},
                         {DNNL_ARG_SCRATCHPAD, buffer(d.scratchpad_desc())}}});
  }

  // The same memory as a matrix of (columns, rows).
  memory transposed(const memory& m) {
    const auto size = m.get_desc().dims();
    return {{{size[1], size[0]}, type, memory::dims{1, size[1]}}, engine, m.get_data_handle()};
  }
  memory matrix(int64_t rows, int64_t columns) {
    return buffer({{rows, columns}, type, memory::dims{columns, 1}});
  }
};

Products::Products(const ModelConfig& config, DType dtype, int64_t n)
    : shared_(std::make_unique<Shared>()) {
  omp_set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  if (dtype == DType::bf16) shared_->type = memory::data_type::bf16;
  Shared& s = *shared_;
  std::map<std::pair<int64_t, int64_t>, std::pair<memory, memory>> activations;
  for (const auto& [in, out] : linear_layers(config)) {
    auto& [x, y] = activations[{in, out}];
    if (!x) std::tie(x, y) = std::pair(s.matrix(n, in), s.matrix(n, out));
    const memory weight = s.matrix(out, in), dweight = s.matrix(out, in);
    s.add(x, s.transposed(weight), y);
    s.add(y, weight, x);
    s.add(s.transposed(y), x, dweight);
  }
}

Products::~Products() = default;

void Products::run() {
  for (Product& p : shared_->products) p.multiply.execute(shared_->stream, p.arguments);
  shared_->stream.wait();
}

}  // namespace spool::benchmarks
