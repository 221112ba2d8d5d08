#pragma once

// A list indexed by the ids of what it holds: the node with NodeId 7 is nodes[7].  It is a vector
// whose index has the ids' type, which is signed, so that no index needs a cast.

#include <cstddef>
#include <utility>
#include <vector>

namespace spool {

template <class Id, class T>
class IdTable : public std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  IdTable() = default;
  IdTable(Base all) : Base(std::move(all)) {}

  typename Base::reference operator[](Id id) { return Base::operator[](static_cast<size_t>(id)); }
  typename Base::const_reference operator[](Id id) const {
    return Base::operator[](static_cast<size_t>(id));
  }

  // The id of the next item to be added.
  Id next_id() const { return static_cast<Id>(Base::size()); }
  bool contains(Id id) const { return id >= 0 && static_cast<size_t>(id) < Base::size(); }
  T value_or(Id id, T otherwise) const { return contains(id) ? (*this)[id] : otherwise; }

  Id add(T item) {
    Base::push_back(std::move(item));
    return next_id() - 1;
  }
};

}  // namespace spool
