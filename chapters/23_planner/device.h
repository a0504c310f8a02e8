// A device, and the links between devices: the numbers from which times are computed.
//
// They come from a TOML file (devices/ has eight, and each number has its source there). Peaks are
// what the maker prints. `achieved` says which share of them a training program gets. These shares
// are assumptions, which the file may change:
//
//   time of a product    = operations / (peak x achieved.products)
//   time of attention    = operations / (peak x achieved.attention)
//   time of other kernels = bytes / (memory rate x achieved.memory), or bytes / cache rate for a
//                          kernel whose bytes the cache holds
//   time of a message    = bytes / (link rate x achieved.links) + latency
//   what of it counts    = all of it, less what computation beside it hides: at most the share
//                          achieved.overlap
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/input_file.h"
#include "common/number_in.h"

namespace ladder::planner {

struct Device {
  std::string name;
  double fp32 = 0, bf16 = 0, fp8 = 0;  ///< operations per second of dense products; no fp8: 0
  double memory = 0;                   ///< bytes
  double memory_rate = 0;              ///< bytes per second
  double cache = 0, cache_rate = 0;    ///< the same for a cache; 0 bytes: it is left out
  double node = 0;                     ///< how many devices the fast link joins
  double node_rate = 0,
         node_latency = 0;               ///< of that link: bytes a second one way; seconds
  double net_rate = 0, net_latency = 0;  ///< of the network, per device
  double watts = 0;                      ///< of one device at its limit
  double products = 0, attention = 0, memory_share = 0, links = 0;  ///< shares achieved
  double overlap = 0;  ///< share of a message that computation can hide
  double usable = 0;   ///< share of the memory that a program's tensors and NCCL can use
  double reserve = 0;  ///< bytes of that share for NCCL: of a question (--reserve), not of the file

  /// Operations per second at the peak of that precision. FP16 has the peak of BF16.
  double peak(std::string_view precision) const {
    return precision == "fp32" ? fp32 : precision == "fp8" ? fp8 : bf16;
  }
  /// The time of kernels that compute little: as long as the memory takes for their bytes.
  double memory_seconds(double bytes) const { return bytes / (memory_rate * memory_share); }
  /// The same for one call. The call before may have left its operands in the cache.
  double call_seconds(double bytes) const {
    return bytes <= cache ? bytes / cache_rate : memory_seconds(bytes);
  }
  /// How much a message adds to `beside` seconds of computation.
  double exposed(double message, double beside) const {
    return message - std::min(overlap * message, beside);
  }
  /// How many bytes a plan may take.
  int64_t room() const { return static_cast<int64_t>(std::max(0.0, memory * usable - reserve)); }
};

/// A number of the file: its name there, and its place here.
struct DeviceField {
  std::string_view name;  ///< "peak.bf16"
  double Device::*value;
  double unit;         ///< 1e12 for TFLOP/s
  double least, most;  ///< legal values in the file
};

inline constexpr double kAnyNumber = 1e12;
inline constexpr std::array kDeviceFields = {
    DeviceField{"peak.fp32", &Device::fp32, 1e12, 1e-9, kAnyNumber},
    DeviceField{"peak.bf16", &Device::bf16, 1e12, 1e-9, kAnyNumber},
    DeviceField{"peak.fp8", &Device::fp8, 1e12, 0, kAnyNumber},
    DeviceField{"memory.gigabytes", &Device::memory, 1e9, 1e-6, kAnyNumber},
    DeviceField{"memory.gigabytes_per_second", &Device::memory_rate, 1e9, 1e-6, kAnyNumber},
    DeviceField{"cache.megabytes", &Device::cache, 1e6, 0, kAnyNumber},
    DeviceField{"cache.gigabytes_per_second", &Device::cache_rate, 1e9, 1e-6, kAnyNumber},
    DeviceField{"node.devices", &Device::node, 1, 1, 1 << 20},
    DeviceField{"node.gigabytes_per_second", &Device::node_rate, 1e9, 1e-6, kAnyNumber},
    DeviceField{"node.microseconds", &Device::node_latency, 1e-6, 0, kAnyNumber},
    DeviceField{"network.gigabytes_per_second", &Device::net_rate, 1e9, 1e-6, kAnyNumber},
    DeviceField{"network.microseconds", &Device::net_latency, 1e-6, 0, kAnyNumber},
    DeviceField{"power.watts", &Device::watts, 1, 0, kAnyNumber},
    DeviceField{"achieved.products", &Device::products, 1, 1e-6, 1},
    DeviceField{"achieved.attention", &Device::attention, 1, 1e-6, 1},
    DeviceField{"achieved.memory", &Device::memory_share, 1, 1e-6, 1},
    DeviceField{"achieved.links", &Device::links, 1, 1e-6, 1},
    DeviceField{"achieved.overlap", &Device::overlap, 1, 0, 1},
    DeviceField{"achieved.usable", &Device::usable, 1, 1e-6, 1},
};

/// `text` without the white space around it.
inline std::string bare(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// The number in `value`, if field `field` of `file` may have it. @throws UserError
inline double device_number(const std::string& file, const DeviceField& field,
                            const std::string& value) {
  const auto number = number_in<double>(value);
  if (!number || !(*number >= field.least && *number <= field.most))
    throw UserError("--device {}: {} is {}; legal are numbers from {} to {}", file, field.name,
                    value, field.least, field.most);
  return *number * field.unit;
}

/// @throws UserError that names the line or the field that is wrong, and what is legal
inline Device parse_device(const std::string& file, const std::string& text) {
  Device device;
  std::vector<std::string_view> missing;
  for (const DeviceField& field : kDeviceFields) missing.push_back(field.name);
  std::istringstream lines(text);
  // The parts of TOML that a device needs: [section], key = 1.5, key = "text", # a comment.
  for (std::string line, section; std::getline(lines, line);) {
    line = bare(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2) + ".";
      continue;
    }
    const size_t equals = std::min(line.find('='), line.size() - 1);
    const std::string name = section + bare(line.substr(0, equals)),
                      value = bare(line.substr(equals + 1));
    if (name == "name" && value.size() > 2 && value.front() == '"' && value.back() == '"') {
      device.name = value.substr(1, value.size() - 2);
      continue;
    }
    const auto* const field = std::ranges::find(kDeviceFields, name, &DeviceField::name);
    if (field == kDeviceFields.end() || std::erase(missing, field->name) == 0)
      throw UserError("--device {}: {} is no field, or there twice; each of these once: name, {}",
                      file, name, fmt::join(missing, ", "));
    device.*field->value = device_number(file, *field, value);
  }
  if (device.name.empty())
    throw UserError("--device {}: no name; legal is a first line name = \"...\"", file);
  if (!missing.empty())
    throw UserError("--device {}: no {}; legal are files that have each field once", file,
                    fmt::join(missing, ", "));
  return device;
}

/// The devices of a folder, by the names of their files.
inline std::vector<std::string> device_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& file : names_in(folder))
    if (file.ends_with(".toml")) names.push_back(file.substr(0, file.size() - 5));
  return names;
}

