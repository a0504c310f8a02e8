// What the page says of each number of a plan: its formula, and the file that it comes from.
#pragma once

#include <array>
#include <string_view>

namespace ladder::planner {

struct Explanation {
  std::string_view name, formula, where;
};

inline constexpr std::array kExplanations = {
    Explanation{"Param", "bytes of a weight x elements of the stage (3: of the shard)",
                "common/model/layout.h, size() of ParamLayout; chapter 05"},
    Explanation{"Master", "4 x elements (ZeRO 1 and more: of the shard), for 16-bit weights",
                "chapters/05_mixed_precision/precision.h; chapter 08"},
    Explanation{"Grad", "bytes of a gradient x elements (ZeRO 2 and more: of the shard)",
                "chapters/23_planner/usual_memory.h; chapter 09"},
    Explanation{"Optim", "8 x elements (ZeRO 1 and more: of the shard): both moments of AdamW",
                "chapters/02_adamw/adamw.h; chapter 08"},
    Explanation{"Activation",
                "micro-batches in flight x what a block keeps of a token x tokens, logits on the "
                "last stage",
                "common/model/activations.h, activation_bytes(); chapters 06, 11 and 12"},
    Explanation{"Workspace", "gradients of the activations of one block; buffers of ZeRO 2 and 3",
                "common/model/activations.h, act_grad_bytes(); chapters 09 and 10"},
    Explanation{"Comm", "what arrives from other ranks while one computes",
                "chapters/23_planner/usual_memory.h, buffer_bytes()"},
    Explanation{"products", "m x 3 x 2 x tokens x blocks x elements of the matrices / tp / rate",
                "chapters/23_planner/stage_time.h; block_matrices() of common/model/config.h"},
    Explanation{"head", "m x 3 x 2 x tokens x C x padded V / tp / rate of 16-bit or FP32 products",
                "chapters/23_planner/stage_time.h"},
    Explanation{"attention",
                "m x blocks x sequences x NH x T (T + 1) / 2 x (14 HS + 11) / (tp cp) / rate",
                "kernels/cost.h, attention_forward() and attention_backward()"},
    Explanation{"kernels",
                "m x bytes of norms, residuals, activations, RoPE / rate of memory or cache",
                "kernels/cost.h; chapters/23_planner/stage_time.h"},
    Explanation{"recomputation", "m x (blocks again x a block's forward + parts again)",
                "chapters/06_checkpointing/recompute.h"},
    Explanation{"tensor", "m x (4 to 5 all-reduces a block) x (bytes / link rate + latency)",
                "chapters/11_tensor_parallel/traffic.h, tp_traffic()"},
    Explanation{"experts", "m x blocks x 4 all-to-alls of k tokens x C x (ep - 1) / ep",
                "chapters/23_planner/stage_time.h, add_experts()"},
    Explanation{"context", "m x blocks x what attention does not hide of the ring",
                "chapters/23_planner/stage_time.h, add_context()"},
    Explanation{"messages",
                "m x (outputs + inputs of the stage's parts) x (bytes / link rate + "
                "latency)",
                "chapters/12_pipeline_parallel/stage_layout.h, message()"},
    Explanation{"bubble", "end of all stages on the clock - m (F + I + W) of the slowest stage",
                "chapters/12_pipeline_parallel/proof/pipeline_clock.h, simulate()"},
    Explanation{
        "data",
        "what the last backward does not hide of the reduce-scatter + what the first "
        "forward does not hide of the all-gather; ZeRO 2 and 3: of each micro-batch; replicas: "
        "+ an all-reduce of the shard",
        "chapters/09_zero2/zero2.h, 10_zero3/zero3.h and 30_hsdp/hsdp.h"},
    Explanation{"update",
                "(28 + 4, with 16-bit weights + 6) bytes x elements of the shard / memory rate",
                "kernels/cost.h, adamw_update() and squared_norm()"},
    Explanation{"step_seconds", "the sum of the terms above", "chapters/23_planner/step_time.h"},
    Explanation{"mfu", "(6 (L M + C V) + 12 L C T) x tokens a second / (devices x peak)",
                "chapters/23_planner/flops.h; arXiv 2204.02311, appendix B"},
    Explanation{"hfu", "the same with operations that recomputation does again",
                "chapters/23_planner/flops.h; arXiv 2205.05198"},
    Explanation{"days", "tokens / (tokens a second x 86,400)", "chapters/23_planner/run_cost.h"},
    Explanation{"interval", "sqrt(2 x seconds of a checkpoint x seconds between failures)",
                "chapters/23_planner/run_cost.h"},
};

}  // namespace ladder::planner
