#pragma once

// Sums the gradients of a step over ranks, and sends what each rank then needs of the others.
//
// Ranks own pieces of the row of parameters (row_pieces.h).  When backward has completed the last
// gradient of a bucket, each rank sends the others their pieces of it, and adds up its own, in the
// order of the ranks, on a queue beside backward.  The compute stream waits for the oldest bucket
// where one more would be under way than is allowed, and frees its gradients there, so the peak of
// memory does not depend on any speed, and a rehearsal foretells it.
//
//   stage   sums over ranks                          state       gradients     after the update
//   0       the last micro-batch's, in place         whole       whole         -
//   1       the last micro-batch's, in place         own pieces  whole         parameters sent
//   2       each micro-batch's, onto the own row     own pieces  own pieces    parameters sent
//   3       the same; and large parameters are stored in own pieces, which ops gather to read
//           them (autograd/sharding/gather_op.h): only the others are sent
//
// (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.)
// In stages 0 and 1 what the rank accumulated is exchanged; in stage 0 sums are sent back.
// Micro-batch g = m ranks + r of a step is the m-th of rank r, so a sum over each micro-batch is
// ((g0 + g1) + g2) + ... whatever the number of ranks.
//
// Where neighbouring ranks share each micro-batch (autograd/sharding/), a group of them has
// micro-batches of its own: ranks here are those that have the same place in their groups.  Of one
// group that has a step's only micro-batch nothing is divided: that is stage 0, which copies no
// gradients.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "spool/autograd/gradient_sink.h"
#include "spool/models/steps/exchange/row_pieces.h"
#include "spool/runtime/ranks/exchange_queue.h"

namespace spool {

class GradientExchange final : public GradientSink, public OwnRow {
 public:
  static constexpr int max_stage = 3;

  // `neighbours`: the ranks that share a micro-batch.  Parameters and stream outlive it.
  GradientExchange(std::vector<Parameter*>, Stream&, std::shared_ptr<const ExchangeQueue>,
                   int neighbours, int stage, int buckets_in_flight);
  ~GradientExchange() override { abandon(); }

  int ranks() const { return ranks_.size() / neighbours_; }
  int rank() const { return ranks_.rank() / neighbours_; }
  int stage() const { return stage_; }
  const RowPieces& pieces() const { return pieces_; }
  Communicator& communicator() const { return ranks_; }  // of all ranks

  void begin_backward() override;
  void is_final(Parameter&) override;
  void end_backward() override;

  int64_t elements() const override { return pieces_.own_elements(); }
  const std::vector<Slice>& slices() const override { return own_; }
  View gradient(size_t parameter, Range elements) const override;
  void gather_granules(const Tensor& granules) override;
  void is_updated(Range elements, Stream& by) override;
  void gather_parameters() override;
  void free_gradients() override;

  // Every rank gives each other the views that it has, and takes those that it lacks at their own
  // places: of(r) are rank r's, of the same sizes on every rank.
  void gather(const char* name, const std::function<std::vector<View>(int rank)>& of);

  // Waits for all exchanges; throws if one failed.
  void synchronize() { queue_->stream().synchronize(); }
  // After a step that failed: waits for what is under way, and frees it.
  void abandon() noexcept;

 private:
  struct Flight {
    int64_t bucket = 0;
    Event done = {};
  };

  bool divides_gradients() const { return stage_ >= 2; }
  Parameter& parameter_of(const Slice& s) const { return *parameters_[s.parameter]; }
  void hand_over(int64_t bucket);
  Name name_of(int64_t bucket) const;
  size_t workspace_bytes(size_t piece) const;
  Tensor workspace_for(size_t piece) const;
  Pattern pattern_of(Pattern all) const;
  DType gradient_type() const;
  size_t piece_bytes(int64_t elements) const;  // of gradients
  View theirs(int64_t bucket, int rank) const;
  int64_t buckets_together(size_t element_bytes) const;
  void enqueue_exchange(int64_t bucket);
  void enqueue_sums(int64_t bucket);
  void retire();
  void enqueue(Exchange, const std::function<std::vector<View>(int rank)>& of);
  void send_parameters(int64_t end);
  void enqueue_pieces(const char* name, Range buckets, size_t element_bytes,
                      const std::function<View(const Parameter&)>&);
  // The rank of the communicator.
  int peer(int rank) const { return rank * neighbours_ + ranks_.rank() % neighbours_; }

  Stream& compute_;
  Communicator& ranks_;
  std::shared_ptr<const ExchangeQueue> queue_;
  int neighbours_, stage_;
  size_t max_in_flight_;
  std::vector<Parameter*> parameters_;
  RowPieces pieces_;
  std::vector<Slice> own_;
  std::map<const Parameter*, std::vector<int64_t>> buckets_of_;  // one for each slice of it
  std::vector<size_t> first_own_;        // of each parameter, in own_; own_.size(): none
  std::vector<int64_t> first_granules_;  // of each parameter, in the row

  std::vector<Tensor> sums_;      // from stage 2, of each bucket: (elements of a piece), or absent
  std::vector<bool> is_summed_;   // of own_
  std::vector<int64_t> missing_;  // of each bucket: parameters whose gradient is not final
  std::vector<int64_t> kept_;     // of each parameter: elements that are not exchanged
  int64_t next_ = 0;              // bucket
  // Elements of the own row that are updated: all up to one, and stretches after it.
  int64_t updated_to_ = 0;
  std::map<int64_t, int64_t> updated_;
  int64_t sent_ = 0;  // buckets whose parameters are sent
  std::deque<Flight> flights_;
  // What the queue's exchanges have one after another: what the others sent, a piece of each rank,
  // and the communicator's workspace.
  Tensor others_, workspace_;
};

}  // namespace spool
