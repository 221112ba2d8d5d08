#pragma once

// Ranks with a GPU each (nccl_ranks.h), as the sources that carry them out see them.

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>

#include "spool/runtime/cuda/nccl_functions.cuh"
#include "spool/runtime/cuda/nccl_ranks.h"
#include "spool/runtime/cuda/pieces.cuh"
#include "spool/runtime/ranks/packing.h"
#include "spool/runtime/ranks/watchdog.h"

namespace spool::cuda {

class NcclRanks final : public Communicator {
 public:
  NcclRanks(std::shared_ptr<Communicator> host, int device);
  ~NcclRanks() override;
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  const char* kind() const override { return "nccl"; }
  bool moves_memory_of(const Device&) const override { return true; }
  size_t workspace_bytes(size_t piece) const override { return packed_bytes(size(), piece); }
  void connect() override {
    taken_bytes_ += taken_by([this] { exchange_once({Pattern::messages}); });
  }
  std::shared_ptr<void> open(Stream&) override;
  std::function<void()> measured_exchange(size_t bytes) override;
  void is_doing(const std::string& what) override { host_->is_doing(what); }
  bool has_lower_rank_failed() override { return host_->has_lower_rank_failed(); }
  void check_others(const char* exchange, double waited) override {
    host_->check_others(exchange, waited);
  }
  size_t taken_bytes() const override { return taken_bytes_; }
  size_t sent() const override { return progress_.read().sent - sent_before_; }
  void forget_sent() override { sent_before_ = progress_.read().sent; }
  double seconds() const override {
    return static_cast<double>(progress_.read().nanoseconds - nanoseconds_before_) * 1e-9;
  }

 private:
  class Window;

  void enqueue(Exchange, Stream& queue) override;
  void move(const char* name, const Messages& out, const Messages& in, double) override {
    host_->move_now(name, out, in);
  }
  void end_others(const std::string& why) override;

  void make_communicator();
  size_t taken_by(const std::function<void()>& work) const;
  void exchange_once(std::initializer_list<Pattern>);
  void call_messages(const char* name, const Messages& out, const Messages& in, cudaStream_t);
  void call(const char* name, Pattern, const std::byte* send, std::byte* receive, size_t piece,
            cudaStream_t);
  void make_call(const char* name, const std::function<ncclResult_t()>&);
  void wait_while_under_way(ncclResult_t, const char* call);
  [[noreturn]] void fail_with(ncclResult_t, const char* call);
  void look(double passed);
  void throw_if_ended() const { watchdog_.rethrow(); }
  void abort();
  void leave();

  const std::shared_ptr<Communicator> host_;
  const int device_;
  const NcclFunctions& nccl_ = nccl();
  ncclComm_t communicator_ = nullptr;
  size_t taken_bytes_ = 0;
  ExchangeProgress progress_;
  // Of the first exchanges, which tell nothing, and of all that were forgotten.
  unsigned long long nanoseconds_before_ = 0, sent_before_ = 0;
  size_t counted_ = 0;  // bytes of the exchanges so far
  bool is_refusal_said_ = false;
  std::mutex calls_;                           // of the communicator, which has one at a time
  std::atomic<const char*> called_ = nullptr;  // the call that the host waits in
  std::atomic<unsigned> calls_begun_ = 0;
  unsigned last_begun_ = 0;  // of the watchdog's looks, and the seconds since another was begun
  double waited_ = 0;
  Watchdog watchdog_;
};

}  // namespace spool::cuda
