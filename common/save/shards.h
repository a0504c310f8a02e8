// Where the elements of a rank's shard belong in the whole, for files that do not depend on the
// number of ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// How many elements a whole flat tensor has, without the padding of shards. A flat tensor has one
/// element per parameter, or one per several parameters (the scales of 8-bit states).
int64_t whole_elements(const ParamLayout& layout, const Flat& flat);

/// How many ranks split the model as `layout` says. Where a run has more, rank r holds the same as
/// rank r % ranks_of().
int64_t ranks_of(const ParamLayout& layout);

/// Calls use(begin, run) for runs of elements that are neighbors here and, from element `begin` on,
/// in the whole tensor, which has no padding of shards. Of the ranks that split the model, exactly
/// one has each element that is no padding.
/// @param flat in host memory, of one element per parameter or per several
void for_flat_runs(const ParamLayout& layout, const Flat& flat,
                   const std::function<void(int64_t begin, Tensor run)>& use);

/// Calls use(s, section) on rank 0 for each section s of the whole, in order, in host memory. The
/// padding of shards is left out; other padding is zero. All ranks call it.
/// @param comm the ranks that split the model; null: there is only this rank
void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, const Flat& flat,
                     const std::function<void(int64_t s, Tensor section)>& use);

/// Reads bytes, from `begin` on, of a tensor that lies elsewhere, such as in a file.
using ReadBytes = std::function<void(int64_t begin, std::span<std::byte> out)>;

/// flat = the part of the whole that the shard `layout` has. The whole is laid out as
/// for_flat_runs() says, and is read one section at a time. Padding becomes zero.
void take_shard(const Ctx& ctx, const ParamLayout& layout, const Flat& flat,
                const ReadBytes& whole);

}  // namespace ladder
