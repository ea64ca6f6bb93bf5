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
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// Documents are the documents from which a plan is made.
type Documents struct {
	Profile  *formats.Profile
	Cluster  *formats.Cluster
	Workload *formats.Workload
	// RunningPlan is the plan that runs now. The changes to it must stay within the option
	// max-moved. It is nil if none runs.
	RunningPlan *formats.Plan
	// Files names the documents, for error messages and for the plan. A document that was
	// assumed has no entry.
	Files []formats.Input
	// ProfileDir is the folder of the profile, from which the paths of its model files are
	// taken. If it is empty, model files are not checked.
	ProfileDir string
	// WorkloadDir is the folder of the workload, from which the paths that it contains are
	// taken.
	WorkloadDir string
}

// FileName returns the name of a document for messages: its path, or else its role.
func (d *Documents) FileName(role string) string {
	for _, f := range d.Files {
		if f.Role == role {
			return f.Path
		}
	}
	return role
}

// PathIn returns the path of a file that a document names, with the separators of this machine: name as it is if it is
// absolute, else below folder, the folder of the document. Documents separate folders by slashes.
func PathIn(folder, name string) string {
	path := filepath.FromSlash(name)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// FieldError returns an error at a field of a document.
func (d *Documents) FieldError(role, path, found, expected, hint string) error {
	return &document.Error{File: d.FileName(role), Path: path, Found: found, Expected: expected, Hint: hint}
}

// CheckPresent returns an error if a document is missing.
func (d *Documents) CheckPresent() error {
	for _, x := range []struct {
		role    string
		present bool
	}{{"profile", d.Profile != nil}, {"cluster", d.Cluster != nil}, {"workload", d.Workload != nil}} {
		if !x.present {
			return d.FieldError(x.role, "", "nothing", "a "+x.role, "")
		}
	}
	return nil
}

// ModelIndex returns the index in the profile of the model with a name. If there is none, it returns an error at the
// workload's field path, with the names that the profile has.
func (d *Documents) ModelIndex(name, path string) (index int, err error) {
	index = slices.IndexFunc(d.Profile.Models, func(m formats.ProfileModel) bool { return m.Model == name })
	if index >= 0 {
		return index, nil
	}
	names := lists.Map(len(d.Profile.Models), func(i int) string { return d.Profile.Models[i].Model })
	return index, d.FieldError("workload", path, fmt.Sprintf("%q", name), "a model of "+d.FileName("profile"), "the profile has "+strings.Join(names, ", "))
}

// Problem is the input of a method: the documents and the options.
type Problem struct {
	Documents
	Values document.Values // of the method's options
	Seed   uint64
	// FeasibilityOnly asks only whether there is a plan, of any quality. If there is none, the
	// reason is not needed.
	FeasibilityOnly bool
	// Quick asks for a good plan soon: steps that take long and mostly improve the bound are left out.
	Quick bool
	// KeepRunning asks for RunningPlan itself, judged by today's documents. Only the methods of plans of flow know it.
	KeepRunning bool
	// BoundAttainment is a share of requests in time. If it is set, the bound of the objective
	// holds for every plan that attains it, so it leaves out the margin for waits. If it is 0, the
	// bound holds for plans with the values of the options.
	BoundAttainment float64
	// ReservedMisses is a share of the requests that may miss their SLO, which the search keeps
	// back because other random numbers refuted a plan. Queues then allow fewer late requests and
	// simulate more runs; cascades run longer trials. Other kinds ignore it.
	ReservedMisses float64
	// MinObjective is a value of a maximised objective below which a plan is useless. If no plan
	// can reach it, any plan will do. If it is 0, there is no such value.
	MinObjective float64
	// Progress is called with the state of the work. It may be nil.
	Progress func(Progress)
}

// SolveRun is the driver as a method sees it: the solver, and functions that take progress,
// improvements, assumptions and warnings.
type SolveRun struct {
	Solver milp.Solver
	// Progress is called with the state of the solve. It is never nil.
	Progress func(Progress)
	// Incumbent is called with a better plan. The bound is NaN while unknown. It is never nil.
	Incumbent func(value, bound float64)

	Assumptions, Warnings []string
}

// NewRun returns a run whose functions do nothing.
func NewRun(solver milp.Solver) *SolveRun {
	return &SolveRun{Solver: solver, Progress: func(Progress) {}, Incumbent: func(float64, float64) {}}
}

// Assume notes a default that mattered.
func (r *SolveRun) Assume(format string, args ...any) {
	r.Assumptions = append(r.Assumptions, fmt.Sprintf(format, args...))
}

// Warn notes a warning, unless it was noted before.
func (r *SolveRun) Warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Warnings, text) {
		r.Warnings = append(r.Warnings, text)
	}
}

