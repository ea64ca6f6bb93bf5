package recorded

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/documents"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/testkit/reference"
)

// recordedAs are our names of the algorithms of the PPipe artifact; its PPipe
// solves the problem that our templates solve.
var recordedAs = map[string]string{"np": documents.AlgorithmNP, "dart-r": documents.AlgorithmDARTr, "ppipe": documents.AlgorithmTemplate}

// recordedPart is the part of a recorded rate to which it must come out of the profile again.
const recordedPart = 1e-5

// Plan makes a plan of a recorded one: pipelines, replicas and rates as
// recorded (a rate may be less than what the replicas carry, where another model
// sets the objective), costs and cuts from the profile, replicas placed on devices as in
// our own plans. A rate of the record that the profile does not give is an error.
func Plan(ref *reference.Plan, profile *formats.Profile) (*formats.Plan, error) {
	in := &kind.Problem{Documents: kind.Documents{Profile: profile, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()},
		Values: document.NewValues(formats.PlanOptions(formats.PlanPool)), Seed: 1}
	fail := func(path, found, expected, hint string) error {
		return &document.Error{Path: fmt.Sprintf("%s (%s).%s", ref.Case, ref.Algorithm, path), Found: found, Expected: expected, Hint: hint}
	}
	algorithm, ok := recordedAs[strings.ToLower(ref.Algorithm)]
	if !ok {
		return nil, fail("algorithm", fmt.Sprintf("%q", ref.Algorithm), "NP, DART-r or PPipe", "")
	}
	if ref.Empty || len(ref.DNNs) == 0 {
		return nil, fail("dnns", "an empty plan", "at least one pipeline", "")
	}
	for _, o := range []struct {
		name  string
		value any
	}{{"algorithm", algorithm}, {"margin", ref.Margin}, {"batch-build", ref.BatchBuild}, {"max-partitions", ref.MaxPartitions}} {
		if err := in.Values.Set(o.name, o.value); err != nil {
			return nil, fail("options", "options of a plan", "ones that can be", err.Error())
		}
	}
	var given []problem.Pipeline
	for d := range ref.DNNs {
		for i := range ref.DNNs[d].Pipelines {
			g := problem.Pipeline{Template: stages.Template{Model: d}}
			for _, part := range ref.DNNs[d].Pipelines[i].Partitions {
				g.Batch = part.Batch
				k := slices.IndexFunc(in.Cluster.Pools, func(p formats.Pool) bool { return p.Device == part.GPU })
				g.Stages = append(g.Stages, stages.Stage{FirstBlock: part.Blocks[0], EndBlock: part.Blocks[1], Pool: k, Share: part.Share})
				g.Replicas = append(g.Replicas, part.Replicas)
			}
			given = append(given, g)
		}
	}
	// What the replicas carry comes first: recorded rates are rounded.
	_, carried, err := adopt(in, kind.NewRun(nil), given)
	if err == nil {
		err = promised(ref, carried, given, fail)
	}
	if err != nil {
		return nil, fmt.Errorf("recorded plan %s (%s): %w", ref.Case, ref.Algorithm, err)
	}
	run := kind.NewRun(nil)
	run.Assume("recorded: the pipelines and replicas of %s, %s, are as recorded; costs, cuts and placement are ours", ref.Case, ref.Algorithm)
	out, _, err := adopt(in, run, given)
	if err != nil {
		return nil, fmt.Errorf("recorded plan %s (%s): %w", ref.Case, ref.Algorithm, err)
	}
	plan := kind.Plan(in, run, out, formats.PlanPool, "recorded "+ref.Algorithm)
	if err := plan.Validate(); err != nil {
		return nil, fmt.Errorf("recorded plan %s (%s): %w", ref.Case, ref.Algorithm, err)
	}
	return plan, nil
}

// adopt makes an outcome of recorded pipelines for the models and devices of the documents, and returns with it the rate
// that the replicas of each carry. A batch is taken to fill at the workload's batch_build_rps, if it names one.
func adopt(in *kind.Problem, run *kind.SolveRun, given []problem.Pipeline) (*kind.Outcome, []float64, error) {
	resolved, err := documents.Resolve(in, run)
	if err != nil {
		return nil, nil, err
	}
	for d, m := range formats.ModelsOf(in.Workload) {
		if m.BatchBuildRPS > 0 {
			resolved.Problem.Models[d].BatchWaitMicros = in.Values.Number("batch-build") * 1e6 / m.BatchBuildRPS
		}
	}
	outcome, carried, err := placement.Adopt(resolved.Problem, given)
	if err != nil {
		return nil, nil, err
	}
	return resolved.PlanOutcome(outcome), carried, nil
}

// failure makes the error of a field of the record.
type failure func(path, found, expected, hint string) error

const otherProfile = "the profile is not the one that the plan was made from"

// promised sets the rates of the given pipelines: as recorded, or what their
// replicas carry where the two differ by no more than the record's rounding.
func promised(ref *reference.Plan, carry []float64, given []problem.Pipeline, fail failure) error {
	i := 0
	for d := range ref.DNNs {
		for j := range ref.DNNs[d].Pipelines {
			recorded, carried := ref.DNNs[d].Pipelines[j].RPS, carry[i]
			switch {
			case sameRate(recorded, carried):
				given[i].RPS = carried
			case recorded > carried || recorded <= 0:
				return fail(fmt.Sprintf("dnns[%d].pipelines[%d].rps", d, j), fmt.Sprint(recorded), fmt.Sprintf("more than 0 and at most the %.6f that its replicas carry by the profile", carried), otherProfile)
			default:
				given[i].RPS = recorded
			}
			i++
		}
	}
	return nil
}

// sameRate compares a recorded rate, which has three decimals.
func sameRate(recorded, ours float64) bool {
	return math.Abs(recorded-ours) <= recordedPart*ours+0.0005
}
