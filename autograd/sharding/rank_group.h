#pragma once

// The ranks of a mesh, as one of them sees them, and what those along one axis exchange.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/autograd/sharding/begun.h"
#include "spool/autograd/sharding/mesh_axes.h"
#include "spool/runtime/memory/label.h"
#include "spool/runtime/ranks/exchange_queue.h"
#include "spool/runtime/tensor.h"

namespace spool {

// Ranks along an axis whose coordinates along the others are the same.  All ranks of the mesh call
// its exchanges alike, in the same order, each group among itself.
class RankGroup {
 public:
  // `members` are ranks of the communicator, by their coordinate; one of them is this one.
  RankGroup(std::string axis, std::vector<int> members, std::shared_ptr<const ExchangeQueue>);

  int size() const { return static_cast<int>(members_.size()); }
  int coordinate() const { return coordinate_; }  // of this rank along the axis
  const std::string& axis() const { return axis_; }

  // Gives piece r of `pieces` to rank r, and takes those of the others into `theirs`, by rank; what
  // is then in the place of this rank is not said.  The compute stream waits for it.  The exchange
  // has this name, which is never freed, in traces and errors; null: what it does, and the axis.
  void all_to_all(const View& theirs, const View& pieces, Stream& compute,
                  const char* name = nullptr) const;
  // Gives `own` to the others, and takes theirs, by rank.  `own` may be its place in `all`.
  void all_gather(const View& all, const View& own, Stream& compute,
                  const char* name = nullptr) const;

  // The same, enqueued on the queue of exchanges, for which nothing waits.
  void enqueue_all_to_all(const View& theirs, const View& pieces, const char* name) const;
  void enqueue_all_gather(const View& all, const View& own, const char* name) const;
  // Gives the others several views, and takes theirs at of(r), of the same sizes on every rank.
  void enqueue_gather(const std::vector<View>& own,
                      const std::function<std::vector<View>(int rank)>& of, const char* name) const;
  const ExchangeQueue& queue() const { return *queue_; }

  // Gives the others `stored`, copies it to of(r) of this rank r, and takes what the others give at
  // theirs, of the same sizes on every rank.  The compute stream does not wait for it.  On GPUs the
  // exchange takes no multiprocessor if all ranks of the communicator are of the group.
  Begun begin_gather(const std::vector<View>& stored,
                     const std::function<std::vector<View>(int rank)>& of, Stream& compute,
                     const char* name) const;

 private:
  Exchange to_all(const View& theirs, const View& pieces, const char* name) const;
  Exchange to_gather(const View& all, const View& own, const char* name) const;
  Exchange to_gather(const std::vector<View>& own, const std::function<std::vector<View>(int)>& of,
                     Pattern, const char* name) const;
  void exchange(Exchange, Stream& compute) const;
  void enqueue(Exchange) const;
  Begun begin(Exchange, Stream& compute, const std::function<void(Stream& queue)>& before) const;

  std::string axis_;
  Name to_all_, gather_;  // of the exchanges
  std::vector<int> members_;
  int coordinate_ = 0;
  std::shared_ptr<const ExchangeQueue> queue_;
};

// The ranks of a mesh that share each micro-batch: all of a stream, or neighbours among them, where
// each such group has micro-batches of its own.
class MeshRanks {
 public:
  // Throws if the stream's ranks are not as many as the mesh's, or a multiple of them.
  MeshRanks(const MeshAxes&, Stream&);

  const MeshAxes& mesh() const { return mesh_; }
  int rank() const { return all_->coordinate(); }  // among those of the mesh
  // Of this rank, along an axis.
  int coordinate(size_t axis) const { return groups_[axis].coordinate(); }
  const RankGroup& along(size_t axis) const { return groups_[axis]; }
  const RankGroup& all() const { return *all_; }
  // The ranks that have the same place among those of their mesh.
  const RankGroup& replicas() const { return *replicas_; }
  const std::shared_ptr<const ExchangeQueue>& queue() const { return queue_; }

 private:
  MeshAxes mesh_;
  std::shared_ptr<const ExchangeQueue> queue_;
  std::vector<RankGroup> groups_;
  std::optional<RankGroup> all_, replicas_;
};

}  // namespace spool
