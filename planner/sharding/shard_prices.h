#pragma once

// What each op of a program costs under each strategy, and what it costs to bring values to where
// they are read.  An op costs what a part of it takes that is rehearsed alone, forward and
// backward, and what it joins; a conversion what its moves cost by the links.  Equal ops share one
// table, so a model of many equal layers needs few rehearsals.
//
// Prices are whole picoseconds: sums are exact, and equal on all ranks whatever their order.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "spool/autograd/sharding/shard_program.h"
#include "spool/planner/sharding/mesh_machine.h"

namespace spool {

struct ShardPrice {
  int64_t picoseconds = 0, bytes = 0;

  ShardPrice& operator+=(const ShardPrice& p) {
    picoseconds += p.picoseconds, bytes += p.bytes;
    return *this;
  }
  // With as many seconds for each byte.
  int64_t weighed(double seconds_per_byte) const;
};

// Values that an op reads, each once, and the positions of the inputs that are it.
struct ReadValue {
  ValueId value = -1;
  std::vector<size_t> inputs = {};
};

class ShardPrices {
 public:
  // All outlive it.  `shares_tables`: whether equal ops have one table, which changes no price.
  ShardPrices(const Program&, const MeshAxes&, const MeshMachine&, bool shares_tables = true);

  const Program& program() const { return program_; }
  const MeshAxes& mesh() const { return mesh_; }
  const std::vector<Link>& links() const { return machine_.links; }
  const std::vector<WholeValue>& values() const { return values_; }
  const WholeValue& whole(ValueId v) const { return values_[static_cast<size_t>(v)]; }
  NodeId nodes() const { return program_.nodes.next_id(); }

  // Equal ops are of one kind: their ways, prices and conversions are the same.
  size_t kind(NodeId n) const { return kind_of_[static_cast<size_t>(n)]; }
  // All strategies of an op, and those that are refused; the first is idle, and all are along axes
  // of one rank.
  const std::vector<StrategyOrReason>& ways(NodeId n) const { return kinds_[kind(n)].ways; }
  const Strategy& way(NodeId n, size_t w) const { return *ways(n)[w].strategy; }

  // The op alone, forward and backward; bytes of what it is the first to save.
  ShardPrice of_op(NodeId, size_t way);
  std::vector<ReadValue> reads(NodeId) const;
  // Whether it is an input that some op changes, so that it is read where it is.
  bool is_written(ValueId v) const { return written_.contains(v); }
  // By a way of an op that reads it: whole instead of shared if it has no gradient.  In the order
  // of the inputs, each once.
  std::vector<Sharding> wanted(NodeId, const ReadValue&, size_t way) const;
  // To bring a value that some op has made, or an input, to all of these; none: no moves lead
  // there.
  std::optional<ShardPrice> of_reading(ValueId, const Sharding& from,
                                       const std::vector<Sharding>& wanted);
  // The same for a parameter that is stored so; a copy that moves make is memory, too.
  std::optional<ShardPrice> of_reading_stored(ValueId, const Sharding& stored,
                                              const std::vector<Sharding>& wanted);
  // 16 bytes for each element that a rank stores, of a parameter that is trained: with its gradient
  // and the optimizer's state.  The gradient of what is shared is summed, which takes time, or none
  // if backward hides it.  Of all else its bytes.
  ShardPrice of_storing(ValueId, const Sharding& stored);
  void hide_sums(bool hides) { hides_sums_ = hides; }
  // How a parameter may be stored for an op that wants it so: as it is read; or in parts along axes
  // that share it, if it is large (its exchange would be all waiting otherwise).
  std::vector<Sharding> storages(ValueId, const Sharding& wanted) const;
  static constexpr int64_t smallest_in_parts = 65536;  // elements

  // An op's output that no op reads is a result: it is whole at the end.
  bool is_result(ValueId v) const;
  ShardPrice of_result(ValueId, const Sharding& made);

  // Of a whole assignment, with the storage of each parameter in `given`; none: some value cannot
  // be brought to where it is read.
  struct Total {
    ShardPrice price = {};
    int64_t weighed = 0;
  };
  std::optional<Total> of(const Assignment&, double seconds_per_byte);

 private:
  struct Kind {
    NodeId node = -1;  // the first
    WholeOp op = {};
    std::vector<StrategyOrReason> ways = {};
    std::vector<std::optional<ShardPrice>> prices = {};  // by way
  };
  // Values of one kind have the same shape, type and parts.
  void find_values();
  std::string key_of(NodeId) const;
  void find_ops();
  void keep_ways_of_axes_of_one_rank_idle(Kind&) const;
  bool saves_first(NodeId, ValueId) const;
  const Conversions& conversions(ValueId, const Sharding& from);
  int64_t bytes_of(ValueId, const Sharding&) const;

  const Program& program_;
  const MeshAxes& mesh_;
  const MeshMachine& machine_;
  MovePrice both_ways_, forward_;
  bool shares_tables_, hides_sums_ = false;
  std::vector<WholeValue> values_;
  std::vector<size_t> kind_of_value_ = {}, kind_of_ = {};
  std::vector<bool> is_read_ = {};
  std::set<ValueId> written_;
  std::map<ValueId, NodeId> first_to_save_ = {};
  std::vector<Kind> kinds_ = {};
  std::map<std::tuple<size_t, bool, Sharding>, Conversions> conversions_ = {};
};

}  // namespace spool
