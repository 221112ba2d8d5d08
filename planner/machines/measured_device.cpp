#include "spool/planner/machines/measured_device.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/runtime/memory/host_memory.h"

namespace spool {
namespace {

using nlohmann::json;

json architecture_to_json(const CpuArchitecture& cpu) {
  return {{"cpu", {{"threads", cpu.threads}, {"bf16_products", name(cpu.bf16_products)}}}};
}

json architecture_to_json(const CudaArchitecture& gpu) {
  return {{"cuda",
           {{"major", gpu.major}, {"minor", gpu.minor}, {"fused_attention", gpu.fused_attention}}}};
}

CpuArchitecture read_cpu(const JsonField& field) {
  constexpr int max_threads = 4096;
  return {.threads = field.member("threads").integer<int>(1, max_threads),
          .bf16_products = field.member("bf16_products").enumerator<Bf16Products>()};
}

CudaArchitecture read_cuda(const JsonField& field) {
  constexpr int max = 99;
  return {.major = field.member("major").integer<int>(1, max),
          .minor = field.member("minor").integer<int>(0, max),
          .fused_attention = field.member("fused_attention").boolean()};
}

Architecture read_architecture(const JsonField& machine) {
  const auto cpu = machine.find("cpu"), cuda = machine.find("cuda");
  machine.expect(cpu.has_value() != cuda.has_value(), "has cpu or cuda, one of them");
  return cpu ? Architecture(read_cpu(*cpu)) : read_cuda(*cuda);
}

std::string read_name(const JsonField& field) {
  std::string text = field.string();
  const auto is_printable = [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; };
  field.expect(!text.empty() && std::ranges::all_of(text, is_printable), excerpt(field.value()),
               " is no name of a machine");
  return text;
}

size_t read_bytes(const JsonField& field) {
  constexpr size_t max = size_t{1} << 62;
  return field.integer<size_t>(1, max);
}

}  // namespace

MeasuredDevice describe(const Stream& stream, int ranks) {
  const auto share = static_cast<size_t>(std::max(ranks, 1));
  const bool has_own = stream.device().type == DeviceType::cuda;  // each rank
  return {.name = stream.description(),
          .architecture = stream.architecture(),
          .memory = device_memory(stream.device()) / (has_own ? 1 : share),
          .host_memory = host_memory() / share,
          .ranks = ranks};
}

json to_json(const MeasuredDevice& device) {
  json machine =
      std::visit([](const auto& of) { return architecture_to_json(of); }, device.architecture);
  machine.update(
      {{"name", device.name}, {"memory", device.memory}, {"host_memory", device.host_memory}});
  if (device.ranks > 0) machine["ranks"] = device.ranks;
  return machine;
}

MeasuredDevice measured_device(const JsonField& field) {
  MeasuredDevice device{.name = read_name(field.member("name")),
                        .architecture = read_architecture(field),
                        .memory = read_bytes(field.member("memory")),
                        .host_memory = read_bytes(field.member("host_memory"))};
  constexpr int max_ranks = 1 << 20;
  if (const auto ranks = field.find("ranks")) device.ranks = ranks->integer<int>(2, max_ranks);
  return device;
}

}  // namespace spool