// WarnInstance warns of what is doubtful about the measured times of a language model's instance: they lack the
// all-reduces (the exchange between its devices), fit the measurements badly, or were doubted when measured.
func (r *SolveRun) WarnInstance(model string, in *formats.LLMInstance) {
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

// AssumeNetwork notes, once per run, what a plan assumes about a cluster in which no pool states a network rate: all
// stages are on one host, so that crossing between them takes no network time. If there are several pools and the
// cluster does not say that they share a host, the plan assumes instead that nothing passes between device kinds.
func (r *SolveRun) AssumeNetwork(c *formats.Cluster) {
	poolsWithoutNIC := 0
	for i := range c.Pools {
		if c.Pools[i].NICRate() > 0 {
			return
		}
		poolsWithoutNIC++
	}
	text := "one host: no pool has nic_gbps, so crossing between stages takes no network time"
	if poolsWithoutNIC > 1 && c.Host != formats.HostShared {
		text = "hosts: no pool has nic_gbps, so devices of one kind are on one host and nothing passes between kinds (host: shared in the cluster says that all are on one host)"
	}
	if !slices.Contains(r.Assumptions, text) {
		r.Assume("%s", text)
	}
}

// WarnStaleModels warns of each model file that has changed since the profile measured it, by the SHA-256 of its
// contents. Files that are absent are left out, because planning needs none. If the folder of the profile is not known,
// it does nothing.
func (r *SolveRun) WarnStaleModels(d *Documents, models []*formats.ProfileModel) {
	if d.ProfileDir == "" {
		return
	}
	for _, m := range models {
		src := m.Source
		if src == nil || src.Path == "" || src.SHA256 == "" {
			continue
		}
		path := PathIn(d.ProfileDir, src.Path)
		if _, err := os.Stat(path); err != nil {
			continue // a plan needs no model file; serving says what is missing
		}
		// Compare the hash with that of the profile.
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
	Fraction     float64 // part of all phases, 0 to 1
	Value, Bound float64 // NaN while unknown
	Detail       string
}

// Outcome is the result of a method.
type Outcome struct {
	Algorithm  string
	Values     document.Values // for the plan, with values that were decided during the solve
	Objective  formats.Objective
	Sense      milp.Sense // whether the objective is maximised or minimised
	StoppedBy  milp.StoppedBy
	Pools      []formats.Pool // of the cluster, with defaults filled in
	Deployment []formats.Deployed
	Section    formats.PlanSection
	Policy     formats.PolicySpec
	Replan     *formats.Replan
	Limits     []formats.Limit
	Phases     []Phase
	Candidates int // possible pipelines or cascades that were considered
}

// Phase holds the work of one phase of a search.
type Phase struct {
	Name       string
	Pipelines  int // templates in the program
	Nodes      int64
	Iterations int64
	Value      float64 // of the best plan after the phase
	Bound      float64 // best one after the phase
}

// Result is the result of a solve.
type Result struct {
	Plan       *formats.Plan
	Status     string // optimal, gap, trials, limit, interrupted
	StoppedBy  string // proved, gap, trials, work, time, interrupt
	Incumbents []Incumbent
	Phases     []Phase
	Templates  int // possible pipelines that were considered
	WallMS     float64
}

// StoppedByTrials is the reason of a search that ended because better plans fail in simulation,
// which decides about plans. It says nothing about a bound.
const StoppedByTrials milp.StoppedBy = "trials"

// StatusOf returns the status word of a finished solve for its output, by what stopped it.
func StatusOf(s milp.StoppedBy) string {
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

// ProvenGap is the relative gap up to which a value counts as equal to its bound.
const ProvenGap = 1e-6

// StopReason returns why a search ended, by the relative gap between its value and bound and the gap at which it was
// allowed to end: a proof, that gap, or else the limit on work.
func StopReason(gap, requestedGap float64) milp.StoppedBy {
	switch {
	case gap <= ProvenGap:
		return milp.StoppedByProof
	case gap <= requestedGap:
		return milp.StoppedByGap
	}
	return milp.StoppedByWork
}

// Incumbent is an improvement during a solve.
type Incumbent struct {
	CPUMS float64  `json:"cpu_ms"` // milliseconds of CPU time of this process since the solve began
	Value float64  `json:"value"`
	Bound *float64 `json:"bound"`
}

// CheckPools returns an error if some pool of the cluster is of a device kind on which none of the models was measured:
// no plan can use it. The error names the pool and the kinds that were measured.
func (d *Documents) CheckPools(models []*formats.ProfileModel) error {
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
			return d.FieldError("cluster", fmt.Sprintf("pools[%d].device", k), fmt.Sprintf("%q", device), "a device kind that "+d.FileName("profile")+" measured",
				"the profile has "+strings.Join(kinds, ", ")+"; measure the device (plan profile) or leave the pool out")
		}
	}
	return nil
}