/// @param device one of `folder`, or a file: FILE.toml
/// @throws UserError as parse_device() does; or one that names the devices of the folder
inline Device read_device(const std::string& folder, const std::string& device) {
  constexpr int64_t kMost = 1 << 16;
  if (device.ends_with(".toml"))
    return parse_device(device, read_small_file(device, kMost, "--device"));
  const std::vector<std::string> names = device_names(folder);
  if (std::ranges::find(names, device) == names.end())
    throw UserError("--device {}: legal are {}, or a file whose name ends in .toml", device,
                    fmt::join(names, ", "));
  return parse_device(device, read_small_file(folder + "/" + device + ".toml", kMost, "--device"));
}

// ---- links --------------------------------------------------------------------------------------

/// The link through which a rank of a group sends.
struct Link {
  double rate;     ///< bytes per second that one rank sends
  double latency;  ///< seconds per message

  double seconds(double bytes, double messages) const { return bytes / rate + messages * latency; }
};

/// The link of a group of `ranks` ranks that are `stride` apart. If the group is in one node, it is
/// the fast link. Otherwise the network carries what the group sends: as many network cards of a
/// node as the group has ranks there. The fast link brings it to the right card.
inline Link link_of(const Device& device, int64_t stride, int64_t ranks) {
  const auto node = static_cast<int64_t>(device.node);
  const int64_t here = std::clamp<int64_t>(node / stride, 1, ranks);
  const double fast = device.node_rate * device.links;
  if (here == ranks && stride * ranks <= node) return {fast, device.node_latency};
  const double cards = static_cast<double>(here) * device.net_rate * device.links;
  return {std::min(fast, cards), device.net_latency};
}

/// How many messages wait for one another in an all-reduce by halving and doubling (chapter 07). A
/// reduce-scatter or an all-gather has half of them.
inline double messages_of_all_reduce(int64_t ranks) {
  return 2.0 * std::bit_width(static_cast<uint64_t>(ranks) - 1);
}

}  // namespace ladder::planner
