#pragma once

// Where an optimizer's state lives.
//
// The parameters that are trained are numbered in one row: the last one first, which is about the
// order in which backward completes them, each from a granule of 2048 elements on.  The state is a
// number of such rows, by name and type.  A range of the row lives in one place, with all of its
// state:
//   device    a tensor for each parameter
//   streamed  on the host, in the order of the row; the device updates it
//   cpu       on the host; the host updates it, and has its own copy of the parameters
// The row is a numbering, not a block of memory.
//
// A part of streamed state may be on the device: whole parameters, the largest first, each if it
// still fits, and of the smallest other one the first granules.  So at most one parameter is
// divided, and of what may be on the device less than a granule of each row stays unused, or less
// than one parameter.

#include <memory>
#include <vector>

#include "spool/models/optimizers/buckets.h"
#include "spool/models/optimizers/optimizer.h"

namespace spool {

// A range of the row, of one parameter.
struct PlacedRange {
  OptimizerState place = OptimizerState::device;
  size_t parameter = 0;
  Range elements = {};
};

// All ranges of the row, in its order.
std::vector<PlacedRange> places_of(const std::vector<Parameter*>&, const std::vector<StateRow>&,
                                   const OptimizerMemory&);

// Of each parameter, the number of its first elements whose state is on the device, where it takes
// at most `bytes`.
std::vector<int64_t> elements_on_device(const std::vector<int64_t>& numels,
                                        const std::vector<StateRow>&, size_t bytes);

class StateRows {
 public:
  // A range and its state.
  struct Part {
    PlacedRange range;
    std::vector<Tensor> rows = {};  // those elements of each row
    Tensor parameter = {};          // the host's own copy of them, where it updates
  };

  // If `masters`, the last row begins with the parameters' values; the others with zeros.
  StateRows(const std::vector<Parameter*>&, std::vector<StateRow>, bool masters, Stream&,
            const OptimizerMemory&);
  // Waits for all work of the host.
  ~StateRows() { wait_quietly(); }
  StateRows(const StateRows&) = delete;
  StateRows& operator=(const StateRows&) = delete;

  const std::vector<StateRow>& rows() const { return rows_; }
  bool has_masters() const { return masters_; }
  Stream& device() const { return device_; }
  // On the device, and on the host, in the order of the row.
  const std::vector<Part>& on_device() const { return on_device_; }
  const std::vector<Part>& on_host() const { return on_host_; }

  // Of the link, which there is if a part is on the host.
  HostLink& link() const { return *link_; }
  Stream& host() const { return *host_; }
  // The rows on the host, which its buckets (buckets.h) are cut from.
  const Buckets& host_buckets() const { return host_buckets_; }
  View of_host(size_t row, Range elements) const;
  // Of the host's updates; null where the device does them.
  Stream* host_updates() const { return host_updates_.get(); }

  // Sets all rows; waits for the work of device and host before.
  void initialise();
  // Of a state that nothing else works on.
  void read(const StateRange&, std::span<std::byte> out) const;
  void write(const StateRange&, std::span<const std::byte> in);

  // Waits for all work of the host, even if some of it has failed; then throws the first error.
  void synchronize() const;
  // Waits for all work of device and host, even if some of it has failed; errors are left to the
  // next call.
  void wait_quietly() const noexcept;
  // Calls enqueue().  If it throws, waits for the copies that it has begun: the memory that they
  // use is about to be freed, and the compute stream has not waited for them.
  template <class Enqueue>
  void enqueue_whole(const Enqueue& enqueue) const {
    try {
      enqueue();
    } catch (...) {
      wait_quietly();
      throw;
    }
  }

 private:
  void allocate_on_device();
  void allocate_on_host(HostLink*);
  Tensor make_on_host(DType, Name) const;
  Tensor part_of(const Tensor& on_host, size_t part) const;
  void copy_parameters() const;
  void copy_masters(const Tensor& memory, const Buckets::Bucket&) const;
  template <class Copy>
  void for_each_part(const StateRange&, const Copy&) const;

  std::vector<Parameter*> parameters_;
  std::vector<StateRow> rows_;
  bool masters_;
  Stream& device_;
  HostLink* link_ = nullptr;
  std::unique_ptr<Stream> host_, host_updates_;
  std::vector<Stream*> queues_;  // of the host's work and of the copies
  Buckets host_buckets_;
  std::vector<Tensor> host_rows_;
  std::vector<Part> on_device_, on_host_;
};

}  // namespace spool
