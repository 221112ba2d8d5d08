#include "spool/runtime/dlpack.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#if SPOOL_DLPACK
#include <dlpack/dlpack.h>
#endif

namespace spool {
#if SPOOL_DLPACK
namespace {

struct TypePair {
  DType type;
  DLDataTypeCode code;
};
constexpr TypePair types[] = {{DType::f64, kDLFloat}, {DType::f32, kDLFloat},
                              {DType::f16, kDLFloat}, {DType::bf16, kDLBfloat},
                              {DType::i32, kDLInt},   {DType::i8, kDLInt},
                              {DType::u16, kDLUInt}};
static_assert(std::size(types) == enumerator_names<DType>.size());

int bits_of(DType t) { return static_cast<int>(8 * size_of(t)); }

std::string describe(const DLDataType& t) {
  constexpr const char* codes[] = {"int",    "uint",   "float", "an opaque type of bits ",
                                   "bfloat", "complex"};
  const char* const code = t.code < std::size(codes) ? codes[t.code] : "an unknown type of bits ";
  return t.lanes == 1 ? sentence(code, int{t.bits})
                      : sentence("vectors of ", t.lanes, ' ', code, int{t.bits});
}

DType type_of(const DLDataType& t) {
  const auto* const found = std::ranges::find_if(
      types, [&](const TypePair& p) { return p.code == t.code && bits_of(p.type) == t.bits; });
  check(found != std::end(types) && t.lanes == 1, "dlpack: the values are ", describe(t),
        ", and a tensor can have ", list_of<DType>(), "; convert them first");
  return found->type;
}

Shape shape_of(const DLTensor& t) {
  check(t.ndim >= 0 && t.ndim <= Shape::max_rank, "dlpack: the tensor has ", t.ndim,
        " dimensions, and can have at most ", Shape::max_rank, "; reshape it first");
  const int64_t* const e = t.shape;
  switch (t.ndim) {
    case 0:
      return {};
    case 1:
      return {e[0]};
    case 2:
      return {e[0], e[1]};
    case 3:
      return {e[0], e[1], e[2]};
    default:
      return {e[0], e[1], e[2], e[3]};
  }
}

// Without strides the values are contiguous; where an extent is 1 its stride does not matter.
void check_contiguous(const DLTensor& t, const Shape& shape) {
  if (!t.strides || shape.numel() == 0) return;
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    check(shape[i] == 1 || t.strides[i] == stride, "dlpack: in dimension ", i, " of ", shape,
          ", elements are ", t.strides[i], " apart, and ", stride,
          " if it is contiguous, as a tensor has to be; copy it first "
          "(numpy.ascontiguousarray(x), or x.contiguous() in PyTorch)");
    stride *= shape[i];
  }
}

std::string describe(const DLDevice& d) {
  if (d.device_type == kDLCPU) return "the cpu";
  if (d.device_type == kDLCUDA) return sentence("cuda:", d.device_id);
  return sentence("a device of DLPack's type ", static_cast<int>(d.device_type));
}

// The tensor's device; nothing for meta, which has none.
std::optional<DLDevice> device_of(const Stream& stream) {
  const Device device = stream.device();
  if (device.type == DeviceType::cpu) return DLDevice{kDLCPU, 0};
  if (device.type == DeviceType::cuda) return DLDevice{kDLCUDA, device.index};
  return {};
}

void check_on(const Stream& stream, const DLDevice& d) {
  const std::optional<DLDevice> own = device_of(stream);
  if (!own) return;
  const bool both_on_host = own->device_type == kDLCPU && d.device_type == kDLCUDAHost;
  const bool same = own->device_type == d.device_type &&
                    (own->device_type == kDLCPU || own->device_id == d.device_id);
  check(same || both_on_host, "dlpack: the values are on ", describe(d), ", and the stream is on ",
        describe(*own), "; copy them to that device first");
}

// A tensor lent to another program.
struct Lent {
  Tensor tensor;
  std::weak_ptr<Disposal> disposal;
  int64_t extents[Shape::max_rank] = {}, strides[Shape::max_rank] = {};
  DLManagedTensor managed = {};

  explicit Lent(const Tensor& t) : tensor(t), disposal(t.stream().disposal()) {}

  static void give_back(DLManagedTensor* managed) {
    std::unique_ptr<Lent> lent(static_cast<Lent*>(managed->manager_ctx));
    const std::shared_ptr<Disposal> disposal = lent->disposal.lock();
    if (!disposal) {  // the stream is gone, and with it the memory
      static_cast<void>(lent.release());
    } else if (!lent->tensor.stream().is_called_here()) {
      disposal->add(std::shared_ptr<Lent>(std::move(lent)));
    }
  }
};

}  // namespace

Tensor from_dlpack(DLManagedTensor* managed, Stream& stream, const Label& label) {
  check(managed, "dlpack: there is no tensor to take over");
  const DLTensor& t = managed->dl_tensor;
  check_on(stream, t.device);
  const Spec spec{shape_of(t), type_of(t.dtype)};
  check_contiguous(t, spec.shape);
  auto* const data = static_cast<std::byte*>(t.data);
  // Empty at first, so that the deleter runs only if nothing throws.
  struct Taken {
    DLManagedTensor* managed = nullptr;
    ~Taken() {
      if (managed && managed->deleter) managed->deleter(managed);
    }
  };
  const auto taken = std::make_shared<Taken>();
  Tensor tensor = Tensor::over(data ? data + t.byte_offset : nullptr, spec, stream, taken, label);
  taken->managed = managed;
  return tensor;
}

DLManagedTensor* to_dlpack(const Tensor& t) {
  check(bool(t), "dlpack: the tensor is absent");
  const std::optional<DLDevice> device = device_of(t.stream());
  if (!device) {
    fail(ErrorKind::device, "dlpack: ", t.spec(), " is on the meta device, which has no values");
  }
  t.stream().synchronize();
  auto lent = std::make_unique<Lent>(t);
  const Shape& shape = t.shape();
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    lent->extents[i] = shape[i];
    lent->strides[i] = stride;
    stride *= shape[i];
  }
  const auto* const type = std::ranges::find(types, t.dtype(), &TypePair::type);
  lent->managed = {.dl_tensor = {.data = t.view().data(),
                                 .device = *device,
                                 .ndim = shape.rank(),
                                 .dtype = {.code = static_cast<uint8_t>(type->code),
                                           .bits = static_cast<uint8_t>(bits_of(t.dtype())),
                                           .lanes = 1},
                                 .shape = lent->extents,
                                 .strides = lent->strides,
                                 .byte_offset = 0},
                   .manager_ctx = lent.get(),
                   .deleter = &Lent::give_back};
  return &lent.release()->managed;
}

#else

Tensor from_dlpack(DLManagedTensor*, Stream&, const Label&) {
  fail(ErrorKind::invalid, "dlpack: this build of Spool was made without dlpack.h");
}

DLManagedTensor* to_dlpack(const Tensor&) {
  fail(ErrorKind::invalid, "dlpack: this build of Spool was made without dlpack.h");
}

#endif
}  // namespace spool
