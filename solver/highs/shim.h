// The narrow C face of shim.cc: what Go sees of HiGHS. All arrays belong to the caller.
#ifndef INFERPLAN_HIGHS_SHIM_H
#define INFERPLAN_HIGHS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  // The model: optimise offset + cost'x, row_lo <= Ax <= row_hi, lo <= x <= hi; A in compressed columns.
  int32_t num_col, num_row, num_nz, maximize;
  double offset;
  const double *cost, *lo, *hi, *row_lo, *row_hi;
  const int32_t *a_start, *a_index;
  const double *a_value;
  const int32_t *integrality;  // NULL: a linear program

  // Starts: a whole solution, or some of its entries, or a basis; each may be NULL.
  const double *start;
  int32_t num_start;
  const int32_t *start_index;
  const double *start_value;
  const int32_t *basis_col, *basis_row;

  // Options; a limit of 0 is none.
  double rel_gap, abs_gap, time_limit, heuristic_effort;  // effort < 0: HiGHS's own
  int64_t max_nodes, max_iterations;
  int64_t max_stall;  // nodes since the last better solution
  int32_t seed, presolve;

  // How else a model is solved that was left without a verdict. 0 is HiGHS's own choice.
  int32_t unscaled;      // 1: columns and rows as they are
  int32_t primal;        // 1: the primal simplex method
  int32_t interior;      // 1: the interior-point method with crossover, for linear programs
  double tolerance;      // of feasibility

  // Set to 1 from any thread to interrupt.
  const int32_t *stop;
  // Passed to inferplan_highs_event; 0: no events.
  uintptr_t handle;
  int32_t progress;  // 1: also progress events
} inferplan_highs_problem;

enum {
  INFERPLAN_STOP_NONE = 0,
  INFERPLAN_STOP_INTERRUPT = 1,  // the stop flag
  INFERPLAN_STOP_WORK = 2        // max_iterations or max_stall of a mixed-integer solve
};

typedef struct {
  int32_t model_status;  // HiGHS's model status
  int32_t stopped;       // one of INFERPLAN_STOP_*
  int32_t has_x, has_dual, has_basis;
  int32_t constant;  // 1: presolve leaves no objective, every solution of what it leaves is worth objective
  double objective, bound;
  int64_t nodes, iterations;
  double cpu_seconds;
  // Answer arrays: col_* of num_col, row_* of num_row entries.
  double *col_value, *col_dual, *row_dual;
  int32_t *col_basis, *row_basis;
  char error[512];
} inferplan_highs_answer;

// Solves. Returns 0, or -1 with answer->error filled.
int inferplan_highs_solve(const inferplan_highs_problem *problem, inferplan_highs_answer *answer);

// Presolves a mixed-integer problem, and fills in constant, objective and cpu_seconds. Returns 0, or -1 with
// answer->error filled.
int inferplan_highs_presolve(const inferplan_highs_problem *problem, inferplan_highs_answer *answer);

// HiGHS's version, as "1.10.0".
const char *inferplan_highs_version(void);

// Implemented in Go. x is NULL for a progress event.
extern void inferplan_highs_event(uintptr_t handle, int32_t num_col, double *x, double value, double bound,
                                  int64_t nodes, int64_t iterations, double cpu_seconds);

#ifdef __cplusplus
}
#endif
#endif
