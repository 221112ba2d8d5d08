// Public: one of the headers of docs/public-headers.md.
#pragma once

// Hooks for tensors that backward reads: a tensor is packed after forward and unpacked in backward.
// The tape's innermost hooks at the time of saving decide how (Tape::HooksScope); without hooks,
// the plan.  PyTorch calls such a pair of hooks torch.autograd.graph.saved_tensors_hooks.
//
// pack() is called once per saved value, in the order of saving.  unpack() is called at most once
// while its result lives, which is until the last use in backward.  Neither is called for a value
// that is recomputed, for parameters, or for the caller's inputs.  If a hook throws, the tape stays
// consistent: in pack() the op is removed, in unpack() everything the tape saved is freed.  A hook
// applies no ops to the tape; it may launch kernels, or use a tape of its own.
//
// hooks_from() makes hooks from two functions:
//
//   auto hooks = hooks_from(
//       [](const Tensor& t, const SavedInfo&) -> std::optional<Tensor> {
//         if (t.dtype() != DType::f32) return {};  // keeps it as it is
//         return as_bf16(t);
//       },
//       [](const Tensor& packed) { return as_f32(packed); });
//   const Tape::HooksScope scope(tape, hooks);

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "spool/runtime/tensor.h"

namespace spool {

// The value that is packed.
struct SavedInfo {
  const char* op = "";  // the op that computed it
  int32_t value = -1;   // its id on the tape
};

class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  // Called when backward will need it soon.
  virtual void prefetch() {}
  // Returns a tensor of the shape, type and device of the packed one.
  virtual Tensor unpack() = 0;
};

class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  virtual std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) = 0;
};

// Packs a tensor as it is.
std::unique_ptr<SavedTensor> keep(Tensor);

// What pack() of hooks_from() returns, without the optional.
template <class Result>
struct PackedOf {
  using type = Result;
};
template <class T>
struct PackedOf<std::optional<T>> {
  using type = T;
};

// See hooks_from().
template <class Pack, class Unpack>
class FunctionHooks final : public SavedTensorHooks {
 public:
  static_assert(std::invocable<Pack&, const Tensor&, const SavedInfo&>,
                "hooks_from: pack takes (const Tensor&, const SavedInfo&)");
  using Result = std::remove_cvref_t<std::invoke_result_t<Pack&, const Tensor&, const SavedInfo&>>;
  using Packed = typename PackedOf<Result>::type;
  static_assert(std::is_object_v<Packed> && std::movable<Packed>,
                "hooks_from: pack returns what is stored, a type that can be moved");
  static_assert(
      std::is_invocable_r_v<Tensor, Unpack&, const Packed&>,
      "hooks_from: unpack takes a const reference to what pack returns, and returns a Tensor");

  FunctionHooks(Pack pack, Unpack unpack)
      : pack_(std::move(pack)), unpack_(std::make_shared<Unpack>(std::move(unpack))) {}

  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    Result result = std::invoke(pack_, t, info);
    if constexpr (std::is_same_v<Result, Packed>) {
      return store(std::move(result));
    } else {
      return result ? store(std::move(*result)) : keep(t);
    }
  }

 private:
  struct Stored final : SavedTensor {
    Packed packed;
    std::shared_ptr<Unpack> unpack_packed;
    Stored(Packed p, std::shared_ptr<Unpack> u)
        : packed(std::move(p)), unpack_packed(std::move(u)) {}
    Tensor unpack() override { return std::invoke(*unpack_packed, std::as_const(packed)); }
  };

  std::unique_ptr<SavedTensor> store(Packed packed) const {
    if constexpr (std::is_same_v<Packed, Tensor>) {
      if (!packed) return nullptr;  // which the tape refuses
    }
    return std::make_unique<Stored>(std::move(packed), unpack_);
  }

  Pack pack_;
  std::shared_ptr<Unpack> unpack_;  // shared with what is packed, which may outlive the hooks
};

// Hooks from two functions.  pack(tensor, info) returns what is stored, of any type that can be
// moved: a Tensor, a struct of several, values on the host.  If it returns a std::optional, an
// empty one keeps the tensor as it is.  unpack(stored) returns a tensor as the packed one was. What
// they capture by reference must outlive the tape.
template <class Pack, class Unpack>
FunctionHooks<Pack, Unpack> hooks_from(Pack pack, Unpack unpack) {
  return {std::move(pack), std::move(unpack)};
}

}  // namespace spool
