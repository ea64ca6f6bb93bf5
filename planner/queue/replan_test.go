package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/queue/verify"
	"inferplan/solver/highs"
)

// handmade returns a server of a model on a device, as an importer reads it.
func handmade(device string, first int, sequences int, models ...string) kind.Server {
	s := kind.Server{QueueInstance: formats.QueueInstance{Device: device, FirstDevice: first, TensorParallel: 1, Model: models[0], Models: models, TokenBudget: 4096}, Label: "deployment/" + models[0]}
	s.Sequences = slices.Repeat([]int{sequences}, len(models))
	return s
}

// adopt returns the plan of servers that run.
func adopt(t *testing.T, in planner.Inputs, servers ...kind.Server) *formats.Plan {
	t.Helper()
	plan, err := planner.Adopt(t.Context(), in, planner.Options{}, &kind.Observed{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := document.Marshal(plan); err != nil {
		t.Fatal(err)
	} else if _, err := formats.DecodePlan(text, "plan.json"); err != nil {
		t.Fatalf("the plan of what runs cannot be read back: %v", err)
	}
	return plan
}

// What runs becomes a plan of these instances, with the goodput that simulation shows, and without a bound.
func TestServersAreAdopted(t *testing.T) {
	in := documents()
	servers := []kind.Server{handmade("A100", 0, 256, "m7"), handmade("A100", 1, 64, "m13"), handmade("A10", 2, 16, "m7")}
	servers[0].NoPrefixCache, servers[1].Scheduling = true, formats.SchedulePriority
	plan := adopt(t, in, servers...)
	for i, got := range formats.QueueOf(plan).Instances {
		if fmt.Sprint(got) != fmt.Sprint(servers[i].QueueInstance) {
			t.Errorf("instance %d: %+v, want %+v", i, got, servers[i].QueueInstance)
		}
	}
	if o := plan.Objective; o.Name != "goodput" || !(o.Value > 0) || o.Value > 5 || o.Bound != nil {
		t.Errorf("objective %+v", o)
	}
	for _, f := range verify.Check(&kind.CheckInput{Plan: plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}) {
		t.Errorf("%v", f)
	}
}

// Memory and context that options of a server leave are planned with, and said.
func TestLimitsOfServersAreAdopted(t *testing.T) {
	in := documents()
	in.Profile.Devices = []formats.ProfileDevice{{Device: "A100", MemoryBytes: 40e9}}
	a, b := handmade("A100", 0, 64, "m7"), handmade("A100", 1, 64, "m13")
	a.MemoryShare, a.ContextTokens = 0.5, 2000 // 20 GB less 14 GB of weights
	b.KVBytes = 131072 * 5000
	plan := adopt(t, in, a, b)
	tokens := map[string]int64{}
	for _, m := range formats.QueueOf(plan).Models {
		tokens[m.Model] = m.Instances[0].KVTokens
	}
	if want := int64(6e9) / 131072; tokens["m7"] != want || tokens["m13"] != 5000 {
		t.Errorf("KV capacities %v, want %d and 5000", tokens, want)
	}
	warnings := strings.Join(plan.Warnings, "\n")
	for _, want := range []string{"deployment/m7: its options leave memory for at most 45776 tokens of m7, and the profile has 200000", `deployment/m7: requests of "m7/batch" have up to 2400 tokens, and the server takes 2000`} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings %s\nwant %s", warnings, want)
		}
	}

	// Those of the profile's measurements, too.
	in.Profile.LLMs[0].Instances[0].Sequences = 32
	plan = adopt(t, in, handmade("A100", 0, 64, "m7"), handmade("A100", 1, 64, "m13"))
	if s := formats.QueueOf(plan).Instances[0].Sequences[0]; s != 32 || !strings.Contains(strings.Join(plan.Warnings, "\n"), "up to 64 sequences of m7 run at once, and the profile was measured with up to 32") {
		t.Errorf("%d sequences, warnings %q", s, plan.Warnings)
	}
}

// More sequences than the KV memory ever holds at once are planned as it holds them, however many an option names.
func TestSequencesAreLimitedByMemory(t *testing.T) {
	in := documents()
	for _, sequences := range []int{1 << 20, 1 << 50} {
		plan := adopt(t, in, handmade("A100", 0, sequences, "m7"), handmade("A100", 1, 64, "m13"))
		if s := formats.QueueOf(plan).Instances[0].Sequences[0]; s < 300 || s > 200000 || !strings.Contains(strings.Join(plan.Warnings, "\n"), fmt.Sprintf("the KV memory holds %d of the shortest requests", s)) {
			t.Errorf("%d of %d sequences, warnings %q", s, sequences, plan.Warnings)
		}
	}
}

