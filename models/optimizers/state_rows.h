#pragma once

// The rows of an optimizer's state, and where each element of them lives.
//
// The elements of all trained parameters are numbered: the last parameter first, which is about the
// order in which backward completes them, each from a granule of 2048 elements on.  A row of state,
// such as AdamW's m, has one number per element; the row of parameters is the numbering itself, not
// a block of memory.  A range of it lives in one place, with all rows of its state:
//   device    a tensor for each parameter
//   streamed  on the host, in the order of the row; the device updates it
//   cpu       on the host; the host updates it, and has its own copy of the parameters
//
// If only a part of the row is updated here (own_row.h), its rows of state are as long as that own
// row, padding included.
//
// A part of streamed state may be on the device: of an own row its first granules; else whole
// parameters, each if it still fits, from the largest on, and the first granules of the smallest
// other one.  So at most one parameter is divided, and less than a granule of each row, or less
// than one parameter, of the allowed bytes stays unused.

#include <memory>
#include <vector>

#include "spool/models/optimizers/buckets.h"
#include "spool/models/optimizers/optimizer.h"
#include "spool/models/optimizers/own_row.h"

namespace spool {

// A range of the row of parameters, within one parameter.
struct PlacedRange {
  OptimizerState place = OptimizerState::device;
  size_t parameter = 0;
  Range elements = {};
  int64_t at = 0;  // in the own row, if there is one
};

// Where the state of each range of the row is; the ranges in the order of the row.
std::vector<PlacedRange> places_of(const std::vector<Parameter*>&, const std::vector<StateRow>&,
                                   const OptimizerMemory&);

// For each parameter, how many of its first elements have their state on the device, where it may
// take at most `bytes`.
std::vector<int64_t> elements_on_device(const std::vector<int64_t>& numels,
                                        const std::vector<StateRow>&, size_t bytes);

// How many elements of an own row have their state on the device: its first ones.
int64_t own_elements_on_device(const OwnRow&, const std::vector<StateRow>&, const OptimizerMemory&);

class StateRows {
 public:
  // A range and its state.
  struct Part {
    PlacedRange range;
    std::vector<Tensor> rows = {};  // these elements of each row
    Tensor parameter = {};          // the host's own copy of them, if the host updates
  };

  // With `masters`, the last row begins as the parameters' values; all other rows as zeros.
  StateRows(const std::vector<Parameter*>&, std::vector<StateRow>, bool masters, Stream&,
            const OptimizerMemory&);
  // Waits for all work on the host.
  ~StateRows() { wait_quietly(); }
  StateRows(const StateRows&) = delete;
  StateRows& operator=(const StateRows&) = delete;

  const std::vector<StateRow>& rows() const { return rows_; }
  bool has_masters() const { return masters_; }
  Stream& device() const { return device_; }
  OwnRow* own() const { return own_; }
  // The parts on the device, and those on the host, in the order of the row.
  const std::vector<Part>& on_device() const { return on_device_; }
  const std::vector<Part>& on_host() const { return on_host_; }

  // The link to the host, and its stream; there must be a part on the host.
  HostLink& link() const { return *link_; }
  Stream& host() const { return *host_; }
  // The buckets (buckets.h) of the rows on the host.
  const Buckets& host_buckets() const { return host_buckets_; }
  // Those of the state on the device: one if nothing is on the host and all parameters are updated.
  Buckets device_buckets() const;
  View of_host(size_t row, Range elements) const;
  // The stream of the host's updates; null if the device does them.
  Stream* host_updates() const { return host_updates_.get(); }

  // Sets all rows, after waiting for the work of device and host.
  void initialise();
  // Nothing else may be working on the state.
  void read(const StateRange&, std::span<std::byte> out) const;
  void write(const StateRange&, std::span<const std::byte> in);

  // Waits for all work on the host, even if some of it has failed; then throws the first error.
  void synchronize() const;
  // Waits for all work of device and host, even if some of it has failed; leaves errors to the next
  // call.
  void wait_quietly() const noexcept;
  // Calls enqueue().  If it throws, waits for the copies that it has begun: their memory is about
  // to be freed, and the compute stream has not waited for them.
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
  void allocate_own_on_device();
  void allocate_on_host(HostLink*, OptimizerState place);
  Tensor make_on_host(DType, Name) const;
  Tensor part_of(const Tensor& on_host, size_t part) const;
  void copy_parameters() const;
  void make_masters_on_host() const;
  void copy_masters(const Tensor& memory, const Buckets::Bucket&) const;
  template <class Copy>
  void for_each_part(const StateRange&, const Copy&) const;

  std::vector<Parameter*> parameters_;
  std::vector<StateRow> rows_;
  bool masters_;
  Stream& device_;
  OwnRow* own_;
  int64_t bucket_elements_;  // of the state on the host; 0: as usual
  int64_t own_here_ = 0;     // elements of the own row whose state is on the device
  HostLink* link_ = nullptr;
  std::unique_ptr<Stream> host_, host_updates_;
  std::vector<Stream*> queues_;  // of the host's work and of the copies
  Buckets host_buckets_;
  std::vector<Tensor> host_rows_, own_rows_;
  std::vector<Part> on_device_, on_host_;
};

}  // namespace spool
