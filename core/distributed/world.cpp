#include "distributed/world.h"

#include <utility>

#include "zerolab/error.h"

#include "distributed/gloo_communicator.h"
#include "distributed/meeting.h"
#include "distributed/nccl/nccl_factory.h"
#include "distributed/watcher.h"

namespace zerolab {
namespace {

constexpr double kLinger = 1.0;  // seconds that a failed host waits for the others to read why

std::unique_ptr<Communicator> make_communicator(const RankEnvironment& environment,
                                                const WorldOptions& options, Meeting* meeting,
                                                const std::shared_ptr<Pulse>& pulse) {
  const bool alone = environment.size == 1;
  if (options.device == "cuda") {
    NcclRequest request;
    request.environment = environment;
    request.timeout_s = options.timeout_s;
    if (!alone) {
      request.store = meeting->store();
      request.control =
          make_control_channel(meeting->store(), environment, options.timeout_s, pulse);
    }
    return make_nccl_communicator(std::move(request));
  }
  if (options.device != "cpu") {
    throw ConfigError("device = \"" + options.device + "\" is not known: use \"cpu\" or \"cuda\"");
  }
  return alone ? make_single_communicator()
               : make_gloo_communicator(meeting->store(), environment, options.timeout_s, pulse);
}

std::optional<std::string> describe(const std::optional<Failure>& failure) {
  return failure ? std::optional(failure->sentence()) : std::nullopt;
}

class JoinedWorld : public World {
 public:
  JoinedWorld(const RankEnvironment& environment, const WorldOptions& options)
      : environment_(environment) {
    // A lone process meets nobody, but our own launcher waits for its failure even so.
    if (environment.size > 1 || environment.source == "zerolab")
      meeting_ = Meeting::reach(environment, options.join_timeout_s);
    try {
      if (environment.size > 1) meeting_->wait_for_all(environment, options.join_timeout_s);
      communicator_ = make_communicator(environment, options, meeting_.get(), pulse_);
    } catch (const Error& error) {
      report_failure(static_cast<int>(error.exit_code()), error.what());
      linger();
      throw;
    }
    communicator_->set_checking(options.check_collectives);
  }
  ~JoinedWorld() override {
    watcher_.reset();
    communicator_.reset();  // closes the connections: the others notice now
    linger();
  }
  Communicator& communicator() override { return *communicator_; }
  const RankEnvironment& environment() const override { return environment_; }

  void report_failure(int exit_code, const std::string& message) override {
    report({environment_.rank, exit_code, message});
  }
  void report_outcome(int exit_code, const std::string& message) override {
    report({kNoRank, exit_code, message});
  }
  std::optional<std::string> await_failure(double seconds) override {
    if (!meeting_) return std::nullopt;
    const auto found = meeting_->await_failure(seconds);
    return describe(found ? found : heard_);
  }
  Pulse& pulse() override { return *pulse_; }
  void watch(double stall_timeout_s) override {
    watcher_.reset();
    if (stall_timeout_s > 0)
      watcher_ = std::make_unique<Watcher>(environment_, pulse_, stall_timeout_s);
  }
  void announce_run_folder(const std::string& path) override {
    if (meeting_ && environment_.source == "zerolab") meeting_->announce_run_folder(path);
  }
  void leave() override {
    communicator_->barrier();
    watcher_.reset();
    communicator_->barrier();  // the store stays until all watchers have taken their leave
    left_ = true;
  }

 private:
  void report(const Failure& failure) {
    // Watched until it is done: a stopped host of the store would block it for good.
    if (meeting_) meeting_->report(failure);
    if (watcher_) heard_ = watcher_->reported();
    watcher_.reset();  // this rank ends by itself, and makes no more progress
  }
  void linger() {
    if (meeting_ && environment_.hosts_store && !left_)
      meeting_->linger(environment_.size - 1, kLinger);
  }

  RankEnvironment environment_;
  std::shared_ptr<Pulse> pulse_ = std::make_shared<Pulse>();
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Watcher> watcher_;
  std::optional<Failure> heard_;  ///< by the watcher
  bool left_ = false;
};

}  // namespace

World::~World() = default;

std::unique_ptr<World> World::join(const RankEnvironment& environment,
                                   const WorldOptions& options) {
  return std::make_unique<JoinedWorld>(environment, options);
}

bool report_failure_to_launcher(const RankEnvironment& environment, int exit_code,
                                const std::string& message) try {
  if (environment.source != "zerolab") return false;
  constexpr double kConnect = 5;  // the launcher is on this machine
  Meeting::reach(environment, kConnect)->report({environment.rank, exit_code, message});
  return true;
} catch (const Error&) {
  return false;
}

}  // namespace zerolab
