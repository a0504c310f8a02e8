// Parameters as the Hugging Face GPT-2 model stores them.
//
// Three things differ from ours. Its linear layers are Conv1D: weights lie transposed, (in, out).
// Its c_attn has all q, then all k, then all v, where ours goes head by head. And it has no rows
// of padding.
#pragma once

#include "common/model/layout.h"

namespace ladder {

/// Shape in the file.
Shape hf_shape(const ParamSpec& spec);

/// hf = ours, in the layout of the file. hf F32 hf_shape(spec); ours F32 spec.shape
void to_hf(Tensor hf, Tensor ours, const ParamSpec& spec, int64_t heads);

/// ours = hf. Rows of padding are not touched.
void from_hf(Tensor ours, Tensor hf, const ParamSpec& spec, int64_t heads);

}  // namespace ladder
