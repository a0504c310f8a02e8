// A flat buffer seen as a model: parameters or their gradients, part by part.
#pragma once

#include <vector>

#include "kernels/tensor.h"

namespace ladder {

/// The parameters of a linear layer (w (N,K), b (N)) or of a norm (w, b (C)). A null one does not
/// exist.
struct Affine {
  Tensor w, b;
};
/// The embeddings of tokens and of positions.
struct EmbedTensors {
  Tensor wte, wpe;    ///< (Vp,C), (positions,C)
  bool tied = false;  ///< wte is the head's matrix, too: GptTensors::head_w
};
/// The parameters of attention.
struct AttnTensors {
  Affine qkv;     ///< ((NH+2*NKV)*HS,C), ((NH+2*NKV)*HS)
  Tensor proj_w;  ///< (C,C); its bias is added by the residual
};
/// The parameters of the MLP.
struct MlpTensors {
  Affine fc;      ///< (F,C), (F); with SwiGLU (2F,C), (2F): gate and up alternate
  Tensor proj_w;  ///< (C,F); its bias is added by the residual
};
/// The parameters of experts and their router. A checkpoint has separate tensors for each expert;
/// here the experts lie one after the other.
struct ExpertTensors {
  Tensor router;  ///< (E,C)
  Tensor fc;      ///< (E,2F,C), gate and up alternate
  Tensor proj_w;  ///< (E,C,F)
};
/// The parameters of an adapter (chapter 36): a linear layer w (N,K) becomes w + s b a.
struct Adapter {
  Tensor a, b;  ///< (S r,K), (N,S r): S is how many layers of Hugging Face's are one here
};
/// The adapters of a block.
struct BlockAdapters {
  Adapter qkv, proj, fc, mlp_proj;
};
/// The parameters of a block.
struct BlockTensors {
  Affine norm1;
  AttnTensors attn;
  Tensor residual1_b;  ///< (C)
  Affine norm2;
  MlpTensors mlp;
  ExpertTensors experts;
  Tensor residual2_b;  ///< (C)
  BlockAdapters adapters;
};
/// The whole model.
struct GptTensors {
  EmbedTensors embed;
  std::vector<BlockTensors> blocks;
  Affine norm;    ///< the last norm
  Tensor head_w;  ///< (Vp,C)
};

}  // namespace ladder
