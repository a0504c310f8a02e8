// A mesh of ranks: along each axis, a rank belongs to a group.
#pragma once

#include <memory>

#include "common/comm/comm.h"
#include "common/comm/mesh_shape.h"

namespace ladder {

/// The groups of one rank, one for each axis. A group has the ranks whose coordinates differ only
/// in the number along that axis, in the order of that number.
class Mesh {
 public:
  /// @param world all ranks; must live longer
  Mesh(Comm& world, const MeshShape& shape) {
    for (const Axis axis : kAxes) {
      MeshCoordinate first = shape.coordinate(world.rank());
      first[axis] = 0;  // the same for all ranks of the group
      groups_[axis] = world.split(shape.rank(first), world.rank());
    }
  }
  Comm& operator[](Axis axis) const { return *groups_[axis]; }

 private:
  PerAxis<std::unique_ptr<Comm>> groups_;
};

}  // namespace ladder
