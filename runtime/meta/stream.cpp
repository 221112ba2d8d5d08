#include "spool/runtime/meta/stream.h"

#include <algorithm>
#include <string_view>

#include "spool/runtime/memory/repetition.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {
namespace {

// An address that is not null, so that tensors on meta are present; it is never dereferenced.
std::byte* fake_address() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 46); }

}  // namespace

MetaStream::MetaStream(const Machine& machine, size_t capacity)
    : MetaStream(machine, std::make_shared<Arena>(fake_address(), capacity, "meta")) {}

MetaStream::MetaStream(const Machine& machine, std::shared_ptr<Arena> memory)
    : Stream({DeviceType::meta}, machine.architecture, std::move(memory)), machine_(machine) {
  if (machine.mesh.ranks > 0) join(rehearsed_ranks(machine));
}

void MetaStream::add_span(const char* name, Activity activity, const Cost& cost, double begin) {
  const bool moves = activity == Activity::copy || activity == Activity::host;
  TraceSpan added = span(name, activity, moves ? static_cast<size_t>(cost.bytes) : 0);
  if (!moves) added.cost = cost;
  trace()->add(added, {begin, now()});
}

void MetaStream::add_missing(DeviceType type, const char* kernel) {
  const bool is_cpu = std::holds_alternative<CpuArchitecture>(machine_.architecture);
  if (type != (is_cpu ? DeviceType::cpu : DeviceType::cuda)) return;
  const bool is_known = std::ranges::any_of(
      missing_, [&](const char* known) { return std::string_view(known) == kernel; });
  if (!is_known) missing_.push_back(kernel);
}

void MetaStream::copy(void*, const void*, size_t bytes) {
  const Cost cost{.bytes = 2.0 * static_cast<double>(bytes)};
  advance("copy", Activity::copy, machine_.seconds(cost), {.bytes = static_cast<double>(bytes)});
}

void MetaStream::copy_from_host(const char* name, size_t bytes) {
  const Cost cost{.bytes = static_cast<double>(bytes)};
  advance(name, Activity::copy, cost.bytes / machine_.from_host_bytes_per_second, cost);
}

void MetaStream::upload(void*, const void*, size_t bytes) { copy_from_host("upload", bytes); }

void MetaStream::upload(void* to, size_t bytes, const Fill&) { upload(to, nullptr, bytes); }

void MetaStream::download(void*, const void*, size_t) {
  fail(ErrorKind::device, "read: a tensor on the meta device has a shape but no values");
}

std::shared_ptr<std::byte> MetaStream::host_memory(size_t) {
  return {fake_address(), [](std::byte*) {}};
}

void MetaStream::copy_out(void*, const void*, size_t bytes) {
  const Cost cost{.bytes = static_cast<double>(bytes)};
  advance("copy out", Activity::copy, cost.bytes / machine_.to_host_bytes_per_second, cost);
}

void MetaStream::copy_in(void*, const void*, size_t bytes) { copy_from_host("copy in", bytes); }

void MetaStream::host_work(const char* name, double seconds, std::function<void()> work) {
  const auto* exchange = work.target<RehearsedExchange>();
  advance(name, Activity::host, seconds, {.bytes = exchange ? exchange->sent : 0});
}

void MetaStream::repeat(size_t count, const std::function<void(size_t)>& work) {
  if (trace() || count < 4) return Stream::repeat(count, work);
  work(0);
  const Clock before = clock_;
  const uint64_t launches_before = launches();
  {
    Repetition middle(arena());
    middle.begin();
    work(1);
    middle.end();
  }
  const size_t left_out = count - 3;
  clock_.now += static_cast<double>(left_out) * (now() - before.now);
  clock_.busy += static_cast<double>(left_out) * (busy() - before.busy);
  count_launch(left_out * (launches() - launches_before));
  work(count - 1);
}

std::unique_ptr<Stream> MetaStream::on_host(std::shared_ptr<Arena> memory) {
  Machine host = machine_;
  host.bytes_per_second = machine_.host_memory_bytes_per_second;
  const bool is_host = std::holds_alternative<CpuArchitecture>(machine_.architecture);
  if (!is_host) host.kernels.reset();
  auto stream = std::make_unique<MetaStream>(host, std::move(memory));
  stream->follow_thread_of(*this);
  return stream;
}

}  // namespace spool
