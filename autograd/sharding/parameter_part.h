#pragma once

// What a rank has of a parameter of its model.  Elements are counted in the whole parameter, by
// which initial values are drawn and files are read and written.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "spool/autograd/sharding/flat_parts.h"
#include "spool/autograd/sharding/sharding.h"
#include "spool/runtime/tensor.h"

namespace spool {

class ParameterPart {
 public:
  // Neighbouring elements of the whole that the rank has, in rising order; in its own part they
  // follow one another.
  struct Stretches {
    Range own = {};
    std::vector<Range> whole = {};
  };
  using ReadOthers = std::function<void(Range whole, std::span<std::byte> out)>;

  // What the rank has along the mesh's axes is divided further, in flat parts: of so many replicas,
  // which is this one?
  struct Flat {
    FlatParts parts;
    int replica = 0;
  };

  // `rank` is one of the mesh's.
  ParameterPart(WholeValue, const Sharding& stored, MeshAxes, int rank,
                std::optional<Flat> flat = {});

  const Spec& whole() const { return value_.spec; }
  const Sharding& stored() const { return stored_; }
  const std::optional<Flat>& flat() const { return flat_; }
  // Whether the rank lacks any of it.
  bool is_cut() const { return flat_ || gathered_.shape.numel() < whole().shape.numel(); }
  // What it has once replicas have gathered it, and what it stores.
  const Spec& gathered() const { return gathered_; }
  Spec own() const { return flat_ ? Spec{{flat_->parts.stored()}, gathered_.dtype} : gathered_; }
  Stretches stretches(Range whole) const;

  // Draws the initial values of what the rank stores, `own`, of the parameter of this number
  // (kernels/normal.h): those of the whole, which is drawn in pieces.
  void draw(const Tensor& own, float deviation, uint64_t seed, uint32_t number) const;
  // Copies what the rank has of a piece of the whole, whose elements are these.
  void copy_from(const View& piece, Range whole, const View& part, Stream&) const;
  // The same on the host, of elements of so many bytes.
  std::vector<std::byte> pick(Range whole, std::span<const std::byte>, size_t element_bytes) const;

  // Which of the different parts it is, and whether it is the first of those ranks that have it.
  int number() const { return number_; }
  bool is_first() const { return is_first_; }
  // What the rank has once it is gathered; and that of another rank of the mesh, of a replica that
  // stores it in flat parts if one is given.
  ParameterPart gathered_part() const;
  ParameterPart of_rank(int rank, std::optional<int> replica = {}) const;
  // Where it stores the first of some elements of gathered(), which are in one piece of it.
  int64_t place_of(Range gathered) const;

  // Reads elements of all ranks, while they answer.
  void read_whole(Range whole, std::span<std::byte> out) const;
  void set_reader(ReadOthers reader) { reader_ = std::move(reader); }

 private:
  struct Dimension {
    int64_t extent = 1;           // of the whole
    std::vector<Range> has = {};  // of which the rank has these
    int64_t inner = 1;            // elements of the whole behind one place
    int64_t own_inner = 1;        // elements of the part behind one place
  };
  struct Walk;

  std::vector<int> coordinates_of(int rank) const;
  void add_dimensions(const std::vector<int>& coordinates);
  int64_t number_along(int dimension, const std::vector<int>& coordinates) const;
  void walk(size_t dimension, Walk&, int64_t whole, int64_t own) const;
  Stretches in_flat_part(const Stretches& gathered) const;

  WholeValue value_;
  Sharding stored_;
  MeshAxes mesh_;
  Spec gathered_;
  std::optional<Flat> flat_;
  std::vector<Dimension> dimensions_ = {};
  int number_ = 0;
  bool is_first_ = true;
  ReadOthers reader_ = {};
};

}  // namespace spool
