package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/modelfile"
	"inferplan/solver/milp"
)

// Documents are what a plan is made from.
type Documents struct {
	Profile  *formats.Profile
	Cluster  *formats.Cluster
	Workload *formats.Workload
	// Running is a plan that runs: what changes is to stay within the option
	// max-moved. Nil: nothing runs.
	Running *formats.Plan
	// Files name the documents in error messages and go into the plan; a
	// document that was assumed has none.
	Files []formats.Input
	// ProfileDir is the folder of the profile, to find the model files that it
	// names; empty: model files are not looked at.
	ProfileDir string
	// WorkloadDir is the folder of the workload, against which the paths that it
	// names are read.
	WorkloadDir string
}

// File is the name of a document in messages.
func (d *Documents) File(role string) string {
	for _, f := range d.Files {
		if f.Role == role {
			return f.Path
		}
	}
	return role
}

// Fail is an error at a field of a document.
func (d *Documents) Fail(role, path, found, expected, hint string) error {
	return &document.Error{File: d.File(role), Path: path, Found: found, Expected: expected, Hint: hint}
}

// Complete checks that the documents are there.
func (d *Documents) Complete() error {
	for _, x := range []struct {
		role string
		set  bool
	}{{"profile", d.Profile != nil}, {"cluster", d.Cluster != nil}, {"workload", d.Workload != nil}} {
		if !x.set {
			return d.Fail(x.role, "", "nothing", "a "+x.role, "")
		}
	}
	return nil
}

// Model finds a model of the profile; an unknown one is an error at a field of
// the workload.
func (d *Documents) Model(name, path string) (at int, err error) {
	at = slices.IndexFunc(d.Profile.Models, func(m formats.ProfileModel) bool { return m.Model == name })
	if at >= 0 {
		return at, nil
	}
	var names []string
	for _, m := range d.Profile.Models {
		names = append(names, m.Model)
	}
	return at, d.Fail("workload", path, fmt.Sprintf("%q", name), "a model of "+d.File("profile"), "the profile has "+strings.Join(names, ", "))
}

// Problem is what a method is to plan.
type Problem struct {
	Documents
	Values document.Values // of the method's options
	Seed   uint64
	// Trial asks only whether there is a plan, of whatever quality. Why there is none
	// need not be told.
	Trial bool
	// Hurry asks for a good plan soon: what takes long and mostly proves is left out.
	Hurry bool
	// Attained is a share of the requests in time: the bound of the objective is then one of every
	// plan that attains it, which leaves out what is kept back for waits. 0: the bound is one of
	// plans with the values of the options.
	Attained float64
	// Surplus is a share of the requests that may miss their SLO, which the search keeps back because
	// other random numbers refuted a plan. Queues let so many less be late, and run more; cascades run
	// longer trials. Other kinds do not read it.
	Surplus float64
	// Least is an objective that grows, in its own unit, below which a plan is of no use;
	// 0: none. Where no plan can have so much, the one that is there is as good as any.
	Least float64
	// Progress hears how far the work is; nil: nobody.
	Progress func(Progress)
}

// Run is what the driver gives a method on its way: the solver, and ears for
// progress, improvements, assumptions and doubts.
type Run struct {
	Solver milp.Solver
	// Progress hears how far the solve is; never nil.
	Progress func(Progress)
	// Incumbent hears of a better plan; bound is NaN while unknown. Never nil.
	Incumbent func(value, bound float64)

	Assumptions, Warnings []string
}

// NewRun returns a run that nobody listens to.
func NewRun(solver milp.Solver) *Run {
	return &Run{Solver: solver, Progress: func(Progress) {}, Incumbent: func(float64, float64) {}}
}

// Assume notes a default that mattered.
func (r *Run) Assume(format string, args ...any) {
	r.Assumptions = append(r.Assumptions, fmt.Sprintf(format, args...))
}

// Warn notes a doubt, once.
func (r *Run) Warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Warnings, text) {
		r.Warnings = append(r.Warnings, text)
	}
}

// WarnInstance warns of a language model whose iterations lack the all-reduces between its devices, or are
// poorly known.
func (r *Run) WarnInstance(model string, in *formats.LLMInstance) {
	if in == nil {
		return
	}
	name := fmt.Sprintf("%s on %d x %s", model, in.TensorParallel, in.Device)
	if in.TensorParallel > 1 && in.AllReduce == formats.NoAllReduce {
		r.Warn("%s: its measured iterations are WITHOUT ALL-REDUCES between the devices, so it is slower than planned; import them again with --link-gbps, --link-us and --model-config", name)
	}
	if f := in.Fit; f != nil && max(f.DecodeMAPE, f.PrefillMAPE) > formats.PoorFit {
		r.Warn("%s: its iterations are %.0f %% off what was measured in the mean, so what is planned is hardly better: measure it again, on a quiet machine", name, 100*max(f.DecodeMAPE, f.PrefillMAPE))
	}
	for _, doubt := range in.Doubts {
		r.Warn("%s: %s", name, doubt)
	}
}

