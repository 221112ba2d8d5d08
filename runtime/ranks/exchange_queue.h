#pragma once

// The queue of a stream's exchanges with other ranks, which run one after another beside it: a
// communicator wants one order of all.

#include <memory>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/stream.h"

namespace spool {

class ExchangeQueue {
 public:
  // Of a stream that has joined ranks and outlives it.  Throws if it is on a GPU, and they exchange
  // memory of the host.
  explicit ExchangeQueue(Stream& compute)
      : ranks_(of(compute)), stream_(compute.side_stream()), opened_(ranks_.open(compute)) {}

  Communicator& ranks() const { return ranks_; }
  Stream& stream() const { return *stream_; }
  // What is enqueued from here on sees what the compute stream has been given.
  void follow(Stream& compute) const {
    stream_->trace_with(compute, TraceLane::exchange);
    stream_->wait(compute.record());
  }

 private:
  static Communicator& of(Stream& compute) {
    Communicator& ranks = *compute.ranks();
    check(ranks.moves_memory_of(compute.device()), "these ranks exchange by ", ranks.kind(),
          ", memory of the host, and the stream is on a GPU: it is to join what ",
          "on_device(ranks, gpu_of_rank(*ranks)) gives (runtime/ranks/run_ranks.h)");
    return ranks;
  }

  Communicator& ranks_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<void> opened_;  // of the communicator, for the compute stream
};

}  // namespace spool
