// Public: one of the headers of docs/public-headers.md.
#pragma once

// Copies saved tensors off the device after they are computed, and back before backward reads them,
// while the device computes (vDNN, Rhu et al. 2016; swapping with a tape's knowledge of the order,
// Peng et al. 2020, "Capuchin").
//
// A tensor's device memory is freed at a fixed node of the tape, its release, where the compute
// stream waits for the copy out.  At another node, its fetch, device memory is allocated and the
// copy back begins; a read makes the compute stream wait for that copy.  So everything is ordered
// by positions on the compute stream: the peak does not depend on any speed, a rehearsal sees it,
// and the host does not wait, except for a file.  A tensor that is read before its release never
// leaves the device.
//
// The plan says where a tensor is released and fetched.  If it does not, a tensor is released when
// the second one after it is offloaded, and fetched when the next one after it is first read in
// backward.
//
// One tape at a time.  Tensors pass through host memory on their way to a file.  If the file cannot
// be written, the tape throws, in forward or at the end of backward; the host waits there, so that
// wrong gradients are never used.

#include <deque>
#include <map>
#include <string>

#include "spool/autograd/plan.h"
#include "spool/autograd/saved_tensor.h"
#include "spool/runtime/memory/host_link.h"

namespace spool {

class SpillFile;  // runtime/files/spill_file.h

class Offloader {
 public:
  // Offloads to the host, into slots of the link.
  explicit Offloader(HostLink& link);
  // Offloads also to an unnamed file of this size in the directory.  Throws if the disk has no
  // room for it.
  Offloader(HostLink& link, const std::string& directory, size_t bytes);
  ~Offloader();
  Offloader(const Offloader&) = delete;
  Offloader& operator=(const Offloader&) = delete;

  // Starts copying the tensor out.  The caller may keep its own handle.  Tensors that share memory
  // are copied once.  Throws if host memory or file is full, which a rehearsal foretells.
  std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&, const Offload&);

  // Called by the tape: before a node runs in forward, before backward, with the number of nodes,
  // before a node's backward, and after backward.
  void before_forward(NodeId);
  void begin_backward(NodeId nodes);
  void before_backward(NodeId);
  void end_backward();

  // Tensors copied out so far, and copied back.
  struct Traffic {
    int64_t tensors = 0, bytes = 0;
  };
  const Traffic& offloaded() const { return offloaded_; }
  const Traffic& returned() const { return returned_; }

  // Bytes of the file in use, in whole pages.
  const MemoryStats& disk() const { return disk_.stats(); }

 private:
  class Transfer;
  class Handle;
  friend class Transfer;

  // Where a tensor is: tensors at the same place share memory.
  struct Place {
    std::weak_ptr<const void> memory;
    const std::byte* address;
    explicit Place(const Tensor& t) : memory(t.memory_identity()), address(t.view().data()) {}
    bool operator<(const Place& other) const;
  };
  // By node, and by number at the same node.
  using Schedule = std::map<std::pair<NodeId, uint64_t>, Transfer*>;

  static std::shared_ptr<SpillFile> make_file(HostLink&, const std::string& directory,
                                              size_t bytes);
  std::shared_ptr<Transfer> find(const Tensor&, const Offload&) const;
  void release_up_to(NodeId);
  void limit_unreleased(Transfer* latest);
  void fetch_before(uint64_t number);

  HostLink& link_;
  std::shared_ptr<SpillFile> file_;  // shared with queued work
  bool has_disk_ = false, used_disk_ = false;
  Arena disk_;
  uint64_t next_number_ = 0, tape_ = 0;
  Traffic offloaded_, returned_;
  std::map<uint64_t, Transfer*> transfers_;  // by number: in the order they were offloaded
  std::multimap<Place, Transfer*> places_;   // in the same order at each place
  std::deque<Transfer*> unreleased_;         // without a planned release, and not released
  Schedule releases_, fetches_;              // at the nodes that the plan says
};

}  // namespace spool