// AssumeHosts notes, once, what was assumed of devices without a network.
func (r *Run) AssumeHosts(c *formats.Cluster) {
	without := 0
	for i := range c.Pools {
		if c.Pools[i].NICRate() > 0 {
			return
		}
		without++
	}
	text := "one host: no pool has nic_gbps, so crossing between stages takes no network time"
	if without > 1 && c.Host != formats.HostShared {
		text = "hosts: no pool has nic_gbps, so devices of one kind are on one host and nothing passes between kinds (host: shared in the cluster says that all are on one host)"
	}
	if !slices.Contains(r.Assumptions, text) {
		r.Assume("%s", text)
	}
}

// StaleModels warns where a model file is not the one that was measured.
func (r *Run) StaleModels(d *Documents, models []*formats.ProfileModel) {
	if d.ProfileDir == "" {
		return
	}
	for _, m := range models {
		src := m.Source
		if src == nil || src.Path == "" || src.SHA256 == "" {
			continue
		}
		path := src.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(d.ProfileDir, filepath.FromSlash(path))
		}
		if _, err := os.Stat(path); err != nil {
			continue // a plan needs no model file; serving says what is missing
		}
		sum, err := modelfile.Digest(path, src.Weights)
		if err != nil {
			r.Warn("the model file of %s cannot be read: %v", m.Model, err)
		} else if sum != src.SHA256 {
			r.Warn("stale profile: %s has changed since %s was measured; measure it again: plan profile %s", src.Path, m.Model, src.Path)
		}
	}
}

// Progress is the state of a running solve.
type Progress struct {
	Phase        string
	Fraction     float64 // of the phases, 0..1
	Value, Bound float64 // NaN while unknown
	Detail       string
}

// Outcome is what a method found.
type Outcome struct {
	Algorithm  string
	Values     document.Values // as the plan keeps them, with what was decided on the way
	Objective  formats.Objective
	Sense      milp.Sense // whether the objective is to grow or to shrink
	StoppedBy  milp.StoppedBy
	Pools      []formats.Pool // of the cluster, with defaults filled in
	Deployment []formats.Deployed
	Section    formats.PlanSection
	Policy     formats.PolicySpec
	Replan     *formats.Replan
	Limits     []formats.Limit
	Phases     []Phase
	Considered int // possible pipelines or cascades that were looked at
}

// Phase is the work of one phase.
type Phase struct {
	Name       string
	Pipelines  int // templates in the program
	Nodes      int64
	Iterations int64
	Value      float64 // best plan after it
	Bound      float64 // best bound after it
}

// Result is what a solve ended with.
type Result struct {
	Plan       *formats.Plan
	Status     string // optimal, gap, trials, limit, interrupted
	StoppedBy  string // proved, gap, trials, work, time, interrupt
	Incumbents []Incumbent
	Phases     []Phase
	Templates  int // possible pipelines that were looked at
	WallMS     float64
}

// StoppedByTrials ends a search where better plans fail in simulation, by which the planner
// accepts plans. No bound says so.
const StoppedByTrials milp.StoppedBy = "trials"

// Status tells how a solve ended by what stopped it.
func Status(s milp.StoppedBy) string {
	switch s {
	case milp.StoppedByProof:
		return "optimal"
	case milp.StoppedByGap:
		return "gap"
	case StoppedByTrials:
		return "trials"
	case milp.StoppedByInterrupt:
		return "interrupted"
	}
	return "limit"
}

// Incumbent is an improvement on the way to the plan.
type Incumbent struct {
	CPUMS float64  `json:"cpu_ms"` // of this process since the solve began
	Value float64  `json:"value"`
	Bound *float64 `json:"bound"`
}

// MeasuredPools checks that every pool is of a kind on which some of the models were
// measured.
func (d *Documents) MeasuredPools(models []*formats.ProfileModel) error {
	var kinds []string
	for _, m := range models {
		for i := range m.Measurements {
			if kind := m.Measurements[i].Device; !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	for k := range d.Cluster.Pools {
		if device := d.Cluster.Pools[k].Device; !slices.Contains(kinds, device) {
			return d.Fail("cluster", fmt.Sprintf("pools[%d].device", k), fmt.Sprintf("%q", device), "a device kind that "+d.File("profile")+" measured",
				"the profile has "+strings.Join(kinds, ", ")+"; measure the device (plan profile) or leave the pool out")
		}
	}
	return nil
}
