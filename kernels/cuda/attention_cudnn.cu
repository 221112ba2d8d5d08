#include "spool/kernels/cuda/attention_fused.cuh"

// FusedAttention by cuDNN through its frontend; the emulator has its own.  This file has no
// kernels: in a build with cuDNN the C++ compiler compiles it, as nvcc would take even longer.

#if SPOOL_CUDNN

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <string_view>

#include "spool/kernels/cuda/library.cuh"
#include "spool/runtime/cuda/cudnn.h"

namespace spool::cuda {
namespace {

// The frontend finds cuDNN and CUDA's runtime by dlopen() and dlsym(), and refuses a machine with
// no runtime or with two.  Spool links the runtime statically, so the frontend gets that one.
char linked_runtime;

void* open_for_frontend(const char* name, int mode) {
  const std::string_view library(name);
  if (library.starts_with("libcudart")) {
    return library.ends_with(".12") ? &linked_runtime : nullptr;  // the first name it tries
  }
  return dlopen(name, mode);
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

void* find_for_frontend(void* library, const char* name) {
  if (library != &linked_runtime) return dlsym(library, name);
  const std::string_view wanted(name);
  if (wanted == "cudaGetDevice") return address_of<cudaError_t(int*)>(cudaGetDevice);
  if (wanted == "cudaGetDeviceProperties") {
    return address_of<cudaError_t(cudaDeviceProp*, int)>(cudaGetDeviceProperties);
  }
  if (wanted == "cudaGetErrorString") {
    return address_of<const char*(cudaError_t)>(cudaGetErrorString);
  }
  return nullptr;
}

}  // namespace
}  // namespace spool::cuda

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define dlopen(name, mode) spool::cuda::open_for_frontend(name, mode)
#define dlsym(library, name) spool::cuda::find_for_frontend(library, name)
#include <cudnn_frontend.h>
#undef dlopen
#undef dlsym

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace spool::cuda {
namespace {

namespace fe = cudnn_frontend;
using Attribute = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<int64_t, void*>;

enum Id : int64_t { id_q = 1, id_k, id_v, id_y, id_lse, id_dy, id_dq, id_dk, id_dv };

std::string describe(const FusedShape& s) {
  return sentence(s.part.B, " texts of ", s.part.T, " tokens, ", s.part.H, " and ", s.part.Hkv,
                  " heads of ", s.part.D);
}

void check_cudnn(fe::error_t status, const std::string& what, const FusedShape& s) {
  if (status.is_good()) [[likely]]
    return;
  fail(ErrorKind::device, "cuDNN: ", what, " of ", describe(s), ": ", status.get_message(),
       "; set SPOOL_CUDNN=0 in the environment to run without cuDNN");
}

// The tensors of a graph, whose dimensions are text, head, token and element.
struct Tensors {
  fe::graph::Graph& graph;
  FusedShape shape;

  void describe(fe::graph::Tensor_attributes& t, Id id, int64_t heads, int64_t text,
                int64_t token) const {
    t.set_uid(id).set_dim({shape.part.B, heads, shape.part.T, shape.part.D});
    t.set_stride({text, shape.part.D, token, 1});
  }
  void packed(fe::graph::Tensor_attributes& t, Id id, int64_t heads) const {
    describe(t, id, heads, shape.packed_text(), shape.packed_token());
  }
  void unpacked(fe::graph::Tensor_attributes& t, Id id) const {
    describe(t, id, shape.part.H, shape.y_text(), shape.y_token());
  }
  void lse(fe::graph::Tensor_attributes& t) const {
    const int64_t H = shape.part.H, T = shape.part.T;
    t.set_uid(id_lse).set_dim({shape.part.B, H, T, 1}).set_stride({shape.lse_text(), T, 1, 1});
    t.set_data_type(fe::DataType_t::FLOAT);
  }

  Attribute input_packed(Id id, int64_t heads) const {
    fe::graph::Tensor_attributes t;
    packed(t, id, heads);
    return graph.tensor(t);
  }
  Attribute input_unpacked(Id id) const {
    fe::graph::Tensor_attributes t;
    unpacked(t, id);
    return graph.tensor(t);
  }
  Attribute input_lse() const {
    fe::graph::Tensor_attributes t;
    lse(t);
    return graph.tensor(t);
  }
};

std::shared_ptr<fe::graph::Graph> make_graph() {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// With a causal mask a query sees the keys up to its own: nothing to the right of the diagonal from
// the top left.
template <class Options>
void set_scores(Options& options, const FusedShape& s) {
  options.set_attn_scale(s.scale);
  if (s.mask == Mask::none) return;
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
}

// cuDNN's Stats are max + log(sum exp) of the scaled scores, which is lse.
std::shared_ptr<fe::graph::Graph> forward_graph(const FusedShape& s) {
  auto graph = make_graph();
  const Tensors tensors{*graph, s};
  auto options = fe::graph::SDPA_attributes().set_name("attention_forward");
  options.set_generate_stats(true);
  set_scores(options, s);
  auto [y, lse] =
      graph->sdpa(tensors.input_packed(id_q, s.part.H), tensors.input_packed(id_k, s.part.Hkv),
                  tensors.input_packed(id_v, s.part.Hkv), options);
  tensors.unpacked(y->set_output(true), id_y);
  tensors.lse(lse->set_output(true));
  return graph;
}

std::shared_ptr<fe::graph::Graph> backward_graph(const FusedShape& s) {
  auto graph = make_graph();
  const Tensors tensors{*graph, s};
  auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
  options.set_deterministic_algorithm(true);
  set_scores(options, s);
  auto [dq, dk, dv] = graph->sdpa_backward(
      tensors.input_packed(id_q, s.part.H), tensors.input_packed(id_k, s.part.Hkv),
      tensors.input_packed(id_v, s.part.Hkv), tensors.input_unpacked(id_y),
      tensors.input_unpacked(id_dy), tensors.input_lse(), options);
  tensors.packed(dq->set_output(true), id_dq, s.part.H);
  tensors.packed(dk->set_output(true), id_dk, s.part.Hkv);
  tensors.packed(dv->set_output(true), id_dv, s.part.Hkv);
  return graph;
}

// A cuDNN graph that can be executed within a workspace of `bytes`.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;

  Plan(std::shared_ptr<fe::graph::Graph> made, cudnnHandle_t handle, const FusedShape& s,
       size_t bytes)
      : graph(std::move(made)) {
    check_cudnn(graph->validate(), "the description", s);
    check_cudnn(graph->build_operation_graph(handle), "the operations", s);
    check_cudnn(graph->create_execution_plans({fe::HeurMode_t::A}), "finding plans", s);
    graph->deselect_workspace_greater_than(static_cast<int64_t>(bytes));
    check_cudnn(graph->check_support(), sentence("a plan within ", bytes, " bytes"), s);
    check_cudnn(graph->build_plans(), "building a plan", s);
    int64_t wanted = 0;
    check_cudnn(graph->get_workspace_size(wanted), "the workspace", s);
    if (wanted > static_cast<int64_t>(bytes)) {
      fail(ErrorKind::device, "cuDNN: attention of ", describe(s), " needs a workspace of ", wanted,
           " bytes, more than the ", bytes, " bytes it has",
           "; set SPOOL_CUDNN=0 in the environment to run without cuDNN");
    }
  }
};

void* writable(const void* data) { return const_cast<void*>(data); }

}  // namespace

struct FusedAttention::State {
  CudaStream& stream;
  cudnnHandle_t handle = nullptr;
  std::map<FusedShape, Plan> forwards = {}, backwards = {};

  explicit State(CudaStream& s) : stream(s) {
    check_not_capturing(stream, "cuDNN");
    const Cudnn library = find_cudnn();
    if (!library) fail(ErrorKind::device, library.why_not);
    fe::cudnn_dlhandle = library.library;
    if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS) {
      fail(ErrorKind::device, "cuDNN: cudnnCreate failed");
    }
    const auto native = static_cast<cudaStream_t>(stream.native());
    if (fe::detail::set_stream(handle, native) != CUDNN_STATUS_SUCCESS) {
      fe::detail::destroy_handle(handle);
      fail(ErrorKind::device, "cuDNN: cudnnSetStream failed");
    }
  }
  ~State() { fe::detail::destroy_handle(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <class Make>
  Plan& find(std::map<FusedShape, Plan>& plans, const FusedShape& s, size_t bytes,
             const Make& make) {
    auto place = plans.find(s);
    if (place == plans.end()) {
      check_not_capturing(stream, "a plan of cuDNN");
      place = plans.try_emplace(s, make(s), handle, s, bytes).first;
    }
    return place->second;
  }

  void run(Plan& plan, const FusedShape& s, Pointers& pointers, const View& workspace) const {
    check_cudnn(plan.graph->execute(handle, pointers, workspace.data()), "running", s);
  }
};

FusedAttention::FusedAttention(CudaStream& stream) : state_(std::make_unique<State>(stream)) {}
FusedAttention::~FusedAttention() = default;

void FusedAttention::forward(const FusedForward& f) {
  Plan& plan = state_->find(state_->forwards, f.shape, f.workspace.nbytes(), forward_graph);
  Pointers pointers{{id_q, writable(f.q)},
                    {id_k, writable(f.k)},
                    {id_v, writable(f.v)},
                    {id_y, f.y},
                    {id_lse, f.lse}};
  state_->run(plan, f.shape, pointers, f.workspace);
}

void FusedAttention::backward(const FusedBackward& f) {
  Plan& plan = state_->find(state_->backwards, f.shape, f.workspace.nbytes(), backward_graph);
  Pointers pointers{{id_q, writable(f.q)},   {id_k, writable(f.k)},     {id_v, writable(f.v)},
                    {id_y, writable(f.y)},   {id_lse, writable(f.lse)}, {id_dy, writable(f.dy)},
                    {id_dq, writable(f.dq)}, {id_dk, writable(f.dk)},   {id_dv, writable(f.dv)}};
  state_->run(plan, f.shape, pointers, f.workspace);
}

}  // namespace spool::cuda

#elif defined(__CUDACC__)

namespace spool::cuda {

struct FusedAttention::State {};

FusedAttention::FusedAttention(CudaStream&) {
  fail(ErrorKind::device, "attention by cuDNN: this build is without cuDNN");
}
FusedAttention::~FusedAttention() = default;
void FusedAttention::forward(const FusedForward&) {}
void FusedAttention::backward(const FusedBackward&) {}

}  // namespace spool::cuda

#endif
