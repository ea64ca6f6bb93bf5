//go:build cgo

// One solve from beginning to end. Being C++, this file may include highs_c_api.h, whose constants are
// non-static definitions in C, and can catch what HiGHS throws.
#include "shim.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <vector>

#include "interfaces/highs_c_api.h"

static_assert(sizeof(HighsInt) == sizeof(int32_t), "HiGHS must be built with 32-bit indexes");

namespace {

double cpu_now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

const double least_gain = 1e-6;  // relative, that counts as better

struct Run {
  const inferplan_highs_problem *p;
  inferplan_highs_answer *a;
  double cpu_start;
  double next_progress;
  double best;        // objective of the best solution; NaN: none yet
  int64_t best_node;  // nodes that had been looked at then

  // Notes a solution, unless it is better by no more than rounding.
  void found(double value, int64_t nodes) {
    const double gain = p->maximize ? value - best : best - value;
    if (gain <= least_gain * std::fabs(best)) return;
    best = value;
    best_node = nodes;
  }
  // Whether so many nodes brought nothing better.
  bool stalls(int64_t nodes) const { return p->max_stall > 0 && !std::isnan(best) && nodes - best_node >= p->max_stall; }
};

// Presolve rule "parallel rows and columns", as a bit of the option presolve_rule_off. In 1.10.0 it can call a
// feasible mixed-integer program infeasible, or end in an error, where a continuous variable is the negative of another,
// as the slacks of both directions are (TestPresolveRule has the smallest case).
const HighsInt parallel_rows_and_cols = 1 << 13;

const double progress_seconds = 0.1;  // CPU time between progress events

bool stop_set(const Run *r) { return r->p->stop && __atomic_load_n(r->p->stop, __ATOMIC_RELAXED) != 0; }

void on_callback(int type, const char *, const HighsCallbackDataOut *out, HighsCallbackDataIn *in, void *user) {
  Run *r = static_cast<Run *>(user);
  const bool events = r->p->handle != 0 && out != nullptr;
  if (type == kHighsCallbackMipImprovingSolution) {
    if (out != nullptr) r->found(out->objective_function_value, out->mip_node_count);
    if (events)
      inferplan_highs_event(r->p->handle, r->p->num_col, out->mip_solution, out->objective_function_value,
                            out->mip_dual_bound, out->mip_node_count, out->mip_total_lp_iterations,
                            cpu_now() - r->cpu_start);
    return;
  }
  // HiGHS's own progress event needs its log switched on; this one comes often, so it is thinned out.
  if (type == kHighsCallbackMipInterrupt && events && r->p->progress) {
    const double now = cpu_now() - r->cpu_start;
    if (now >= r->next_progress) {
      r->next_progress = now + progress_seconds;
      inferplan_highs_event(r->p->handle, r->p->num_col, nullptr, out->mip_primal_bound, out->mip_dual_bound,
                            out->mip_node_count, out->mip_total_lp_iterations, now);
    }
  }
  if (in == nullptr) return;
  if (stop_set(r)) {
    r->a->stopped = INFERPLAN_STOP_INTERRUPT;
    in->user_interrupt = 1;
  } else if (type == kHighsCallbackMipInterrupt && out &&
             ((r->p->max_iterations > 0 && out->mip_total_lp_iterations >= r->p->max_iterations) ||
              r->stalls(out->mip_node_count))) {
    r->a->stopped = INFERPLAN_STOP_WORK;
    in->user_interrupt = 1;
  }
}

struct Destroy {
  void operator()(void *h) const { Highs_destroy(h); }
};

int fail(inferplan_highs_answer *a, const char *doing, const char *what) {
  std::snprintf(a->error, sizeof a->error, "%s: %s", doing, what);
  return -1;
}

// Clamps a 64-bit limit into HiGHS's 32-bit options.
HighsInt clamp(int64_t v) {
  const int64_t top = std::numeric_limits<HighsInt>::max();
  return HighsInt(v > top ? top : v);
}

// Sets the options; false where HiGHS refuses a value.
bool configure(void *h, const inferplan_highs_problem *p) {
  const bool mip = p->integrality != nullptr;
  bool ok = true;
  auto set = [&](HighsInt status) { ok = ok && status == kHighsStatusOk; };
  set(Highs_setBoolOptionValue(h, "output_flag", 0));
  set(Highs_setBoolOptionValue(h, "log_to_console", 0));
  set(Highs_setIntOptionValue(h, "threads", 1));
  set(Highs_setStringOptionValue(h, "parallel", "off"));
  set(Highs_setStringOptionValue(h, "solver", mip ? "choose" : p->interior ? "ipm" : "simplex"));
  if (p->unscaled) set(Highs_setIntOptionValue(h, "simplex_scale_strategy", 0));
  if (p->primal) set(Highs_setIntOptionValue(h, "simplex_strategy", 4));
  if (p->tolerance > 0) {
    set(Highs_setDoubleOptionValue(h, "primal_feasibility_tolerance", p->tolerance));
    set(Highs_setDoubleOptionValue(h, "dual_feasibility_tolerance", p->tolerance));
    if (mip) set(Highs_setDoubleOptionValue(h, "mip_feasibility_tolerance", p->tolerance));
  }
  set(Highs_setIntOptionValue(h, "random_seed", p->seed));
  set(Highs_setStringOptionValue(h, "presolve", p->presolve ? "choose" : "off"));
  if (p->time_limit > 0) set(Highs_setDoubleOptionValue(h, "time_limit", p->time_limit));
  if (mip) {
    set(Highs_setIntOptionValue(h, "presolve_rule_off", parallel_rows_and_cols));
    set(Highs_setDoubleOptionValue(h, "mip_rel_gap", p->rel_gap));
    set(Highs_setDoubleOptionValue(h, "mip_abs_gap", p->abs_gap));
    if (p->max_nodes > 0) set(Highs_setIntOptionValue(h, "mip_max_nodes", clamp(p->max_nodes)));
    if (p->heuristic_effort >= 0) set(Highs_setDoubleOptionValue(h, "mip_heuristic_effort", p->heuristic_effort));
  } else if (p->max_iterations > 0) {
    set(Highs_setIntOptionValue(h, "simplex_iteration_limit", clamp(p->max_iterations)));
  }
  return ok;
}

// Passes the model; false where HiGHS refuses it.
bool pass(void *h, const inferplan_highs_problem *p) {
  const HighsInt sense = p->maximize ? kHighsObjSenseMaximize : kHighsObjSenseMinimize;
  HighsInt status;
  if (p->integrality)
    status = Highs_passMip(h, p->num_col, p->num_row, p->num_nz, kHighsMatrixFormatColwise, sense, p->offset, p->cost,
                           p->lo, p->hi, p->row_lo, p->row_hi, p->a_start, p->a_index, p->a_value, p->integrality);
  else
    status = Highs_passLp(h, p->num_col, p->num_row, p->num_nz, kHighsMatrixFormatColwise, sense, p->offset, p->cost,
                          p->lo, p->hi, p->row_lo, p->row_hi, p->a_start, p->a_index, p->a_value);
  return status != kHighsStatusError;
}

int solve(const inferplan_highs_problem *p, inferplan_highs_answer *a) {
  Run run{p, a, cpu_now(), 0, std::numeric_limits<double>::quiet_NaN(), 0};
  std::unique_ptr<void, Destroy> owner(Highs_create());
  void *h = owner.get();
  if (!h) return fail(a, "creating a solver", "out of memory");
  const bool mip = p->integrality != nullptr;
  if (!configure(h, p)) return fail(a, "setting options", "HiGHS refused a value");
  if (!pass(h, p)) return fail(a, "passing the model", "HiGHS refused it");

  if (mip && p->start && Highs_setSolution(h, p->start, nullptr, nullptr, nullptr) == kHighsStatusError)
    return fail(a, "passing the start", "HiGHS refused it");
  if (mip && p->num_start > 0 &&
      Highs_setSparseSolution(h, p->num_start, p->start_index, p->start_value) == kHighsStatusError)
    return fail(a, "passing the partial start", "HiGHS refused it");
  if (!mip && p->basis_col && Highs_setBasis(h, p->basis_col, p->basis_row) == kHighsStatusError)
    return fail(a, "passing the basis", "HiGHS refused it (its basic variables must be as many as the rows)");

  if (Highs_setCallback(h, on_callback, &run) == kHighsStatusError) return fail(a, "setting the callback", "refused");
  if (mip) {
    Highs_startCallback(h, kHighsCallbackMipInterrupt);
    if (p->handle || p->max_stall > 0) Highs_startCallback(h, kHighsCallbackMipImprovingSolution);
  } else {
    Highs_startCallback(h, kHighsCallbackSimplexInterrupt);
  }

  if (stop_set(&run)) {
    a->model_status = kHighsModelStatusInterrupt;
    a->stopped = INFERPLAN_STOP_INTERRUPT;
    return 0;
  }
  const HighsInt status = Highs_run(h);
  a->cpu_seconds = cpu_now() - run.cpu_start;
  a->model_status = Highs_getModelStatus(h);
  if (status == kHighsStatusError && a->model_status != kHighsModelStatusInterrupt) {
    std::snprintf(a->error, sizeof a->error, "solving: HiGHS ended with model status %d", int(a->model_status));
    return -1;
  }

  int64_t nodes = 0;
  HighsInt iterations = 0, primal = 0, dual = 0;
  if (mip) Highs_getInt64InfoValue(h, "mip_node_count", &nodes);
  Highs_getIntInfoValue(h, "simplex_iteration_count", &iterations);
  Highs_getIntInfoValue(h, "primal_solution_status", &primal);
  Highs_getIntInfoValue(h, "dual_solution_status", &dual);
  a->nodes = nodes < 0 ? 0 : nodes;
  a->iterations = iterations < 0 ? 0 : iterations;
  a->objective = Highs_getObjectiveValue(h);
  a->bound = std::numeric_limits<double>::quiet_NaN();
  if (mip) Highs_getDoubleInfoValue(h, "mip_dual_bound", &a->bound);

  std::vector<double> row_value(p->num_row);
  Highs_getSolution(h, a->col_value, a->col_dual, row_value.data(), a->row_dual);
  a->has_x = primal == kHighsSolutionStatusFeasible;
  a->has_dual = !mip && dual == kHighsSolutionStatusFeasible;
  HighsInt basis = 0;
  Highs_getIntInfoValue(h, "basis_validity", &basis);
  if (!mip && basis == kHighsBasisValidityValid) {
    a->has_basis = Highs_getBasis(h, a->col_basis, a->row_basis) == kHighsStatusOk;
  }
  return 0;
}

// Presolves, and tells whether the costs that are left are all 0.
int presolved(const inferplan_highs_problem *p, inferplan_highs_answer *a) {
  const double cpu_start = cpu_now();
  std::unique_ptr<void, Destroy> owner(Highs_create());
  void *h = owner.get();
  if (!h) return fail(a, "creating a solver", "out of memory");
  if (!configure(h, p)) return fail(a, "setting options", "HiGHS refused a value");
  if (!pass(h, p)) return fail(a, "passing the model", "HiGHS refused it");
  if (Highs_presolve(h) == kHighsStatusError) return fail(a, "presolving", "HiGHS gave it up");
  HighsInt num_col, num_row, num_nz, sense;
  double offset;
  std::vector<double> cost(p->num_col);
  Highs_getPresolvedLp(h, kHighsMatrixFormatColwise, &num_col, &num_row, &num_nz, &sense, &offset, cost.data(),
                       nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  a->cpu_seconds = cpu_now() - cpu_start;
  a->constant = std::all_of(cost.begin(), cost.begin() + num_col, [](double c) { return c == 0; });
  // What presolve has reduced is a minimisation.
  a->objective = p->maximize && sense == kHighsObjSenseMinimize ? -offset : offset;
  return 0;
}

// Calls one of the functions above, and catches what it throws.
int guarded(int (*call)(const inferplan_highs_problem *, inferplan_highs_answer *), const inferplan_highs_problem *p,
            inferplan_highs_answer *a) {
  try {
    return call(p, a);
  } catch (const std::exception &e) {
    return fail(a, "solving", e.what());
  } catch (...) {
    return fail(a, "solving", "an exception of unknown type");
  }
}

}  // namespace

extern "C" int inferplan_highs_solve(const inferplan_highs_problem *p, inferplan_highs_answer *a) {
  return guarded(solve, p, a);
}

extern "C" int inferplan_highs_presolve(const inferplan_highs_problem *p, inferplan_highs_answer *a) {
  return guarded(presolved, p, a);
}

extern "C" const char *inferplan_highs_version(void) { return Highs_version(); }
