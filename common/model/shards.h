// What ranks hold in shards, as one: for files that do not depend on how many ranks wrote them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// Elements of the whole of a flat tensor, without the padding of shards. A flat tensor has one
/// element for each of the layout, or for each so many (the scales of 8-bit states).
int64_t whole_elements(const ParamLayout& layout, const Flat& flat);

/// Calls use(s, section) with section s of the whole, without padding, in host memory: on rank 0,
/// for one section after the other. All ranks call it.
/// @param comm whose ranks hold the shards; null: this rank is alone
void gather_sections(const Ctx& ctx, Comm* comm, const ParamLayout& layout, const Flat& flat,
                     const std::function<void(int64_t s, Tensor section)>& use);

/// Reads bytes from `begin` on of a tensor that lies somewhere else, as in a file.
using ReadBytes = std::function<void(int64_t begin, std::span<std::byte> out)>;

/// flat = what the shard `layout` has of the whole, which lies as gather_sections() shows it and is
/// read section by section. Padding becomes zero.
void take_shard(const Ctx& ctx, const ParamLayout& layout, const Flat& flat,
                const ReadBytes& whole);

}  // namespace ladder
