package process_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/solver/process"
)

// TestMain is the process of the tests' solvers, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		if err := process.Serve(crashingSolver{}, os.Stdin, os.NewFile(3, "stops"), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashingSolver is HiGHS, which on models of some names is hit by a fault with its first solution.
type crashingSolver struct{}

// raiseSignal sends a signal to this process, from within the solve.
func raiseSignal(signal syscall.Signal) func() {
	return func() {
		_ = syscall.Kill(os.Getpid(), signal)
		select {}
	}
}

var faults = map[string]struct {
	fault func()
	said  string // in the error
}{
	"segmentation": {raiseSignal(syscall.SIGSEGV), "SIGSEGV: segmentation violation"},
	"abort":        {raiseSignal(syscall.SIGABRT), "SIGABRT: abort"},
	"kill":         {raiseSignal(syscall.SIGKILL), "signal: killed"},
	"exit":         {func() { os.Exit(3) }, "exit status 3"},
	"panic":        {func() { go panic("of a test"); select {} }, "panic: of a test"},
}

func (crashingSolver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	if m.Name == "verdict" {
		return nil, fmt.Errorf("%w: no verdict", milp.ErrFault)
	}
	if m.Name == "deaf" {
		select {}
	}
	if f, ok := faults[m.Name]; ok {
		o.Incumbent = func(milp.Incumbent) { f.fault() }
	}
	return highs.Solver{}.Solve(ctx, m, o)
}

func newSolver(t testing.TB) *process.Solver {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &process.Solver{Name: "fragile", Command: func() *exec.Cmd { return exec.Command(self, "serve") }}
	t.Cleanup(s.Close)
	return s
}

// knapsackModel returns a program of n variables.
func knapsackModel(name string, n int, integer bool) *milp.Model {
	r := rand.New(rand.NewPCG(3, uint64(n)))
	m := milp.New(name)
	m.SetSense(milp.Maximize)
	m.SetOffset(.25)
	rows := make([][]milp.Term, 5)
	for j := range n {
		v := m.AddVar(fmt.Sprintf("item%d", j), 0, 3, float64(50+r.IntN(50)))
		m.SetInteger(v, integer)
		for i := range rows {
			rows[i] = append(rows[i], milp.Term{Var: v, Coef: float64(30 + r.IntN(70))})
		}
	}
	for i := range rows {
		m.AddLE("", 25*float64(n), rows[i]...)
	}
	return m
}