// Servers whose options leave no memory for the weights, or for the longest request, are refused at the options.
func TestServersWithoutMemoryAreRefused(t *testing.T) {
	in := documents()
	in.Profile.Devices = []formats.ProfileDevice{{Device: "A100", MemoryBytes: 40e9}}
	for want, limit := range map[string]func(*kind.Server){
		"deployment/m7: found KV memory of at most 2400 tokens for m7 of deployment/m7, expected more than the 2400 tokens of the longest request": func(s *kind.Server) { s.KVTokens = 2400 },
		"found KV memory of at most 0 tokens": func(s *kind.Server) { s.KVBytes = 1 },
		"found 12.0 GB of memory for m7 of deployment/m7, a share of 0.3 of 1 x A100, expected more than the 14.0 GB": func(s *kind.Server) { s.MemoryShare = 0.3 },
	} {
		m7 := handmade("A100", 0, 64, "m7")
		limit(&m7)
		_, err := planner.Adopt(t.Context(), in, planner.Options{}, &kind.Observed{Servers: []kind.Server{m7, handmade("A100", 1, 64, "m13")}})
		if _, ok := errors.AsType[*document.Error](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What runs and is not asked for is left out. What is asked for and does not run, or runs where nothing is known, is an error.
func TestServersThatAreNotAdopted(t *testing.T) {
	in := documents()
	in.Profile.LLMs = append(in.Profile.LLMs, formats.LLMProfile{Model: "other", Instances: []formats.LLMInstance{server("A10", 13e6)}})
	plan := adopt(t, in, handmade("A100", 0, 64, "m7"), handmade("A100", 1, 64, "m13"), handmade("A10", 0, 64, "other"))
	if n := len(formats.QueueOf(plan).Instances); n != 2 || !strings.Contains(strings.Join(plan.Warnings, "\n"), "other runs on 1 x A10, and the workload does not ask for it") {
		t.Errorf("%d instances, warnings %q", n, plan.Warnings)
	}
	for want, servers := range map[string][]kind.Server{
		`found "m13", which does not run, expected models that run`: {handmade("A100", 0, 64, "m7")},
		"found no measurement of m13 on 1 x A10":                    {handmade("A100", 0, 64, "m7"), handmade("A10", 1, 64, "m13")},
		"m7 on H100, which is not in the cluster":                   {handmade("H100", 0, 64, "m7")},
		"pools[0].count: found 3, expected at least 4":              {handmade("A100", 3, 64, "m7", "m13")},
	} {
		if _, err := planner.Adopt(t.Context(), in, planner.Options{}, &kind.Observed{Servers: servers}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := planner.Adopt(t.Context(), in, planner.Options{}, &kind.Observed{Deployment: []formats.Deployed{{Model: "m7"}}}); err == nil || !strings.Contains(err.Error(), "what runs are no servers") {
		t.Errorf("%v", err)
	}
}

// withPairs returns documents in which a model was measured on pairs of a kind of devices, too, or on these alone.
func withPairs(model int, base float64, isAlone bool) planner.Inputs {
	in := documents()
	pair := server("A100", base)
	pair.TensorParallel = 2
	if isAlone {
		in.Profile.LLMs[model].Instances = nil
	}
	in.Profile.LLMs[model].Instances = append(in.Profile.LLMs[model].Instances, pair)
	return in
}

// checkSizesOfEstimates reports models without an estimate for one of the numbers of devices on which their instances run.
func checkSizesOfEstimates(t *testing.T, plan *formats.Plan) {
	t.Helper()
	q := formats.QueueOf(plan)
	for _, in := range q.Instances {
		for _, model := range in.Models {
			if !slices.ContainsFunc(q.Estimates, func(e formats.QueueEstimate) bool {
				return e.Model == model && e.Device == in.Device && e.TensorParallel == in.TensorParallel
			}) {
				t.Errorf("no estimate of %s on %d x %s", model, in.TensorParallel, in.Device)
			}
		}
	}
}

// Servers on one device and on two of a kind are adopted side by side: each has its own times, and a plan can start from them.
func TestServersOfSeveralSizesAreAdopted(t *testing.T) {
	in := withPairs(1, 13e6, false)
	pair := handmade("A100", 1, 64, "m13")
	pair.TensorParallel = 2
	running := adopt(t, in, handmade("A100", 0, 64, "m7"), pair, handmade("A10", 0, 16, "m7"))
	for _, e := range formats.QueueOf(running).Estimates {
		if want := map[string]int{"m7 A100": 1, "m13 A100": 2, "m7 A10": 0}[e.Model+" "+e.Device]; e.TensorParallel != want {
			t.Errorf("estimate of %s on %d x %s, want %d", e.Model, e.TensorParallel, e.Device, want)
		}
	}
	for _, f := range verify.Check(&kind.CheckInput{Plan: running, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}) {
		t.Errorf("%v", f)
	}
	plan, err := solveFrom(t, in, running, "goodput", 0.34)
	if err != nil {
		t.Fatal(err)
	}
	checkReplan(t, in, running, plan, 0.34)
}

// Models each of which was measured on another number of devices are planned side by side on one kind.
func TestServersOfSeveralSizesArePlanned(t *testing.T) {
	in := withPairs(1, 13e6, true)
	in.Cluster.Pools = in.Cluster.Pools[:1]
	in.Cluster.Pools[0].Count = 6
	for _, objective := range []string{"gpus", "goodput"} {
		res, err := solve(in, "objective", objective)
		if err != nil {
			t.Fatal(err)
		}
		q, o := formats.QueueOf(res.Plan), res.Plan.Objective
		sizes := map[int]bool{}
		for _, instance := range q.Instances {
			sizes[instance.TensorParallel] = true
		}
		if len(sizes) != 2 || o.Bound == nil || o.BoundAmong != "" || objective == "gpus" && (o.Value != 3 || *o.Bound > 3) || !strings.Contains(strings.Join(res.Plan.Assumptions, "\n"), "planned side by side") {
			t.Errorf("%s: %+v of %+v, %q", objective, o, q.Instances, res.Plan.Assumptions)
		}
		checkSizesOfEstimates(t, res.Plan)
		for _, f := range verify.Check(&kind.CheckInput{Plan: res.Plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}) {
			t.Errorf("%s: %v", objective, f)
		}
	}
}

// Where servers on several numbers of devices would do, and a plan has those on one number, its bound is among such plans.
func TestBoundIsAmongServersOfOneSize(t *testing.T) {
	for _, c := range []struct {
		in         planner.Inputs
		boundAmong string
	}{
		{documents(), ""},
		{withPairs(1, 13e6, false), "with servers on one number of devices of each kind"},
	} {
		res, err := solve(c.in, "objective", "gpus")
		if err != nil {
			t.Fatal(err)
		}
		if o := res.Plan.Objective; o.Bound == nil || o.BoundAmong != c.boundAmong {
			t.Errorf("%+v, expected a bound among %q", o, c.boundAmong)
		}
		plan, err := solveFrom(t, c.in, res.Plan, "gpus", 1)
		if err != nil {
			t.Fatal(err)
		}
		if o := plan.Objective; o.Bound == nil || o.BoundAmong != "" || *o.Bound > *res.Plan.Objective.Bound*(1+1e-9) {
			t.Errorf("from a plan that runs %+v, expected a bound of all plans, after %+v", o, res.Plan.Objective)
		}
	}
}

// solveFrom plans from a plan that runs.
func solveFrom(t *testing.T, in planner.Inputs, running *formats.Plan, objective string, maxMoved float64) (*formats.Plan, error) {
	t.Helper()
	in.RunningPlan = running
	opt := planner.Options{}
	opt.Set("objective", objective)
	opt.Set("max-moved", maxMoved)
	res, err := planner.Solve(t.Context(), in, opt, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}

// checkReplan reports a plan that is worse than the one that ran, moves more than it may, or says otherwise.
func checkReplan(t *testing.T, in planner.Inputs, running, plan *formats.Plan, maxMoved float64) {
	t.Helper()
	r := plan.Replan
	if r == nil || r.GPUs != 6 || float64(r.MovedGPUs) > maxMoved*6+1e-9 {
		t.Fatalf("replan %+v with at most %g", r, maxMoved)
	}
	isMaximised := plan.Objective.Name == "goodput" || plan.Objective.Name == "throughput"
	if v := r.RunningValue; v != nil && (isMaximised && plan.Objective.Value < *v || !isMaximised && plan.Objective.Value > *v) {
		t.Errorf("the new plan has %g, and the one that ran %g", plan.Objective.Value, *v)
	}
	if b := plan.Objective.Bound; b == nil || isMaximised && *b < plan.Objective.Value || !isMaximised && *b > plan.Objective.Value {
		t.Errorf("objective %+v", plan.Objective)
	}

	// Devices that do not move hold what they held: a model of the new plan ran there, on as many devices.
	moved := map[string]bool{}
	for _, m := range r.Moves {
		for d := range m.Count {
			moved[fmt.Sprint(m.Device, m.First+d)] = true
		}
	}
	if len(moved) != r.MovedGPUs {
		t.Errorf("%d devices moved, and moves of %v", r.MovedGPUs, moved)
	}
	for _, in := range formats.QueueOf(plan).Instances {
		if moved[fmt.Sprint(in.Device, in.FirstDevice)] {
			continue
		}
		if !slices.ContainsFunc(formats.QueueOf(running).Instances, func(old formats.QueueInstance) bool {
			return old.Device == in.Device && old.FirstDevice == in.FirstDevice && old.TensorParallel == in.TensorParallel && slices.Contains(old.Models, in.Model) && old.Sequences[0] >= in.Sequences[0]
		}) {
			t.Errorf("%+v does not move, and was not there", in)
		}
	}
	for _, f := range verify.Check(&kind.CheckInput{Plan: plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}) {
		t.Errorf("%v", f)
	}
	if text, err := document.Marshal(plan); err != nil {
		t.Error(err)
	} else if _, err := formats.DecodePlan(text, "plan.json"); err != nil {
		t.Error(err)
	}
}

// From any fleet that runs, a plan for the most goodput is no worse, and moves as few devices as asked.
func TestReplannedGoodputIsNoWorse(t *testing.T) {
	in := documents()
	in.Workload.Section.(*formats.LLM).Classes[0].RPS = 6
	random := rand.New(rand.NewPCG(1, 2))
	for _, maxMoved := range []float64{0, 0.34} {
		servers := []kind.Server{handmade("A100", 0, 8<<random.IntN(5), "m13")}
		for i := range 2 {
			servers = append(servers, handmade("A100", 1+i, 8<<random.IntN(5), []string{"m7", "m13"}[random.IntN(2)]))
		}
		servers = append(servers, handmade("A10", random.IntN(3), 16, "m7"))
		running := adopt(t, in, servers...)
		plan, err := solveFrom(t, in, running, "goodput", maxMoved)
		if err != nil {
			t.Fatal(err)
		}
		checkReplan(t, in, running, plan, maxMoved)
	}
}

// From too many servers the price falls without a move. From too few, it says how many devices have to move, and a limit that
// allows as many finds a plan.
func TestReplannedPrice(t *testing.T) {
	in := documents()
	running := adopt(t, in, handmade("A100", 0, 48, "m7"), handmade("A100", 1, 48, "m7"), handmade("A100", 2, 48, "m13"), handmade("A10", 0, 24, "m7"), handmade("A10", 1, 24, "m7"))
	plan, err := solveFrom(t, in, running, "gpus", 0)
	if err != nil {
		t.Fatal(err)
	}
	if checkReplan(t, in, running, plan, 0); plan.Objective.Value >= 5 || plan.Replan.RunningValue == nil || *plan.Replan.RunningValue != 5 {
		t.Errorf("%g devices, %+v", plan.Objective.Value, plan.Replan)
	}

	few := adopt(t, in, handmade("A10", 0, 8, "m7"), handmade("A100", 0, 48, "m13"))
	if _, err = solveFrom(t, in, few, "gpus", 0); err == nil || !strings.Contains(err.Error(), "loads something new on at most 0 of 6 devices") || !strings.Contains(err.Error(), "--max-moved") {
		t.Errorf("%v", err)
	}
	if plan, err = solveFrom(t, in, few, "gpus", 1); err != nil {
		t.Fatal(err)
	}
	checkReplan(t, in, few, plan, 1)
}

// If the time ends while plans are made anew, the fleet that runs and was judged stands.
func TestInterruptedReplanKeepsWhatRuns(t *testing.T) {
	in := documents()
	in.RunningPlan = adopt(t, in, handmade("A100", 0, 48, "m13"), handmade("A100", 1, 48, "m7"), handmade("A10", 0, 16, "m7"))
	opt := planner.Options{}
	opt.Set("objective", "goodput")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err := planner.Solve(ctx, in, opt, highs.Solver{}, func(p planner.Progress) {
		if p.Phase == "simulating fleets" {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if checkReplan(t, in, in.RunningPlan, result.Plan, 0); !(result.Plan.Objective.Value > 0) {
		t.Errorf("objective %+v", result.Plan.Objective)
	}
}

// A plan of another kind is no beginning.
func TestReplanRefusesOtherKinds(t *testing.T) {
	in := documents()
	if _, err := solveFrom(t, in, &formats.Plan{Kind: formats.PlanPool, Section: &formats.PoolPlan{}}, "goodput", 0.2); err == nil || !strings.Contains(err.Error(), "kind: found pool, expected queue") {
		t.Errorf("%v", err)
	}
}
