#pragma once
// Errors as users see them: one sentence that says where, what, what is allowed, what to do, and
// an exit code.

#include <stdexcept>
#include <string>

#include "zerolab/export.h"

namespace zerolab {

/// Exit codes of every `zerolab` command.
enum class ExitCode : int {
  kFinished = 0,
  kError = 1,
  kConfiguration = 2,
  kPlugin = 3,
  kStore = 4,
  kPeer = 5,
  kDiverged = 6,
  kStopped = 75,  ///< stopped on request, can be resumed
};

/// Base of all errors that cross from a plugin to the host. Lives in the shared SDK, so a typed
/// catch works across libraries.
class ZEROLAB_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kError);
  ~Error() override;
  ExitCode exit_code() const { return code_; }
  /// Prepends where it happened ("step 412, rank 3, update"). Rethrow with a plain `throw;`: the
  /// type stays.
  void in(const std::string& context);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
  ExitCode code_;
};

/// A mistake in an experiment, an option or a command line. Exit code 2.
class ZEROLAB_API ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::kConfiguration) {}
  ~ConfigError() override;
};

/// A plugin that is missing, refused, or breaks its contract. Exit code 3.
class ZEROLAB_API PluginError : public Error {
 public:
  explicit PluginError(const std::string& message) : Error(message, ExitCode::kPlugin) {}
  ~PluginError() override;
};

/// A file or folder of a run that cannot be read or written. Exit code 4.
class ZEROLAB_API StoreError : public Error {
 public:
  explicit StoreError(const std::string& message) : Error(message, ExitCode::kStore) {}
  ~StoreError() override;
};

/// Another rank failed, vanished, or called another collective. Exit code 5.
class ZEROLAB_API PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(message, ExitCode::kPeer) {}
  ~PeerError() override;
};

/// Training diverged (a guard said stop). Exit code 6.
class ZEROLAB_API DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& message) : Error(message, ExitCode::kDiverged) {}
  ~DivergedError() override;
};

}  // namespace zerolab