// exactText returns all of a solve but its CPU times, to the last bit.
func exactText(t *testing.T, s milp.Solver, m *milp.Model, o milp.Options) string {
	t.Helper()
	var b strings.Builder
	o.Incumbent = func(in milp.Incumbent) { fmt.Fprintln(&b, in.Value, in.Bound, in.X, in.Nodes) }
	sol, err := s.Solve(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	sol.Stats.CPU = 0
	basis := sol.Basis
	sol.Basis = nil
	fmt.Fprintf(&b, "%+v %+v %v", *sol, basis, sol.X != nil)
	return b.String()
}

// Solves in a process are those in this one.
func TestSolvesAreTheSame(t *testing.T) {
	apart := newSolver(t)
	free := milp.New("no variables")
	free.SetOffset(3)
	infeasible := knapsackModel("infeasible", 6, true)
	infeasible.AddGE("", 100, milp.Term{Var: 0, Coef: 1})
	for _, m := range []*milp.Model{knapsackModel("integers", 40, true), knapsackModel("lp", 40, false), knapsackModel("one", 1, false), free, infeasible} {
		for _, o := range []milp.Options{{}, {Gap: .02, Seed: 5, NoPresolve: true}, {MaxNodes: 2, MaxIterations: 20}, {TargetValue: 100}} {
			if got, want := exactText(t, apart, m, o), exactText(t, highs.Solver{}, m, o); got != want {
				t.Errorf("%s, %+v: %s\nexpected %s", m.Name, o, got, want)
			}
		}
	}
	m := knapsackModel("lp", 40, false)
	cold, err := apart.Solve(t.Context(), m, milp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if warm, err := apart.Solve(t.Context(), m, milp.Options{Basis: cold.Basis}); err != nil || warm.Stats.Iterations != 0 {
		t.Errorf("from the optimal basis: %+v, %v", warm, err)
	}
}

// A crash ends a solve with the reason, and nothing else: the next one has another process.
func TestCrashEndsASolve(t *testing.T) {
	s := newSolver(t)
	want := exactText(t, s, knapsackModel("sound", 20, true), milp.Options{})
	for name, f := range faults {
		_, err := s.Solve(t.Context(), knapsackModel(name, 20, true), milp.Options{})
		if !errors.Is(err, milp.ErrFault) || !strings.Contains(err.Error(), f.said) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, expected a fault with %q", name, err, f.said)
		}
		if got := exactText(t, s, knapsackModel("sound", 20, true), milp.Options{}); got != want {
			t.Errorf("after %s: %s, expected %s", name, got, want)
		}
	}
	if _, err := s.Solve(t.Context(), knapsackModel("verdict", 3, false), milp.Options{}); !errors.Is(err, milp.ErrFault) || !strings.Contains(err.Error(), "no verdict") {
		t.Errorf("%v, expected the solver's own fault", err)
	}
	bad := knapsackModel("bad", 3, false)
	bad.AddLE("", 1, milp.Term{Var: 9, Coef: 1})
	if _, err := s.Solve(t.Context(), bad, milp.Options{}); !errors.Is(err, milp.ErrInvalid) {
		t.Errorf("%v, expected an invalid model", err)
	}
}

// A fault in this process's own functions leaves a solver that works.
func TestCallerPanics(t *testing.T) {
	s := newSolver(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = s.Solve(t.Context(), knapsackModel("sound", 20, true), milp.Options{Incumbent: func(milp.Incumbent) { panic("mine") }})
	}()
	exactText(t, s, knapsackModel("sound", 20, true), milp.Options{})
}

// A solve hears that its context ends, and the next one does not.
func TestSolveEndsWithItsContext(t *testing.T) {
	s := newSolver(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		sol, err := s.Solve(ctx, knapsackModel("long", 400, true), milp.Options{Incumbent: func(milp.Incumbent) { cancel() }})
		if err != nil || sol.Status != milp.Interrupted || !sol.Feasible() {
			t.Errorf("%+v, %v, expected what was found when it was interrupted", sol, err)
		}
		if sol, err = s.Solve(ctx, knapsackModel("sound", 20, true), milp.Options{}); err != nil || sol.Status != milp.Interrupted {
			t.Errorf("%+v, %v, expected an interrupted solve", sol, err)
		}
		if sol, err = s.Solve(t.Context(), knapsackModel("sound", 20, true), milp.Options{}); err != nil || sol.Status != milp.Optimal {
			t.Errorf("%+v, %v, expected an optimum", sol, err)
		}
	}
}

// A solve that hears no stop is killed, and the next one has another process.
func TestDeafSolveIsKilled(t *testing.T) {
	s := newSolver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if sol, err := s.Solve(ctx, knapsackModel("deaf", 20, true), milp.Options{}); err != nil || sol.Status != milp.Interrupted {
		t.Errorf("%+v, %v, expected an interrupted solve", sol, err)
	}
	exactText(t, s, knapsackModel("sound", 20, true), milp.Options{})
}

// What a solve costs here and in a process.
func BenchmarkProcess(b *testing.B) {
	m := knapsackModel("small", 30, false)
	apart := newSolver(b)
	for name, s := range map[string]milp.Solver{"here": highs.Solver{}, "apart": apart} {
		b.Run(name, func(b *testing.B) {
			begun := cputime.Used()
			for b.Loop() {
				if _, err := s.Solve(b.Context(), m, milp.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cputime.Used()-begun)/float64(b.N), "cpu-ns/op")
		})
	}
}
