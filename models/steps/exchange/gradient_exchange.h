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
//
// (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.)
// In stages 0 and 1 what the rank accumulated is exchanged; in stage 0 sums are sent back.
// Micro-batch g = m ranks + r of a step is the m-th of rank r, so a sum over each micro-batch is
// ((g0 + g1) + g2) + ... whatever the number of ranks.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "spool/autograd/gradient_sink.h"
#include "spool/models/steps/exchange/row_pieces.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

class Optimizer;

class GradientExchange final : public GradientSink, public OwnRow {
 public:
  static constexpr int max_stage = 2;

  // Of the stream's ranks; parameters and stream outlive it.
  GradientExchange(std::vector<Parameter*>, Stream&, int stage, int buckets_in_flight);
  ~GradientExchange() override { abandon(); }

  int ranks() const { return ranks_.size(); }
  int rank() const { return ranks_.rank(); }
  int stage() const { return stage_; }
  Communicator& communicator() const { return ranks_; }

  void begin_backward() override;
  void is_final(Parameter&) override;
  void end_backward() override;

  int64_t elements() const override { return pieces_.buckets() * pieces_.piece_elements(); }
  const std::vector<Slice>& slices() const override { return own_; }
  View gradient(size_t parameter, Range elements) const override;
  void gather_granules(const Tensor& granules) override;
  void is_updated(Range elements, Stream& by) override;
  void gather_parameters() override;
  void free_gradients() override;
  // On rank 0 while the others serve; else it does nothing.
  void read_others_state(const StateRange&, size_t element_bytes,
                         std::span<std::byte> out) override;
  // Calls work() on rank 0, which may read the state of all ranks meanwhile: the others answer from
  // their optimizers.  Returns whether work() was done; if it throws, that is false on the others.
  bool share_state(Optimizer&, const std::function<void()>& work);

  // Every rank gives each other the views that it has, and takes those that it lacks at their own
  // places: of(r) are rank r's, of the same sizes on every rank.
  void gather(const char* name, const std::function<std::vector<View>(int rank)>& of);

  // Waits for all exchanges; throws if one failed.
  void synchronize() { queue_->synchronize(); }
  // After a step that failed: waits for what is under way, and frees it.
  void abandon() noexcept;

 private:
  struct Flight {
    int64_t bucket = 0;
    Event done = {};
  };

  Parameter& parameter_of(const Slice& s) const { return *parameters_[s.parameter]; }
  void hand_over(int64_t bucket);
  Name name_of(int64_t bucket) const;
  Tensor workspace_for(size_t piece) const;
  DType gradient_type() const;
  size_t piece_bytes() const;
  int64_t buckets_together(size_t element_bytes) const;
  void enqueue_exchange(int64_t bucket);
  void enqueue_sums(int64_t bucket);
  void retire();
  void open_queue();
  void enqueue(Exchange, const std::function<std::vector<View>(int rank)>& of);
  void send_parameters(int64_t end);
  void enqueue_pieces(const char* name, Range buckets, size_t element_bytes,
                      const std::function<View(const Parameter&)>&);
  bool serve_state(Optimizer&);

  Stream& compute_;
  Communicator& ranks_;
  std::unique_ptr<Stream> queue_;
  std::shared_ptr<void> opened_;  // of the communicator, for the stream
  int stage_;
  size_t max_in_flight_;
  std::vector<Parameter*> parameters_;
  RowPieces pieces_;
  std::vector<Slice> own_;
  std::vector<size_t> first_own_;  // of each parameter, in own_; own_.size(): none

  std::vector<Tensor> sums_;      // in stage 2, of each bucket: (elements of a piece), or absent
  std::vector<bool> is_summed_;   // of own_
  std::vector<int64_t> missing_;  // of each bucket: parameters whose gradient is not final
  std::vector<int64_t> kept_;     // of each parameter: elements that are not exchanged
  int64_t next_ = 0;              // bucket
  // Elements of the own row that are updated: all up to one, and stretches after it.
  int64_t updated_to_ = 0;
  std::map<int64_t, int64_t> updated_;
  int64_t sent_ = 0;  // buckets whose parameters are sent
  std::deque<Flight> flights_;
  // What the queue's exchanges have one after another: what the others sent, (ranks, elements of a
  // piece), and the communicator's workspace.
  Tensor others_, workspace_;
  bool others_serve_ = false;
};

}  // namespace spool
