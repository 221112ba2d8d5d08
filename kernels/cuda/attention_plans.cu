#include "spool/kernels/cuda/attention_plans.cuh"

// This file has no kernels: the C++ compiler compiles it, as nvcc would take even longer.  Tests
// that ask cuDNN without a device compile it, too.

#if SPOOL_CUDNN

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <string_view>

namespace spool::cuda {
namespace {

// Tells the frontend the capability of a device that is only described.
int described_capability = 0;

cudaError_t get_no_device(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t get_described_properties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->major = described_capability / 10;
  properties->minor = described_capability % 10;
  return cudaSuccess;
}

const char* get_no_error_string(cudaError_t) { return "no error"; }

CudaRuntime& runtime() {
  static CudaRuntime functions;
  return functions;
}

// The frontend finds cuDNN and CUDA's runtime by dlopen() and dlsym(), and refuses a machine with
// no runtime or with two.  Spool links the runtime statically, so the frontend gets that one.
char linked_runtime;

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

void* open_for_frontend(const char* name, int mode) {
  const std::string_view library(name);
  if (library.starts_with("libcudart")) {
    return library.ends_with(".12") ? &linked_runtime : nullptr;  // the first name it tries
  }
  return dlopen(name, mode);
}

void* find_for_frontend(void* library, const char* name) {
  if (library != &linked_runtime) return dlsym(library, name);
  const std::string_view wanted(name);
  if (wanted == "cudaGetDevice") return runtime().get_device;
  if (wanted == "cudaGetDeviceProperties") return runtime().get_device_properties;
  if (wanted == "cudaGetErrorString") return runtime().get_error_string;
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

constexpr const char* without_cudnn = "; set SPOOL_CUDNN=0 in the environment to run without cuDNN";

[[noreturn]] void fail_cudnn(const std::string& what, const FusedShape& s) {
  fail(ErrorKind::device, "cuDNN: attention of ", describe(s), ": ", what, without_cudnn);
}

// For a library that loads and does not work, for want of a driver, of NVRTC or of its own parts.
void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(ErrorKind::device, "cuDNN: ", call, " failed with ", fe::detail::get_error_string(status),
       ": ", fe::detail::get_last_error_string_(), without_cudnn);
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
  options.set_deterministic_algorithm(s.order == SumOrder::fixed);
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

// Chooses a plan within `bytes` of workspace, those of the frontend included, without building it.
// Without a handle, for the device that the graph describes.
fe::error_t choose_plan(fe::graph::Graph& graph, cudnnHandle_t handle, size_t bytes) {
  fe::error_t status = graph.validate();
  if (status.is_good()) status = graph.build_operation_graph(handle);
  if (status.is_bad()) return status;
  // What the frontend takes is known here, as there are no plans yet.
  const int64_t left = static_cast<int64_t>(bytes) - graph.get_autotune_workspace_size();
  status = graph.create_execution_plans({fe::HeurMode_t::A});
  if (status.is_bad()) return status;
  graph.deselect_workspace_greater_than(left);
  return graph.check_support();
}

std::shared_ptr<fe::graph::Graph> graph_of(AttentionPass pass, const FusedShape& s) {
  return pass == AttentionPass::forward ? forward_graph(s) : backward_graph(s);
}

void* writable(const void* data) { return const_cast<void*>(data); }

Pointers pointers_of(const FusedForward& f) {
  return {{id_q, writable(f.q)},
          {id_k, writable(f.k)},
          {id_v, writable(f.v)},
          {id_y, f.y},
          {id_lse, f.lse}};
}

Pointers pointers_of(const FusedBackward& f) {
  return {{id_q, writable(f.q)},   {id_k, writable(f.k)},     {id_v, writable(f.v)},
          {id_y, writable(f.y)},   {id_lse, writable(f.lse)}, {id_dy, writable(f.dy)},
          {id_dq, writable(f.dq)}, {id_dk, writable(f.dk)},   {id_dv, writable(f.dv)}};
}

}  // namespace

void set_libraries(void* cudnn, const CudaRuntime& functions) {
  runtime() = functions;
  fe::cudnn_dlhandle = cudnn;
}

CudaRuntime runtime_without_device() {
  return {.get_device = address_of<cudaError_t(int*)>(get_no_device),
          .get_device_properties =
              address_of<cudaError_t(cudaDeviceProp*, int)>(get_described_properties),
          .get_error_string = address_of<const char*(cudaError_t)>(get_no_error_string)};
}

CudnnHandle::CudnnHandle(void* stream) {
  cudnnHandle_t made = nullptr;
  check_cudnn(fe::detail::create_handle(&made), "cudnnCreate");
  handle_ = made;
  try {
    check_cudnn(fe::detail::set_stream(made, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
  } catch (...) {
    fe::detail::destroy_handle(made);
    throw;
  }
}

CudnnHandle::~CudnnHandle() { fe::detail::destroy_handle(static_cast<cudnnHandle_t>(handle_)); }

struct AttentionPlan::State {
  FusedShape shape;
  std::shared_ptr<fe::graph::Graph> graph;
  size_t bytes;
  std::mutex mutex = {};

  template <class Call>
  void run(const Call& call, const CudnnHandle& handle) {
    Pointers pointers = pointers_of(call);
    if (call.workspace.nbytes() < bytes) fail_cudnn("its workspace is too small", shape);
    const std::lock_guard lock(mutex);
    fe::error_t status =
        graph->execute(static_cast<cudnnHandle_t>(handle.get()), pointers, call.workspace.data());
    if (status.is_bad()) [[unlikely]]
      fail_cudnn(status.get_message(), shape);
  }
};

AttentionPlan::AttentionPlan(AttentionPass pass, const FusedShape& s, const CudnnHandle& handle,
                             size_t bytes)
    : state_(new State{.shape = s, .graph = graph_of(pass, s), .bytes = bytes}) {
  fe::graph::Graph& graph = *state_->graph;
  fe::error_t status = choose_plan(graph, static_cast<cudnnHandle_t>(handle.get()), bytes);
  int64_t wanted = 0;
  if (status.is_good()) status = graph.build_plans();
  if (status.is_good()) status = graph.get_workspace_size(wanted);
  if (status.is_bad()) {
    fail_cudnn(sentence("no plan within ", bytes, " bytes: ", status.get_message()), s);
  }
  if (wanted > static_cast<int64_t>(bytes)) {
    fail_cudnn(sentence("the plan needs a workspace of ", wanted, " bytes, more than the ", bytes,
                        " bytes it has"),
               s);
  }
}

AttentionPlan::~AttentionPlan() = default;

void AttentionPlan::run(const FusedForward& f, const CudnnHandle& handle) {
  state_->run(f, handle);
}
void AttentionPlan::run(const FusedBackward& f, const CudnnHandle& handle) {
  state_->run(f, handle);
}

std::string why_no_plan(AttentionPass pass, const FusedShape& s, const DescribedDevice& device,
                        size_t bytes) {
  const auto properties = std::make_shared<fe::DeviceProperties>();
  const std::vector<uint8_t> json(device.properties.begin(), device.properties.end());
  if (fe::error_t status = properties->deserialize(json); status.is_bad()) {
    return "the device: " + status.get_message();
  }
  described_capability = device.capability;
  const auto graph = graph_of(pass, s);
  graph->set_device_properties(properties).set_sm_version(device.capability);
  fe::error_t status = choose_plan(*graph, nullptr, bytes);
  return status.is_bad() ? status.get_message() : "";
}

}  // namespace spool::cuda

#endif
