#pragma once
// Every plugin that was built, made with options that are small enough for a test.

#include <memory>
#include <string>
#include <vector>

#include "zerolab/model.h"
#include "zerolab/optimizer.h"

#include "built_plugins.h"

/// Defaults, except what is required or too large for a test.
zerolab::OptionValues small_options(const std::string& id);

/// Calls body(name, make) for each plugin of an interface's kind; make() gives a fresh one. Returns
/// how many there were.
template <class Interface, class Body>
int for_each_installed(const Body& body) {
  int count = 0;
  for (const zerolab::PluginRecord& record : host().records()) {
    if (record.kind != Interface::kKind) continue;
    const zerolab::PluginEntry& entry = host().entry(record.kind, record.name);
    body(record.name, [&] {
      return std::unique_ptr<Interface>(
          static_cast<Interface*>(entry.create(small_options(record.id()))));
    });
    ++count;
  }
  return count;
}

/// The implementers' checklists of optimizer.h and model.h.
void check_optimizer(const std::string& name, zerolab::Optimizer& one, zerolab::Optimizer& other);
void check_model(const std::string& name, zerolab::Model& model);
