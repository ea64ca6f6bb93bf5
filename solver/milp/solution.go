package milp

import (
	"math"
	"time"
)

// Status is the outcome of a solve.
type Status int8

// The outcomes. A Solution of Status Gap, WorkLimit, TimeLimit or Interrupted holds the best solution so far, if
// there was one.
const (
	Unknown     Status = iota
	Optimal            // proved to the solver's tolerances
	Gap                // stopped at the gap that was asked for
	WorkLimit          // stopped by MaxNodes, MaxIterations or MaxStall
	TimeLimit          // stopped by TimeLimit
	Interrupted        // stopped by the context
	Infeasible         // proved: no solution
	Unbounded          // proved: the objective has no limit
)

var statusNames = [...]string{"unknown", "optimal", "gap", "work limit", "time limit", "interrupted", "infeasible", "unbounded"}

// String returns the status in words.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return "unknown"
	}
	return statusNames[s]
}

// StoppedBy is the reason why a solve ended, in the words of a plan file.
type StoppedBy string

// The reasons.
const (
	StoppedByProof     StoppedBy = "proved"
	StoppedByGap       StoppedBy = "gap"
	StoppedByWork      StoppedBy = "work"
	StoppedByTime      StoppedBy = "time"
	StoppedByInterrupt StoppedBy = "interrupt"
)

// StoppedBy returns the reason that goes with the status.
func (s Status) StoppedBy() StoppedBy {
	switch s {
	case Gap:
		return StoppedByGap
	case WorkLimit:
		return StoppedByWork
	case TimeLimit:
		return StoppedByTime
	case Interrupted:
		return StoppedByInterrupt
	case Optimal, Infeasible, Unbounded:
		return StoppedByProof
	}
	return ""
}

// Solution is the result of a solve. X is nil if no solution is known.
type Solution struct {
	Status    Status
	StoppedBy StoppedBy

	// Value is the objective at X, computed here from X. Bound is the best proven bound on it. Both are NaN if
	// they are not known.
	Value, Bound float64
	// Gap is (bound - value) / bound when maximising and (value - bound) / value when minimising, never below 0.
	// It is NaN without both, and 0 if they are equal.
	Gap float64

	// X holds a value per variable; integer variables are rounded to integers.
	X []float64
	// Feasibility holds the violations of X by this package's own arithmetic.
	Feasibility Violation
	// Rounded says that X's integers are exact and that X is feasible. It is false only if rounding the solver's
	// integers violated a row and no continuous variables could repair that. Then X is the solver's own point,
	// unrounded.
	Rounded bool

	// RowDuals, ReducedCosts and Basis are those of a linear program (see the package's text on signs), and else
	// nil.
	RowDuals     []float64
	ReducedCosts []float64
	Basis        *Basis

	Stats Stats
}

// Stats is the work of a solve. All but CPU are the same every time.
type Stats struct {
	Nodes      int64
	Iterations int64 // simplex iterations
	Incumbents int   // improved solutions
	CPU        time.Duration
}

// Add adds the work of another solve.
func (s *Stats) Add(other Stats) {
	s.Nodes += other.Nodes
	s.Iterations += other.Iterations
	s.Incumbents += other.Incumbents
	s.CPU += other.CPU
}

// Feasible reports whether there is a solution.
func (s *Solution) Feasible() bool { return s.X != nil }

// At returns the value of a variable in the solution.
func (s *Solution) At(v Var) float64 { return s.X[v] }

// Int returns the value of an integer variable in the solution.
func (s *Solution) Int(v Var) int { return int(math.Round(s.X[v])) }

// RelativeGap returns the gap of a value and its bound as Solution.Gap defines it: their distance over the magnitude of
// the value or, if the model maximises, of the bound. It is 0 if the value is as good as the bound, infinite over 0 or
// without a bound, and NaN if one of them is NaN.
func RelativeGap(sense Sense, value, bound float64) float64 {
	if math.IsNaN(value) || math.IsNaN(bound) {
		return math.NaN()
	}
	distance, base := value-bound, value
	if sense == Maximize {
		distance, base = bound-value, bound
	}
	if distance <= 0 {
		return 0
	}
	if math.IsInf(distance, 0) || base == 0 {
		return math.Inf(1)
	}
	return distance / math.Abs(base)
}
