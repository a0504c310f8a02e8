// Puts together what ranks hold in shards, for files that do not depend on the number of ranks.
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

/// Calls use(s, section) on rank 0 for each section s of the whole, in order. The section is in
/// host memory and has no padding. All ranks call gather_sections.
/// @param comm the ranks that hold the shards; null: there is only this rank
void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, const Flat& flat,
                     const std::function<void(int64_t s, Tensor section)>& use);

/// Reads bytes, from `begin` on, of a tensor that lies elsewhere, such as in a file.
using ReadBytes = std::function<void(int64_t begin, std::span<std::byte> out)>;

/// flat = the part of the whole that the shard `layout` has. The whole is laid out as
/// gather_sections() gives it, and is read one section at a time. Padding becomes zero.
void take_shard(const Ctx& ctx, const ParamLayout& layout, const Flat& flat,
                const ReadBytes& whole);

}  // namespace ladder
