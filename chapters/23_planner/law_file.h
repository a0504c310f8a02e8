// A law of loss that was fitted to runs of one's own, as chapter 34's study.py writes it.
#pragma once

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "chapters/23_planner/scaling_law.h"
#include "common/error.h"
#include "common/json.h"

namespace ladder::planner {

/// @throws UserError if the file is not an object with the five numbers of a law
inline LossLaw read_law(const std::string& path) {
  const nlohmann::json file = read_json(path);
  LossLaw law{};
  for (const auto& [name, value] : {std::pair{"E", &law.E},
                                    {"A", &law.A},
                                    {"alpha", &law.alpha},
                                    {"B", &law.B},
                                    {"beta", &law.beta}}) {
    if (file.is_object() && file.contains(name) && file[name].is_number())
      *value = file[name].get<double>();
    if (!(*value > 0 && *value < 1e30))
      throw UserError("{}: a law has E, A, alpha, B and beta above 0; {} is not", path, name);
  }
  return law;
}

}  // namespace ladder::planner
